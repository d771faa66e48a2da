//! The second chance: which deferred messages are offered again, when, and in which order.
//!
//! Pure: the time is passed in, and nothing is read or sent here. Deferred messages stand in
//! lines, one for each topic at the destination. A sweep offers the first of each line. Where it
//! is accepted, the rest of its line follows at once; where it is refused, the line waits for the
//! next sweep. So no message overtakes an older one of its topic, and a topic that stays refused
//! costs one message a sweep.
//!
//! A sweep is due a while after the last one, or at once after a reconnect. How long a message is deferred
//! is measured by the monotonic clock while the process lives, so that nobody who sets the wall
//! clock shortens it; the stored instant of the first refusal says what went before.

mod answers;
mod suspected;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bridge_core::{DeferInfo, Quantity, Reason, Seq, Timestamp, Topic};

use crate::DeferralSpec;

/// The deferred messages of one binding.
#[derive(Debug)]
pub(crate) struct Deferral {
    spec: DeferralSpec,
    entries: BTreeMap<Seq, Entry>,
    lines: HashMap<Topic, Line>,
    /// Messages on their way into a line whose number is not known yet, and their bytes.
    placing: (u64, u64),
    bytes: u64,
    /// What may be offered now.
    ready: BTreeSet<Seq>,
    offered: usize,
    next_sweep: Duration,
    skip_pacing: bool,
    /// Whether a line may be suspected: until there was one, none need be looked for.
    any_suspected: bool,
    /// The one message of a suspected line that may be offered now, alone.
    trial: Option<Seq>,
    next_trial: Duration,
    /// Which was the last one: the lines take turns.
    last_trial: Option<Seq>,
}

#[derive(Debug)]
struct Entry {
    topic: Topic,
    size: u64,
    info: DeferInfo,
    /// How long it had been deferred at the monotonic instant `since`.
    waited: Duration,
    since: Duration,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The store has not confirmed where it is, or what is known of it.
    Moving,
    Waiting,
    Offered,
}

/// The deferred messages of one topic, in their order.
#[derive(Debug)]
struct Line {
    reason: Reason,
    seqs: BTreeSet<Seq>,
    placing: u64,
    course: Course,
}

/// How it goes with a line in this sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// Its first message is to be offered.
    Untried,
    /// Its latest message was accepted: the others follow.
    Granted,
    /// Nothing more before the next sweep.
    Closed,
}

/// What a refusal means for a deferred message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It stays; this is what is known of it from now on.
    Stays(DeferInfo),
    /// Its window is over: it is given up on.
    Over(DeferInfo),
}

impl Entry {
    fn is_over(&self, window: Duration, now: Duration) -> bool {
        let waited = self.waited.saturating_add(now.saturating_sub(self.since));
        waited >= window
    }
}

impl Deferral {
    pub(crate) fn new(spec: DeferralSpec) -> Self {
        Self {
            spec,
            entries: BTreeMap::new(),
            lines: HashMap::new(),
            placing: (0, 0),
            bytes: 0,
            ready: BTreeSet::new(),
            offered: 0,
            next_sweep: Duration::ZERO,
            skip_pacing: false,
            any_suspected: false,
            trial: None,
            next_trial: Duration::ZERO,
            last_trial: None,
        }
    }

