//! PUBLISH, the packet of the hot path.

use bytes::Bytes;

use super::Protocol;
use super::property::{Properties, Property, get_properties, put_properties};
use super::wire::{Malformed, Wire, put_binary, put_var_int};

/// PUBLISH.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Publish {
    /// Topic; empty where a topic alias stands for it.
    pub topic: String,
    /// Payload.
    pub payload: Bytes,
    /// QoS.
    pub qos: u8,
    /// The retain flag.
    pub retain: bool,
    /// The dup flag.
    pub dup: bool,
    /// Packet identifier; 0 with QoS 0.
    pub id: u16,
    /// The properties.
    pub properties: Properties,
}

impl Publish {
    /// A QoS 1 message without retain and without properties.
    pub fn new(topic: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            payload: payload.into(),
            qos: 1,
            ..Self::default()
        }
    }

    /// With that QoS.
    #[must_use]
    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    /// With the retain flag.
    #[must_use]
    pub fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    /// With that packet identifier.
    #[must_use]
    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    /// With one more property.
    #[must_use]
    pub fn with(mut self, property: Property) -> Self {
        self.properties.push(property);
        self
    }

    /// The payload as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.payload).expect("a payload of UTF-8 text")
    }

    /// Appends the packet; the hot path of a load generator.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.put_as(out, Protocol::V5);
    }

    /// Appends the packet as that version has it.
    pub fn put_as(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let mut encoded = Vec::new();
        let properties: &[u8] = match protocol {
            Protocol::V311 => &[],
            Protocol::V5 if self.properties.is_empty() => &[0],
            Protocol::V5 => {
                put_properties(&mut encoded, &self.properties, protocol);
                &encoded
            }
        };
        let id_size = if self.qos > 0 { 2 } else { 0 };
        let flags = u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain);
        out.push(0x30 | flags);
        put_var_int(
            out,
            2 + self.topic.len() + id_size + properties.len() + self.payload.len(),
        );
        put_binary(out, self.topic.as_bytes());
        if self.qos > 0 {
            self.id.put(out);
        }
        out.extend_from_slice(properties);
        out.extend_from_slice(&self.payload);
    }

    /// Reads a PUBLISH whose first byte is `first`.
    pub(crate) fn get(first: u8, mut body: Bytes, protocol: Protocol) -> Result<Self, Malformed> {
        let qos = first >> 1 & 0x03;
        if qos == 3 {
            return Err(Malformed::PacketType(first));
        }
        Ok(Self {
            dup: first & 0x08 != 0,
            qos,
            retain: first & 0x01 != 0,
            topic: String::get(&mut body)?,
            id: if qos > 0 { u16::get(&mut body)? } else { 0 },
            properties: get_properties(&mut body, protocol)?,
            payload: body,
        })
    }
}

impl std::fmt::Debug for Publish {
    /// A long payload is shown by its length.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Publish");
        shown.field("topic", &self.topic);
        if self.payload.len() <= 64 {
            shown.field("payload", &self.payload);
        } else {
            shown.field("payload_bytes", &self.payload.len());
        }
        shown
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("dup", &self.dup)
            .field("id", &self.id)
            .field("properties", &self.properties)
            .finish()
    }
}
