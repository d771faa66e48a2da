//! The task of one job.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{BindingKey, Quantity, ReadFrom, ReadLimit, Seated, Seq, StoreError};
use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::turns::{Next, Patience, Turns};
use super::{HeldUp, HeldUpBy, Job, JobId, JobKind, JobObserver, JobState};
use crate::control::delete::delete_one;
use crate::control::redrive::begin_redrive;
use crate::control::{
    ControlError, DeadLetter, DeadLetterFilter, DeadLetterId, DeleteOutcome, RedriveOutcome, Shared,
};

/// How many entries a job moves at a time.
const BATCH: usize = 32;
/// How much of a binding is read at a time.
const CHUNK: ReadLimit = ReadLimit {
    entries: 256,
    bytes: 1 << 20,
};
/// The longest queue, of a binding that is served, behind which more is redriven.
const SHORT: u64 = 64;
/// The longest rest after a turn.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// How long a job that was cancelled waits for what it has asked the store for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// What came of an entry, as far as is known, when that was waited for in vain.
const UNANSWERED: &str = "unanswered";

pub(super) struct Worker {
    shared: Arc<Shared>,
    id: JobId,
    kind: JobKind,
    filter: DeadLetterFilter,
    cancelled: CancellationToken,
    observer: Arc<dyn JobObserver>,
    /// The bindings, in the order of their turns.
    tracks: Vec<Track>,
    turns: Turns,
    /// Why a binding could not be read to the end.
    broken: Option<StoreError>,
}

/// How far the job has come at one binding.
struct Track {
    key: BindingKey,
    /// The last number that is of interest, once it is known.
    last: Option<Seq>,
    /// Where to read on.
    read_to: Option<Seq>,
    read_all: bool,
    /// What was read and is not moved: numbers and sizes.
    in_hand: VecDeque<(Seq, u64)>,
    /// What is left there is only counted, as that.
    given_up: Option<HeldUpBy>,
}

/// What came of one entry.
enum Fate {
    /// That, in the word for it in the API.
    Came(&'static str),
    /// It is tried again.
    HeldUp(HeldUpBy),
    /// The bridge stops.
    Stopping,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        job: &Job,
        cancelled: CancellationToken,
        observer: Arc<dyn JobObserver>,
    ) -> Self {
        let track = |key| Track {
            key,
            last: None,
            read_to: None,
            read_all: false,
            in_hand: VecDeque::new(),
            given_up: None,
        };
        let tracks: Vec<_> = shared
            .bindings(&job.filter)
            .into_iter()
            .map(track)
            .collect();
        Self {
            shared,
            id: job.id,
            kind: job.kind,
            filter: job.filter.clone(),
            cancelled,
            observer,
            turns: Turns::new(tracks.len()),
            tracks,
            broken: None,
        }
    }

    pub(super) async fn run(mut self) -> JobState {
        let cancelled = self.cancelled.clone();
        // Reading changes nothing, so it may be left at any time.
        let ends = async {
            let keys: Vec<_> = self.tracks.iter().map(|track| track.key.clone()).collect();
            let among = self.shared.count(&keys, &self.filter);
            let ends = self
                .tracks
                .iter_mut()
                .map(|track| track.find_end(&self.shared, &self.filter));
            let (among, _) = join(among, join_all(ends.collect::<Vec<_>>())).await;
            // Where that fails it is made again in its turn, and the number stays what it might be.
            if let Ok(among) = among {
                self.shared.jobs.change(self.id, |job| job.among = among);
            }
        };
        if cancelled.run_until_cancelled(ends).await.is_none() {
            return JobState::Cancelled;
        }
        while !cancelled.is_cancelled() {
            let now = self.shared.clock.monotonic();
            match self.turns.next(now) {
                Next::End => {
                    return match self.broken {
                        Some(StoreError::Closed) => JobState::Cancelled,
                        Some(failure) => JobState::Failed(ControlError::Store(failure)),
                        None => JobState::Done,
                    };
                }
                Next::Rest(until) => self.rest(until.saturating_sub(now)).await,
                Next::Work(n) => {
                    let began = Instant::now();
                    self.turn(n).await;
                    // As much time for others as was taken, where there are any.
                    if self.shared.delivering {
                        self.rest(began.elapsed().min(LONGEST_REST)).await;
                    }
                }
            }
        }
        JobState::Cancelled
    }

    /// Goes on at one binding.
    async fn turn(&mut self, n: usize) {
        let cancelled = self.cancelled.clone();
        let Some(track) = self.tracks.get_mut(n) else {
            return;
        };
        if track.in_hand.is_empty() && !track.read_all {
            let read = track.read(&self.shared, &self.filter);
            let Some(read) = cancelled.run_until_cancelled(read).await else {
                return;
            };
            let (looked_at, matched) = match read {
                Ok(counts) => counts,
                Err(failure) => return self.cannot_read(n, failure),
            };
            self.shared.jobs.change(self.id, |job| {
                job.looked_at += looked_at;
                job.matched += matched;
            });
            self.free(n);
        }
        let Some(track) = self.tracks.get(n) else {
            return;
        };
        let (nothing, end, given_up) = (track.in_hand.is_empty(), track.read_all, track.given_up);
        match given_up {
            Some(by) => self.leave(n, by),
            None if nothing => {}
            None if self.kind == JobKind::Redrive && self.is_behind(n) => return,
            None => return self.move_some(n).await,
        }
        if end {
            self.free(n);
            self.turns.is_over(n);
        }
    }

