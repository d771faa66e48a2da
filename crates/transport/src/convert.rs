//! Between our words and the client library's.

use bridge_core::{InvalidTopic, Message, PayloadFormat, Properties, QoS, Topic};
use rumqttc::mqttbytes::QoS as WireQoS;
use rumqttc::mqttbytes::v5::{Publish, PublishProperties};

pub(crate) const fn to_wire_qos(qos: QoS) -> WireQoS {
    match qos {
        QoS::AtMostOnce => WireQoS::AtMostOnce,
        QoS::AtLeastOnce => WireQoS::AtLeastOnce,
        QoS::ExactlyOnce => WireQoS::ExactlyOnce,
    }
}

pub(crate) const fn from_wire_qos(qos: WireQoS) -> QoS {
    match qos {
        WireQoS::AtMostOnce => QoS::AtMostOnce,
        WireQoS::AtLeastOnce => QoS::AtLeastOnce,
        WireQoS::ExactlyOnce => QoS::ExactlyOnce,
    }
}

/// The properties to publish with; `None` spares the library an empty set.
pub(crate) fn to_wire_properties(properties: Properties) -> Option<PublishProperties> {
    if properties == Properties::default() {
        return None;
    }
    Some(PublishProperties {
        payload_format_indicator: properties.payload_format.map(|format| format as u8),
        message_expiry_interval: properties.message_expiry,
        topic_alias: None,
        response_topic: properties.response_topic,
        correlation_data: properties.correlation_data,
        user_properties: properties.user_properties,
        subscription_identifiers: Vec::new(),
        content_type: properties.content_type,
    })
}

/// A received message without what belongs to its connection: topic alias (resolved by the
/// library) and subscription identifiers.
pub(crate) fn from_wire(publish: Publish) -> Result<Message, InvalidTopic> {
    let topic = Topic::from_bytes(&publish.topic)?;
    let properties = publish
        .properties
        .map_or_else(Properties::default, |wire| Properties {
            payload_format: wire
                .payload_format_indicator
                .and_then(|format| match format {
                    0 => Some(PayloadFormat::Bytes),
                    1 => Some(PayloadFormat::Utf8),
                    _ => None,
                }),
            message_expiry: wire.message_expiry_interval,
            content_type: wire.content_type,
            response_topic: wire.response_topic,
            correlation_data: wire.correlation_data,
            user_properties: wire.user_properties,
        });
    Ok(Message {
        topic,
        payload: publish.payload,
        qos: from_wire_qos(publish.qos),
        retain: publish.retain,
        properties,
    })
}
