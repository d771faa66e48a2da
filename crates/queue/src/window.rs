//! The bytes of one segment's file, of which no more is in memory than a window: a file that someone
//! or a broken file system made huge costs no more than a whole one.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskFile};
use crate::frame::{self, Frame, OVERHEAD, PREFIX};
use crate::segment::Salt;

/// No segment of ours is larger than the largest segment and the largest message: what follows is
/// not looked at.
const MAX_FILE: u64 = (2 << 30) + (64 << 20);
/// So many bytes are read at once.
const CHUNK: usize = 1 << 20;

/// A segment's file, and the part of it that was read last.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<dyn DiskFile>,
    /// How much of the file is looked at.
    len: usize,
    bytes: Vec<u8>,
    /// Where in the file they begin.
    base: usize,
}

impl Window {
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let file = disk.open(path, Access::Read)?;
        // Some of the hole behind the data, so that it is noticed.
        let data = file.data_end(MAX_FILE)?.saturating_add(OVERHEAD as u64);
        let len = file.len()?.min(data).min(MAX_FILE);
        Ok(Self {
            file,
            len: usize::try_from(len).map_err(io::Error::other)?,
            bytes: Vec::new(),
            base: 0,
        })
    }

    /// How many bytes there are to look at.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes from `at` on, `wanted` of them or as many as there are.
    pub(crate) fn get(&mut self, at: usize, wanted: usize) -> io::Result<&[u8]> {
        let wanted = wanted.min(self.len.saturating_sub(at));
        self.load(at, wanted)?;
        let from = at.saturating_sub(self.base);
        let all = self.bytes.get(from..).unwrap_or_default();
        Ok(all.get(..wanted).unwrap_or(all))
    }

    /// The bytes from `at` on that are in memory, at least as many as a frame needs.
    fn some(&mut self, at: usize) -> io::Result<&[u8]> {
        self.load(at, OVERHEAD.min(self.len.saturating_sub(at)))?;
        let from = at.saturating_sub(self.base);
        Ok(self.bytes.get(from..).unwrap_or_default())
    }

    fn load(&mut self, at: usize, wanted: usize) -> io::Result<()> {
        let end = at.saturating_add(wanted);
        if wanted > 0 && (at < self.base || end > self.base + self.bytes.len()) {
            let count = wanted.max(CHUNK).min(self.len.saturating_sub(at));
            self.bytes.resize(count, 0);
            self.base = at;
            if let Err(error) = self.file.read_at(&mut self.bytes, at as u64) {
                self.bytes.clear();
                return Err(error);
            }
        }
        Ok(())
    }

    /// The frame at `at`, if there is a whole and sound one.
    pub(crate) fn parse(&mut self, at: usize, salt: &Salt) -> io::Result<Option<Frame<'_>>> {
        let rest = self.len.saturating_sub(at);
        let claimed = frame::claimed_len(self.get(at, PREFIX)?);
        let Some(total) = claimed.filter(|total| *total <= rest) else {
            return Ok(None);
        };
        // Nothing is taken into memory on the word of bytes that may be no frame.
        if total > CHUNK && !self.is_sound(at, total, salt)? {
            return Ok(None);
        }
        Ok(frame::parse(self.get(at, total)?, salt))
    }

    /// Whether the checksum of a long frame is right, read in pieces.
    fn is_sound(&self, at: usize, total: usize, salt: &Salt) -> io::Result<bool> {
        let mut piece = vec![0; CHUNK.min(total)];
        let mut sum = frame::Sum::new(salt);
        let mut done = 0;
        while done < total {
            let count = piece.len().min(total - done);
            let part = piece.get_mut(..count).unwrap_or_default();
            self.file.read_at(part, (at + done) as u64)?;
            sum.add(part);
            done += count;
        }
        Ok(sum.is_right())
    }

    /// Where, from `from` on, the next sound frame begins whose number lies in `seqs`, and that
    /// number.
    ///
    /// A look at length, kind and number comes before the checksum, so that this is quick over bytes
    /// that only look a little like frames; `budget` bounds what is checksummed.
    pub(crate) fn resync(
        &mut self,
        from: usize,
        salt: &Salt,
        seqs: &Range<u64>,
        budget: &mut usize,
    ) -> io::Result<Option<(usize, u64)>> {
        let mut at = from;
        loop {
            let rest = self.len.saturating_sub(at);
            let here = self.some(at)?;
            if here.len() < OVERHEAD {
                return Ok(None);
            }
            let Some((skipped, total)) = frame::next_likely(here, rest, seqs) else {
                at += here.len() - OVERHEAD + 1;
                continue;
            };
            at += skipped;
            let Some(left) = budget.checked_sub(total) else {
                return Ok(None);
            };
            *budget = left;
            if let Some(frame) = self.parse(at, salt)? {
                return Ok(Some((at, frame.seq)));
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, resync_budget};
    use crate::sim::SimDisk;

    fn frame(salt: u8, seq: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame::append(
            &mut out,
            &Salt::new([salt; 16]),
            seq,
            Kind::Put,
            true,
            |out| {
                out.extend_from_slice(body);
            },
        );
        out
    }

    fn window(bytes: Vec<u8>) -> Window {
        let (disk, path) = (SimDisk::default(), Path::new("/data/file"));
        disk.put(path, bytes);
        Window::open(&disk, path).unwrap()
    }

    #[test]
    fn the_next_frame_is_found_behind_damage_and_only_there() {
        let salt = Salt::new([3; 16]);
        for padding in [0, 100, CHUNK - 70, CHUNK - 10, CHUNK, 3 * CHUNK + 5] {
            let mut bytes = vec![0xAA; padding];
            bytes.extend_from_slice(&frame(9, 3, b"from a payload"));
            let start = bytes.len();
            bytes.extend_from_slice(&frame(3, 4, b"ours"));
            let mut window = window(bytes);
            let mut budget = resync_budget(window.len());
            let found = window.resync(0, &salt, &(2..10), &mut budget).unwrap();
            assert_eq!(found, Some((start, 4)), "behind {padding}");
            let found = window.resync(0, &salt, &(5..10), &mut budget).unwrap();
            assert_eq!(found, None);
        }
    }

    #[test]
    fn a_frame_longer_than_the_window_is_read_and_a_false_one_is_not() {
        let salt = Salt::new([3; 16]);
        let body = vec![5; 2 * CHUNK + 77];
        let mut bytes = vec![0; 50];
        bytes.extend_from_slice(&frame(3, 4, &body));
        let mut whole = window(bytes.clone());
        let read = whole.parse(50, &salt).unwrap().unwrap();
        assert_eq!((read.seq, read.body), (4, &body[..]));
        *bytes.last_mut().unwrap() ^= 1;
        let mut damaged = window(bytes);
        assert_eq!(damaged.parse(50, &salt).unwrap(), None);
        assert!(damaged.bytes.capacity() <= 2 * CHUNK);
    }

    #[test]
    fn looking_for_a_frame_ends_when_its_budget_does() {
        // Sixty thousand claims of a long frame, each of which would be checksummed whole.
        let mut bytes = Vec::new();
        while bytes.len() < 1 << 20 {
            bytes.extend_from_slice(&(512_u32 << 10).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&5_u64.to_le_bytes());
            bytes.push(Kind::Put as u8);
        }
        let mut budget = 4 << 20;
        let salt = Salt::new([3; 16]);
        let found = window(bytes).resync(0, &salt, &(2..10), &mut budget);
        assert_eq!(found.unwrap(), None);
        assert!(budget < 512 << 10);
    }
}
