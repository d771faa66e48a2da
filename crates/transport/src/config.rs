//! What a session is, checked.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use bridge_core::{Backoff, Name};

/// One MQTT client identity and its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// The session's name.
    pub name: Name,
    /// Where the broker is.
    pub address: Address,
    /// The client id of the connection that reads; the one that writes where nothing is read.
    pub client_id: String,
    /// The client id of the connection that writes, when the session is read from as well.
    pub publisher_client_id: String,
    /// What the reading connection leaves behind at the broker.
    pub kind: SessionKind,
    /// Who we are.
    pub credentials: Option<Credentials>,
    /// How long the line may be silent; MQTT 5 §3.1.2.10. Whole seconds, at least 1.
    pub keep_alive: Duration,
    /// How long a connect may take, from the TCP handshake to the CONNACK.
    pub connect_timeout: Duration,
    /// How long a written PUBLISH may go unanswered before the connection counts as dead.
    pub answer_timeout: Duration,
    /// How long a write may be stalled by a peer that does not read.
    pub write_timeout: Duration,
    /// Delays between attempts to connect.
    pub backoff: Backoff,
    /// How many messages may be unanswered on the writing connection, at most 256; the broker's
    /// Receive Maximum bounds it as well.
    pub max_in_flight: NonZeroU16,
    /// How many unacknowledged messages the broker may send us: our Receive Maximum.
    pub receive_maximum: NonZeroU16,
    /// The largest packet in bytes that we take: our Maximum Packet Size.
    pub max_packet_size: u32,
}

/// What the reading connection leaves behind at the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// Nothing: the session begins anew with each connection (clean start, no expiry).
    Ephemeral,
    /// The broker keeps subscriptions and unacknowledged messages for `expiry` while we are away.
    Persistent {
        /// The session expiry interval; whole seconds.
        expiry: Duration,
    },
}

/// Where a broker is: plain TCP.
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

/// User name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Option<Secret>,
}

/// A text that is never shown: not by `Debug`, not in an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a secret.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, for the wire alone.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("•••")
    }
}
