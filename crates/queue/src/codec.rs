//! The small binary encoding that headers and record bodies share: little-endian numbers,
//! length-prefixed bytes, LEB128 where numbers are mostly small.

/// What could not be decoded; where it matters, the caller says where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes do not decode: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads from the front of a byte slice; never past its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self
            .0
            .split_at_checked(count)
            .ok_or(Malformed("it ends too early"))?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Malformed("it ends too early"))?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes behind a length of one byte.
    pub(crate) fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u8()?;
        self.bytes(usize::from(length))
    }

    /// Bytes behind a length of four bytes.
    pub(crate) fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).map_err(|_| Malformed("a length is too large"))?)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.long()?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    /// A LEB128 number.
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number is too large"))
    }
}

/// Appends bytes behind a length of one byte. A name has at most 64 bytes.
pub(crate) fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or(bytes));
}

/// Appends bytes behind a length of four bytes; the store bounds a message far below that.
pub(crate) fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a LEB128 number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let bits = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            out.push(bits);
            return;
        }
        out.push(bits | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_reads_back_and_never_overflows() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
        }
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
        assert!(Reader::new(&[0x80]).varint().is_err());
    }

    #[test]
    fn reading_past_the_end_is_an_error() {
        let mut reader = Reader::new(&[3, 1, 2]);
        assert!(reader.short().is_err());
        assert!(Reader::new(&[1, 2, 3]).u32().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0]).long().is_err());
    }
}
