//! The data types of MQTT 5 §1.5.

use bytes::{Buf, Bytes};

/// Bytes that are no MQTT 5 packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The packet ends within a field.
    #[error("the packet ends within a field")]
    Short,
    /// Bytes are left after the last field.
    #[error("{0} bytes are left after the last field")]
    Trailing(usize),
    /// A variable byte integer of more than four bytes.
    #[error("a variable byte integer is longer than four bytes")]
    VarInt,
    /// A text that is not UTF-8.
    #[error("a text is not UTF-8: {0:02x?}")]
    Text(Vec<u8>),
    /// A property identifier that the standard does not know.
    #[error("unknown property 0x{0:02x}")]
    Property(u8),
    /// A first byte that begins no packet.
    #[error("no packet begins with 0x{0:02x}")]
    PacketType(u8),
    /// A protocol name or level that is neither MQTT 5 nor MQTT 3.1.1.
    #[error("neither MQTT 5 nor 3.1.1: protocol {name:?} level {level}")]
    Protocol {
        /// The protocol's name.
        name: String,
        /// Its level.
        level: u8,
    },
}

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Short
    }
}

impl From<Malformed> for std::io::Error {
    fn from(error: Malformed) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// A type that has a form on the wire.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut Bytes) -> Result<Self, Malformed>;
}

/// A variable byte integer, as a property holds one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VarInt(pub(crate) u32);

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        Ok(from.try_get_u8()?)
    }
}

impl Wire for u16 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        Ok(from.try_get_u16()?)
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        Ok(from.try_get_u32()?)
    }
}

impl Wire for VarInt {
    fn put(&self, out: &mut Vec<u8>) {
        put_var_int(out, self.0 as usize);
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = from.try_get_u8()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Self(value));
            }
        }
        Err(Malformed::VarInt)
    }
}

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_binary(out, self);
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        let length = usize::from(from.try_get_u16()?);
        if from.len() < length {
            return Err(Malformed::Short);
        }
        Ok(from.split_to(length))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_binary(out, self.as_bytes());
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        let bytes = Bytes::get(from)?;
        Self::from_utf8(bytes.to_vec()).map_err(|error| Malformed::Text(error.into_bytes()))
    }
}

impl Wire for (String, String) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        Ok((String::get(from)?, String::get(from)?))
    }
}

/// Appends a variable byte integer.
pub(crate) fn put_var_int(out: &mut Vec<u8>, mut value: usize) {
    assert!(value < 1 << 28, "{value} has no variable byte integer");
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Appends a length of two bytes and the bytes themselves.
pub(crate) fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).expect("a text or binary field of at most 65535 bytes");
    length.put(out);
    out.extend_from_slice(bytes);
}
