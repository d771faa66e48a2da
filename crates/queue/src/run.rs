//! Entries of one view in memory: ordered by number, 32 bytes each, in chunks so that growing never
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

/// One message at one binding, as a record tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) received: Timestamp,
    pub(crate) location: Location,
    /// By `Message::size`.
    pub(crate) size: u32,
}

/// An entry of a view, and where its message lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) seq: u64,
    pub(crate) location: Location,
}

/// What is known of an entry of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) received: Timestamp,
    pub(crate) location: Location,
    pub(crate) size: u32,
}

/// What is known of an entry that is deferred or a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) location: Location,
    /// Where its circumstances lie.
    pub(crate) info: Location,
    pub(crate) size: u32,
}

/// Entries per chunk: 8 KiB of them.
const CHUNK: usize = 256;

/// Entries in the order of their numbers, mostly appended at the back and removed at the front.
#[derive(Debug)]
pub(crate) struct Run<T> {
    /// None of them is empty.
    chunks: VecDeque<Chunk<T>>,
    len: usize,
}

/// Entries whose numbers lie so close together that what they have in common is kept once.
#[derive(Debug)]
struct Chunk<T> {
    base: u64,
    /// By number less `base`, ascending.
    rows: VecDeque<(u32, T)>,
}

impl<T: Copy> Chunk<T> {
    fn new(seq: u64, value: T, room: usize) -> Self {
        let mut rows = VecDeque::with_capacity(room);
        rows.push_back((0, value));
        Self { base: seq, rows }
    }

    fn last(&self) -> u64 {
        self.rows.back().map_or(self.base, |row| self.seq(row))
    }

    fn seq(&self, row: &(u32, T)) -> u64 {
        self.base + u64::from(row.0)
    }

    /// How a row of the number `seq` is kept here, if it can be.
    fn delta(&self, seq: u64) -> Option<u32> {
        u32::try_from(seq.checked_sub(self.base)?).ok()
    }

    fn find(&self, seq: u64) -> Option<usize> {
        let delta = self.delta(seq)?;
        self.rows.binary_search_by_key(&delta, |row| row.0).ok()
    }

