//! The head: a small file that says how far the journal has come, so that segments which are gone
//! are missed also when no later segment lists them.
//!
//! It is written when a segment has begun and when the journal closes, so it never says more than
//! what is durable: what it says is there, and is not, was lost. It is a help and nothing else: a
//! journal without it, or with one that cannot be read, opens all the same.

use std::io;

use crate::codec::{Malformed, Reader};
use crate::disk::{Access, Disk, Layout};

pub(crate) const MAGIC: [u8; 8] = *b"BRDGHEAD";
pub(crate) const VERSION: u16 = 1;
/// What is missing is told once for so many pieces; those beyond are told again.
const MOST_TOLD: usize = 4096;

/// How far a journal has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Head {
    /// The number with which the newest segment begins.
    pub(crate) segment: u64,
    /// Every record below this number was durable.
    pub(crate) next: u64,
    /// With which numbers the pieces begin that an opening has missed, and told of.
    pub(crate) told: Vec<u64>,
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        let told = self.told.get(..MOST_TOLD).unwrap_or(&self.told);
        crate::record::encode_seqs(&mut out, told);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (covered, crc) = bytes
            .split_last_chunk::<4>()
            .ok_or(Malformed("it ends too early"))?;
        if crc32c::crc32c(covered).to_le_bytes() != *crc {
            return Err(Malformed("the checksum is wrong"));
        }
        let mut reader = Reader::new(covered);
        if reader.array()? != MAGIC || reader.u16()? != VERSION {
            return Err(Malformed("it is of another kind or version"));
        }
        let head = Self {
            segment: reader.u64()?,
            next: reader.u64()?,
            told: crate::record::decode_seqs(&mut reader)?,
        };
        if reader.is_empty() {
            Ok(head)
        } else {
            Err(Malformed("something follows it"))
        }
    }

    /// The head of the journal, if there is one that can be read.
    pub(crate) fn read(disk: &dyn Disk, layout: &Layout) -> Option<Self> {
        let read = || -> io::Result<Vec<u8>> {
            let file = disk.open(&layout.head(), Access::Read)?;
            let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
            let mut bytes = vec![0; len.min(8 * MOST_TOLD + 64)];
            file.read_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        // Unreadable is as good as absent: it says less, and nothing wrong.
        Self::decode(&read().ok()?).ok()
    }

    /// Puts this in place of the head that is there: the old one or the new one is there after a
    /// crash, never half of one.
    pub(crate) fn write(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        let place = layout.head();
        let draft = place.with_extension("draft");
        match disk.remove(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(&draft)?;
        file.write_at(&self.encode(), 0)?;
        file.sync()?;
        disk.rename(&draft, &place)?;
        disk.sync_folder(layout.root())
    }

    /// Notes that a segment has begun durably with the record `first_seq`.
    pub(crate) fn segment_begun(disk: &dyn Disk, layout: &Layout, first_seq: u64) {
        // What an older segment misses is missed for as long as it is there.
        let told = Self::read(disk, layout).map_or_else(Vec::new, |head| head.told);
        let head = Self {
            segment: first_seq,
            next: first_seq.saturating_add(1),
            told,
        };
        head.write_or_say(disk, layout);
    }

    /// Notes that the journal is closed, with every record below `next` durable.
    pub(crate) fn closed(disk: &dyn Disk, layout: &Layout, next: u64) {
        if let Some(head) = Self::read(disk, layout)
            && head.next < next
        {
            Self { next, ..head }.write_or_say(disk, layout);
        }
    }

    /// What the old one says stays true.
    pub(crate) fn write_or_say(&self, disk: &dyn Disk, layout: &Layout) {
        if let Err(error) = self.write(disk, layout) {
            tracing::debug!(
                event = "journal_head_not_written",
                error = %error,
                "a loss of the newest segments would be noticed less exactly"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn a_head_reads_back_and_a_damaged_one_says_nothing() {
        let disk = SimDisk::default();
        let layout = Layout::new(Path::new("/data"));
        assert_eq!(Head::read(&disk, &layout), None);
        let head = Head {
            segment: 7,
            next: 99,
            told: vec![3, 4],
        };
        head.write(&disk, &layout).unwrap();
        assert_eq!(Head::read(&disk, &layout), Some(head.clone()));
        let bytes = head.encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            disk.put(&layout.head(), bad);
            assert_eq!(Head::read(&disk, &layout), None, "byte {at}");
            disk.put(&layout.head(), bytes[..at].to_vec());
            assert_eq!(Head::read(&disk, &layout), None, "cut to {at}");
        }
    }
}
