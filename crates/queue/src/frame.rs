//! Framing: how one record lies in a segment, and how it is told from bytes that are none.
//!
//! ```text
//! len u32 │ crc32c u32 │ seq u64 │ kind u8 │ body
//!         └ salted ───►└──────── len bytes ───────┘
//! ```
//!
//! The highest bit of the kind marks the first frame of a batch: what was made durable together.
//!
//! The checksum starts from the segment's salt and covers the length too, so that a payload that
//! holds a well-formed frame of some other segment is no frame here, and a flipped length is
//! noticed before it is believed.

use crate::codec::Reader;
use crate::segment::Salt;

/// Bytes of a frame in front of what its length counts.
pub(crate) const PREFIX: usize = 8;
/// The least that a length counts: sequence number and kind.
pub(crate) const MIN_LEN: usize = 9;
/// Bytes of a frame in front of its body.
pub(crate) const OVERHEAD: usize = PREFIX + MIN_LEN;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message and where it is placed; its entries have the frame's number.
    Put = 1,
    /// Ranges of entries that are done at a binding.
    Settle = 2,
    /// An entry is deferred, or was refused again.
    Defer = 3,
    /// An entry is a dead letter.
    DeadLetter = 4,
    /// A dead letter's message under a new id at the tail of the queue; the dead letter is gone.
    Redrive = 5,
    /// A dead letter is gone.
    Delete = 6,
    /// A message that was moved to this segment, with the number that its entries keep.
    Copy = 7,
    /// The segments that there were when this one began; its first frame.
    Segments = 8,
    /// Segments of which nothing is needed any more.
    Retire = 9,
    /// Bytes that a power cut left in place of records that were not acknowledged.
    Gap = 10,
}

/// Set in the kind of the first frame of a batch.
pub(crate) const FIRST_OF_BATCH: u8 = 0x80;

impl Kind {
    /// All of them, with the name that the format's chapter uses.
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Put, "Put"),
        (Self::Settle, "Settle"),
        (Self::Defer, "Defer"),
        (Self::DeadLetter, "DeadLetter"),
        (Self::Redrive, "Redrive"),
        (Self::Delete, "Delete"),
        (Self::Copy, "Copy"),
        (Self::Segments, "Segments"),
        (Self::Retire, "Retire"),
        (Self::Gap, "Gap"),
    ];

    /// The kind, whether or not the byte marks a batch.
    pub(crate) fn from_u8(byte: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .map(|(kind, _)| kind)
            .find(|kind| *kind as u8 == byte & !FIRST_OF_BATCH)
    }
}

/// One frame, its checksum already compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) seq: u64,
    pub(crate) kind: Kind,
    /// Whether it begins a batch.
    pub(crate) first: bool,
    pub(crate) body: &'a [u8],
    /// All of its bytes, prefix included.
    pub(crate) len: usize,
}

/// Appends a frame whose body `write` appends. Returns the frame's length.
pub(crate) fn append(
    out: &mut Vec<u8>,
    salt: &Salt,
    seq: u64,
    kind: Kind,
    first: bool,
    write: impl FnOnce(&mut Vec<u8>),
) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    out.extend_from_slice(&seq.to_le_bytes());
    out.push(kind as u8 | if first { FIRST_OF_BATCH } else { 0 });
    write(out);
    let total = out.len() - start;
    // A body is bounded by the largest message that the store takes, far below 4 GiB.
    let len = u32::try_from(total - PREFIX)
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    if let Some((prefix, covered)) = out
        .get_mut(start..)
        .and_then(|frame| frame.split_first_chunk_mut::<PREFIX>())
    {
        let crc = checksum(salt, len, covered).to_le_bytes();
        let [l0, l1, l2, l3] = len;
        let [c0, c1, c2, c3] = crc;
        *prefix = [l0, l1, l2, l3, c0, c1, c2, c3];
    }
    total
}

/// What stands in front of a body that is in its place already: `len` bytes, whose CRC-32C is
/// `body`. It begins no batch.
pub(crate) fn front(salt: &Salt, seq: u64, kind: Kind, len: usize, body: u32) -> Vec<u8> {
    let mut covered = seq.to_le_bytes().to_vec();
    covered.push(kind as u8);
    let claimed = u32::try_from(MIN_LEN + len).unwrap_or(u32::MAX);
    let claimed = claimed.to_le_bytes();
    let crc = crc32c::crc32c_combine(checksum(salt, claimed, &covered), body, len);
    [&claimed[..], &crc.to_le_bytes(), &covered].concat()
}

fn checksum(salt: &Salt, len: [u8; 4], covered: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt.seed(), &len), covered)
}

/// The length that the bytes claim for a frame at their front, prefix included, when it is at
/// all possible.
pub(crate) fn claimed_len(bytes: &[u8]) -> Option<usize> {
    let len = usize::try_from(Reader::new(bytes).u32().ok()?).ok()?;
    (len >= MIN_LEN).then(|| len.checked_add(PREFIX)).flatten()
}

