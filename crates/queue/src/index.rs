//! What the journal's records add up to: three views per binding, and where each message lies.
//!
//! Pure: no I/O and no clock. A record is applied here once it is durable, and again, in the same
//! way, when the journal is opened. Within one binding an entry only ever goes forward (queue,
//! deferred, dead letters, gone), so that a record which is applied twice does no harm.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bridge_core::{BindingKey, Quantity, View};

use crate::record::SeqRange;
use crate::run::{Entry, Location, Run};
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

/// An entry that is deferred or a dead letter, and where its circumstances lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    pub(crate) info: Location,
}

/// One binding.
#[derive(Debug)]
struct Slot {
    key: BindingKey,
    /// The key as records say it.
    name: Arc<str>,
    queue: Run,
    deferred: BTreeMap<u64, Held>,
    dead: BTreeMap<u64, Held>,
    queue_bytes: u64,
    deferred_bytes: u64,
    dead_bytes: u64,
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
            deferred: BTreeMap::new(),
            dead: BTreeMap::new(),
            queue_bytes: 0,
            deferred_bytes: 0,
            dead_bytes: 0,
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
    /// and forward to `view` if that is further on.
    pub(crate) fn place(&mut self, id: SlotId, entry: Entry, view: View, info: Location) {
        let (view, info) = match self.find(id, entry.seq) {
            Some((old, _, Some(old_info))) if rank(old) > rank(view) => (old, old_info),
            _ => (view, info),
        };
        self.remove(id, entry.seq);
        self.segments.add_entry(entry.location);
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        let bytes = u64::from(entry.size);
        let held = Held { entry, info };
        match view {
            View::Queue => {
                slot.queue.insert(entry);
                slot.queue_bytes += bytes;
                return;
            }
            View::Deferred => {
                slot.deferred.insert(entry.seq, held);
                slot.deferred_bytes += bytes;
            }
            View::DeadLetters => {
                slot.dead.insert(entry.seq, held);
                slot.dead_bytes += bytes;
            }
        }
        if held.info != entry.location {
            self.segments.add_info(info);
        }
    }

    /// Takes an entry out of whichever view it is in.
    pub(crate) fn remove(&mut self, id: SlotId, seq: u64) -> Option<Entry> {
        let slot = self.slots.get_mut(id.0)?;
        if let Some(entry) = slot.queue.remove(seq) {
            slot.queue_bytes -= u64::from(entry.size);
            self.segments.remove_entry(entry.location);
            return Some(entry);
        }
        let held = if let Some(held) = slot.deferred.remove(&seq) {
            slot.deferred_bytes -= u64::from(held.entry.size);
            held
        } else {
            let held = slot.dead.remove(&seq)?;
            slot.dead_bytes -= u64::from(held.entry.size);
            held
        };
        self.segments.remove_entry(held.entry.location);
        if held.info != held.entry.location {
            self.segments.remove_info(held.info);
        }
        Some(held.entry)
    }

    /// Takes every entry of `range` out of whichever view it is in.
    pub(crate) fn remove_range(&mut self, id: SlotId, range: SeqRange) {
        let Some(slot) = self.slots.get(id.0) else {
            return;
        };
        let queued = slot.queue.iter_from(range.start).map(|entry| entry.seq);
        let mut seqs: Vec<u64> = queued.take_while(|seq| *seq <= range.end).collect();
        seqs.extend(
            slot.deferred
                .range(range.start..=range.end)
                .map(|(seq, _)| *seq),
        );
        seqs.extend(
            slot.dead
                .range(range.start..=range.end)
                .map(|(seq, _)| *seq),
        );
        for seq in seqs {
            self.remove(id, seq);
        }
    }

    /// Moves an entry forward to `view`, or notes new circumstances for a deferred one.
    /// Says whether it was where such a move may start.
    pub(crate) fn advance(&mut self, id: SlotId, seq: u64, view: View, info: Location) -> bool {
        let from = self.view_of(id, seq);
        let may = match view {
            View::Queue => false,
            View::Deferred | View::DeadLetters => {
                matches!(from, Some(View::Queue | View::Deferred))
            }
        };
        if !may {
            return false;
        }
        let Some(entry) = self.remove(id, seq) else {
            return false;
        };
        self.place(id, entry, view, info);
        true
    }

    /// Notes where an entry's circumstances lie from now on.
    pub(crate) fn move_info(&mut self, id: SlotId, seq: u64, info: Location) {
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        let held = match slot.deferred.get_mut(&seq) {
            Some(held) => held,
            None => match slot.dead.get_mut(&seq) {
                Some(held) => held,
                None => return,
            },
        };
        let old = std::mem::replace(&mut held.info, info);
        let own = held.entry.location;
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
        } else if slot.deferred.contains_key(&seq) {
            Some(View::Deferred)
        } else {
            slot.dead.contains_key(&seq).then_some(View::DeadLetters)
        }
    }

    /// An entry with the location of its circumstances, wherever it is.
    pub(crate) fn find(&self, id: SlotId, seq: u64) -> Option<(View, Entry, Option<Location>)> {
        let slot = self.slots.get(id.0)?;
        if let Some(entry) = slot.queue.get(seq) {
            return Some((View::Queue, *entry, None));
        }
        if let Some(held) = slot.deferred.get(&seq) {
            return Some((View::Deferred, held.entry, Some(held.info)));
        }
        let held = slot.dead.get(&seq)?;
        Some((View::DeadLetters, held.entry, Some(held.info)))
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
    ) -> Vec<(Entry, Option<Location>)> {
        let Some(slot) = self.slots.get(id.0) else {
            return Vec::new();
        };
        let mut room = bytes;
        let mut page: Vec<(Entry, Option<Location>)> = Vec::new();
        let mut take = |entry: Entry, info: Option<Location>| {
            let size = u64::from(entry.size);
            let fits = page.is_empty() || (page.len() < count && size <= room);
            if fits {
                room = room.saturating_sub(size);
                page.push((entry, info));
            }
            fits
        };
        let held = |map: &BTreeMap<u64, Held>,
                    take: &mut dyn FnMut(Entry, Option<Location>) -> bool| {
            let _ = map
                .range(from..)
                .all(|(_, held)| take(held.entry, Some(held.info)));
        };
        match view {
            View::Queue => {
                let _ = slot.queue.iter_from(from).all(|entry| take(*entry, None));
            }
            View::Deferred => held(&slot.deferred, &mut take),
            View::DeadLetters => held(&slot.dead, &mut take),
        }
        page
    }

    pub(crate) fn head(&self, id: SlotId) -> Option<&Entry> {
        self.slots.get(id.0)?.queue.first()
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

/// How far on a view is: entries only go forward.
const fn rank(view: View) -> u8 {
    match view {
        View::Queue => 0,
        View::Deferred => 1,
        View::DeadLetters => 2,
    }
}
