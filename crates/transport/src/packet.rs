//! How large a message is on the wire, whether it can be on it at all (I05), and what it gives up
//! to be on it.

use bridge_core::{Limits, LocalRefusal, Message, Properties, QoS};

use crate::{QosUnavailable, RetainUnavailable};

/// The longest string or binary data that MQTT carries, MQTT 5 §1.5.4.
const MAX_TEXT: usize = 65_535;
/// The largest packet that MQTT can frame: four bytes of length, MQTT 5 §1.5.5.
const MAX_PACKET: u64 = 1 + 4 + 268_435_455;

/// The size in bytes of the PUBLISH that carries `message`, fixed header included.
///
/// MQTT 5 §3.1.2.11.4 counts the whole packet against a Maximum Packet Size.
pub(crate) fn publish_size(message: &Message) -> u64 {
    let properties = properties_size(&message.properties);
    let remaining = text(message.topic.as_str().len())
        + if message.qos == QoS::AtMostOnce { 0 } else { 2 }
        + length_size(properties)
        + properties
        + message.payload.len() as u64;
    1 + length_size(remaining) + remaining
}

/// What becomes of messages that ask for more than a broker has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policies {
    pub(crate) qos: QosUnavailable,
    pub(crate) retain: RetainUnavailable,
}

impl Policies {
    /// Rather less than nothing at all.
    pub(crate) const LENIENT: Self = Self {
        qos: QosUnavailable::Downgrade,
        retain: RetainUnavailable::Strip,
    };
}

/// What a message has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GivenUp {
    /// The QoS that it came with.
    pub(crate) qos: bool,
    /// Its retain flag.
    pub(crate) retain: bool,
}

/// Takes from `message` what the broker does not have, as far as the policies let it.
pub(crate) fn adapt(message: &mut Message, limits: &Limits, policies: Policies) -> GivenUp {
    let given_up = GivenUp {
        qos: message.qos > limits.maximum_qos && policies.qos == QosUnavailable::Downgrade,
        retain: message.retain
            && !limits.retain_available
            && policies.retain == RetainUnavailable::Strip,
    };
    if given_up.qos {
        message.qos = limits.maximum_qos;
    }
    message.retain &= !given_up.retain;
    given_up
}

/// Whether `message` can be published to a broker with these limits; if not, why.
pub(crate) fn check(message: &Message, limits: &Limits) -> Result<(), LocalRefusal> {
    if !sound(&message.properties) {
        return Err(LocalRefusal::PropertyInvalid);
    }
    let maximum = limits
        .maximum_packet_size
        .map_or(MAX_PACKET, |maximum| u64::from(maximum).min(MAX_PACKET));
    let size = publish_size(message);
    if size > maximum {
        return Err(LocalRefusal::PacketTooLarge { size, maximum });
    }
    if message.retain && !limits.retain_available {
        return Err(LocalRefusal::RetainUnavailable);
    }
    if message.qos > limits.maximum_qos {
        return Err(LocalRefusal::QosUnavailable {
            maximum: limits.maximum_qos,
        });
    }
    Ok(())
}

/// Whether every property can be put into a packet, MQTT 5 §1.5.4 and §1.5.6. The library would
/// drop the connection on one that cannot.
fn sound(properties: &Properties) -> bool {
    let fits = |length: usize| length <= MAX_TEXT;
    let text = |text: &String| fits(text.len()) && !text.contains('\0');
    let mut pairs = properties.user_properties.iter();
    properties.content_type.as_ref().is_none_or(text)
        && properties.response_topic.as_ref().is_none_or(|topic| {
            // MQTT 5 §3.3.2.3.5.
            text(topic) && !topic.contains(['+', '#'])
        })
        && properties
            .correlation_data
            .as_ref()
            .is_none_or(|data| fits(data.len()))
        && pairs.all(|(name, value)| text(name) && text(value))
}

