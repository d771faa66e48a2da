//! The few bytes of MQTT that the guard reads and writes itself: fixed headers and lengths.

use bytes::BufMut;

/// PUBLISH, MQTT 5 §2.1.2; the upper half of a packet's first byte.
pub(super) const PUBLISH: u8 = 3;
/// PUBACK.
pub(super) const PUBACK: u8 = 4;
/// PUBREC.
pub(super) const PUBREC: u8 = 5;
/// PUBREL.
pub(super) const PUBREL: u8 = 6;
/// PUBCOMP.
pub(super) const PUBCOMP: u8 = 7;
/// SUBSCRIBE.
pub(super) const SUBSCRIBE: u8 = 8;
/// SUBACK.
pub(super) const SUBACK: u8 = 9;
/// UNSUBSCRIBE.
pub(super) const UNSUBSCRIBE: u8 = 10;
/// UNSUBACK.
pub(super) const UNSUBACK: u8 = 11;
/// PINGREQ.
pub(super) const PINGREQ: u8 = 12;
/// PINGRESP.
pub(super) const PINGRESP: u8 = 13;
/// CONNECT.
pub(super) const CONNECT: u8 = 1;
/// CONNACK.
pub(super) const CONNACK: u8 = 2;
/// DISCONNECT.
pub(super) const DISCONNECT: u8 = 14;

/// AUTH.
pub(super) const AUTH: u8 = 15;

/// What the standard calls a packet of that type.
pub(super) const fn name(kind: u8) -> &'static str {
    match kind {
        CONNECT => "CONNECT",
        CONNACK => "CONNACK",
        PUBLISH => "PUBLISH",
        PUBACK => "PUBACK",
        PUBREC => "PUBREC",
        PUBREL => "PUBREL",
        PUBCOMP => "PUBCOMP",
        SUBSCRIBE => "SUBSCRIBE",
        SUBACK => "SUBACK",
        UNSUBSCRIBE => "UNSUBSCRIBE",
        UNSUBACK => "UNSUBACK",
        PINGREQ => "PINGREQ",
        PINGRESP => "PINGRESP",
        DISCONNECT => "DISCONNECT",
        AUTH => "AUTH",
        _ => "a packet of type 0",
    }
}

/// User Property, MQTT 5 §2.2.2.2.
pub(super) const USER_PROPERTY: u8 = 0x26;
/// Reason String, MQTT 5 §2.2.2.2.
pub(super) const REASON_STRING: u8 = 0x1F;
pub(super) const SERVER_REFERENCE: u8 = 0x1C;

/// The largest length of a packet behind its fixed header: MQTT 5 §1.5.5.
pub(super) const MAX_LENGTH: usize = 268_435_455;

/// A length that takes more than four bytes: MQTT 5 §1.5.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overlong;

/// Reads a Variable Byte Integer: its value and how many bytes it takes, `None` when they have
/// not all come yet.
pub(super) fn read_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Overlong> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() < 4 {
        Ok(None)
    } else {
        Err(Overlong)
    }
}

/// Appends a Variable Byte Integer.
pub(super) fn write_length(out: &mut impl BufMut, mut value: usize) {
    loop {
        let low = u8::try_from(value & 0x7F).unwrap_or(0);
        value >>= 7;
        if value == 0 {
            out.put_u8(low);
            return;
        }
        out.put_u8(low | 0x80);
    }
}

/// Appends a string or binary data with its two bytes of length; what does not fit is cut.
pub(super) fn write_text(out: &mut impl BufMut, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.put_u16(length);
    out.put_slice(text.get(..usize::from(length)).unwrap_or_default());
}

/// Reads a string or binary data with its two bytes of length, and what comes after it.
pub(super) fn read_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// How many bytes of packet id a PUBLISH has that begins with this byte: MQTT 5 §3.3.2.2.
pub(super) const fn id_length(first: u8) -> usize {
    if first & 0x06 == 0 { 0 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_back_as_written() {
        for value in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            2_097_151,
            2_097_152,
            268_435_455,
        ] {
            let mut bytes = Vec::new();
            write_length(&mut bytes, value);
            assert_eq!(read_length(&bytes), Ok(Some((value, bytes.len()))));
            bytes.pop();
            assert_eq!(
                read_length(&bytes),
                Ok(None),
                "{value} without its last byte"
            );
        }
    }

    #[test]
    fn a_length_of_five_bytes_is_refused() {
        assert_eq!(read_length(&[0xFF, 0xFF, 0xFF, 0xFF, 0x01]), Err(Overlong));
    }
}