    /// Has the numbers kept relative to a lower base; says whether that is possible.
    fn rebase(&mut self, base: u64) -> bool {
        let Some(more) = self.base.checked_sub(base) else {
            return false;
        };
        if u32::try_from(self.last() - base).is_err() {
            return false;
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        for row in &mut self.rows {
            row.0 += more;
        }
        self.base = base;
        true
    }

    /// The back half as a chunk of its own.
    fn split(&mut self) -> Self {
        let rows = self.rows.split_off(self.rows.len() / 2);
        self.rows.shrink_to_fit();
        Self {
            base: self.base,
            rows,
        }
    }
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Self {
            chunks: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T: Copy> Run<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<(u64, T)> {
        let chunk = self.chunks.front()?;
        let row = chunk.rows.front()?;
        Some((chunk.seq(row), row.1))
    }

    fn last_seq(&self) -> Option<u64> {
        self.chunks.back().map(Chunk::last)
    }

    /// Puts an entry at its place; one with the same number is replaced.
    pub(crate) fn insert(&mut self, seq: u64, value: T) {
        if self.last_seq().is_none_or(|last| last < seq) {
            self.push(seq, value);
            return;
        }
        let at = self.chunk_of(seq);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return;
        };
        if let Some(row) = chunk
            .find(seq)
            .and_then(|within| chunk.rows.get_mut(within))
        {
            row.1 = value;
            return;
        }
        if chunk.rows.len() >= CHUNK {
            // Before there is one more, for which its memory would be doubled.
            let tail = chunk.split();
            self.chunks.insert(at + 1, tail);
            return self.insert(seq, value);
        }
        self.len += 1;
        if seq < chunk.base && !chunk.rebase(seq) {
            // Too far apart for one base.
            self.chunks.insert(at, Chunk::new(seq, value, 1));
            return;
        }
        let Some(delta) = chunk.delta(seq) else {
            return;
        };
        let within = chunk.rows.partition_point(|row| row.0 < delta);
        chunk.rows.insert(within, (delta, value));
    }

    /// Puts an entry behind all others.
    fn push(&mut self, seq: u64, value: T) {
        self.len += 1;
        let room = self.chunks.back_mut();
        let room = room.filter(|last| last.rows.len() < CHUNK);
        if let Some((delta, last)) = room.and_then(|last| Some((last.delta(seq)?, last))) {
            last.rows.push_back((delta, value));
        } else {
            // Of few entries there are many runs, and one that is long goes on.
            let room = if self.chunks.is_empty() { 1 } else { CHUNK };
            self.chunks.push_back(Chunk::new(seq, value, room));
        }
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&T> {
        let chunk = self.chunks.get(self.chunk_of(seq))?;
        chunk.rows.get(chunk.find(seq)?).map(|row| &row.1)
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<T> {
        let at = self.chunk_of(seq);
        let chunk = self.chunks.get_mut(at)?;
        let (_, value) = chunk.rows.remove(chunk.find(seq)?)?;
        self.len -= 1;
        if chunk.rows.is_empty() {
            self.chunks.remove(at);
        } else if chunk.rows.len() < chunk.rows.capacity() / 4 {
            chunk.rows.shrink_to(2 * chunk.rows.len());
            self.join(at);
            if let Some(before) = at.checked_sub(1) {
                self.join(before);
            }
        }
        Some(value)
    }

    /// Joins a chunk with the next one, if both are small.
    fn join(&mut self, at: usize) {
        let len = |chunk: &Chunk<T>| chunk.rows.len();
        let both = self
            .chunks
            .get(at)
            .map(len)
            .zip(self.chunks.get(at + 1).map(len));
        if both.is_none_or(|(this, next)| this + next > CHUNK / 2) {
            return;
        }
        let Some(mut next) = self.chunks.remove(at + 1) else {
            return;
        };
        match self.chunks.get_mut(at) {
            Some(chunk) if next.base == chunk.base || next.rebase(chunk.base) => {
                chunk.rows.append(&mut next.rows);
            }
            _ => self.chunks.insert(at + 1, next),
        }
    }

    /// The entries whose number is at least `from`, in order.
    pub(crate) fn iter_from(&self, from: u64) -> impl Iterator<Item = (u64, T)> {
        self.chunks
            .range(self.chunk_of(from).min(self.chunks.len())..)
            .flat_map(|chunk| chunk.rows.iter().map(|row| (chunk.seq(row), row.1)))
            .skip_while(move |(seq, _)| *seq < from)
    }

    /// The entries whose number is below `before`, the last one first.
    pub(crate) fn iter_back(&self, before: u64) -> impl Iterator<Item = (u64, T)> {
        let end = self.chunks.partition_point(|chunk| chunk.base < before);
        self.chunks
            .range(..end)
            .rev()
            .flat_map(|chunk| chunk.rows.iter().rev().map(|row| (chunk.seq(row), row.1)))
            .skip_while(move |(seq, _)| *seq >= before)
    }

    /// The first chunk whose last entry is not below `seq`; one past the end if there is none.
    fn chunk_of(&self, seq: u64) -> usize {
        // Most of what is asked for is at the front.
        if self.chunks.front().is_some_and(|first| first.last() >= seq) {
            return 0;
        }
        self.chunks.partition_point(|chunk| chunk.last() < seq)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const NOWHERE: Location = Location {
        segment: 0,
        offset: 0,
        len: 0,
    };

    fn held(seq: u64) -> Held {
        Held {
            location: NOWHERE,
            info: NOWHERE,
            size: u32::try_from(seq % 1000).unwrap(),
        }
    }

    fn places<T>(run: &Run<T>) -> usize {
        run.chunks.iter().map(|chunk| chunk.rows.capacity()).sum()
    }

    #[test]
    fn an_entry_takes_32_bytes_in_every_view() {
        assert_eq!(size_of::<(u32, Queued)>(), 32);
        assert_eq!(size_of::<(u32, Held)>(), 32);
    }

    #[test]
    fn a_few_entries_take_the_memory_of_a_few() {
        let mut run = Run::default();
        for seq in 0..5 {
            run.insert(seq, held(seq));
        }
        assert!(places(&run) <= 8, "{} for 5", places(&run));
    }

    #[test]
    fn a_long_view_takes_no_more_memory_than_its_entries() {
        let mut run = Run::default();
        for seq in 0..100_000 {
            run.insert(seq, held(seq));
        }
        let held_places = places(&run);
        assert!(
            held_places <= 100_000 + 2 * CHUNK,
            "{held_places} for 100000"
        );
        for seq in 0..99_000 {
            run.remove(seq);
        }
        let held_places = places(&run);
        assert!(held_places <= 1_000 + 2 * CHUNK, "{held_places} for 1000");
    }

    #[test]
    fn what_is_put_in_the_middle_takes_no_more_memory_than_its_entries() {
        let mut run = Run::default();
        for seq in (0..100_000).filter(|seq| seq % 4 == 0) {
            run.insert(seq, held(seq));
        }
        // As what was deferred first is given up on behind what was refused at once.
        for seq in (0..100_000).filter(|seq| seq % 4 != 0) {
            run.insert(seq, held(seq));
        }
        let held_places = places(&run);
        assert!(held_places <= 110_000, "{held_places} for 100000");
        let mut run = Run::default();
        for number in 0..50_000_u64 {
            let seq = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            run.insert(seq, held(seq));
        }
        let (held_places, len) = (places(&run), run.len());
        assert!(held_places <= len * 3 / 2, "{held_places} for {len}");
    }

    #[test]
    fn what_is_taken_from_the_middle_gives_its_memory_back() {
        let mut run = Run::default();
        for seq in 0..100_000 {
            run.insert(seq, held(seq));
        }
        for seq in (0..100_000).filter(|seq| seq % 100 != 0) {
            run.remove(seq);
        }
        let held_places = places(&run);
        assert!(held_places <= 4_000, "{held_places} for 1000");
        assert!(run.chunks.len() < 100, "{} chunks", run.chunks.len());
        let left: Vec<u64> = run.iter_from(0).map(|(seq, _)| seq).collect();
        assert!(left.iter().copied().eq((0..1000).map(|n| n * 100)));
    }

    proptest! {
        #[test]
        fn a_run_is_an_ordered_map(
            steps in prop::collection::vec((any::<bool>(), 0_u64..600), 0..2_000),
            // So that numbers are too far apart for one chunk, or only nearly so.
            scale in prop::sample::select(vec![1_u64, 7_000_000, 40_000_000, 1 << 34]),
        ) {
            let mut run = Run::default();
            let mut model = BTreeMap::new();
            for (add, seq) in steps {
                let seq = seq * scale;
                if add {
                    run.insert(seq, held(seq));
                    model.insert(seq, held(seq));
                } else {
                    prop_assert_eq!(run.remove(seq), model.remove(&seq));
                }
                prop_assert_eq!(run.len(), model.len());
                let first = model.iter().next().map(|(seq, value)| (*seq, *value));
                prop_assert_eq!(run.first(), first);
                prop_assert_eq!(run.get(seq), model.get(&seq));
            }
            for from in [0, 17, 300, 599, 700] {
                let from = from * scale;
                let read: Vec<(u64, Held)> = run.iter_from(from).collect();
                let expected: Vec<_> = model.range(from..).map(|(seq, value)| (*seq, *value)).collect();
                prop_assert_eq!(read, expected);
                let read: Vec<(u64, Held)> = run.iter_back(from).collect();
                let before = model.range(..from).rev();
                let expected: Vec<_> = before.map(|(seq, value)| (*seq, *value)).collect();
                prop_assert_eq!(read, expected);
            }
        }
    }
}
