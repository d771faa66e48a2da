//! How large a message is on the wire, and whether it can be on it at all (I05).

use bridge_core::{Limits, LocalRefusal, Message, Properties, QoS};

/// The longest string or binary data that MQTT carries, MQTT 5 §1.5.4.
const MAX_TEXT: u64 = 65_535;
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

/// Whether `message` can be published to a broker with these limits; if not, why.
pub(crate) fn check(message: &Message, limits: &Limits) -> Result<(), LocalRefusal> {
    if let Some(size) = overlong(&message.properties) {
        return Err(LocalRefusal::PacketTooLarge {
            size,
            maximum: MAX_TEXT,
        });
    }
    let maximum = limits.maximum_packet_size.map_or(MAX_PACKET, u64::from);
    let size = publish_size(message);
    if size > maximum.min(MAX_PACKET) {
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

/// The length of the longest string or data that is too long for its two bytes of length.
fn overlong(properties: &Properties) -> Option<u64> {
    let pairs = properties.user_properties.iter();
    [
        properties.content_type.as_ref().map(String::len),
        properties.response_topic.as_ref().map(String::len),
        properties.correlation_data.as_ref().map(bytes::Bytes::len),
    ]
    .into_iter()
    .flatten()
    .chain(pairs.flat_map(|(name, value)| [name.len(), value.len()]))
    .map(|length| length as u64)
    .filter(|length| *length > MAX_TEXT)
    .max()
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
