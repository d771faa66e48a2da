//! The screen's part that reads MQTT 3.1.1 and clears MQTT 5.

use bridge_core::Topic;
use bytes::BytesMut;

use super::{Screen, is_asked_for};
use crate::Protocol;
use crate::guard::violation::Violation;
use crate::guard::{v311, wire};

impl Screen {
    /// An UNSUBSCRIBE goes out; its answer does not say for how many filters it is one.
    pub(in crate::guard) fn unsubscribe(&mut self, id: u16, filters: usize) {
        self.unsubscribed.insert(id, filters);
    }

    /// Whether a packet that is too large may be set aside instead of ending the connection: on
    /// 3.1.1 the broker is not told how large a message may be, has done nothing wrong, and
    /// would send it again on every connection to come.
    pub(super) fn may_set_aside(&self, kind: u8) -> bool {
        self.protocol == Protocol::V311 && kind == wire::PUBLISH
    }

    /// Looks at a packet that is short; false when it has not all come yet.
    pub(super) fn translate(
        &mut self,
        first: u8,
        header: usize,
        size: usize,
    ) -> Result<bool, Violation> {
        let Some(whole) = self.raw.get(..size) else {
            return Ok(false);
        };
        let (kind, body) = (first >> 4, whole.get(header..).unwrap_or_default());
        let malformed = Violation::Malformed {
            packet: wire::name(kind),
        };
        if first & 0x0F != if kind == wire::PUBREL { 2 } else { 0 } {
            return Err(malformed);
        }
        if body.len() > 1 {
            is_asked_for(&mut self.exchange, kind, body.get(..2).unwrap_or_default())?;
        }
        let mut packet = BytesMut::new();
        let unsubscribed = &mut self.unsubscribed;
        v311::inward(first, body, &mut packet, |id| unsubscribed.remove(&id)).ok_or(malformed)?;
        if kind == wire::CONNACK {
            // Behind the header and the session present flag.
            let code = packet.get(3).copied().unwrap_or_default();
            self.welcomed = true;
            self.witness.welcomed((code, None));
        }
        self.put_in_place(size, &packet);
        Ok(true)
    }

    /// Looks at all of a PUBLISH but its payload; false when it has not come yet.
    pub(super) fn translate_publish(
        &mut self,
        first: u8,
        header: usize,
        size: usize,
    ) -> Result<bool, Violation> {
        let malformed = Violation::Malformed { packet: "PUBLISH" };
        if first & 0x06 == 0x06 {
            return Err(malformed);
        }
        let complete = self.raw.len() >= size;
        let body = self.raw.get(header..size.min(self.raw.len()));
        let id_length = wire::id_length(first);
        let head = wire::read_text(body.unwrap_or_default())
            .and_then(|(topic, after)| after.get(..id_length).map(|id| (topic, id)));
        let Some((topic, id)) = head else {
            return if complete { Err(malformed) } else { Ok(false) };
        };
        if let Some(id) = id.first_chunk() {
            self.exchange.publish(first, u16::from_be_bytes(*id));
        }
        let head = header + 2 + topic.len() + id_length;
        // MQTT 5 has one byte more in the same length.
        let too_large = size > self.maximum || size - header >= wire::MAX_LENGTH;
        let (topic, payload) = if too_large {
            (self.marker.too_large().as_bytes(), 0)
        } else if Topic::from_bytes(topic).is_ok() {
            (topic, size - head)
        } else {
            (self.marker.topic().as_bytes(), 0)
        };
        let mut packet = vec![first];
        wire::write_length(&mut packet, 2 + topic.len() + id_length + 1 + payload);
        wire::write_text(&mut packet, topic);
        packet.extend_from_slice(id);
        packet.push(0);
        self.put_in_place(head, &packet);
        (self.unseen, self.skipped) = (payload, size - head - payload);
        Ok(true)
    }
}