    /// Whether a binding is to send something before more is put before what arrives there.
    fn is_behind(&mut self, n: usize) -> bool {
        let Some(key) = self.tracks.get(n).map(|track| &track.key) else {
            return false;
        };
        let depth = self.shared.store.usage(key).queue.entries;
        let lane = self.shared.lanes.get(key);
        // One that is not served makes everything wait anyway.
        let long = lane.is_some_and(|lane| lane.is_sending()) && depth > SHORT;
        long && !self.turns.is_behind(n, self.shared.clock.monotonic())
    }

    /// Moves what may be moved now of what is in hand.
    async fn move_some(&mut self, n: usize) {
        let Some(track) = self.tracks.get_mut(n) else {
            return;
        };
        let fitting = match self.kind {
            JobKind::Redrive => track.fitting(&self.shared),
            JobKind::Delete => BATCH.min(track.in_hand.len()),
        };
        if fitting == 0 {
            return self.held_up(n, HeldUpBy::QueueFull);
        }
        let batch: Vec<_> = track.in_hand.drain(..fitting).collect();
        let (cancelled, track) = (&self.cancelled, &*track);
        let moves = batch.iter().map(|(seq, size)| {
            let fate = move_one(&self.shared, self.kind, track.id(*seq), *size);
            async move {
                let given_up = async {
                    cancelled.cancelled().await;
                    sleep(ANSWERED_WITHIN).await;
                };
                tokio::select! {
                    biased;
                    fate = fate => fate,
                    // It moves or not, whoever waits for it.
                    () = given_up => Fate::Came(UNANSWERED),
                }
            }
        });
        let fates = join_all(moves.collect::<Vec<_>>()).await;
        self.conclude(n, batch, fates);
    }

    fn conclude(&mut self, n: usize, batch: Vec<(Seq, u64)>, fates: Vec<Fate>) {
        let Some(track) = self.tracks.get_mut(n) else {
            return;
        };
        let (mut came, mut again, mut held_up) = (Vec::new(), Vec::new(), None);
        for (entry, fate) in batch.into_iter().zip(fates) {
            match fate {
                Fate::Came(word) => came.push((track.id(entry.0), word)),
                Fate::HeldUp(by) => {
                    held_up = held_up.or(Some(by));
                    again.push(entry);
                }
                Fate::Stopping => self.cancelled.cancel(),
            }
        }
        // In their order.
        for entry in again.into_iter().rev() {
            track.in_hand.push_front(entry);
        }
        if !came.is_empty() {
            self.came(&came);
            self.free(n);
        }
        if let Some(by) = held_up {
            self.held_up(n, by);
        }
    }

    /// A binding could not be read.
    fn cannot_read(&mut self, n: usize, failure: StoreError) {
        let passes = failure.is_transient() && failure != StoreError::Closed;
        if passes && self.wait_for(n, HeldUpBy::StoreFailed) == Patience::Left {
            return;
        }
        self.broken = Some(failure);
        self.free(n);
        self.turns.is_over(n);
    }

    /// Nothing moves at a binding for that reason: in the end it is given up on, and at once where
    /// nothing makes room.
    fn held_up(&mut self, n: usize, by: HeldUpBy) {
        let over = !self.shared.delivering || self.wait_for(n, by) == Patience::Over;
        if over && let Some(track) = self.tracks.get_mut(n) {
            track.given_up = Some(by);
            self.free(n);
        }
    }

    /// Nothing moves at a binding for that reason, which all may see.
    fn wait_for(&mut self, n: usize, by: HeldUpBy) -> Patience {
        let clock = &self.shared.clock;
        let (now, since) = (clock.monotonic(), clock.wall());
        let patience = self.turns.is_held_up(n, by, now);
        if let Some(track) = self.tracks.get(n) {
            let key = track.key.clone();
            self.shared.jobs.change(self.id, |job| {
                let held = job.held_up.entry(key).or_insert(HeldUp { by, since });
                held.by = by;
            });
        }
        patience
    }

    /// A binding is not held up any more.
    fn free(&mut self, n: usize) {
        self.turns.moved(n);
        if let Some(track) = self.tracks.get(n) {
            let key = &track.key;
            self.shared.jobs.change(self.id, |job| {
                job.held_up.remove(key);
            });
        }
    }

