//! Why there is no way to a broker, and what is likely to help.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_rustls::rustls::{self, AlertDescription, CertificateError};
use tokio_tungstenite::tungstenite;

use crate::Endpoint;
use crate::keys::certificate_unusable;

/// An endpoint that could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint}: {fault}")]
pub(crate) struct DialError {
    endpoint: String,
    #[source]
    fault: Fault,
}

impl DialError {
    pub(super) fn new(endpoint: &Endpoint, fault: Fault) -> Self {
        Self {
            endpoint: endpoint.to_string(),
            fault,
        }
    }
}

/// What went wrong on the way. Each says what a person may do about it where that can be guessed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    // === the socket ===
    #[error("cannot resolve the name {host}: {source}")]
    Name {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("the name {host} has no address")]
    NoAddress { host: String },
    #[error("cannot connect to {at}: {source}{}", hint(source))]
    Connect {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("nothing answers at {at}; a firewall may be in between")]
    Silent { at: SocketAddr },
    #[error("cannot connect to {}: {source}{}", path.display(), hint(source))]
    Unix {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("timed out after {within:?} while {doing}")]
    TimedOut {
        doing: &'static str,
        within: Duration,
    },
    #[error("the broker has read nothing for {after:?}")]
    Stalled { after: Duration },
    #[error("the lease has ended: nothing may be written any more")]
    Fenced,
    #[error("{0}")]
    Socket(io::Error),

    // === what answers is something else ===
    #[error("the port speaks TLS; use mqtts:// or wss:// for it")]
    SpeaksTls,
    #[error("what answers speaks HTTP; use ws:// or wss:// for it, or the port of plain MQTT")]
    SpeaksHttp,
    #[error("what answers speaks no TLS; use mqtt:// or ws:// for a port without it")]
    NotTls,
    #[error(
        "the connection was closed in the TLS handshake; \
         if the port speaks no TLS, use mqtt:// or ws:// for it"
    )]
    ClosedInHandshake,

    // === the broker's certificate ===
    #[error(
        "no authority that is trusted here has issued the broker's certificate; \
         name the file with the one that did in tls.ca_file"
    )]
    UnknownIssuer,
    #[error("the broker's certificate has expired; renew it there, if the clock here is right")]
    Expired,
    #[error("the broker's certificate is not valid yet; is the clock of this machine right?")]
    NotValidYet,
    #[error(
        "the broker's certificate is not for this name{}; \
         use a name that it holds in the URL or in tls.server_name",
        names(held)
    )]
    WrongName { held: Vec<String> },
    #[error("the broker's certificate is of no use: {}", certificate_unusable(.0))]
    Certificate(CertificateError),
    #[error("{name:?} can be no name in a certificate; set tls.server_name to the one to expect")]
    ServerName { name: String },
    #[error("the broker knows no such name; set tls.server_name to one that it has")]
    NameUnknown,

    // === our own certificate ===
    #[error(
        "the broker asks for a client certificate; \
         set tls.certificate_file and tls.key_file"
    )]
    ClientCertificateWanted,
    #[error(
        "the broker does not accept our client certificate ({0:?}); \
         it must be valid, and issued by an authority that the broker trusts"
    )]
    ClientCertificateRefused(AlertDescription),
    #[error(
        "the broker refuses the TLS handshake; it may ask for a client certificate \
         (tls.certificate_file, tls.key_file), or have no cipher in common"
    )]
    HandshakeRefused,

    // === TLS otherwise ===
    #[error("no way of TLS in common ({0}); see tls.minimum_version")]
    TlsIncompatible(String),
    #[error("the broker takes none of the protocols of tls.alpn")]
    Alpn,
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    #[error("a defect: the keys for TLS are missing; please report it")]
    NoTlsKeys,

    // === WebSocket ===
    #[error("the path {path:?} can stand in no request")]
    WebSocketPath { path: String },
    #[error("the header {name} cannot be sent; its name or value is none, or it is set by itself")]
    WebSocketHeader { name: String },
    #[error("{}", refused_upgrade(*status))]
    WebSocketRefused { status: u16 },
    #[error(
        "the connection was closed before the WebSocket was open; \
         if the port speaks TLS, use wss:// for it, and if it speaks plain MQTT, mqtt://"
    )]
    ClosedInUpgrade,
    #[error("what answers does not take MQTT within WebSocket (subprotocol mqtt)")]
    NoSubprotocol,
    #[error("what answers is no WebSocket: {0}")]
    NotWebSocket(Box<tungstenite::Error>),
    #[error("the broker sent a text frame; MQTT is sent in binary ones (MQTT 5 §6)")]
    TextFrame,
    #[error("the broker closed the WebSocket: {code} {reason:?}")]
    WebSocketClosed { code: u16, reason: String },
    #[error("WebSocket: {0}")]
    WebSocket(Box<tungstenite::Error>),

    // === the proxy ===
    #[error("the proxy: {0}")]
    ProxyUnreachable(Box<Fault>),
    #[error("the proxy wants a user name and a password (407); set proxy.username")]
    ProxyCredentialsWanted,
    #[error("the proxy refuses the user name or the password (407)")]
    ProxyCredentialsRefused,
    #[error("the proxy refuses the way to the broker (HTTP {status}){}", refused_way(*status))]
    ProxyRefused { status: u16 },
    #[error("what answers is no HTTP proxy")]
    ProxyNotHttp,
    #[error("the proxy closed the connection: {0}")]
    ProxyLost(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "; is the broker running, and is this its port?",
        io::ErrorKind::NotFound => "; is the broker running, and is this its socket?",
        io::ErrorKind::PermissionDenied => "; this user must be allowed to write to it",
        _ => "",
    }
}

fn names(held: &[String]) -> String {
    match held {
        [] => String::new(),
        held => {
            let held: Vec<&str> = held.iter().map(|name| bare(name)).collect();
            format!(", but for {}", held.join(", "))
        }
    }
}

/// A name as a certificate holds it, out of `DnsName("…")`, as the library shows it.
fn bare(shown: &str) -> &str {
    let inner = shown.split_once('(').map(|(_, rest)| rest);
    let inner = inner.and_then(|rest| rest.strip_suffix(')'));
    inner.unwrap_or(shown).trim_matches('"')
}

fn refused_upgrade(status: u16) -> String {
    let why = match status {
        401 | 403 => "it wants to know who asks; see websocket.headers",
        404 => "there is none at this path",
        426 => "it wants another version of the protocol",
        200..=299 => "it answers, but not as a WebSocket; is this the right path?",
        300..=399 => "it is somewhere else",
        _ => "it does not open one",
    };
    format!("no WebSocket (HTTP {status}): {why}")
}

fn refused_way(status: u16) -> &'static str {
    match status {
        403 | 405 => "; it may allow none to this host and port",
        502..=504 => "; it cannot reach it",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_certificate_holds_is_shown_as_it_would_be_written() {
        let held = ["DnsName(\"a.example\")", "IpAddress(127.0.0.1)", "plain"];
        let held = held.map(str::to_owned);
        let said = Fault::WrongName {
            held: held.to_vec(),
        };
        let said = said.to_string();
        assert!(
            said.contains("but for a.example, 127.0.0.1, plain;"),
            "{said}"
        );
    }
}
