//! What one subscription waits for: a state machine with the time passed in.
//!
//! ```text
//!              take                     settle
//!   ready ───────────────► in flight ───────────► (gone)
//!     ▲                     │      │
//!     │ delay over     left │      │ stale, or its source is closed
//!     └───────── resting ◄──┘      └─────────────► ready
//!                           │      │
//!                           └──────┴─ at the ceiling, unless owned ─► native dead letter
//! ```
//!
//! Nothing about a message is kept anywhere but in its entry, which goes when the message goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Expiry, Message, QoS, Quantity, Timestamp};

use crate::Options;

/// A message that this transport itself gave up on, because it was consumed directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeDeadLetter {
    /// The message.
    pub message: Message,
    /// When it was published.
    pub received: Timestamp,
    /// How often its delivery failed.
    pub failures: u32,
}

/// How a subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Whether someone else counts attempts and writes dead letters.
    pub owned: bool,
    /// What it holds, in flight or not.
    pub held: Quantity,
    /// Of these, how many are in flight.
    pub in_flight: u64,
    /// Native dead letters that are kept.
    pub dead_letters: u64,
    /// Messages at the ceiling for which there was no room among the native dead letters.
    pub discarded: u64,
    /// Messages whose expiry interval ran out.
    pub expired: u64,
    /// Messages of QoS 0 that came when there was no room.
    pub dropped: u64,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Messages that can be delivered again from now on.
    pub redelivered: u64,
    /// Stale messages of owned subscriptions: whoever owns them still holds them.
    pub held: u64,
    /// Messages that reached the ceiling.
    pub dead_lettered: u64,
}

/// One delivery; an earlier delivery of the same message has another ticket, and no say any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// One source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Consumer(pub(crate) u64);

#[derive(Debug, Clone, Copy)]
enum Place {
    Ready,
    Resting {
        until: Duration,
    },
    InFlight {
        until: Duration,
        ticket: Ticket,
        consumer: Consumer,
    },
}

#[derive(Debug)]
struct Entry {
    message: Arc<Message>,
    received: Timestamp,
    place: Place,
    redelivered: bool,
    /// Stays 0 where someone else counts.
    failures: u32,
}

/// What is delivered.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) message: Arc<Message>,
    pub(crate) received: Timestamp,
    pub(crate) redelivered: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    entries: BTreeMap<u64, Entry>,
    ready: BTreeSet<u64>,
    resting: BTreeSet<(Duration, u64)>,
    in_flight: BTreeSet<(Duration, u64)>,
    dead_letters: VecDeque<NativeDeadLetter>,
    dead_bytes: u64,
    standing: Standing,
}

