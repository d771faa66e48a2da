//! What a session is, checked.

mod endpoint;

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use bridge_core::{Backoff, Name, Topic};

pub use endpoint::{
    Address, Brokers, ClientCertificate, Endpoint, HttpProxy, Place, Tls, TlsVersion, Trust,
    WebSocket,
};

/// One MQTT client identity and its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// The session's name.
    pub name: Name,
    /// Where the broker is, or the brokers that stand in for one another.
    pub brokers: Brokers,
    /// What is spoken with it.
    pub protocol: Protocol,
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
    /// What becomes of a message whose QoS the broker does not take.
    pub qos_unavailable: QosUnavailable,
    /// What becomes of a message to be retained where the broker does not retain.
    pub retain_unavailable: RetainUnavailable,
    /// Where a persistent session that reads writes down which filters it has subscribed to, so
    /// that those which a later configuration leaves out are ended at the broker. Without it
    /// they are known only for as long as the process lives.
    pub filters_file: Option<PathBuf>,
    /// Where the session says whether it is there, if anywhere.
    pub status: Option<StatusTopic>,
}

impl SessionConfig {
    /// A session with the defaults that the configuration documents, for MQTT 5. Who sets another
    /// protocol takes its [`Protocol::default_window`] as well.
    pub fn new(name: Name, brokers: Brokers, client_id: impl Into<String>) -> Self {
        let client_id = client_id.into();
        let protocol = Protocol::default();
        let seconds = Duration::from_secs;
        #[expect(
            clippy::expect_used,
            clippy::missing_panics_doc,
            reason = "constants that are in order"
        )]
        Self {
            name,
            brokers,
            protocol,
            publisher_client_id: format!("{client_id}-pub"),
            client_id,
            kind: SessionKind::Persistent {
                expiry: seconds(24 * 60 * 60),
            },
            credentials: None,
            keep_alive: seconds(30),
            connect_timeout: seconds(10),
            answer_timeout: seconds(20),
            write_timeout: seconds(10),
            backoff: Backoff::try_new(seconds(1), seconds(60)).expect("1 s is less than 60 s"),
            max_in_flight: protocol.default_window(),
            receive_maximum: NonZeroU16::new(256).expect("256 is not 0"),
            max_packet_size: 4 << 20,
            qos_unavailable: QosUnavailable::default(),
            retain_unavailable: RetainUnavailable::default(),
            filters_file: None,
            status: None,
        }
    }
}

/// What is spoken with a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// MQTT 5.
    #[default]
    V5,
    /// MQTT 3.1.1, in which a broker cannot refuse a publish: some acknowledge and drop what they
    /// do not grant, and others close the connection.
    V311,
}

/// What becomes of a message whose QoS is higher than the broker's Maximum QoS (MQTT 5
/// §3.2.2.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QosUnavailable {
    /// It is refused here, for good.
    #[default]
    Refuse,
    /// It is sent with the highest QoS that the broker takes, and counted.
    Downgrade,
}

/// What becomes of a message with the retain flag where the broker does not retain (MQTT 5
/// §3.2.2.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetainUnavailable {
    /// It is refused here, for good.
    #[default]
    Refuse,
    /// It is sent without the flag, and counted.
    Strip,
}

/// Where a session says whether it is there: a retained birth message on each connect, and the
/// last will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTopic {
    /// The topic.
    pub topic: Topic,
    /// What it says while connected.
    pub online: String,
    /// What it says from the moment on when the connection is gone.
    pub offline: String,
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

/// User name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Option<Password>,
}

/// Where a password comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Password {
    /// From the configuration.
    Text(Secret),
    /// From a file, which is read at each connect, and again when it changes; a newline at its
    /// end is not a part of it.
    File(PathBuf),
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
