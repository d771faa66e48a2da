//! What the client library writes, as MQTT 3.1.1: a stream that may be cut anywhere.

use bytes::BytesMut;

use super::v311::{self, Untranslatable};

/// Translates as bytes come. Holds back what is not complete, payloads excepted.
#[derive(Debug, Default)]
pub(super) struct Translator {
    /// The beginning of a packet of which more has to come.
    held: Vec<u8>,
    /// So many of the next bytes are payload.
    payload: usize,
}

impl Translator {
    /// Translates `bytes` into `out`. `unsubscribe` is told packet id and number of filters of
    /// each UNSUBSCRIBE.
    pub(super) fn translate(
        &mut self,
        bytes: &[u8],
        out: &mut BytesMut,
        mut unsubscribe: impl FnMut(u16, usize),
    ) -> Result<(), Untranslatable> {
        let mut held = std::mem::take(&mut self.held);
        let mut rest = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            &held
        };
        while !rest.is_empty() {
            let (payload, behind) = rest.split_at(self.payload.min(rest.len()));
            out.extend_from_slice(payload);
            self.payload -= payload.len();
            let Some(packet) = v311::outward(behind, out)? else {
                self.held = behind.to_vec();
                return Ok(());
            };
            self.payload = packet.payload;
            if let Some((id, filters)) = packet.unsubscribe {
                unsubscribe(id, filters);
            }
            rest = behind.get(packet.taken..).unwrap_or_default();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation as the client library writes it.
    const MQTT5: &[&[u8]] = &[
        // CONNECT with a receive maximum, client id "c".
        &[
            0x10, 0x11, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 30, 3, 0x21, 0, 9, 0, 1, b'c',
        ],
        &[0x82, 7, 0, 1, 0, 0, 1, b'a', 0x2A],
        // A user property a = b.
        &[
            0x32, 0x0F, 0, 1, b't', 0, 2, 7, 0x26, 0, 1, b'a', 0, 1, b'b', b'h', b'i',
        ],
        &[0x30, 4, 0, 1, b't', 0],
        &[0xA2, 6, 0, 3, 0, 0, 1, b'a'],
        &[0x70, 4, 0, 7, 0x92, 0],
        &[0xC0, 0],
        &[0xE0, 0],
    ];

    const MQTT311: &[&[u8]] = &[
        &[
            0x10, 0x0D, 0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0, 30, 0, 1, b'c',
        ],
        &[0x82, 6, 0, 1, 0, 1, b'a', 2],
        &[0x32, 7, 0, 1, b't', 0, 2, b'h', b'i'],
        &[0x30, 3, 0, 1, b't'],
        &[0xA2, 5, 0, 3, 0, 1, b'a'],
        &[0x70, 2, 0, 7],
        &[0xC0, 0],
        &[0xE0, 0],
    ];

    #[test]
    fn a_conversation_is_translated_the_same_however_it_is_cut() {
        let bytes = MQTT5.concat();
        for piece in 1..=bytes.len() {
            let (mut translator, mut out) = (Translator::default(), BytesMut::new());
            let mut unsubscribed = Vec::new();
            for piece in bytes.chunks(piece) {
                translator
                    .translate(piece, &mut out, |id, count| unsubscribed.push((id, count)))
                    .unwrap();
            }
            assert_eq!(out, MQTT311.concat(), "in pieces of {piece}");
            assert_eq!(unsubscribed, [(3, 1)]);
        }
    }
}
