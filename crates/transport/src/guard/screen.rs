//! What comes from the broker, packet by packet, before the client library sees it.

mod translating;

use std::collections::HashMap;
use std::sync::Arc;

use bridge_core::Topic;
use bytes::{Buf, BytesMut};

use super::marker::Marker;
use super::reshape;
use super::wire;
use super::witness::Witness;
use crate::Protocol;

/// Why nothing more may be read from this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// The broker was told our Maximum Packet Size, MQTT 5 §3.1.2.11.4.
    #[error("the broker sent a packet of {size} bytes, though at most {maximum} were asked for")]
    TooLarge {
        /// The packet's whole length.
        size: usize,
        /// Ours.
        maximum: usize,
    },
    /// MQTT 5 §1.5.5.
    #[error("the broker sent a packet whose length takes more than four bytes")]
    Overlong,
    /// MQTT 3.1.1 §4.8.
    #[error("the broker sent a packet that MQTT 3.1.1 does not know, of type {kind}")]
    Malformed {
        /// The upper half of its first byte.
        kind: u8,
    },
}

/// Frames what has come, reshapes what the library would stumble over, and clears the rest.
///
/// ```text
///   raw:  [ cleared: may be handed on ][ not looked at, or not complete ]
/// ```
///
/// A packet is bounded as soon as its length is known, before its bytes are waited for. Payloads
/// are cleared as they come, unseen. What is translated from MQTT 3.1.1 is cleared into a buffer of
/// its own.
#[derive(Debug)]
pub(super) struct Screen {
    protocol: Protocol,
    raw: BytesMut,
    cleared: usize,
    translated: BytesMut,
    /// How much of the packet at hand is still to be cleared unseen.
    unseen: usize,
    /// How much of it is to be thrown away behind that.
    skipped: usize,
    /// How many filters each UNSUBSCRIBE had that has not been answered.
    unsubscribed: HashMap<u16, usize>,
    maximum: usize,
    marker: Marker,
    witness: Arc<Witness>,
}

impl Screen {
    pub(super) fn new(
        protocol: Protocol,
        maximum: u32,
        marker: Marker,
        witness: Arc<Witness>,
    ) -> Self {
        Self {
            protocol,
            raw: BytesMut::new(),
            cleared: 0,
            translated: BytesMut::new(),
            unseen: 0,
            skipped: 0,
            unsubscribed: HashMap::new(),
            maximum: usize::try_from(maximum).unwrap_or(usize::MAX),
            marker,
            witness,
        }
    }

    /// Where to append what has come; [`Screen::examine`] is due afterwards.
    pub(super) fn buffer(&mut self, room: usize) -> &mut BytesMut {
        self.raw.reserve(room);
        &mut self.raw
    }

    /// Bytes that may be handed on.
    pub(super) fn cleared(&self) -> &[u8] {
        match self.protocol {
            Protocol::V5 => self.raw.get(..self.cleared).unwrap_or_default(),
            Protocol::V311 => &self.translated,
        }
    }

    /// So many of the cleared bytes have been handed on.
    pub(super) fn consume(&mut self, bytes: usize) {
        if self.protocol == Protocol::V311 {
            self.translated.advance(bytes.min(self.translated.len()));
            return;
        }
        let bytes = bytes.min(self.cleared);
        self.raw.advance(bytes);
        self.cleared -= bytes;
    }

