//! The dead letters of one binding in memory, 32 bytes each: apart by why and about when they were
//! given up on, so that those of a reason and a time are counted and found without the disk.
//!
//! A *shelf* has the dead letters of one reason and one period of 2³² ms (49.7 days), in the order
//! of their numbers. So the reason and the high half of the instant are kept once for all of them.
//! Room for the low half comes from two lengths, which are small numbers nearly always: that of a
//! separate record of the circumstances, and what the frame of a message is longer than the
//! message. Entries of which they are not, and those of shelves that would be too many, are kept as
//! they are, in 44 bytes.

use std::collections::BTreeMap;

use bridge_core::{DeadLetterInfo, GivenUp, Reason, Timestamp};

use crate::run::{Held, Location, Run};

/// How many shelves there are at the most: a read asks each of them.
const SHELVES: usize = 256;

/// Why and when a message was given up on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Why {
    reason: Reason,
    at: Timestamp,
}

impl From<&DeadLetterInfo> for Why {
    fn from(info: &DeadLetterInfo) -> Self {
        Self {
            reason: info.reason,
            at: info.last_refusal,
        }
    }
}

/// What all entries of a shelf have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    reason: Reason,
    /// The high half of the instant.
    period: u32,
}

impl Label {
    /// On which shelf that belongs, and the low half of the instant.
    fn of(why: Why) -> (Self, u32) {
        let millis = why.at.as_millis();
        let period = u32::try_from(millis >> 32).unwrap_or(u32::MAX);
        let low = u32::try_from(millis & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let reason = why.reason;
        (Self { reason, period }, low)
    }

    fn instant(self, low: u32) -> Timestamp {
        Timestamp::from_millis(u64::from(self.period) << 32 | u64::from(low))
    }

    fn why(self, low: u32) -> Why {
        Why {
            reason: self.reason,
            at: self.instant(low),
        }
    }
}

/// An entry on a shelf.
#[derive(Debug, Clone, Copy)]
struct Shelved {
    location: Location,
    /// Where its circumstances lie.
    info_segment: u32,
    info_offset: u32,
    /// The length of their frame, if it is another one than the message's.
    info_len: u16,
    /// How much longer the frame of the message is than the message.
    overhead: u16,
    /// The low half of the instant at which it was given up on.
    low: u32,
}

impl Shelved {
    /// `None` when one of the lengths is too large.
    fn pack(held: Held, low: u32) -> Option<Self> {
        let Held {
            location,
            info,
            size,
        } = held;
        let info_len = if info == location { 0 } else { info.len };
        Some(Self {
            location,
            info_segment: info.segment,
            info_offset: info.offset,
            info_len: info_len.try_into().ok()?,
            overhead: location.len.checked_sub(size)?.try_into().ok()?,
            low,
        })
    }

    fn unpack(self) -> Held {
        let location = self.location;
        let here = (self.info_segment, self.info_offset) == (location.segment, location.offset);
        let apart = Location {
            segment: self.info_segment,
            offset: self.info_offset,
            len: u32::from(self.info_len),
        };
        Held {
            location,
            info: if here { location } else { apart },
            size: location.len - u32::from(self.overhead),
        }
    }
}

/// An entry that is on no shelf.
#[derive(Debug, Clone, Copy)]
struct Other {
    held: Held,
    label: Label,
    low: u32,
}

impl Other {
    fn unpack(self) -> (Held, Why) {
        (self.held, self.label.why(self.low))
    }
}

/// The dead letters of one binding.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    /// None of them is empty.
    shelves: BTreeMap<Label, Run<Shelved>>,
    others: Run<Other>,
    len: usize,
}

impl DeadLetters {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Puts an entry, whose number none has, at its place.
    pub(crate) fn insert(&mut self, seq: u64, held: Held, why: Why) {
        let (label, low) = Label::of(why);
        let room = self.shelves.len() < SHELVES || self.shelves.contains_key(&label);
        self.len += 1;
        match Shelved::pack(held, low).filter(|_| room) {
            Some(row) => self.shelves.entry(label).or_default().insert(seq, row),
            None => self.others.insert(seq, Other { held, label, low }),
        }
    }

