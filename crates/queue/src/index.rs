//! What the journal's records add up to: three views per binding, and where each message lies.
//!
//! Pure: no I/O and no clock. A record is applied here once it is durable, and again, in the same
//! way, when the journal is opened. Within one binding an entry only ever goes forward (queue,
//! deferred, dead letters, gone), so that a record which is applied twice does no harm.

use std::collections::HashMap;
use std::sync::Arc;

use bridge_core::{BindingKey, GivenUp, Quantity, ReadFrom, Seq, Timestamp, View};

use crate::dead::{DeadLetters, Why};
use crate::record::{Placed, SeqRange};
use crate::run::{Entry, Held, Location, Queued, Run, Seat};
use crate::segments::Segments;

/// A binding's number in the index, for as long as the journal is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SlotId(usize);

impl SlotId {
    pub(crate) const fn new(number: usize) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> usize {
        self.0
    }
}

/// In which view an entry is, with what memory holds of why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Queue,
    Deferred,
    DeadLetter(Why),
}

impl Standing {
    /// Where a record places a message.
    pub(crate) fn of(placed: &Placed) -> Self {
        match placed {
            Placed::Queue => Self::Queue,
            Placed::Deferred(_) => Self::Deferred,
            Placed::Dead(info) => Self::DeadLetter(info.into()),
        }
    }

    /// How far on it is: entries only go forward.
    const fn rank(self) -> u8 {
        match self {
            Self::Queue => 0,
            Self::Deferred => 1,
            Self::DeadLetter(_) => 2,
        }
    }
}

/// One binding.
#[derive(Debug)]
struct Slot {
    key: BindingKey,
    /// The key as records say it.
    name: Arc<str>,
    queue: Run<Queued>,
    deferred: Run<Held>,
    dead: DeadLetters,
    queue_bytes: u64,
    deferred_bytes: u64,
    dead_bytes: u64,
    /// The highest number that an entry has had.
    highest: u64,
}

/// What is known of an entry that was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Removed {
    location: Location,
    size: u32,
}

/// Every binding's views, and the table of segments.
#[derive(Debug, Default)]
pub(crate) struct Index {
    slots: Vec<Slot>,
    by_key: HashMap<BindingKey, SlotId>,
    by_name: HashMap<Arc<str>, SlotId>,
    pub(crate) segments: Segments,
}

impl Index {
    /// The binding's number, given at the first call.
    pub(crate) fn intern(&mut self, key: &BindingKey) -> SlotId {
        if let Some(slot) = self.by_key.get(key) {
            return *slot;
        }
        let id = SlotId(self.slots.len());
        let name: Arc<str> = key.to_string().into();
        self.by_key.insert(key.clone(), id);
        self.by_name.insert(name.clone(), id);
        self.slots.push(Slot {
            key: key.clone(),
            name,
            queue: Run::default(),
            deferred: Run::default(),
            dead: DeadLetters::default(),
            queue_bytes: 0,
            deferred_bytes: 0,
            dead_bytes: 0,
            highest: 0,
        });
        id
    }

    /// The number of the binding that records call `name`.
    pub(crate) fn slot(&self, name: &str) -> Option<SlotId> {
        self.by_name.get(name).copied()
    }

    /// The number of a binding that has one.
    pub(crate) fn slot_of(&self, key: &BindingKey) -> Option<SlotId> {
        self.by_key.get(key).copied()
    }