    /// What is in hand of a binding that was given up on stays, and is counted.
    fn leave(&mut self, n: usize, by: HeldUpBy) {
        let Some(track) = self.tracks.get_mut(n) else {
            return;
        };
        let left = std::mem::take(&mut track.in_hand).into_iter();
        let left: Vec<_> = left.map(|(seq, _)| (track.id(seq), by.as_str())).collect();
        if left.is_empty() {
            return;
        }
        if self.kind == JobKind::Redrive {
            let metrics = &self.shared.metrics;
            metrics.redriven(&track.key, by.as_str(), left.len() as u64);
        }
        self.came(&left);
    }

    /// Counts and tells what came of entries.
    fn came(&self, results: &[(DeadLetterId, &'static str)]) {
        self.shared.jobs.change(self.id, |job| {
            for (_, word) in results {
                match *word {
                    "moved" | "deleted" => job.done += 1,
                    other => *job.failed.entry(other).or_insert(0) += 1,
                }
            }
        });
        self.observer.came(self.id, results);
    }

    async fn rest(&self, time: Duration) {
        // Either way it has rested.
        let _ = timeout(time, self.cancelled.cancelled()).await;
    }
}

impl Track {
    fn id(&self, seq: Seq) -> DeadLetterId {
        DeadLetterId {
            binding: self.key.clone(),
            seq,
        }
    }

    /// Finds the newest entry there is now: what becomes a dead letter later is not looked at.
    async fn find_end(
        &mut self,
        shared: &Shared,
        filter: &DeadLetterFilter,
    ) -> Result<Option<Seq>, StoreError> {
        let limit = ReadLimit {
            entries: 1,
            bytes: 0,
        };
        let (which, from) = (filter.given_up(), ReadFrom::Before(None));
        let newest = shared
            .store
            .read_dead_letters(&self.key, which, from, limit);
        let newest = newest.await?;
        self.last = newest.first().map(|seated| seated.seq);
        self.read_all = self.last.is_none();
        Ok(self.last)
    }

    /// Reads on; says how many entries were looked at, and how many of these the filter takes.
    async fn read(
        &mut self,
        shared: &Shared,
        filter: &DeadLetterFilter,
    ) -> Result<(u64, u64), StoreError> {
        let last = match self.last {
            Some(last) => Some(last),
            None => self.find_end(shared, filter).await?,
        };
        let Some(last) = last else {
            return Ok((0, 0));
        };
        let (which, from) = (filter.given_up(), ReadFrom::After(self.read_to));
        let page = shared
            .store
            .read_dead_letters(&self.key, which, from, CHUNK);
        let page = page.await?;
        self.read_all = page.last().is_none_or(|end| end.seq >= last);
        self.read_to = page.last().map(|end| end.seq);
        let (mut looked_at, before) = (0, self.in_hand.len());
        for seated in page.into_iter().filter(|seated| seated.seq <= last) {
            looked_at += 1;
            let seq = seated.seq;
            if let Some(size) = taken(&self.key, seated, filter) {
                self.in_hand.push_back((seq, size));
            }
        }
        Ok((looked_at, (self.in_hand.len() - before) as u64))
    }

    /// How many of what is in hand, the first ones, may go into the queue now.
    fn fitting(&self, shared: &Shared) -> usize {
        let batch = self.in_hand.iter().take(BATCH);
        let Some(lane) = shared.lanes.get(&self.key) else {
            // Each is told that there is no such binding.
            return batch.len();
        };
        let mut before = Quantity::default();
        let fits = |(_, size): &&(Seq, u64)| {
            let fits = lane.leaves_room(before, *size);
            before.entries += 1;
            before.bytes = before.bytes.saturating_add(*size);
            fits
        };
        batch.take_while(fits).count()
    }
}

/// The size of an entry that the filter takes. One that cannot be read is taken by a filter that
/// asks for nothing of the message.
fn taken(key: &BindingKey, seated: Seated, filter: &DeadLetterFilter) -> Option<u64> {
    match DeadLetter::of(key, seated) {
        Ok(letter) => filter
            .takes(&letter.stored, &letter.info)
            .then(|| letter.stored.message.size()),
        Err(_) => (!filter.looks_at_messages()).then_some(0),
    }
}

async fn move_one(shared: &Shared, kind: JobKind, id: DeadLetterId, size: u64) -> Fate {
    if kind == JobKind::Delete {
        return match delete_one(shared, &id).await {
            DeleteOutcome::Stopping => Fate::Stopping,
            DeleteOutcome::StoreFailed(failure) if failure.is_transient() => {
                Fate::HeldUp(HeldUpBy::StoreFailed)
            }
            other => Fate::Came(other.as_str()),
        };
    }
    let begun = begin_redrive(shared, &id, Some(size), false).await;
    let (outcome, _) = begun.ended().await;
    match &outcome {
        RedriveOutcome::QueueFull => return Fate::HeldUp(HeldUpBy::QueueFull),
        RedriveOutcome::StoreFailed(failure) if failure.is_transient() => {
            return Fate::HeldUp(HeldUpBy::StoreFailed);
        }
        _ => {}
    }
    shared.count_redrive(&id, &outcome);
    match outcome {
        RedriveOutcome::Stopping => Fate::Stopping,
        other => Fate::Came(other.as_str()),
    }
}
