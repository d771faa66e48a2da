//! A segment: one file of the journal, its name and its header.
//!
//! The header stands twice, at offset 0 and at offset 4096, and frames begin at 8192: without the
//! salt no frame can be told from noise, so one damaged page must not cost it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::codec::Reader;

/// The first bytes of every segment.
pub(crate) const MAGIC: [u8; 8] = *b"BRDGJRNL";
/// The format that this code writes, and the newest that it reads.
pub(crate) const VERSION: u16 = 1;
/// Bytes of one copy of the header.
pub(crate) const HEADER: usize = 38;
/// Where the second copy of the header stands.
pub(crate) const SECOND_HEADER_AT: usize = 4096;
/// Where the first frame begins.
pub(crate) const FRAMES_AT: usize = 8192;

/// What makes a segment's checksums its own: random, so that no payload can foresee it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt {
    bytes: [u8; 16],
    seed: u32,
}

impl Salt {
    pub(crate) fn new(bytes: [u8; 16]) -> Self {
        Self {
            bytes,
            seed: crc32c::crc32c(&bytes),
        }
    }

    pub(crate) fn random() -> Self {
        Self::new(rand::random())
    }

    pub(crate) const fn seed(&self) -> u32 {
        self.seed
    }
}

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) first_seq: u64,
    pub(crate) salt: Salt,
}

/// Why the bytes at the front of a file are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// A sound header of a format that this code does not know.
    Version(u16),
    /// Neither copy is sound.
    Damaged,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.salt.bytes);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Both copies with the space around them: what a new segment begins with.
    pub(crate) fn encode_area(&self) -> Vec<u8> {
        let mut area = self.encode();
        let copy = area.clone();
        area.resize(SECOND_HEADER_AT, 0);
        area.extend_from_slice(&copy);
        area.resize(FRAMES_AT, 0);
        area
    }

    fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let header = bytes.get(..HEADER).ok_or(BadHeader::Damaged)?;
        Self::decode_fields(header)
            .map_err(|_| BadHeader::Damaged)
            .flatten()
    }

    fn decode_fields(header: &[u8]) -> Result<Result<Self, BadHeader>, crate::codec::Malformed> {
        let mut reader = Reader::new(header);
        let magic: [u8; 8] = reader.array()?;
        let version = reader.u16()?;
        let first_seq = reader.u64()?;
        let salt: [u8; 16] = reader.array()?;
        let crc = reader.u32()?;
        let covered = header.get(..HEADER - 4).unwrap_or_default();
        if magic != MAGIC || crc32c::crc32c(covered) != crc {
            return Ok(Err(BadHeader::Damaged));
        }
        if version != VERSION {
            return Ok(Err(BadHeader::Version(version)));
        }
        Ok(Ok(Self {
            first_seq,
            salt: Salt::new(salt),
        }))
    }

    /// The header of a segment that begins with `bytes`, from whichever copy is sound; and
    /// whether both are.
    pub(crate) fn find(bytes: &[u8]) -> Result<(Self, bool), BadHeader> {
        let first = Self::decode(bytes);
        let second = Self::decode(bytes.get(SECOND_HEADER_AT..).unwrap_or_default());
        match (first, second) {
            (Ok(header), second) => Ok((header, second == Ok(header))),
            (Err(_), Ok(header)) => Ok((header, false)),
            (Err(BadHeader::Version(version)), _) | (_, Err(BadHeader::Version(version))) => {
                Err(BadHeader::Version(version))
            }
            (Err(BadHeader::Damaged), Err(BadHeader::Damaged)) => Err(BadHeader::Damaged),
        }
    }
}

/// The path of the segment whose first frame has that number.
pub(crate) fn path(folder: &Path, first_seq: u64) -> PathBuf {
    folder.join(format!("{first_seq:016x}.log"))
}

/// What a segment's file ends in while it is being renamed, once or several times over.
const IN_PASSAGE: &str = ".misnamed";

/// The name of passage of the file at `path` that is none of `taken`.
pub(crate) fn aside(path: &Path, taken: &BTreeSet<PathBuf>) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = stem.trim_end_matches(IN_PASSAGE).to_owned();
    loop {
        name.push_str(IN_PASSAGE);
        let aside = path.with_file_name(&name);
        if !taken.contains(&aside) {
            return aside;
        }
    }
}

/// The number in a segment's file name, be it in passage; `None` for a file that is no segment.
pub(crate) fn seq_of_name(name: &str) -> Option<u64> {
    let plain = name.trim_end_matches(IN_PASSAGE);
    let digits = if plain.len() < name.len() {
        plain
    } else {
        name.strip_suffix(".log")?
    };
    (digits.len() == 16
        && digits
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
    .then(|| u64::from_str_radix(digits, 16).ok())
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_loss_of_either_page() {
        let header = Header {
            first_seq: 42,
            salt: Salt::new([7; 16]),
        };
        let area = header.encode_area();
        assert_eq!(area.len(), FRAMES_AT);
        assert_eq!(Header::find(&area), Ok((header, true)));
        for page in [0, SECOND_HEADER_AT] {
            let mut bad = area.clone();
            bad[page..page + 4096].fill(0);
            assert_eq!(Header::find(&bad), Ok((header, false)));
        }
        for at in (0..HEADER).chain(SECOND_HEADER_AT..SECOND_HEADER_AT + HEADER) {
            let mut bad = area.clone();
            bad[at] ^= 0x10;
            assert_eq!(Header::find(&bad), Ok((header, false)), "byte {at}");
        }
        assert_eq!(Header::find(&[]), Err(BadHeader::Damaged));
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let header = Header {
            first_seq: 1,
            salt: Salt::new([7; 16]),
        };
        let mut newer = header.encode();
        newer[8..10].copy_from_slice(&9_u16.to_le_bytes());
        let crc = crc32c::crc32c(&newer[..HEADER - 4]);
        newer[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::find(&newer), Err(BadHeader::Version(9)));
    }

    #[test]
    fn a_name_reads_back() {
        let path = path(Path::new("/j"), 0xabc);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(seq_of_name(name), Some(0xabc));
        assert_eq!(seq_of_name("0000000000000abc.misnamed"), Some(0xabc));
        assert_eq!(seq_of_name("0000000000000abc"), None);
        assert_eq!(seq_of_name("reserve"), None);
        assert_eq!(seq_of_name("00000000000000zz.log"), None);
    }
}
