//! One application message as MQTT 5 carries it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{Timestamp, Topic};

/// Quality of service, MQTT 5 §4.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum QoS {
    /// 0: sent, never answered.
    AtMostOnce = 0,
    /// 1: answered with PUBACK; may come twice.
    AtLeastOnce = 1,
    /// 2: answered with PUBREC and PUBCOMP.
    ExactlyOnce = 2,
}

impl QoS {
    /// The level of that number, if there is one.
    pub const fn from_u8(level: u8) -> Option<Self> {
        match level {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

impl fmt::Display for QoS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", *self as u8)
    }
}

/// What the sender says the payload is, MQTT 5 §3.3.2.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PayloadFormat {
    /// 0: bytes.
    Bytes = 0,
    /// 1: UTF-8 text.
    Utf8 = 1,
}

/// The PUBLISH properties that belong to the message and cross a bridge unchanged, MQTT 5 §3.3.2.3.
///
/// Topic alias and subscription identifier are absent on purpose: they belong to one connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Properties {
    /// Payload format indicator.
    pub payload_format: Option<PayloadFormat>,
    /// Message expiry interval in seconds, as it was when the message was received. What is left
    /// of it at a later instant is [`Message::expiry_left`].
    pub message_expiry: Option<u32>,
    /// Content type.
    pub content_type: Option<String>,
    /// Response topic.
    pub response_topic: Option<String>,
    /// Correlation data.
    pub correlation_data: Option<Bytes>,
    /// User properties, in order; a name may come more than once.
    pub user_properties: Vec<(String, String)>,
}

/// An application message: what a source delivered or what a sink is to publish.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Message {
    /// Where it was published.
    pub topic: Topic,
    /// The payload: bytes, never looked into by the bridge.
    pub payload: Bytes,
    /// Quality of service.
    pub qos: QoS,
    /// The retain flag, as published.
    pub retain: bool,
    /// Everything else that MQTT 5 lets a message say.
    pub properties: Properties,
}

impl Message {
    /// A QoS 1 message without retain and without properties.
    pub fn new(topic: Topic, payload: impl Into<Bytes>) -> Self {
        Self {
            topic,
            payload: payload.into(),
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: Properties::default(),
        }
    }

    /// What is left of the expiry interval of a message that was received at `received`.
    ///
    /// Counting is by the wall clock because it goes on while the bridge is down (I08); a clock
    /// set back gives a message more time, never less. MQTT 5 §3.3.2.3.3.
    pub fn expiry_left(&self, received: Timestamp, now: Timestamp) -> Expiry {
        let Some(seconds) = self.properties.message_expiry else {
            return Expiry::Never;
        };
        let interval = Duration::from_secs(u64::from(seconds));
        let left = interval.saturating_sub(now.since(received));
        if left.is_zero() {
            return Expiry::Expired;
        }
        // A part of a second still counts as one: an interval of zero would expire at once.
        let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Expiry::In(u32::try_from(whole).unwrap_or(seconds).min(seconds))
    }

    /// The bytes of text and payload that the message holds, for limits; not its encoded size.
    pub fn size(&self) -> u64 {
        let properties = &self.properties;
        let pairs = properties.user_properties.iter();
        let size = self.topic.as_str().len()
            + self.payload.len()
            + properties.content_type.as_ref().map_or(0, String::len)
            + properties.response_topic.as_ref().map_or(0, String::len)
            + properties.correlation_data.as_ref().map_or(0, Bytes::len)
            + pairs.map(|(k, v)| k.len() + v.len()).sum::<usize>();
        size as u64
    }
}

impl fmt::Debug for Message {
    /// The payload is shown by its length: it may be large, and it may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// How long a message may still wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It carries no expiry interval.
    Never,
    /// That many whole seconds are left, at least 1.
    In(u32),
    /// Its time is over.
    Expired,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_expiry(seconds: Option<u32>) -> Message {
        let mut message = Message::new(Topic::parse("t").unwrap(), "x");
        message.properties.message_expiry = seconds;
        message
    }

    #[test]
    fn i08_an_expiry_counts_down_while_the_message_waits() {
        let received = Timestamp::from_millis(100_000);
        let at = |ms: u64| Timestamp::from_millis(100_000 + ms);
        let ten = with_expiry(Some(10));
        assert_eq!(ten.expiry_left(received, at(0)), Expiry::In(10));
        assert_eq!(ten.expiry_left(received, at(4_000)), Expiry::In(6));
        assert_eq!(ten.expiry_left(received, at(9_999)), Expiry::In(1));
        assert_eq!(ten.expiry_left(received, at(10_000)), Expiry::Expired);
        assert_eq!(
            with_expiry(None).expiry_left(received, at(1 << 40)),
            Expiry::Never
        );
        assert_eq!(
            with_expiry(Some(0)).expiry_left(received, at(0)),
            Expiry::Expired
        );
        assert_eq!(
            with_expiry(Some(u32::MAX)).expiry_left(received, at(0)),
            Expiry::In(u32::MAX)
        );
    }

    #[test]
    fn a_clock_set_back_never_prolongs_past_the_interval() {
        let received = Timestamp::from_millis(100_000);
        let before = Timestamp::from_millis(1);
        assert_eq!(
            with_expiry(Some(10)).expiry_left(received, before),
            Expiry::In(10)
        );
    }

    #[test]
    fn debug_never_shows_a_payload() {
        let message = Message::new(Topic::parse("t").unwrap(), "secret");
        assert!(!format!("{message:?}").contains("secret"));
    }
}
