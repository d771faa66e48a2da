//! What else a Mosquitto listens at.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::certificates::Identity;
use crate::port::PortLease;

/// How a client gets in.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Tls(Identity),
    /// With the authority that clients' certificates are to come from.
    MutualTls(Identity, PathBuf),
    WebSocket,
    SecureWebSocket(Identity),
    Ipv6,
    Unix,
}

/// One listener besides the plain one.
#[derive(Debug)]
pub(super) struct Listener {
    kind: Kind,
    /// Also of a Unix socket, which has no use for it.
    lease: PortLease,
    path: PathBuf,
}

impl Listener {
    pub(super) fn new(kind: Kind, folder: &Path) -> Self {
        Self {
            kind,
            lease: PortLease::take(),
            path: folder.join("socket"),
        }
    }

    pub(super) const fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(super) const fn port(&self) -> u16 {
        self.lease.port()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its lines in the config.
    pub(super) fn config(&self) -> String {
        let port = self.port();
        let mut config = match &self.kind {
            Kind::Unix => format!("listener 0 {}\n", self.path.display()),
            Kind::Ipv6 => format!("listener {port} ::1\n"),
            _ => format!("listener {port} 127.0.0.1\n"),
        };
        if let Kind::WebSocket | Kind::SecureWebSocket(_) = self.kind {
            config.push_str("protocol websockets\n");
        }
        if let Kind::Tls(server) | Kind::MutualTls(server, _) | Kind::SecureWebSocket(server) =
            &self.kind
        {
            let certificate = server.certificate.display();
            let _ = writeln!(config, "certfile {certificate}");
            let _ = writeln!(config, "keyfile {}", server.key.display());
        }
        if let Kind::MutualTls(_, authority) = &self.kind {
            let _ = writeln!(config, "cafile {}", authority.display());
            config.push_str("require_certificate true\n");
        }
        config
    }
}
