//! The contract of a destination: publish in two steps, and hear the truth about each message.

use std::fmt;

use crate::{Acknowledgement, BoxFuture, Message, QoS, Reason, ReasonCode};

/// One session that messages are published to.
///
/// ```text
///   publish(a) ──admitted──► answer of a ┐
///   publish(b) ──admitted──► answer of b ├─ come in any order, each exactly once
///   publish(c) ──admitted──► answer of c ┘
///        order of admission = order on the wire
/// ```
///
/// Publishing has two steps so that many messages can be under way and yet stay in order:
/// [`Sink::publish`] ends when the message has its place in the window (step one), and the
/// [`Admitted`] that it returns ends with the broker's own answer for that message, or with the
/// news that none will come (step two).
///
/// Promises of an implementation:
/// - A refusal is an [`Answer::Answered`]; it costs neither the connection nor a neighbour (I01).
/// - When a connection ends, every admitted message that it carried ends at once with
///   [`Answer::Unanswered`]; the sink itself never sends a message again.
/// - No more is unanswered at a time than the broker's Receive Maximum allows.
/// - A message that can never go on this wire is refused locally, before it is sent (I05).
/// - It never counts attempts and never gives up on a message (I19).
pub trait Sink: Send + Sync + fmt::Debug {
    /// Waits for a place in the window, and takes it.
    ///
    /// Called from one task, messages are sent in the order of the calls. Ends with
    /// [`NotAdmitted::LinkDown`] as soon as there is no connection: it does not wait for one.
    fn publish(&self, outgoing: Outgoing) -> BoxFuture<'_, Result<Admitted, NotAdmitted>>;

    /// How the link is now.
    fn link(&self) -> Link;

    /// Ends when the link is no longer as `seen`, and says how it is then.
    fn changed(&self, seen: Link) -> BoxFuture<'_, Link>;

    /// Lets what is admitted be answered for a moment, says goodbye to the broker, and stops.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What is to be published: the message as this destination shall see it.
pub type Outgoing = Message;

/// The second step of a publish: ends with the answer.
pub type Admitted = BoxFuture<'static, Answer>;

/// What came of an admitted message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The broker has answered; for QoS 0 it stands for "written to the socket".
    Answered {
        /// With which packet.
        by: Acknowledgement,
        /// The broker's own code, also where the client library did not know it.
        code: ReasonCode,
        /// The broker's reason string, where it gave one.
        reason_string: Option<String>,
    },
    /// No answer will come.
    Unanswered(Unanswered),
    /// The destination failed on this message, and gave no verdict: an HTTP 5xx, a timeout, a
    /// processor's error. The link is up and the message may be offered again; whoever offers it
    /// counts (I19). No MQTT broker answers like that.
    Failed {
        /// In which way.
        reason: Reason,
        /// The destination's own words, where it gave any.
        detail: Option<String>,
    },
}

/// What is known of a message that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// Nothing of it reached the socket.
    NeverSent,
    /// Some or all of it was written: the broker may have it.
    MayHaveBeenSent,
    /// The same, but the connection ended because it was no longer permitted, which says nothing
    /// about the message.
    SteppedDown,
}

/// Why a message was not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// There is no connection. Nothing is said about the message.
    LinkDown,
    /// This message can never go on this wire.
    Refused(LocalRefusal),
}

/// A verdict for good that needs no broker (I05).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocalRefusal {
    /// MQTT 5 §3.2.2.3.6.
    #[error("the packet has {size} bytes and the broker takes at most {maximum}")]
    PacketTooLarge {
        /// Encoded size in bytes.
        size: u64,
        /// The broker's Maximum Packet Size, or the protocol's own.
        maximum: u64,
    },
    /// MQTT 5 §3.3.2.1.
    #[error("the topic cannot be published to")]
    TopicInvalid,
    /// MQTT 5 §1.5.4: a property holds NUL, or is longer than 65,535 bytes.
    #[error("a property cannot be put into a packet")]
    PropertyInvalid,
    /// MQTT 5 §3.2.2.3.5.
    #[error("the broker does not retain messages")]
    RetainUnavailable,
    /// MQTT 5 §3.2.2.3.4.
    #[error("the broker takes at most QoS {maximum}")]
    QosUnavailable {
        /// The broker's Maximum QoS.
        maximum: QoS,
    },
}

impl LocalRefusal {
    /// The reason that a dead letter gives for it.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::PacketTooLarge { .. } => Reason::PacketTooLarge,
            Self::TopicInvalid => Reason::TopicInvalid,
            // The standard's word for what the packet would be.
            Self::PropertyInvalid => Reason::Broker(ReasonCode::MALFORMED_PACKET),
            Self::RetainUnavailable => Reason::RetainUnavailable,
            Self::QosUnavailable { .. } => Reason::QosUnavailable,
        }
    }
}

/// How the connection to a broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// No connection.
    Down,
    /// Connected: the CONNACK has come.
    Up {
        /// The number of this connection within the session, from 1.
        epoch: u64,
        /// What the broker said that it takes.
        limits: Limits,
    },
}

impl Link {
    /// Whether there is a connection.
    pub const fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }
}

/// What a broker's CONNACK allows, MQTT 5 §3.2.2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many QoS 1 and 2 messages may be unanswered, already bounded by our own setting.
    pub window: u16,
    /// The largest packet in bytes that the broker takes.
    pub maximum_packet_size: Option<u32>,
    /// The highest QoS that the broker takes.
    pub maximum_qos: QoS,
    /// Whether the broker retains.
    pub retain_available: bool,
}