impl Backlog {
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            in_flight: self.in_flight.len() as u64,
            dead_letters: self.dead_letters.len() as u64,
            ..self.standing
        }
    }

    /// Someone else counts from now on: what has been counted here is forgotten (I19).
    pub(crate) fn own(&mut self) {
        self.standing.owned = true;
        for entry in self.entries.values_mut() {
            entry.failures = 0;
        }
    }

    pub(crate) const fn has_room(&self, size: u64, options: &Options) -> bool {
        options.waiting.have_room(self.standing.held, size)
    }

    /// Takes a message in; the caller has made sure of the room, or drops one of QoS 0.
    pub(crate) fn push(&mut self, number: u64, message: Arc<Message>, received: Timestamp) {
        self.standing.held.entries += 1;
        self.standing.held.bytes += message.size();
        self.ready.insert(number);
        let entry = Entry {
            message,
            received,
            place: Place::Ready,
            redelivered: false,
            failures: 0,
        };
        self.entries.insert(number, entry);
    }

    pub(crate) fn drop_one(&mut self) {
        self.standing.dropped += 1;
    }

    /// The oldest message that can be delivered; expired ones go, unless someone else decides.
    pub(crate) fn first_ready(&mut self, wall: Timestamp) -> Option<u64> {
        loop {
            let number = *self.ready.first()?;
            let entry = self.entries.get(&number)?;
            let over = entry.message.expiry_left(entry.received, wall) == Expiry::Expired;
            if self.standing.owned || !over {
                return Some(number);
            }
            self.standing.expired += 1;
            self.remove(number);
        }
    }

    pub(crate) fn qos_of(&self, number: u64) -> Option<QoS> {
        self.entries.get(&number).map(|entry| entry.message.qos)
    }

    /// Hands out the message `number`, which is ready. One of QoS 0 is gone with that.
    pub(crate) fn take(
        &mut self,
        number: u64,
        qos: QoS,
        by: (Consumer, Ticket),
        until: Duration,
    ) -> Option<Taken> {
        let entry = self.entries.get_mut(&number)?;
        let taken = Taken {
            message: entry.message.clone(),
            received: entry.received,
            redelivered: std::mem::replace(&mut entry.redelivered, true),
        };
        if qos == QoS::AtMostOnce {
            self.remove(number);
        } else {
            let (consumer, ticket) = by;
            self.put(
                number,
                Place::InFlight {
                    until,
                    ticket,
                    consumer,
                },
            );
        }
        Some(taken)
    }

    /// Whose the message `number` is, if `ticket` still stands for it.
    fn holder(&self, number: u64, ticket: Ticket) -> Option<Consumer> {
        match self.entries.get(&number)?.place {
            Place::InFlight {
                ticket: current,
                consumer,
                ..
            } if current == ticket => Some(consumer),
            _ => None,
        }
    }

    /// The message is done. Says whose place in the window is free.
    pub(crate) fn settle(&mut self, number: u64, ticket: Ticket) -> Option<Consumer> {
        let holder = self.holder(number, ticket)?;
        self.remove(number);
        Some(holder)
    }

    /// The message was not taken: it rests and is delivered again, or is at the ceiling.
    pub(crate) fn leave(
        &mut self,
        number: u64,
        ticket: Ticket,
        now: Duration,
        options: &Options,
    ) -> Option<Consumer> {
        let holder = self.holder(number, ticket)?;
        if !self.is_given_up(number, options) {
            let until = now.saturating_add(options.redelivery_delay);
            self.put(number, Place::Resting { until });
        }
        Some(holder)
    }

    /// What `consumer` has not settled is ready for another; that is no failure of the message.
    pub(crate) fn release(&mut self, consumer: Consumer) {
        let of_this = |number: &u64| {
            let place = self.entries.get(number).map(|entry| entry.place);
            matches!(place, Some(Place::InFlight { consumer: held, .. }) if held == consumer)
        };
        let numbers = self.in_flight.iter().map(|(_, number)| *number);
        for number in numbers.filter(of_this).collect::<Vec<_>>() {
            self.put(number, Place::Ready);
        }
    }

    /// Lets the time that has passed take effect, and says whose places in windows are free.
    pub(crate) fn sweep(&mut self, now: Duration, options: &Options) -> (Swept, Vec<Consumer>) {
        let mut swept = Swept::default();
        let mut freed = Vec::new();
        while let Some((until, number)) = self.resting.first().copied()
            && until <= now
        {
            self.put(number, Place::Ready);
            swept.redelivered += 1;
        }
        while let Some((until, number)) = self.in_flight.first().copied()
            && until <= now
        {
            let place = self.entries.get(&number).map(|entry| entry.place);
            let Some(Place::InFlight {
                ticket, consumer, ..
            }) = place
            else {
                break;
            };
            if self.standing.owned {
                // The right to acknowledge exists, so whoever owns the message has it. Delivered
                // again now, it would be there twice; let go of, it comes back by itself.
                let until = now.saturating_add(options.stale_after.max(SHORTEST));
                self.put(
                    number,
                    Place::InFlight {
                        until,
                        ticket,
                        consumer,
                    },
                );
                swept.held += 1;
                continue;
            }
            freed.push(consumer);
            if self.is_given_up(number, options) {
                swept.dead_lettered += 1;
            } else {
                self.put(number, Place::Ready);
                swept.redelivered += 1;
            }
        }
        (swept, freed)
    }

    /// When a sweep has something to do next.
    pub(crate) fn next_sweep(&self) -> Option<Duration> {
        let resting = self.resting.first().map(|(until, _)| *until);
        let in_flight = self.in_flight.first().map(|(until, _)| *until);
        resting.into_iter().chain(in_flight).min()
    }

    pub(crate) fn dead_letters(&self) -> impl Iterator<Item = &NativeDeadLetter> {
        self.dead_letters.iter()
    }

    /// Counts a failure where this is the one who counts, and gives up at the ceiling.
    fn is_given_up(&mut self, number: u64, options: &Options) -> bool {
        if self.standing.owned {
            return false;
        }
        let Some(entry) = self.entries.get_mut(&number) else {
            return false;
        };
        entry.failures = entry.failures.saturating_add(1);
        if entry.failures < options.max_deliveries.get() {
            return false;
        }
        let letter = NativeDeadLetter {
            message: (*entry.message).clone(),
            received: entry.received,
            failures: entry.failures,
        };
        self.remove(number);
        let size = letter.message.size();
        let kept = Quantity {
            entries: self.dead_letters.len() as u64,
            bytes: self.dead_bytes,
        };
        if options.dead_letters.have_room(kept, size) {
            self.dead_bytes += size;
            self.dead_letters.push_back(letter);
        } else {
            self.standing.discarded += 1;
        }
        true
    }

    fn put(&mut self, number: u64, place: Place) {
        self.lift(number);
        match place {
            Place::Ready => drop(self.ready.insert(number)),
            Place::Resting { until } => drop(self.resting.insert((until, number))),
            Place::InFlight { until, .. } => drop(self.in_flight.insert((until, number))),
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.place = place;
        }
    }

    /// Takes the number out of the line that it is in.
    fn lift(&mut self, number: u64) {
        match self.entries.get(&number).map(|entry| entry.place) {
            Some(Place::Ready) => drop(self.ready.remove(&number)),
            Some(Place::Resting { until }) => drop(self.resting.remove(&(until, number))),
            Some(Place::InFlight { until, .. }) => drop(self.in_flight.remove(&(until, number))),
            None => {}
        }
    }

    fn remove(&mut self, number: u64) {
        self.lift(number);
        if let Some(entry) = self.entries.remove(&number) {
            self.standing.held.entries -= 1;
            self.standing.held.bytes -= entry.message.size();
        }
    }
}

/// A sweep that holds a message looks at it again no sooner than this: a stale time of zero would
/// otherwise never end it.
const SHORTEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