    /// What records call the binding.
    pub(crate) fn name(&self, id: SlotId) -> Arc<str> {
        let slot = self.slots.get(id.0);
        slot.map_or_else(|| "".into(), |slot| slot.name.clone())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (SlotId, &BindingKey)> {
        let numbered = self.slots.iter().enumerate();
        numbered.map(|(number, slot)| (SlotId(number), &slot.key))
    }

    /// Places an entry. One that is there already, as after a copy, moves to the new location,
    /// and forward to `standing` if that is further on.
    pub(crate) fn place(&mut self, id: SlotId, entry: Entry, standing: Standing, info: Location) {
        let (standing, info) = match self.held(id, entry.seq) {
            Some((old, held)) if old.rank() > standing.rank() => (old, held.info),
            _ => (standing, info),
        };
        self.remove(id, entry.seq);
        self.insert(id, entry, standing, info);
    }

    /// Places an entry that is in no view.
    fn insert(&mut self, id: SlotId, entry: Entry, standing: Standing, info: Location) {
        let Entry {
            seq,
            received,
            location,
            size,
        } = entry;
        self.segments.add_entry(location);
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        slot.highest = slot.highest.max(seq);
        let bytes = u64::from(size);
        let held = Held {
            location,
            info,
            size,
        };
        match standing {
            Standing::Queue => {
                let queued = Queued {
                    received,
                    location,
                    size,
                };
                slot.queue.insert(seq, queued);
                slot.queue_bytes += bytes;
                return;
            }
            Standing::Deferred => {
                slot.deferred.insert(seq, held);
                slot.deferred_bytes += bytes;
            }
            Standing::DeadLetter(why) => {
                slot.dead.insert(seq, held, why);
                slot.dead_bytes += bytes;
            }
        }
        if info != location {
            self.segments.add_info(info);
        }
    }

    /// Places an entry that comes to be, unless it is known already.
    pub(crate) fn place_new(&mut self, id: SlotId, entry: Entry, standing: Standing) {
        let Some(slot) = self.slots.get(id.0) else {
            return;
        };
        if entry.seq > slot.highest || self.find(id, entry.seq).is_none() {
            self.insert(id, entry, standing, entry.location);
        }
    }

    /// Takes an entry out of whichever view it is in.
    pub(crate) fn remove(&mut self, id: SlotId, seq: u64) -> Option<Removed> {
        let slot = self.slots.get_mut(id.0)?;
        if let Some(Queued { location, size, .. }) = slot.queue.remove(seq) {
            slot.queue_bytes -= u64::from(size);
            self.segments.remove_entry(location);
            return Some(Removed { location, size });
        }
        let held = if let Some(held) = slot.deferred.remove(seq) {
            slot.deferred_bytes -= u64::from(held.size);
            held
        } else {
            let (held, _) = slot.dead.remove(seq)?;
            slot.dead_bytes -= u64::from(held.size);
            held
        };
        let Held {
            location,
            info,
            size,
        } = held;
        self.segments.remove_entry(location);
        if info != location {
            self.segments.remove_info(info);
        }
        Some(Removed { location, size })
    }

    /// Takes every entry of `range` out of whichever view it is in.
    pub(crate) fn remove_range(&mut self, id: SlotId, range: SeqRange) {
        if range.start == range.end {
            self.remove(id, range.start);
            return;
        }
        let Some(slot) = self.slots.get(id.0) else {
            return;
        };
        let within = |seq: &u64| *seq <= range.end;
        let queued = slot.queue.iter_from(range.start).map(|(seq, _)| seq);
        let mut seqs: Vec<u64> = queued.take_while(within).collect();
        let deferred = slot.deferred.iter_from(range.start).map(|(seq, _)| seq);
        seqs.extend(deferred.take_while(within));
        let dead = slot.dead.iter_from(GivenUp::ALL, range.start);
        seqs.extend(dead.map(|(seq, _)| seq).take_while(within));
        for seq in seqs {
            self.remove(id, seq);
        }
    }

    /// Moves an entry forward, or notes new circumstances for a deferred one. Says whether it was
    /// where such a move may start.
    pub(crate) fn advance(
        &mut self,
        id: SlotId,
        seq: u64,
        standing: Standing,
        info: Location,
    ) -> bool {
        let from = self.view_of(id, seq);
        let may = match standing {
            Standing::Queue => false,
            Standing::Deferred | Standing::DeadLetter(_) => {
                matches!(from, Some(View::Queue | View::Deferred))
            }
        };
        if !may {
            return false;
        }
        let Some(Removed { location, size }) = self.remove(id, seq) else {
            return false;
        };
        let entry = Entry {
            seq,
            // Only the queue is asked how long its head has waited, and nothing moves back there.
            received: Timestamp::default(),
            location,
            size,
        };
        self.insert(id, entry, standing, info);
        true
    }

    /// Notes where an entry's circumstances lie from now on.
    pub(crate) fn move_info(&mut self, id: SlotId, seq: u64, info: Location) {
        let Some((standing, held)) = self.held(id, seq) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        let old = held.info;
        let own = held.location;
        let held = Held { info, ..held };
        match standing {
            Standing::DeadLetter(why) => {
                slot.dead.remove(seq);
                slot.dead.insert(seq, held, why);
            }
            _ => slot.deferred.insert(seq, held),
        }
        if old != own {
            self.segments.remove_info(old);
        }
        if info != own {
            self.segments.add_info(info);
        }
    }

    pub(crate) fn view_of(&self, id: SlotId, seq: u64) -> Option<View> {
        let slot = self.slots.get(id.0)?;
        if slot.queue.get(seq).is_some() {
            Some(View::Queue)
        } else if slot.deferred.get(seq).is_some() {
            Some(View::Deferred)
        } else {
            slot.dead.get(seq).map(|_| View::DeadLetters)
        }
    }

    /// An entry with the location of its circumstances, wherever it is.
    pub(crate) fn find(&self, id: SlotId, seq: u64) -> Option<(View, Seat, Option<Location>)> {
        let slot = self.slots.get(id.0)?;
        let seat = |location| Seat { seq, location };
        if let Some(queued) = slot.queue.get(seq) {
            return Some((View::Queue, seat(queued.location), None));
        }
        let (standing, held) = self.held(id, seq)?;
        let view = match standing {
            Standing::DeadLetter(_) => View::DeadLetters,
            _ => View::Deferred,
        };
        Some((view, seat(held.location), Some(held.info)))
    }

    /// An entry that is deferred or a dead letter.
    fn held(&self, id: SlotId, seq: u64) -> Option<(Standing, Held)> {
        let slot = self.slots.get(id.0)?;
        if let Some(held) = slot.deferred.get(seq) {
            return Some((Standing::Deferred, *held));
        }
        let (held, why) = slot.dead.get(seq)?;
        Some((Standing::DeadLetter(why), held))
    }

    /// How many dead letters `which` takes.
    pub(crate) fn count_dead_letters(&self, id: SlotId, which: &GivenUp) -> u64 {
        let slot = self.slots.get(id.0);
        slot.map_or(0, |slot| slot.dead.count(which))
    }

    /// The size of a dead letter, by `Message::size`; 0 for what is none.
    pub(crate) fn size_of_dead_letter(&self, id: SlotId, seq: u64) -> u64 {
        let slot = self.slots.get(id.0);
        let held = slot.and_then(|slot| slot.dead.get(seq));
        held.map_or(0, |(held, _)| u64::from(held.size))
    }

    /// Entries of one view from the number `from` on, up to `count` of them and, after the
    /// first, up to `bytes`.
    pub(crate) fn page(
        &self,
        id: SlotId,
        view: View,
        from: u64,
        count: usize,
        bytes: u64,
    ) -> Vec<(Seat, Option<Location>)> {
        let Some(slot) = self.slots.get(id.0) else {
            return Vec::new();
        };
        let mut page = Page::new(count, bytes);
        match view {
            View::Queue => page.fill(slot.queue.iter_from(from).map(queued_row)),
            View::Deferred => page.fill(slot.deferred.iter_from(from).map(held_row)),
            View::DeadLetters => {
                page.fill(slot.dead.iter_from(GivenUp::ALL, from).map(held_row));
            }
        }
        page.rows
    }

    /// Dead letters that `which` takes, in their order: from a number on, or the last ones before
    /// one. Bounded like [`Self::page`].
    pub(crate) fn dead_letters(
        &self,
        id: SlotId,
        which: GivenUp,
        from: ReadFrom,
        count: usize,
        bytes: u64,
    ) -> Vec<(Seat, Option<Location>)> {
        let Some(slot) = self.slots.get(id.0) else {
            return Vec::new();
        };
        let mut page = Page::new(count, bytes);
        match from {
            ReadFrom::After(seq) => {
                let rows = slot.dead.iter_from(which, behind(seq));
                page.fill(rows.map(held_row));
            }
            ReadFrom::Before(seq) => {
                let before = seq.map_or(u64::MAX, Seq::get);
                page.fill(slot.dead.iter_back(which, before).map(held_row));
                page.rows.reverse();
            }
        }
        page.rows
    }

    /// The head of the queue.
    pub(crate) fn head(&self, id: SlotId) -> Option<Queued> {
        Some(self.slots.get(id.0)?.queue.first()?.1)
    }

    /// All of the queue.
    pub(crate) fn queued(&self, id: SlotId) -> impl Iterator<Item = Queued> {
        let slot = self.slots.get(id.0).into_iter();
        slot.flat_map(|slot| slot.queue.iter_from(0).map(|(_, queued)| queued))
    }

    /// What is durable in each view: queue, deferred, dead letters.
    pub(crate) fn quantities(&self, id: SlotId) -> [Quantity; 3] {
        self.slots.get(id.0).map_or_else(Default::default, |slot| {
            let quantity = |entries: usize, bytes| Quantity {
                entries: entries as u64,
                bytes,
            };
            [
                quantity(slot.queue.len(), slot.queue_bytes),
                quantity(slot.deferred.len(), slot.deferred_bytes),
                quantity(slot.dead.len(), slot.dead_bytes),
            ]
        })
    }
}

/// An entry with where its circumstances lie, and its size.
type Row = (Seat, Option<Location>, u32);

fn queued_row((seq, queued): (u64, Queued)) -> Row {
    let location = queued.location;
    (Seat { seq, location }, None, queued.size)
}

fn held_row((seq, held): (u64, Held)) -> Row {
    let location = held.location;
    (Seat { seq, location }, Some(held.info), held.size)
}

/// Entries to be read at once.
struct Page {
    count: usize,
    /// How many bytes more it may have.
    room: u64,
    rows: Vec<(Seat, Option<Location>)>,
}

impl Page {
    const fn new(count: usize, bytes: u64) -> Self {
        Self {
            count,
            room: bytes,
            rows: Vec::new(),
        }
    }

    /// Takes what fits, and the first one in any case.
    fn fill(&mut self, rows: impl Iterator<Item = Row>) {
        for (seat, info, size) in rows {
            let size = u64::from(size);
            let fits = self.rows.len() < self.count && size <= self.room;
            if !fits && !self.rows.is_empty() {
                return;
            }
            self.room = self.room.saturating_sub(size);
            self.rows.push((seat, info));
        }
    }
}

/// The first number behind `seq`, or of all.
pub(crate) fn behind(seq: Option<Seq>) -> u64 {
    seq.map_or(0, |seq| seq.get().saturating_add(1))
}
