//! A queue's entries in memory: ordered by number, 32 bytes each, in chunks so that growing never
//! doubles anything.

use std::collections::VecDeque;

use bridge_core::Timestamp;

/// Where a frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    /// Which segment, by its number in the table of segments.
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    /// The whole frame's length.
    pub(crate) len: u32,
}

/// One message at one binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) received: Timestamp,
    pub(crate) location: Location,
    /// By `Message::size`.
    pub(crate) size: u32,
}

/// Entries per chunk: 8 KiB of them.
const CHUNK: usize = 256;

/// Entries in the order of their numbers, mostly appended at the back and removed at the front.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// None of them is empty.
    chunks: VecDeque<VecDeque<Entry>>,
    len: usize,
}

impl Run {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<&Entry> {
        self.chunks.front()?.front()
    }

    /// Puts an entry at its place; one with the same number is replaced.
    pub(crate) fn insert(&mut self, entry: Entry) {
        let at = self.chunk_of(entry.seq);
        if let Some(chunk) = self.chunks.get_mut(at) {
            let within = chunk.partition_point(|other| other.seq < entry.seq);
            if let Some(same) = chunk.get_mut(within).filter(|same| same.seq == entry.seq) {
                *same = entry;
                return;
            }
            chunk.insert(within, entry);
            if chunk.len() > CHUNK {
                let tail = chunk.split_off(CHUNK / 2);
                self.chunks.insert(at + 1, tail);
            }
        } else {
            let room = self.chunks.back_mut().filter(|last| last.len() < CHUNK);
            if let Some(last) = room {
                last.push_back(entry);
            } else {
                let mut chunk = VecDeque::with_capacity(CHUNK);
                chunk.push_back(entry);
                self.chunks.push_back(chunk);
            }
        }
        self.len += 1;
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Entry> {
        let chunk = self.chunks.get(self.chunk_of(seq))?;
        let within = chunk.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        chunk.get(within)
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<Entry> {
        let at = self.chunk_of(seq);
        let chunk = self.chunks.get_mut(at)?;
        let within = chunk.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        let entry = chunk.remove(within)?;
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        self.len -= 1;
        Some(entry)
    }

    /// The entries whose number is at least `from`, in order.
    pub(crate) fn iter_from(&self, from: u64) -> impl Iterator<Item = &Entry> {
        self.chunks
            .range(self.chunk_of(from).min(self.chunks.len())..)
            .flatten()
            .skip_while(move |entry| entry.seq < from)
    }

    /// The first chunk whose last entry is not below `seq`; one past the end if there is none.
    fn chunk_of(&self, seq: u64) -> usize {
        self.chunks
            .partition_point(|chunk| chunk.back().is_some_and(|last| last.seq < seq))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(seq: u64) -> Entry {
        Entry {
            seq,
            received: Timestamp::from_millis(seq),
            location: Location {
                segment: 0,
                offset: 0,
                len: 0,
            },
            size: 0,
        }
    }

    #[test]
    fn an_entry_takes_32_bytes() {
        assert_eq!(size_of::<Entry>(), 32);
    }

    #[test]
    fn a_long_queue_takes_no_more_memory_than_its_entries() {
        let mut run = Run::default();
        for seq in 0..100_000 {
            run.insert(entry(seq));
        }
        let held: usize = run.chunks.iter().map(VecDeque::capacity).sum();
        assert!(held <= 100_000 + 2 * CHUNK, "{held} places for 100000");
        for seq in 0..99_000 {
            run.remove(seq);
        }
        let held: usize = run.chunks.iter().map(VecDeque::capacity).sum();
        assert!(held <= 1_000 + 2 * CHUNK, "{held} places for 1000");
    }

    proptest! {
        #[test]
        fn a_run_is_an_ordered_map(steps in prop::collection::vec((any::<bool>(), 0_u64..600), 0..2_000)) {
            let mut run = Run::default();
            let mut model = BTreeMap::new();
            for (add, seq) in steps {
                if add {
                    run.insert(entry(seq));
                    model.insert(seq, entry(seq));
                } else {
                    prop_assert_eq!(run.remove(seq), model.remove(&seq));
                }
                prop_assert_eq!(run.len(), model.len());
                prop_assert_eq!(run.first(), model.values().next());
                prop_assert_eq!(run.get(seq), model.get(&seq));
            }
            for from in [0, 17, 300, 599, 700] {
                let read: Vec<u64> = run.iter_from(from).map(|entry| entry.seq).collect();
                let expected: Vec<u64> = model.range(from..).map(|(seq, _)| *seq).collect();
                prop_assert_eq!(read, expected);
            }
        }
    }
}