fn properties_size(properties: &Properties) -> u64 {
    let one = |present: bool, size: u64| if present { size } else { 0 };
    let pairs = properties.user_properties.iter();
    one(properties.payload_format.is_some(), 2)
        + one(properties.message_expiry.is_some(), 5)
        + optional(properties.content_type.as_ref().map(String::len))
        + optional(properties.response_topic.as_ref().map(String::len))
        + optional(properties.correlation_data.as_ref().map(bytes::Bytes::len))
        + pairs
            .map(|(name, value)| 1 + text(name.len()) + text(value.len()))
            .sum::<u64>()
}

/// A property: its identifier and its text or data.
fn optional(length: Option<usize>) -> u64 {
    length.map_or(0, |length| 1 + text(length))
}

const fn text(length: usize) -> u64 {
    2 + length as u64
}

const fn length_size(value: u64) -> u64 {
    match value {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridge_core::{PayloadFormat, Topic};
    use bytes::{Bytes, BytesMut};
    use rumqttc::mqttbytes::v5::Publish;

    use crate::convert::{to_wire_properties, to_wire_qos};

    /// What the library makes of it.
    fn encoded(message: &Message) -> u64 {
        let mut publish = Publish::new(
            message.topic.as_str(),
            to_wire_qos(message.qos),
            message.payload.clone(),
            to_wire_properties(message.properties.clone()),
        );
        publish.pkid = u16::from(message.qos != QoS::AtMostOnce);
        let mut bytes = BytesMut::new();
        publish.write(&mut bytes).unwrap();
        bytes.len() as u64
    }

    #[test]
    fn a_message_gives_up_what_the_policies_let_it_and_no_more() {
        let limits = Limits {
            window: 1,
            maximum_packet_size: None,
            maximum_qos: QoS::AtLeastOnce,
            retain_available: false,
        };
        let mut asked = Message::new(Topic::parse("t").unwrap(), "x");
        (asked.qos, asked.retain) = (QoS::ExactlyOnce, true);
        let adapted = |qos, retain| {
            let mut message = asked.clone();
            let given_up = adapt(&mut message, &limits, Policies { qos, retain });
            (given_up, check(&message, &limits))
        };
        let give_up = |qos, retain| GivenUp { qos, retain };
        assert_eq!(
            adapted(QosUnavailable::Downgrade, RetainUnavailable::Strip),
            (give_up(true, true), Ok(()))
        );
        assert_eq!(
            adapted(QosUnavailable::Downgrade, RetainUnavailable::Refuse),
            (give_up(true, false), Err(LocalRefusal::RetainUnavailable))
        );
        let maximum = QoS::AtLeastOnce;
        assert_eq!(
            adapted(QosUnavailable::Refuse, RetainUnavailable::Strip),
            (
                give_up(false, true),
                Err(LocalRefusal::QosUnavailable { maximum })
            )
        );
    }

    #[test]
    fn a_message_that_asks_for_nothing_gives_up_nothing() {
        let limits = Limits {
            window: 1,
            maximum_packet_size: None,
            maximum_qos: QoS::AtLeastOnce,
            retain_available: false,
        };
        let mut message = Message::new(Topic::parse("t").unwrap(), "x");
        let before = message.clone();
        let policies = Policies {
            qos: QosUnavailable::Downgrade,
            retain: RetainUnavailable::Strip,
        };
        assert_eq!(adapt(&mut message, &limits, policies), GivenUp::default());
        assert_eq!(message, before);
    }

    #[test]
    fn the_size_is_that_of_the_encoded_packet() {
        let full = Properties {
            payload_format: Some(PayloadFormat::Utf8),
            message_expiry: Some(1),
            content_type: Some("text/plain".to_owned()),
            response_topic: Some("ü/b".to_owned()),
            correlation_data: Some(Bytes::from(vec![0; 120])),
            user_properties: vec![("a".to_owned(), "b".repeat(40)); 3],
        };
        for properties in [Properties::default(), full] {
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                for payload in [0, 1, 100, 127, 128, 16_000, 16_384, 2_097_152] {
                    let mut message = Message::new(Topic::parse("a/b").unwrap(), vec![0; payload]);
                    message.qos = qos;
                    message.properties = properties.clone();
                    assert_eq!(publish_size(&message), encoded(&message));
                }
            }
        }
    }
}
