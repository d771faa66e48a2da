//! MQTT packets as bytes, of both versions, written from the standards for the tests alone.

mod packet;
mod property;
mod publish;
mod wire;

#[cfg(test)]
mod tests;

pub use packet::{
    Ack, AckKind, ConnAck, Connect, Disconnect, Packet, SubAck, Subscribe, Unsubscribe, Will,
};
pub use property::{Properties, Property};
pub use publish::Publish;
pub use wire::Malformed;

use bytes::Bytes;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// MQTT 3.1.1: no properties, and no reason codes but in CONNACK and SUBACK. What a packet
    /// holds of either is left out when it is written.
    V311,
    /// MQTT 5.
    #[default]
    V5,
}

impl Protocol {
    /// The protocol level in CONNECT.
    pub const fn level(self) -> u8 {
        match self {
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }
}

/// One control packet as it is framed: the first byte of the fixed header, and all that follows
/// the remaining length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Packet type in the high, flags in the low half.
    pub first: u8,
    /// Variable header and payload.
    pub body: Bytes,
}

impl Frame {
    /// The frame's bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 5);
        out.push(self.first);
        wire::put_var_int(&mut out, self.body.len());
        out.extend_from_slice(&self.body);
        out
    }
}