    pub(crate) fn get(&self, seq: u64) -> Option<(Held, Why)> {
        let mut shelves = self.shelves.iter();
        let found = shelves.find_map(|(label, run)| {
            let row = run.get(seq)?;
            Some((row.unpack(), label.why(row.low)))
        });
        found.or_else(|| Some(self.others.get(seq)?.unpack()))
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<(Held, Why)> {
        let mut shelves = self.shelves.iter_mut();
        let found = shelves.find_map(|(label, run)| {
            let row = run.remove(seq)?;
            Some((*label, run.len(), row))
        });
        let removed = match found {
            None => self.others.remove(seq)?.unpack(),
            Some((label, left, row)) => {
                if left == 0 {
                    self.shelves.remove(&label);
                }
                (row.unpack(), label.why(row.low))
            }
        };
        self.len -= 1;
        Some(removed)
    }

    /// How many `which` takes.
    pub(crate) fn count(&self, which: &GivenUp) -> u64 {
        let shelved = self.taken(which).map(|(label, run)| {
            if is_whole(label, which) {
                return run.len();
            }
            let rows = run.iter_from(0);
            let taken = rows.filter(|(_, row)| which.takes_instant(label.instant(row.low)));
            taken.count()
        });
        let others = self.others.iter_from(0);
        let others = others.filter(|(_, other)| takes(which, other.unpack().1));
        (shelved.sum::<usize>() + others.count()) as u64
    }

    /// The entries that `which` takes and whose number is at least `from`, in order.
    pub(crate) fn iter_from(&self, which: GivenUp, from: u64) -> impl Iterator<Item = (u64, Held)> {
        let shelved = self.taken(&which).map(|(label, run)| {
            let rows = run.iter_from(from);
            boxed(rows.filter_map(move |row| unpacked(label, &which, row)))
        });
        let others = self.others.iter_from(from);
        let others = boxed(others.filter_map(move |row| unpacked_other(&which, row)));
        Merged::new(shelved.chain([others]), |next, than| next < than)
    }

    /// The entries that `which` takes and whose number is below `before`, the last one first.
    pub(crate) fn iter_back(
        &self,
        which: GivenUp,
        before: u64,
    ) -> impl Iterator<Item = (u64, Held)> {
        let shelved = self.taken(&which).map(|(label, run)| {
            let rows = run.iter_back(before);
            boxed(rows.filter_map(move |row| unpacked(label, &which, row)))
        });
        let others = self.others.iter_back(before);
        let others = boxed(others.filter_map(move |row| unpacked_other(&which, row)));
        Merged::new(shelved.chain([others]), |next, than| next > than)
    }

    /// The shelves of which `which` may take anything.
    fn taken(&self, which: &GivenUp) -> impl Iterator<Item = (Label, &Run<Shelved>)> {
        let which = *which;
        let shelves = self.shelves.iter().map(|(label, run)| (*label, run));
        shelves.filter(move |(label, _)| {
            which.takes_reason(label.reason)
                && which
                    .since
                    .is_none_or(|since| label.instant(u32::MAX) >= since)
                && which.until.is_none_or(|until| label.instant(0) < until)
        })
    }
}

/// Whether `which`, which takes the reason, takes the whole shelf.
fn is_whole(label: Label, which: &GivenUp) -> bool {
    which.takes_instant(label.instant(0)) && which.takes_instant(label.instant(u32::MAX))
}

fn takes(which: &GivenUp, why: Why) -> bool {
    which.takes_instant(why.at) && which.takes_reason(why.reason)
}

fn unpacked(label: Label, which: &GivenUp, (seq, row): (u64, Shelved)) -> Option<(u64, Held)> {
    let taken = which.takes_instant(label.instant(row.low));
    taken.then(|| (seq, row.unpack()))
}

fn unpacked_other(which: &GivenUp, (seq, other): (u64, Other)) -> Option<(u64, Held)> {
    let (held, why) = other.unpack();
    takes(which, why).then_some((seq, held))
}

type Rows<'a> = Box<dyn Iterator<Item = (u64, Held)> + 'a>;

fn boxed<'a>(rows: impl Iterator<Item = (u64, Held)> + 'a) -> Rows<'a> {
    Box::new(rows)
}

/// The entries of several runs in one order.
struct Merged<'a, F> {
    /// Each with its next entry.
    runs: Vec<((u64, Held), Rows<'a>)>,
    comes_before: F,
}

impl<'a, F: Fn(u64, u64) -> bool> Merged<'a, F> {
    fn new(runs: impl Iterator<Item = Rows<'a>>, comes_before: F) -> Self {
        let begun = runs.filter_map(|mut rows| Some((rows.next()?, rows)));
        Self {
            runs: begun.collect(),
            comes_before,
        }
    }
}

impl<F: Fn(u64, u64) -> bool> Iterator for Merged<'_, F> {
    type Item = (u64, Held);

    fn next(&mut self) -> Option<Self::Item> {
        let mut first = 0;
        let mut seq = self.runs.first()?.0.0;
        for (at, ((next, _), _)) in self.runs.iter().enumerate().skip(1) {
            if (self.comes_before)(*next, seq) {
                (first, seq) = (at, *next);
            }
        }
        let (next, rows) = self.runs.get_mut(first)?;
        match rows.next() {
            Some(behind) => Some(std::mem::replace(next, behind)),
            None => Some(self.runs.swap_remove(first).0),
        }
    }
}

#[cfg(test)]
mod tests;