/// The frame at the front of `bytes`, if there is a whole and sound one.
pub(crate) fn parse<'a>(bytes: &'a [u8], salt: &Salt) -> Option<Frame<'a>> {
    let total = claimed_len(bytes)?;
    let mut reader = Reader::new(bytes.get(..total)?);
    let len: [u8; 4] = reader.array().ok()?;
    let crc = reader.u32().ok()?;
    if checksum(salt, len, reader.rest()) != crc {
        return None;
    }
    let seq = reader.u64().ok()?;
    let kind = reader.u8().ok()?;
    Some(Frame {
        seq,
        kind: Kind::from_u8(kind)?,
        first: kind & FIRST_OF_BATCH != 0,
        body: reader.rest(),
        len: total,
    })
}

/// What the bytes look like as a frame, whether or not the checksum is right or all of it is there.
pub(crate) fn likeness(bytes: &[u8]) -> Option<Frame<'_>> {
    let len = claimed_len(bytes).unwrap_or(bytes.len()).min(bytes.len());
    let mut reader = Reader::new(bytes.get(PREFIX..len)?);
    let seq = reader.u64().ok()?;
    let kind = reader.u8().ok()?;
    Some(Frame {
        seq,
        kind: Kind::from_u8(kind)?,
        first: kind & FIRST_OF_BATCH != 0,
        body: reader.rest(),
        len,
    })
}

/// How many bytes may be checksummed while looking for the next frame in a segment of `len`
/// bytes: payloads that are made of frame-like bytes cost time, and never more than this.
pub(crate) fn resync_budget(len: usize) -> usize {
    len.saturating_mul(32)
}

/// Where in `bytes`, which `rest` bytes of the file begin with, the next frame may begin whose
/// number lies in `seqs`, and how long it would be.
pub(crate) fn next_likely(
    bytes: &[u8],
    rest: usize,
    seqs: &std::ops::Range<u64>,
) -> Option<(usize, usize)> {
    const BLOCK: usize = 64;
    let mut at = 0;
    while let Some(here) = bytes.get(at..).filter(|here| here.len() >= OVERHEAD) {
        // Holes are long, and no frame's length begins with so many zeros.
        if here.first_chunk() == Some(&[0; BLOCK]) {
            at += BLOCK - 4;
            continue;
        }
        if let Some(total) = claimed_len(here).filter(|total| *total <= rest - at) {
            let mut reader = Reader::new(here);
            let plausible = reader.bytes(PREFIX).is_ok()
                && reader.u64().is_ok_and(|seq| seqs.contains(&seq))
                && reader.u8().is_ok_and(|kind| Kind::from_u8(kind).is_some());
            if plausible {
                return Some((at, total));
            }
        }
        at += 1;
    }
    None
}

/// The checksum of one frame whose bytes come in pieces, the first of which holds its prefix.
#[derive(Debug)]
pub(crate) struct Sum {
    seed: u32,
    /// What the frame says that its checksum is, and the checksum of what came so far.
    sums: Option<(u32, u32)>,
}

impl Sum {
    pub(crate) const fn new(salt: &Salt) -> Self {
        let seed = salt.seed();
        Self { seed, sums: None }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.sums = match self.sums {
            Some((claimed, sum)) => Some((claimed, crc32c::crc32c_append(sum, bytes))),
            None => bytes.split_first_chunk().map(|(prefix, covered)| {
                let [l0, l1, l2, l3, c0, c1, c2, c3]: [u8; PREFIX] = *prefix;
                let sum = crc32c::crc32c_append(self.seed, &[l0, l1, l2, l3]);
                let claimed = u32::from_le_bytes([c0, c1, c2, c3]);
                (claimed, crc32c::crc32c_append(sum, covered))
            }),
        };
    }

    pub(crate) fn is_right(&self) -> bool {
        self.sums.is_some_and(|(claimed, sum)| claimed == sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salt(byte: u8) -> Salt {
        Salt::new([byte; 16])
    }

    fn frame(salt: &Salt, seq: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let len = append(&mut out, salt, seq, Kind::Put, true, |out| {
            out.extend_from_slice(body);
        });
        assert_eq!(len, out.len());
        out
    }

    #[test]
    fn a_frame_reads_back() {
        let bytes = frame(&salt(1), 7, b"hello");
        let read = parse(&bytes, &salt(1)).unwrap();
        assert_eq!(
            (read.seq, read.kind, read.body),
            (7, Kind::Put, &b"hello"[..])
        );
        assert!(read.first);
        assert_eq!(read.len, OVERHEAD + 5);
    }

    #[test]
    fn a_front_makes_a_frame_of_what_is_behind_it() {
        for body in [&b""[..], b"hello", &[7; 3000]] {
            let mut whole = Vec::new();
            append(&mut whole, &salt(1), 7, Kind::Gap, false, |out| {
                out.extend_from_slice(body);
            });
            let front = front(&salt(1), 7, Kind::Gap, body.len(), crc32c::crc32c(body));
            assert_eq!([&front, body].concat(), whole);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = frame(&salt(1), 7, b"hello");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(parse(&bad, &salt(1)), None, "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_frame_of_another_segment_is_none_here() {
        let bytes = frame(&salt(1), 7, b"hello");
        assert_eq!(parse(&bytes, &salt(2)), None);
    }
}
