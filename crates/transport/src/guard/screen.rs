//! What comes from the broker, packet by packet, before the client library sees it.

use std::sync::Arc;

use bridge_core::Topic;
use bytes::{Buf, BytesMut};

use super::marker::Marker;
use super::reshape;
use super::wire;
use super::witness::Witness;

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
}

/// Frames what has come, reshapes what the library would stumble over, and clears the rest.
///
/// ```text
///   raw:  [ cleared: may be handed on ][ not looked at, or not complete ]
/// ```
///
/// A packet is bounded as soon as its length is known, before its bytes are waited for. Payloads
/// are cleared as they come, unseen.
#[derive(Debug)]
pub(super) struct Screen {
    raw: BytesMut,
    cleared: usize,
    /// How much of the packet at hand is still to be cleared unseen.
    unseen: usize,
    maximum: usize,
    marker: Marker,
    witness: Arc<Witness>,
}

impl Screen {
    pub(super) fn new(maximum: u32, marker: Marker, witness: Arc<Witness>) -> Self {
        Self {
            raw: BytesMut::new(),
            cleared: 0,
            unseen: 0,
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
        self.raw.get(..self.cleared).unwrap_or_default()
    }

    /// So many of the cleared bytes have been handed on.
    pub(super) fn consume(&mut self, bytes: usize) {
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
                self.cleared += step;
                self.unseen -= step;
                if self.unseen > 0 {
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
            if size > self.maximum {
                return Err(Violation::TooLarge {
                    size,
                    maximum: self.maximum,
                });
            }
            let looked_at = match kind {
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
        self.splice(topic_end, &head);
        self.cleared += head.len();
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
            wire::DISCONNECT => self.witness.disconnected(reshape::reason(body)),
            // The first byte holds the session present flag.
            wire::CONNACK => {
                let from_code = body.get(1..).unwrap_or_default();
                self.witness.welcomed(reshape::reason(from_code));
            }
            _ => {}
        }
        let Some(reshaped) = reshape::reshape(packet, header, &self.marker) else {
            self.unseen = size;
            return true;
        };
        self.splice(size, &reshaped);
        self.cleared += reshaped.len();
        true
    }

    /// Puts `new` in place of the `old` bytes behind what is cleared.
    fn splice(&mut self, old: usize, new: &[u8]) {
        let mut tail = self.raw.split_off(self.cleared);
        tail.advance(old.min(tail.len()));
        self.raw.extend_from_slice(new);
        self.raw.extend_from_slice(&tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(maximum: u32) -> (Screen, Arc<Witness>, Marker) {
        let (witness, marker) = (Arc::new(Witness::default()), Marker::new(7));
        let screen = Screen::new(maximum, marker.clone(), Arc::clone(&witness));
        (screen, witness, marker)
    }

    /// Feeds bytes in pieces and collects what is cleared.
    fn through(screen: &mut Screen, bytes: &[u8], piece: usize) -> Result<Vec<u8>, Violation> {
        let mut out = Vec::new();
        for piece in bytes.chunks(piece) {
            screen.buffer(piece.len()).extend_from_slice(piece);
            screen.examine()?;
            out.extend_from_slice(screen.cleared());
            let all = screen.cleared().len();
            screen.consume(all);
        }
        Ok(out)
    }

    fn publish(topic: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        wire::write_text(&mut body, topic);
        body.extend_from_slice(&[0, 1, 0]);
        body.extend_from_slice(payload);
        let mut packet = vec![0x32];
        wire::write_length(&mut packet, body.len());
        packet.append(&mut body);
        packet
    }

    #[test]
    fn what_is_in_order_passes_unchanged_however_it_is_cut() {
        let mut bytes = publish(b"a/b", &[7; 300]);
        bytes.extend_from_slice(&[0x40, 2, 0, 1, 0xD0, 0, 0x40, 3, 0, 2, 0x87]);
        bytes.extend(publish(b"", b"by alias"));
        for piece in 1..bytes.len() {
            let (mut screen, _, _) = screen(1024);
            assert_eq!(
                through(&mut screen, &bytes, piece).unwrap(),
                bytes,
                "{piece}"
            );
        }
    }

    #[test]
    fn an_invalid_topic_is_replaced_and_its_neighbours_pass() {
        for bad in [&b"a\0b"[..], b"a/#", b"+", &[0xC3, 0x28]] {
            let mut bytes = publish(b"before", b"1");
            bytes.extend(publish(bad, b"payload"));
            bytes.extend(publish(b"after", b"2"));
            for piece in [1, 2, 3, 5, bytes.len()] {
                let (mut screen, _, marker) = screen(1024);
                let mut expected = publish(b"before", b"1");
                expected.extend(publish(marker.topic().as_bytes(), b"payload"));
                expected.extend(publish(b"after", b"2"));
                assert_eq!(through(&mut screen, &bytes, piece).unwrap(), expected);
            }
        }
    }

    #[test]
    fn an_unknown_code_amid_others_is_reshaped_however_it_is_cut() {
        let bytes = [0x40, 2, 0, 1, 0x40, 3, 0, 2, 0xE5, 0x40, 2, 0, 3];
        let (mut first, _, _) = screen(1024);
        let whole = through(&mut first, &bytes, bytes.len()).unwrap();
        assert!(whole.starts_with(&[0x40, 2, 0, 1, 0x40]));
        assert!(whole.ends_with(&[0x40, 2, 0, 3]));
        for piece in 1..bytes.len() {
            let (mut screen, _, _) = screen(1024);
            assert_eq!(through(&mut screen, &bytes, piece).unwrap(), whole);
        }
    }

    proptest::proptest! {
        #[test]
        fn i25_any_bytes_cut_anywhere_come_to_the_same_and_never_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            // Types that are looked at, with a plausible length, more often than chance has them.
            kind in 2_u8..15,
            length in 0_u8..40,
            piece in 1_usize..20,
        ) {
            let mut bytes = bytes;
            bytes.splice(0..0, [kind << 4, length]);
            let (mut first, _, _) = screen(100);
            let (mut second, _, _) = screen(100);
            let whole = through(&mut first, &bytes, bytes.len());
            let pieces = through(&mut second, &bytes, piece);
            proptest::prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn a_packet_that_is_too_large_is_found_out_by_its_header_alone() {
        let (mut screen, _, _) = screen(100);
        let result = through(&mut screen, &[0x30, 0xFF, 0xFF, 0x7F], 4);
        let size = 2_097_151 + 4;
        assert_eq!(result, Err(Violation::TooLarge { size, maximum: 100 }));
    }

    #[test]
    fn what_a_disconnect_said_is_remembered_as_it_was_sent() {
        let (mut screen, witness, _) = screen(100);
        let out = through(&mut screen, &[0xE0, 1, 0xE5], 1).unwrap();
        assert_eq!(out, [0xE0, 1, 0x80]);
        let (code, _) = witness.disconnect().unwrap();
        assert_eq!(code.get(), 0xE5);
    }
}
