//! What comes from the broker, packet by packet, before the client library sees it.

mod translating;

use std::collections::HashMap;
use std::sync::Arc;

use bridge_core::Topic;
use bytes::{Buf, BytesMut};

use super::exchange::Exchange;
use super::grammar;
use super::marker::Marker;
use super::outgoing::Step;
use super::property;
use super::reshape;
use super::violation::Violation;
use super::wire;
use super::witness::Witness;
use crate::Protocol;

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
    exchange: Exchange,
    /// How many filters each UNSUBSCRIBE had that has not been answered.
    unsubscribed: HashMap<u16, usize>,
    /// The CONNACK has come.
    welcomed: bool,
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
            exchange: Exchange::new(protocol),
            unsubscribed: HashMap::new(),
            welcomed: false,
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

    /// Something goes to the broker.
    pub(super) fn outgoing(&mut self, step: Step) {
        self.exchange.outgoing(step);
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
            let (first, kind, header) = (*first, first >> 4, 1 + bytes);
            let size = header + remaining;
            self.is_in_turn(kind)?;
            if size > self.maximum && !self.may_set_aside(kind) {
                return Err(Violation::TooLarge {
                    size,
                    maximum: self.maximum,
                });
            }
            let looked_at = match (self.protocol, kind) {
                (Protocol::V5, wire::PUBLISH) => self.publish(first, header, size)?,
                (Protocol::V5, _) => self.whole(first, header, size)?,
                (Protocol::V311, wire::PUBLISH) => self.translate_publish(first, header, size)?,
                (Protocol::V311, _) => self.translate(first, header, size)?,
            };
            if !looked_at {
                return Ok(());
            }
        }
    }

    /// Whether a broker may send a packet of that type now.
    fn is_in_turn(&self, kind: u8) -> Result<(), Violation> {
        let packet = wire::name(kind);
        match (kind, self.welcomed) {
            (wire::CONNACK, false) => Ok(()),
            // We offer no authentication that would take more than a CONNECT, MQTT 5 §4.12.
            (
                wire::CONNACK
                | wire::CONNECT
                | wire::SUBSCRIBE
                | wire::UNSUBSCRIBE
                | wire::PINGREQ
                | wire::AUTH
                | 0,
                _,
            ) => Err(Violation::Unexpected { packet }),
            (wire::DISCONNECT, _) if self.protocol == Protocol::V311 => {
                Err(Violation::Unexpected { packet })
            }
            // Too soon as well before the CONNACK, but it says why.
            (wire::DISCONNECT, _) | (_, true) => Ok(()),
            (_, false) => Err(Violation::TooSoon { packet }),
        }
    }

    /// Looks at all of a PUBLISH but its payload; false when it has not come yet.
    fn publish(&mut self, first: u8, header: usize, size: usize) -> Result<bool, Violation> {
        let malformed = Violation::Malformed { packet: "PUBLISH" };
        let rest = self.raw.get(self.cleared..).unwrap_or_default();
        let body = rest.get(header..size.min(rest.len())).unwrap_or_default();
        let complete = rest.len() >= size;
        if first & 0x06 == 0x06 {
            return Err(malformed);
        }
        let Some(head) = Head::read(first, body) else {
            return if complete { Err(malformed) } else { Ok(false) };
        };
        if let Some(id) = head.id {
            self.exchange.publish(first, id);
        }
        let found = property::of_publish(head.properties).ok_or(malformed)?;
        // An empty topic means a topic alias, MQTT 5 §3.3.2.3.4.
        let sound_topic = head.topic.is_empty() || Topic::from_bytes(head.topic).is_ok();
        let payload = size - header - head.length;
        let (topic, properties, kept) = if !sound_topic {
            // Later messages may come by its alias: they are set aside as well.
            (self.marker.topic().as_bytes(), found.alias, 0)
        } else if found.unsound {
            let mut properties = found.alias;
            self.marker.write_unsound(&mut properties);
            (head.topic, properties, 0)
        } else if found.has_identifiers {
            let properties = property::without_identifiers(head.properties);
            (head.topic, properties, payload)
        } else {
            self.unseen = size;
            return Ok(true);
        };
        let mut body = Vec::new();
        wire::write_text(&mut body, topic);
        if let Some(id) = head.id {
            body.extend_from_slice(&id.to_be_bytes());
        }
        wire::write_length(&mut body, properties.len());
        body.extend_from_slice(&properties);
        let mut packet = vec![first];
        wire::write_length(&mut packet, body.len() + kept);
        packet.append(&mut body);
        let old = header + head.length;
        self.put_in_place(old, &packet);
        (self.unseen, self.skipped) = (kept, payload - kept);
        Ok(true)
    }

    /// Looks at a packet that is short; false when it has not all come yet.
    fn whole(&mut self, first: u8, header: usize, size: usize) -> Result<bool, Violation> {
        let rest = self.raw.get(self.cleared..).unwrap_or_default();
        let Some(packet) = rest.get(..size) else {
            return Ok(false);
        };
        let (kind, body) = (first >> 4, packet.get(header..).unwrap_or_default());
        if !grammar::is_well_formed(first, body) {
            let packet = wire::name(kind);
            return Err(Violation::Malformed { packet });
        }
        is_asked_for(&mut self.exchange, kind, body)?;
        match kind {
            wire::DISCONNECT => {
                self.witness.disconnected(reshape::reason(body));
                self.witness.pointed_to(reshape::server_reference(body));
            }
            wire::CONNACK => {
                self.welcomed = true;
                self.witness.welcomed(reshape::connection_reason(body));
                let from_code = body.get(1..).unwrap_or_default();
                self.witness
                    .pointed_to(reshape::server_reference(from_code));
            }
            _ => {}
        }
        let mut reshaped = reshape::reshape(packet, header, &self.marker);
        if reshaped
            .as_ref()
            .is_some_and(|new| new.len() > self.maximum)
        {
            // What was added is too much: the true code is worth more than the broker's words.
            let bare = body.get(..3).map(|bare| [&[first, 3], bare].concat());
            reshaped = bare.and_then(|bare| reshape::reshape(&bare, 2, &self.marker));
        }
        match reshaped {
            None => self.unseen = size,
            Some(reshaped) => self.put_in_place(size, &reshaped),
        }
        Ok(true)
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

/// Whether something asked for an answer; PUBREL counts as one.
fn is_asked_for(exchange: &mut Exchange, kind: u8, body: &[u8]) -> Result<(), Violation> {
    let (wire::PUBACK
    | wire::PUBREC
    | wire::PUBREL
    | wire::PUBCOMP
    | wire::SUBACK
    | wire::UNSUBACK) = kind
    else {
        return Ok(());
    };
    let id = body.first_chunk().copied().map_or(0, u16::from_be_bytes);
    let refused = body.get(2).is_some_and(|code| *code >= 0x80);
    if exchange.answer(kind, id, refused) {
        return Ok(());
    }
    Err(Violation::Unasked {
        packet: wire::name(kind),
        id,
    })
}

/// What stands before the payload of a PUBLISH, MQTT 5 §3.3.
struct Head<'a> {
    topic: &'a [u8],
    id: Option<u16>,
    properties: &'a [u8],
    /// Of all that.
    length: usize,
}

impl<'a> Head<'a> {
    /// `None` when it is not complete.
    fn read(first: u8, body: &'a [u8]) -> Option<Self> {
        let (topic, after) = wire::read_text(body)?;
        let (id, after) = after.split_at_checked(wire::id_length(first))?;
        let (properties, payload) = property::split(after)?;
        Some(Self {
            topic,
            id: id.first_chunk().copied().map(u16::from_be_bytes),
            properties,
            length: body.len() - payload.len(),
        })
    }
}

#[cfg(test)]
mod tests;
