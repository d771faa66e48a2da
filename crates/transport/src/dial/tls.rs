//! TLS over a connected socket.

use std::io;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage,
};

use super::{Fault, Socket};
use crate::{Endpoint, Place, Tls};

/// The name that the broker's certificate must hold: without brackets, scope or trailing dot.
pub(super) fn server_name(endpoint: &Endpoint, tls: &Tls) -> Result<ServerName<'static>, Fault> {
    let host = match (&tls.server_name, &endpoint.place) {
        (Some(name), _) => name.as_str(),
        (None, Place::Tcp(address)) => address.host.as_str(),
        // Whoever listens at a socket of this machine is this machine.
        (None, Place::Unix(_)) => "localhost",
    };
    let name = bare(host);
    ServerName::try_from(name.to_owned()).map_err(|_| Fault::ServerName {
        name: name.to_owned(),
    })
}

/// A host as others know it: without brackets, the scope of this machine, and a trailing dot.
pub(super) fn bare(host: &str) -> &str {
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    let host = host.split_once('%').map_or(host, |(address, _)| address);
    host.strip_suffix('.').unwrap_or(host)
}

/// Shakes hands.
pub(super) async fn encrypt(
    socket: Socket,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<Socket>, Fault> {
    TlsConnector::from(config)
        .connect(name, socket)
        .await
        .map_err(|error| match fault(&error) {
            Some(fault) => fault,
            None if closed(&error) => Fault::ClosedInHandshake,
            None => Fault::Socket(error),
        })
}

/// Whether the other side has just gone.
pub(crate) fn closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe
    )
}

/// What an error of a TLS stream means, if it is one of TLS.
pub(super) fn fault(error: &io::Error) -> Option<Fault> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(error) => certificate_fault(error),
        Error::AlertReceived(alert) => alert_fault(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => Fault::NotTls,
        Error::PeerIncompatible(why) => Fault::TlsIncompatible(format!("{why:?}")),
        error => Fault::Tls(error.clone()),
    })
}

fn certificate_fault(error: &CertificateError) -> Fault {
    match error {
        CertificateError::UnknownIssuer => Fault::UnknownIssuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Fault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Fault::NotValidYet
        }
        CertificateError::NotValidForName => Fault::WrongName { held: Vec::new() },
        CertificateError::NotValidForNameContext { presented, .. } => Fault::WrongName {
            held: presented.iter().map(|name| plain(name)).collect(),
        },
        error => Fault::Certificate(error.clone()),
    }
}

/// A name that a certificate holds, without the library's word for its kind.
fn plain(name: &str) -> String {
    let inner = name.strip_suffix(')').and_then(|name| name.split_once('('));
    let inner = inner.map_or(name, |(_, inner)| inner);
    inner.trim_matches('"').to_owned()
}

fn alert_fault(alert: AlertDescription) -> Fault {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired | Alert::NoCertificate => Fault::ClientCertificateWanted,
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => Fault::ClientCertificateRefused(alert),
        // OpenSSL says so by TLS 1.2 also where a client certificate is missing.
        Alert::HandshakeFailure => Fault::HandshakeRefused,
        Alert::ProtocolVersion | Alert::InsufficientSecurity => {
            Fault::TlsIncompatible(format!("{alert:?}"))
        }
        Alert::NoApplicationProtocol => Fault::Alpn,
        Alert::UnrecognisedName => Fault::NameUnknown,
        alert => Fault::Tls(Error::AlertReceived(alert)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    fn name(host: &str, server_name: Option<&str>) -> String {
        let endpoint = Endpoint::tcp(Address {
            host: host.to_owned(),
            port: 8883,
        });
        let tls = Tls {
            server_name: server_name.map(str::to_owned),
            ..Tls::default()
        };
        server_name_of(&endpoint, &tls)
    }

    fn server_name_of(endpoint: &Endpoint, tls: &Tls) -> String {
        server_name(endpoint, tls).unwrap().to_str().into_owned()
    }

    #[test]
    fn case_23_the_server_name_has_no_brackets_no_scope_and_no_trailing_dot() {
        assert_eq!(name("::1", None), "::1");
        assert_eq!(name("fe80::1%eth0", None), "fe80::1");
        assert_eq!(name("10.0.0.7", None), "10.0.0.7");
        assert_eq!(name("mqtt.example.com.", None), "mqtt.example.com");
        assert_eq!(name("10.0.0.7", Some("plant.example.")), "plant.example");
        assert_eq!(name("plant.example", Some("[fe80::1%2]")), "fe80::1");
    }

    #[test]
    fn a_unix_socket_belongs_to_this_machine() {
        let endpoint = Endpoint {
            place: Place::Unix("/run/broker".into()),
            ..Endpoint::tcp(Address {
                host: String::new(),
                port: 0,
            })
        };
        assert_eq!(server_name_of(&endpoint, &Tls::default()), "localhost");
    }

    #[test]
    fn the_names_in_a_certificate_are_told_as_one_writes_them() {
        assert_eq!(plain("DnsName(\"broker.example\")"), "broker.example");
        assert_eq!(plain("IpAddress(10.0.0.7)"), "10.0.0.7");
        assert_eq!(plain("something else"), "something else");
    }

    #[test]
    fn a_host_that_is_no_name_is_told() {
        let tls = Tls {
            server_name: Some("not a name".to_owned()),
            ..Tls::default()
        };
        let endpoint = Endpoint::tcp(Address {
            host: "h".to_owned(),
            port: 1,
        });
        let fault = server_name(&endpoint, &tls).unwrap_err();
        assert!(fault.to_string().contains("not a name"), "{fault}");
    }
}