    /// Whether one more message of `size` bytes may be deferred.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        let deferred = Quantity {
            entries: self.entries.len() as u64 + self.placing.0,
            bytes: self.bytes.saturating_add(self.placing.1),
        };
        self.spec.have_room(&deferred, size)
    }

    /// Whether a message of `topic` that comes now has to line up: older ones of it wait.
    pub(crate) fn holds(&self, topic: &Topic) -> bool {
        let Some(line) = self.lines.get(topic) else {
            return false;
        };
        let all_offered = || line.seqs.iter().all(|seq| self.is(*seq, Place::Offered));
        !(line.course == Course::Granted && line.placing == 0 && all_offered())
    }

    /// What is known of a message that lines up behind the deferred ones of `topic` at `wall`: it
    /// is refused with them, and its window begins.
    pub(crate) fn lining_up(&self, topic: &Topic, wall: Timestamp) -> Option<DeferInfo> {
        let line = self.lines.get(topic)?;
        Some(DeferInfo {
            reason: line.reason,
            first_refusal: wall,
            last_refusal: wall,
            attempts: 0,
            overtaken: false,
        })
    }

    // === coming in ===

    /// A message that was deferred in an earlier run, as the store has it.
    pub(crate) fn load(
        &mut self,
        seq: Seq,
        topic: Topic,
        size: u64,
        info: DeferInfo,
        (wall, now): (Timestamp, Duration),
    ) {
        let waited = wall.since(info.first_refusal);
        self.insert(seq, topic, size, info, (waited, now), Place::Waiting);
    }

    /// A message leaves the queue for its line, which it has reached with [`Deferral::moved`].
    pub(crate) fn begin(
        &mut self,
        seq: Seq,
        topic: &Topic,
        size: u64,
        info: DeferInfo,
        now: Duration,
    ) {
        self.begin_pacing(now);
        let (refused, reason) = (info.attempts > 0, info.reason);
        let window = (Duration::ZERO, now);
        self.insert(seq, topic.clone(), size, info, window, Place::Moving);
        if refused {
            // On its way through the queue, where its line may have been granted before.
            self.close(topic);
            if let Some(line) = self.lines.get_mut(topic) {
                line.reason = reason;
            }
        }
    }

    /// A message that was never queued is on its way into the line of `topic`.
    pub(crate) fn placing(&mut self, topic: &Topic, size: u64) {
        if let Some(line) = self.lines.get_mut(topic) {
            line.placing += 1;
            self.placing = (self.placing.0 + 1, self.placing.1 + size);
        }
    }

    /// What [`Deferral::placing`] announced is in its line, or with `None` will never be.
    pub(crate) fn placed(
        &mut self,
        seq: Option<Seq>,
        topic: &Topic,
        size: u64,
        info: DeferInfo,
        now: Duration,
    ) {
        let (entries, bytes) = self.placing;
        self.placing = (entries.saturating_sub(1), bytes.saturating_sub(size));
        if let Some(line) = self.lines.get_mut(topic) {
            line.placing = line.placing.saturating_sub(1);
        }
        let Some(seq) = seq else {
            self.end_line(topic);
            return;
        };
        let window = (Duration::ZERO, now);
        self.insert(seq, topic.clone(), size, info, window, Place::Waiting);
        self.open(topic, now);
    }

    fn insert(
        &mut self,
        seq: Seq,
        topic: Topic,
        size: u64,
        info: DeferInfo,
        (waited, since): (Duration, Duration),
        place: Place,
    ) {
        if info.reason == Reason::SuspectedRefusal && !self.lines.values().any(Line::is_suspected) {
            self.next_trial = since.saturating_add(self.spec.retry_interval);
        }
        self.any_suspected |= info.reason == Reason::SuspectedRefusal;
        let line = self.lines.entry(topic.clone()).or_insert_with(|| Line {
            reason: info.reason,
            seqs: BTreeSet::new(),
            placing: 0,
            course: Course::Closed,
        });
        line.seqs.insert(seq);
        self.bytes += size;
        let entry = Entry {
            topic,
            size,
            info,
            waited,
            since,
            place,
        };
        self.entries.insert(seq, entry);
    }

    /// The store has confirmed the move or the later refusal of an entry.
    pub(crate) fn moved(&mut self, seq: Seq, now: Duration) {
        if let Some(entry) = self.entries.get_mut(&seq)
            && entry.place == Place::Moving
        {
            entry.place = Place::Waiting;
            let topic = entry.topic.clone();
            self.open(&topic, now);
        }
    }

    // === sweeps ===

    fn begin_pacing(&mut self, now: Duration) {
        if self.entries.is_empty() {
            self.next_sweep = now.saturating_add(self.spec.retry_interval);
            self.skip_pacing = false;
        }
    }

    /// There is a new connection: the next sweep need not wait.
    pub(crate) fn reconnected(&mut self) {
        self.skip_pacing = true;
    }

    /// The monotonic instant of the next sweep, if there is anything to offer.
    pub(crate) fn next_sweep(&self) -> Option<Duration> {
        let suspected = self.any_suspected && self.lines.values().any(Line::is_suspected);
        let next = if suspected {
            self.next_sweep.min(self.next_trial)
        } else {
            self.next_sweep
        };
        (!self.entries.is_empty()).then_some(next)
    }

    /// Begins a sweep, if one is due.
    pub(crate) fn wake(&mut self, now: Duration) {
        if self.entries.is_empty() {
            self.skip_pacing = false;
            self.any_suspected = false;
        }
        self.wake_trial(now);
        let due = self.skip_pacing || now >= self.next_sweep;
        if self.entries.is_empty() || self.is_sweeping() || !due {
            return;
        }
        self.next_sweep = now.saturating_add(self.spec.retry_interval);
        self.skip_pacing = false;
        for line in self.lines.values_mut().filter(|line| !line.is_suspected()) {
            line.course = Course::Untried;
        }
        let topics: Vec<Topic> = self.lines.keys().cloned().collect();
        for topic in topics {
            self.open(&topic, now);
        }
    }

    /// Whether deferred messages are to be offered, or are under way: they go before the queue.
    pub(crate) fn is_sweeping(&self) -> bool {
        !self.ready.is_empty() || self.offered > 0
    }

    /// The connection is lost, or nothing may be sent: the sweep begins again on the next.
    pub(crate) fn interrupt(&mut self) {
        let sweeping = self.is_sweeping();
        let granted = |line: &Line| line.course == Course::Granted;
        self.skip_pacing |= sweeping || self.lines.values().any(granted);
        self.ready.clear();
        self.trial = None;
        for line in self.lines.values_mut() {
            line.course = Course::Closed;
        }
    }

    /// The oldest message that may be offered now.
    pub(crate) fn next(&self) -> Option<Seq> {
        self.ready.first().copied().or(self.trial)
    }

    /// Whether a message that waits may be wanted soon: it is worth reading along.
    pub(crate) fn is_wanted(&self, seq: Seq) -> bool {
        let granted = |entry: &Entry| {
            let line = self.lines.get(&entry.topic);
            entry.place == Place::Waiting && line.is_some_and(|l| l.course == Course::Granted)
        };
        self.ready.contains(&seq)
            || self.trial == Some(seq)
            || self.entries.get(&seq).is_some_and(granted)
    }

    /// A message is offered. Says whether its topic has a newer value at the destination.
    pub(crate) fn offer(&mut self, seq: Seq, now: Duration) -> bool {
        self.ready.remove(&seq);
        self.trial = self.trial.filter(|trial| *trial != seq);
        let Some(entry) = self.entries.get_mut(&seq) else {
            return false;
        };
        entry.place = Place::Offered;
        self.offered += 1;
        let (topic, overtaken) = (entry.topic.clone(), entry.info.overtaken);
        self.open(&topic, now);
        overtaken
    }

    /// Lets the next message of a line be offered, if its order allows that: each one before it
    /// was accepted, or is given up on if it is refused.
    fn open(&mut self, topic: &Topic, now: Duration) {
        let Some(line) = self.lines.get(topic) else {
            return;
        };
        if line.course == Course::Closed || line.is_suspected() {
            return;
        }
        for seq in &line.seqs {
            let Some(entry) = self.entries.get(seq) else {
                continue;
            };
            match entry.place {
                Place::Moving => return,
                Place::Waiting => {
                    self.ready.insert(*seq);
                    return;
                }
                Place::Offered => {
                    let follows =
                        line.course == Course::Granted || entry.is_over(self.spec.window, now);
                    if !follows {
                        return;
                    }
                }
            }
        }
    }

    fn close(&mut self, topic: &Topic) {
        if let Some(line) = self.lines.get_mut(topic) {
            line.course = Course::Closed;
            for seq in &line.seqs {
                self.ready.remove(seq);
            }
        }
    }

    /// An entry is deferred no longer, for whichever reason.
    pub(crate) fn remove(&mut self, seq: Seq) -> Option<DeferInfo> {
        let entry = self.entries.remove(&seq)?;
        self.ready.remove(&seq);
        self.trial = self.trial.filter(|trial| *trial != seq);
        self.bytes = self.bytes.saturating_sub(entry.size);
        if entry.place == Place::Offered {
            self.offered = self.offered.saturating_sub(1);
        }
        if let Some(line) = self.lines.get_mut(&entry.topic) {
            line.seqs.remove(&seq);
        }
        self.end_line(&entry.topic);
        Some(entry.info)
    }

    fn end_line(&mut self, topic: &Topic) {
        let empty = |line: &Line| line.seqs.is_empty() && line.placing == 0;
        if self.lines.get(topic).is_some_and(empty) {
            self.lines.remove(topic);
        }
    }

    fn is(&self, seq: Seq, place: Place) -> bool {
        self.entries
            .get(&seq)
            .is_some_and(|entry| entry.place == place)
    }
}

#[cfg(test)]
mod tests;
