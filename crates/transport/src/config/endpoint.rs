//! Where a broker is and how it is reached.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::Password;

/// The brokers of a session: one, or several that stand in for one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brokers {
    /// The preferred one.
    pub first: Endpoint,
    /// The others, in the order in which they are tried when the one before cannot be reached.
    pub rest: Vec<Endpoint>,
    /// After how long on another broker the preferred one is tried again; `None` stays where it
    /// is for as long as that connection lives.
    pub fail_back: Option<Duration>,
}

impl Brokers {
    /// One broker.
    pub const fn one(endpoint: Endpoint) -> Self {
        Self {
            first: endpoint,
            rest: Vec::new(),
            fail_back: None,
        }
    }

    /// All of them, the preferred one first.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl fmt::Display for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        for endpoint in &self.rest {
            write!(f, ", {endpoint}")?;
        }
        Ok(())
    }
}

/// One way to a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where its socket is.
    pub place: Place,
    /// Encryption, if any.
    pub tls: Option<Tls>,
    /// MQTT within a WebSocket, if so (MQTT 5 §6).
    pub websocket: Option<WebSocket>,
    /// The HTTP proxy that leads there (`CONNECT`), if any; TCP only.
    pub proxy: Option<HttpProxy>,
}

impl Endpoint {
    /// Plain TCP.
    pub const fn tcp(address: Address) -> Self {
        Self {
            place: Place::Tcp(address),
            tls: None,
            websocket: None,
            proxy: None,
        }
    }
}

impl fmt::Display for Endpoint {
    /// As a URL, without anything secret: a query may be a token, and is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (&self.websocket, &self.tls) {
            (None, None) => "mqtt",
            (None, Some(_)) => "mqtts",
            (Some(_), None) => "ws",
            (Some(_), Some(_)) => "wss",
        };
        match &self.place {
            Place::Tcp(address) => write!(f, "{scheme}://{address}")?,
            Place::Unix(path) => write!(f, "{scheme}+unix://{}", path.display())?,
        }
        match &self.websocket {
            Some(WebSocket { path, .. }) => match path.split_once('?') {
                Some((path, _)) => write!(f, "{path}?…"),
                None => f.write_str(path),
            },
            None => Ok(()),
        }
    }
}

/// Where a broker's socket is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the network.
    Tcp(Address),
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

/// Where a broker is in the network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name, or an IPv4 or IPv6 address without brackets; a scope (`fe80::1%eth0`) is kept.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How a connection is encrypted, and what proves who is at either end of it.
///
/// Files are read at each connect, and again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Who may vouch for the broker.
    pub trust: Trust,
    /// What we prove ourselves with, if asked.
    pub client: Option<ClientCertificate>,
    /// The name that the broker's certificate must hold; the host's if left out.
    pub server_name: Option<String>,
    /// The oldest version that is spoken.
    pub minimum: TlsVersion,
    /// The protocols that are offered (ALPN), the preferred one first.
    pub alpn: Vec<String>,
}

impl Tls {
    /// The files that it is made of.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let trust = match &self.trust {
            Trust::File(path) => Some(path),
            Trust::System | Trust::InsecureSkipVerify => None,
        };
        let client = self.client.iter();
        let client = client.flat_map(|client| [&client.certificate, &client.key]);
        trust.into_iter().chain(client)
    }
}

/// Who may vouch for a broker's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// The certificates that the operating system trusts.
    #[default]
    System,
    /// The certificates of a PEM file, and no others.
    File(PathBuf),
    /// Nobody: any certificate passes, so anyone on the way can be the broker.
    InsecureSkipVerify,
}

/// A client certificate: two PEM files that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, with those that vouch for it behind it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    V1_2,
    /// RFC 8446.
    V1_3,
}

/// What a WebSocket is opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocket {
    /// The path of the request, from its first slash on, with a query if there is one.
    pub path: String,
    /// More headers of the request; their values may be secrets.
    pub headers: Vec<(String, super::Secret)>,
}

/// An HTTP proxy that opens a way with `CONNECT` (RFC 9110 §9.3.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// Where it is.
    pub address: Address,
    /// User name and password for it (Basic, RFC 7617).
    pub credentials: Option<(String, Password)>,
}
