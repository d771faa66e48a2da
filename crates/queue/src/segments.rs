//! The table of segments: what is alive in each, and which of them need each other.
//!
//! A record that ends an entry (a settle, a delete) is needed for as long as a segment exists
//! that may hold the entry: without it the entry would come back at the next opening. Such a
//! segment is a *target* of the record's own segment, which is not unlinked before it.

use std::collections::BTreeSet;

use crate::record::SeqRange;
use crate::run::Location;
use crate::segment::{FRAMES_AT, Salt};

/// One segment, as the index sees it.
#[derive(Debug, Clone)]
pub(crate) struct SegmentState {
    pub(crate) id: u32,
    pub(crate) first_seq: u64,
    pub(crate) salt: Salt,
    /// The number of the last frame, once no more is written to it.
    last_seq: Option<u64>,
    /// Bytes of the file that are frames or header.
    pub(crate) bytes: u64,
    /// Entries whose message lies here.
    entries: u32,
    /// Bytes of frames that hold them; a frame counts once per entry.
    live_bytes: u64,
    /// Deferrals and dead letters whose circumstances lie here, apart from the message.
    infos: u32,
    /// Segments that may hold entries which records in this one end.
    targets: BTreeSet<u32>,
    /// The numbers of entries that were moved here.
    copies: Option<SeqRange>,
}

impl SegmentState {
    /// Bytes that are still needed, as far as is known.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.min(self.bytes)
    }

    /// Bytes of frames, which copying may free; every segment has a header.
    fn frame_bytes(&self) -> u64 {
        self.bytes.saturating_sub(FRAMES_AT as u64)
    }

    /// Its own numbers, for the list of segments.
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        let end = self
            .last_seq
            .map_or(u64::MAX, |last| last.saturating_add(1));
        self.first_seq..end
    }

    fn is_dead(&self) -> bool {
        self.entries == 0 && self.infos == 0 && self.targets.is_empty()
    }

    fn may_hold(&self, range: SeqRange) -> bool {
        let home = SeqRange {
            start: self.first_seq,
            end: self.last_seq.unwrap_or(u64::MAX),
        };
        let meets = |other: SeqRange| other.start <= range.end && range.start <= other.end;
        meets(home) || self.copies.is_some_and(meets)
    }
}

/// What segments add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum {
    /// Segments of which nothing is needed any more.
    dead: usize,
    frame_bytes: u64,
    live_bytes: u64,
}

impl Sum {
    fn add(&mut self, segment: &SegmentState) {
        self.dead += usize::from(segment.is_dead());
        self.frame_bytes += segment.frame_bytes();
        self.live_bytes += segment.live_bytes();
    }

    fn subtract(&mut self, segment: &SegmentState) {
        self.dead -= usize::from(segment.is_dead());
        self.frame_bytes -= segment.frame_bytes();
        self.live_bytes -= segment.live_bytes();
    }
}

/// All segments, in their order.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    all: Vec<SegmentState>,
    /// What all but the last add up to: asked for after each batch, when there may be thousands.
    closed: Sum,
    next_id: u32,
    /// Segments that hold copies: few, and the only ones that do not hold just their own numbers.
    with_copies: BTreeSet<u32>,
}

