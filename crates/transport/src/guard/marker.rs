//! What the guard tells the other side of the client library, in places only the two of them know.
//!
//! The library reads a packet and hands on what it understood of it. Where the guard had to put
//! another reason code or topic in place, the true one travels along inside the packet: as a user
//! property whose name holds a random number of this connection, or as a topic that holds it. So
//! it cannot be mistaken for another packet's, whatever order things are looked at in, and neither
//! a broker nor a publisher can make it up.

use bridge_core::ReasonCode;

use super::wire;

/// Why a message that came goes no further than its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// Its topic is none.
    InvalidTopic,
    /// A text in its properties is none.
    InvalidProperties,
    /// It is larger than we read. A broker on MQTT 5 is told how large that is.
    TooLarge,
}

/// The names that are used on one connection.
#[derive(Debug, Clone)]
pub(crate) struct Marker {
    property: String,
    topic: String,
    too_large: String,
    unsound: String,
}

impl Marker {
    /// Names made from a number that nobody else knows.
    pub(crate) fn new(secret: u64) -> Self {
        Self {
            property: format!("bridge-true-code-{secret:016x}"),
            topic: format!("bridge-invalid-topic-{secret:016x}"),
            too_large: format!("bridge-too-large-{secret:016x}"),
            unsound: format!("bridge-unsound-{secret:016x}"),
        }
    }

    /// The name of the user property that carries the true reason code.
    pub(super) fn property(&self) -> &str {
        &self.property
    }

    /// The topic that stands for one that is none.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// The topic that stands for that of a message which was too large to be read.
    pub(super) fn too_large(&self) -> &str {
        &self.too_large
    }

    /// Appends the property that stands for those of a message which were not fit to be read.
    pub(super) fn write_unsound(&self, properties: &mut Vec<u8>) {
        properties.push(wire::USER_PROPERTY);
        wire::write_text(properties, self.unsound.as_bytes());
        wire::write_text(properties, &[]);
    }

    /// Why a message has to be set aside, if it has.
    pub(crate) fn set_aside(
        &self,
        topic: &[u8],
        mut user_properties: impl Iterator<Item = impl AsRef<str>>,
    ) -> Option<SetAside> {
        if topic == self.topic.as_bytes() {
            Some(SetAside::InvalidTopic)
        } else if topic == self.too_large.as_bytes() {
            Some(SetAside::TooLarge)
        } else if user_properties.any(|name| name.as_ref() == self.unsound) {
            Some(SetAside::InvalidProperties)
        } else {
            None
        }
    }

    /// The reason code that the broker really sent: `code`, unless the guard replaced it.
    pub(crate) fn true_code(&self, code: u8, user_properties: &[(String, String)]) -> ReasonCode {
        let hidden = user_properties
            .iter()
            .rev()
            .find(|(name, _)| *name == self.property)
            .and_then(|(_, value)| u8::from_str_radix(value, 16).ok());
        ReasonCode::new(hidden.unwrap_or(code))
    }
}