    /// Clears as much as can be.
    pub(super) fn examine(&mut self) -> Result<(), Violation> {
        loop {
            let rest = self.raw.get(self.cleared..).unwrap_or_default();
            if self.unseen > 0 {
                let step = self.unseen.min(rest.len());
                self.clear(step);
                self.unseen -= step;
                if self.unseen > 0 {
                    return Ok(());
                }
                continue;
            }
            if self.skipped > 0 {
                let step = self.skipped.min(rest.len());
                self.put_in_place(step, &[]);
                self.skipped -= step;
                if self.skipped > 0 {
                    return Ok(());
                }
                continue;
            }
            let Some((first, after)) = rest.split_first() else {
                return Ok(());
            };
            let Some((remaining, bytes)) =
                wire::read_length(after).map_err(|wire::Overlong| Violation::Overlong)?
            else {
                return Ok(());
            };
            let (kind, header) = (first >> 4, 1 + bytes);
            let size = header + remaining;
            if size > self.maximum && !self.may_set_aside(kind) {
                return Err(Violation::TooLarge {
                    size,
                    maximum: self.maximum,
                });
            }
            let looked_at = match kind {
                _ if self.protocol == Protocol::V311 => self.translate(header, size)?,
                wire::PUBLISH => self.publish(header, size),
                wire::CONNACK
                | wire::PUBACK
                | wire::PUBREC
                | wire::PUBREL
                | wire::PUBCOMP
                | wire::SUBACK
                | wire::UNSUBACK
                | wire::DISCONNECT => self.whole(kind, header, size),
                _ => {
                    self.unseen = size;
                    true
                }
            };
            if !looked_at {
                return Ok(());
            }
        }
    }

    /// Looks at a PUBLISH's topic; false when it has not come yet.
    fn publish(&mut self, header: usize, size: usize) -> bool {
        let rest = self.raw.get(self.cleared..).unwrap_or_default();
        let body = rest.get(header..size.min(rest.len())).unwrap_or_default();
        let Some((topic, _)) = wire::read_text(body) else {
            // A whole packet without a whole topic is malformed; the library says so.
            let complete = rest.len() >= size;
            self.unseen = if complete { size } else { 0 };
            return complete;
        };
        // An empty topic means a topic alias, MQTT 5 §3.3.2.3.4.
        if topic.is_empty() || Topic::from_bytes(topic).is_ok() {
            self.unseen = size;
            return true;
        }
        let topic_end = header + 2 + topic.len();
        let mut named = Vec::new();
        wire::write_text(&mut named, self.marker.topic().as_bytes());
        let behind = size - topic_end;
        let mut head = vec![rest.first().copied().unwrap_or_default()];
        wire::write_length(&mut head, named.len() + behind);
        head.append(&mut named);
        self.put_in_place(topic_end, &head);
        self.unseen = behind;
        true
    }

    /// Looks at a packet that is short; false when it has not all come yet.
    fn whole(&mut self, kind: u8, header: usize, size: usize) -> bool {
        let rest = self.raw.get(self.cleared..).unwrap_or_default();
        let Some(packet) = rest.get(..size) else {
            return false;
        };
        let body = packet.get(header..).unwrap_or_default();
        match kind {
            wire::DISCONNECT => {
                self.witness.disconnected(reshape::reason(body));
                self.witness.pointed_to(reshape::server_reference(body));
            }
            // The first byte holds the session present flag.
            wire::CONNACK => {
                let from_code = body.get(1..).unwrap_or_default();
                self.witness.welcomed(reshape::reason(from_code));
                self.witness
                    .pointed_to(reshape::server_reference(from_code));
            }
            _ => {}
        }
        let Some(reshaped) = reshape::reshape(packet, header, &self.marker) else {
            self.unseen = size;
            return true;
        };
        self.put_in_place(size, &reshaped);
        true
    }

    /// Clears bytes as they are.
    fn clear(&mut self, bytes: usize) {
        match self.protocol {
            Protocol::V5 => self.cleared += bytes,
            Protocol::V311 => {
                let step = bytes.min(self.raw.len());
                self.translated.extend_from_slice(&self.raw.split_to(step));
            }
        }
    }

    /// Puts `new` in place of the `old` bytes behind what is cleared, and clears it.
    fn put_in_place(&mut self, old: usize, new: &[u8]) {
        if self.protocol == Protocol::V311 {
            self.raw.advance(old.min(self.raw.len()));
            self.translated.extend_from_slice(new);
            return;
        }
        let mut tail = self.raw.split_off(self.cleared);
        tail.advance(old.min(tail.len()));
        self.raw.extend_from_slice(new);
        self.raw.extend_from_slice(&tail);
        self.cleared += new.len();
    }
}

#[cfg(test)]
mod tests;