impl Segments {
    /// Adds a segment behind all others, which are written no more.
    pub(crate) fn add(&mut self, first_seq: u64, salt: Salt, bytes: u64) -> u32 {
        self.seal(first_seq);
        if let Some(last) = self.all.last() {
            self.closed.add(last);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.all.push(SegmentState {
            id,
            first_seq,
            salt,
            last_seq: None,
            bytes,
            entries: 0,
            live_bytes: 0,
            infos: 0,
            targets: BTreeSet::new(),
            copies: None,
        });
        id
    }

    /// Notes that the last segment ends in front of the number `next_seq`, unless it is known to
    /// end earlier.
    pub(crate) fn seal(&mut self, next_seq: u64) {
        if let Some(last) = self.all.last_mut() {
            last.last_seq
                .get_or_insert_with(|| next_seq.saturating_sub(1));
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&SegmentState> {
        let at = self.all.binary_search_by_key(&id, |other| other.id).ok()?;
        self.all.get(at)
    }

    /// Changes a segment, and says what `change` says.
    fn change<T>(&mut self, id: u32, change: impl FnOnce(&mut SegmentState) -> T) -> Option<T> {
        let at = self.all.binary_search_by_key(&id, |other| other.id).ok()?;
        let is_closed = at + 1 < self.all.len();
        let segment = self.all.get_mut(at)?;
        if !is_closed {
            return Some(change(segment));
        }
        self.closed.subtract(segment);
        let said = change(segment);
        self.closed.add(segment);
        Some(said)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &SegmentState> {
        self.all.iter()
    }

    pub(crate) fn last(&self) -> Option<&SegmentState> {
        self.all.last()
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.all.retain(|segment| segment.id != id);
        self.with_copies.remove(&id);
        for segment in &mut self.all {
            segment.targets.remove(&id);
        }
        self.closed = self.sum_closed();
    }

    fn closed(&self) -> &[SegmentState] {
        self.all.split_last().map_or(&[], |(_, closed)| closed)
    }

    fn sum_closed(&self) -> Sum {
        let mut sum = Sum::default();
        for segment in self.closed() {
            sum.add(segment);
        }
        sum
    }

    pub(crate) fn grow(&mut self, id: u32, bytes: u64) {
        self.change(id, |segment| segment.bytes = bytes);
    }

    pub(crate) fn add_entry(&mut self, location: Location) {
        self.change(location.segment, |segment| {
            segment.entries += 1;
            segment.live_bytes += u64::from(location.len);
        });
    }

    pub(crate) fn remove_entry(&mut self, location: Location) {
        self.change(location.segment, |segment| {
            segment.entries = segment.entries.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub(u64::from(location.len));
        });
    }

    /// Notes the circumstances of an entry, which lie in another frame than the entry.
    pub(crate) fn add_info(&mut self, location: Location) {
        self.change(location.segment, |segment| {
            segment.infos += 1;
            segment.live_bytes += u64::from(location.len);
        });
    }

    pub(crate) fn remove_info(&mut self, location: Location) {
        self.change(location.segment, |segment| {
            segment.infos = segment.infos.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub(u64::from(location.len));
        });
    }

    /// Notes that a record in `id` ends the entries of `range`.
    pub(crate) fn add_ending(&mut self, id: u32, range: SeqRange) {
        let holders: Vec<u32> = self.holders(range, id).collect();
        self.change(id, |segment| segment.targets.extend(holders));
    }

    /// Notes that the entry `seq` was moved to `id` from `old`, which must go first: the copy
    /// stands for what was moved, also against an old segment that is still there.
    pub(crate) fn add_copy(&mut self, id: u32, seq: u64, old: Option<u32>) {
        let there = self.change(id, |segment| {
            let range = segment.copies.get_or_insert(SeqRange {
                start: seq,
                end: seq,
            });
            range.start = range.start.min(seq);
            range.end = range.end.max(seq);
            segment.targets.extend(old.filter(|old| *old != id));
        });
        if there.is_some() {
            self.with_copies.insert(id);
        }
    }

    /// The segments other than `except` that may hold an entry of `range`.
    pub(crate) fn holders(&self, range: SeqRange, except: u32) -> impl Iterator<Item = u32> {
        let first = self
            .all
            .partition_point(|segment| segment.last_seq.is_some_and(|last| last < range.start));
        let homes = self
            .all
            .iter()
            .skip(first)
            .take_while(move |segment| segment.first_seq <= range.end);
        let copies = self.with_copies.iter().filter_map(|id| self.get(*id));
        homes
            .chain(copies)
            .filter(move |segment| segment.id != except && segment.may_hold(range))
            .map(|segment| segment.id)
    }

    /// Whether nothing is needed any more of some segment.
    pub(crate) const fn has_dead(&self) -> bool {
        self.closed.dead > 0
    }

    /// The segments of which nothing is needed any more, by their number and their first record.
    pub(crate) fn dead(&self) -> Vec<(u32, u64)> {
        if !self.has_dead() {
            return Vec::new();
        }
        // The last segment is needed always.
        self.closed()
            .iter()
            .filter(|segment| segment.is_dead())
            .map(|segment| (segment.id, segment.first_seq))
            .collect()
    }

    /// Whether nothing is needed of the last segment, and more would come back with it than the one
    /// that follows it takes: its header, and a list of all with two numbers each.
    pub(crate) fn last_is_dead_weight(&self) -> bool {
        let follower = (FRAMES_AT + 16 * self.all.len()) as u64;
        self.last()
            .is_some_and(|last| last.is_dead() && last.frame_bytes() > follower)
    }

    /// The segment to copy forward first, if more bytes are dead than are alive, and more than
    /// `slack`: so at most as much is copied as is freed.
    pub(crate) fn worth_copying(
        &self,
        slack: u64,
        but: impl Fn(u32) -> bool,
    ) -> Option<&SegmentState> {
        let Sum {
            frame_bytes: bytes,
            live_bytes: live,
            ..
        } = self.closed;
        if bytes.saturating_sub(live) <= live.max(slack) {
            return None;
        }
        let candidates = self.closed().iter().filter(|segment| !but(segment.id));
        // Of equal ones the oldest: what it holds keeps others waiting.
        let ratio =
            |segment: &&SegmentState| segment.live_bytes() * 1000 / segment.frame_bytes().max(1);
        candidates
            .min_by_key(ratio)
            .filter(|segment| segment.live_bytes() * 2 <= segment.frame_bytes())
    }

    /// Notes that everything that was needed of a segment stands elsewhere now, if it does.
    pub(crate) fn copied(&mut self, id: u32) -> bool {
        let copied = self.change(id, |segment| {
            let copied = segment.entries == 0 && segment.infos == 0;
            if copied {
                segment.targets.clear();
            }
            copied
        });
        copied.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_dead(table: &Segments, id: u32) -> bool {
        table.dead().iter().any(|(dead, _)| *dead == id)
    }

    fn salt() -> Salt {
        Salt::new([1; 16])
    }

    const fn one(seq: u64) -> SeqRange {
        SeqRange {
            start: seq,
            end: seq,
        }
    }

    const fn at(segment: u32) -> Location {
        Location {
            segment,
            offset: 0,
            len: 10,
        }
    }

    #[test]
    fn a_segment_that_ends_an_entry_outlives_the_one_that_holds_it() {
        let mut table = Segments::default();
        let a = table.add(1, salt(), 100);
        table.add_entry(at(a));
        table.add_entry(at(a));
        let b = table.add(10, salt(), 100);
        table.remove_entry(at(a));
        table.add_ending(b, one(3));
        let _active = table.add(20, salt(), 100);
        assert!(!is_dead(&table, a), "one entry is left in it");
        assert!(!is_dead(&table, b), "without it the other would come back");
        table.remove_entry(at(a));
        assert!(is_dead(&table, a));
        table.remove(a);
        assert!(is_dead(&table, b));
    }

    #[test]
    fn what_was_copied_may_be_held_by_its_new_segment() {
        let mut table = Segments::default();
        let a = table.add(1, salt(), 100);
        let b = table.add(10, salt(), 100);
        table.add_copy(b, 3, Some(a));
        assert_eq!(table.holders(one(3), 99).collect::<Vec<_>>(), [a, b]);
        let c = table.add(20, salt(), 100);
        assert_eq!(table.holders(one(25), 99).collect::<Vec<_>>(), [c]);
        assert!(!is_dead(&table, b), "the old place must go first");
        table.remove(a);
        assert!(is_dead(&table, b));
    }

    #[test]
    fn what_closed_segments_add_up_to_is_known_without_adding() {
        let mut table = Segments::default();
        let mut random = crate::sim::Random::new(11);
        for step in 1..4_000_u64 {
            let id = u32::try_from(random.below(1 + u64::from(table.next_id))).unwrap();
            match random.below(24) {
                0 => drop(table.add(10 * step, salt(), 9_000)),
                1 if table.all.len() > 4 => table.remove(id),
                2 => drop(table.copied(id)),
                3 => table.add_copy(id, random.below(10 * step), None),
                4 => table.grow(id, 9_000 + random.below(300)),
                5..8 => table.add_ending(id, one(random.below(10 * step))),
                8..12 => table.add_info(at(id)),
                12..16 => table.remove_info(at(id)),
                16..20 => table.add_entry(at(id)),
                _ => table.remove_entry(at(id)),
            }
            assert_eq!(table.closed, table.sum_closed(), "step {step}");
            assert_eq!(table.has_dead(), !table.dead().is_empty());
        }
    }
}
