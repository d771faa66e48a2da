//! Redrives and deletes of any number of dead letters, at the pace that live traffic leaves.
//!
//! A job goes through what its filter takes, the oldest first, up to what was there when it began:
//! what is refused again is not redriven again. It holds a few entries at a time, moves a few at a
//! time, and leaves the store as much time as it has taken. A redrive keeps the queue of a binding
//! that is being served short, for what arrives waits behind it; it waits where a queue is full.
//! After a restart of the bridge its jobs are gone: what was moved is moved.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_core::{InvalidMessageId, MessageId, StoreError, Timestamp};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::redrive::{begin_redrive, delete_one};
use super::scan::{Scan, Way};
use super::{
    Control, ControlError, DeadLetter, DeadLetterFilter, DeadLetterId, RedriveOutcome, Shared,
};

/// How many entries a job moves at a time.
const BATCH: usize = 32;
/// How many entries are looked at before something else has a turn.
const LOOKED_AT: usize = 512;
/// The longest queue, of a binding that is served, behind which more is redriven.
const SHORT: u64 = 64;
/// Between two looks at a queue that is to become shorter, and at a full one.
const PACE: Duration = Duration::from_millis(2);
const FULL_PACE: Duration = Duration::from_millis(100);
/// The longest rest after a batch.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// How many jobs may run at a time, and how many are remembered.
const RUNNING: usize = 4;
const REMEMBERED: usize = 100;

/// The name of a job; no two of one bridge are the same, also across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(MessageId);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = InvalidMessageId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// What a job does with each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Puts it back into its queue.
    Redrive,
    /// Deletes it.
    Delete,
}

impl JobKind {
    /// The word for it in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Delete => "delete",
        }
    }
}

/// How a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It is at work.
    Running,
    /// It went through all that its filter takes; what failed is counted.
    Done,
    /// It was cancelled, by an operator or because the bridge stops.
    Cancelled,
    /// The store could not be read, or the task has panicked.
    Failed(ControlError),
}

impl JobState {
    /// The word for it in the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

/// Is told what a job does.
pub trait JobObserver: fmt::Debug + Send + Sync + 'static {
    /// These entries came to that; the words are those of single results.
    fn came(&self, job: JobId, results: &[(DeadLetterId, &'static str)]);
    /// It has ended, as `job` says. It is told once of each job that began.
    fn ended(&self, job: &Job);
}

/// A job, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// With which entries.
    pub filter: DeadLetterFilter,
    /// How it stands.
    pub state: JobState,
    /// How many dead letters its bindings had when it began: what it has to look through.
    pub among: u64,
    /// How many of those it has looked at.
    pub looked_at: u64,
    /// How many of these its filter takes.
    pub matched: u64,
    /// How many of these it has moved or deleted.
    pub done: u64,
    /// The others, by what came of them: the words are those of single results.
    pub failed: BTreeMap<&'static str, u64>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// The jobs that are remembered, the newest last.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<VecDeque<(Job, CancellationToken)>>);

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Job, CancellationToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, job: &Job, cancelled: &CancellationToken) -> Result<(), ControlError> {
        let mut jobs = self.lock();
        let running = jobs
            .iter()
            .filter(|(job, _)| job.state == JobState::Running);
        if running.count() >= RUNNING {
            return Err(ControlError::Busy);
        }
        if jobs.len() >= REMEMBERED
            && let Some(oldest) = jobs
                .iter()
                .position(|(job, _)| job.state != JobState::Running)
        {
            jobs.remove(oldest);
        }
        jobs.push_back((job.clone(), cancelled.clone()));
        Ok(())
    }

    /// Changes one that is running, and so is remembered.
    fn change(&self, id: JobId, change: impl FnOnce(&mut Job)) -> Option<Job> {
        let mut jobs = self.lock();
        let (job, _) = jobs.iter_mut().find(|(job, _)| job.id == id)?;
        change(job);
        Some(job.clone())
    }
}

impl Control {
    /// Begins a job with all that `filter` takes, and says how it stands.
    pub fn start_job(&self, kind: JobKind, filter: DeadLetterFilter) -> Result<Job, ControlError> {
        self.start_observed_job(kind, filter, Arc::new(NoOne))
    }

    /// Begins a job like [`Control::start_job`]; `observer` is told what it does.
    pub fn start_observed_job(
        &self,
        kind: JobKind,
        filter: DeadLetterFilter,
        observer: Arc<dyn JobObserver>,
    ) -> Result<Job, ControlError> {
        let shared = self.running()?;
        let usage = |key| shared.store.usage(&key).dead_letters.entries;
        let job = Job {
            id: JobId(shared.new_id()),
            kind,
            among: shared.bindings(&filter).into_iter().map(usage).sum(),
            filter,
            state: JobState::Running,
            looked_at: 0,
            matched: 0,
            done: 0,
            failed: BTreeMap::new(),
            started: shared.clock.wall(),
            ended: None,
        };
        let cancelled = shared.stopping.child_token();
        shared.jobs.begin(&job, &cancelled)?;
        let (id, filter) = (job.id, job.filter.clone());
        let worker = Worker {
            shared: shared.clone(),
            id,
            kind,
            cancelled,
            observer: observer.clone(),
        };
        // Whatever ends it, also a panic, it is running no more.
        shared.tasks.spawn(async move {
            let worker = worker;
            let shared = worker.shared.clone();
            let run = tokio::spawn(async move { worker.run(filter).await });
            let broken =
                |failure: tokio::task::JoinError| ControlError::Failed(failure.to_string());
            let state = run
                .await
                .unwrap_or_else(|failure| JobState::Failed(broken(failure)));
            let ended = shared.clock.wall();
            let job = shared.jobs.change(id, |job| {
                job.state = state;
                job.ended = Some(ended);
            });
            if let Some(job) = job {
                observer.ended(&job);
            }
        });
        Ok(job)
    }

    /// The latest jobs, the newest first.
    pub fn jobs(&self) -> Result<Vec<Job>, ControlError> {
        let shared = self.running()?;
        let jobs = shared.jobs.lock();
        Ok(jobs.iter().rev().map(|(job, _)| job.clone()).collect())
    }

    /// How one job stands; `None` when it is not remembered, as after a restart.
    pub fn job(&self, id: JobId) -> Result<Option<Job>, ControlError> {
        let shared = self.running()?;
        let jobs = shared.jobs.lock();
        let found = jobs.iter().find(|(job, _)| job.id == id);
        Ok(found.map(|(job, _)| job.clone()))
    }

    /// Has a job stop where it is, and says how it stood; what is moved stays moved.
    pub fn cancel_job(&self, id: JobId) -> Result<Option<Job>, ControlError> {
        let shared = self.running()?;
        let jobs = shared.jobs.lock();
        let found = jobs.iter().find(|(job, _)| job.id == id);
        Ok(found.map(|(job, cancelled)| {
            cancelled.cancel();
            job.clone()
        }))
    }
}

/// Who is told nothing.
#[derive(Debug)]
struct NoOne;

impl JobObserver for NoOne {
    fn came(&self, _: JobId, _: &[(DeadLetterId, &'static str)]) {}
    fn ended(&self, _: &Job) {}
}

/// The task of one job.
struct Worker {
    shared: Arc<Shared>,
    id: JobId,
    kind: JobKind,
    cancelled: CancellationToken,
    observer: Arc<dyn JobObserver>,
}

impl Worker {
    async fn run(self, filter: DeadLetterFilter) -> JobState {
        match self.work(&filter).await {
            Ok(state) => state,
            Err(StoreError::Closed) => JobState::Cancelled,
            Err(failure) => JobState::Failed(failure.into()),
        }
    }

    async fn work(&self, filter: &DeadLetterFilter) -> Result<JobState, StoreError> {
        let store = &*self.shared.store;
        let scan = Scan::new(Way::OldestFirst, self.shared.bindings(filter));
        let mut scan = scan.up_to_now(store).await?;
        let mut at_end = false;
        while !at_end {
            let began = Instant::now();
            let mut batch = Vec::new();
            let mut looked_at = 0;
            while batch.len() < BATCH && looked_at < LOOKED_AT {
                let Some((binding, seated)) = scan.next(store).await? else {
                    at_end = true;
                    break;
                };
                looked_at += 1;
                let (seq, all) = (seated.seq, filter.is_by_binding_only());
                let letter = DeadLetter::of(&binding, seated);
                let taken = letter
                    .as_ref()
                    .map_or(all, |letter| filter.takes(&letter.stored, &letter.info));
                if taken {
                    let size = letter.map_or(0, |letter| letter.stored.message.size());
                    batch.push((DeadLetterId { binding, seq }, size));
                }
            }
            self.shared.jobs.change(self.id, |job| {
                job.looked_at += looked_at as u64;
                job.matched += batch.len() as u64;
            });
            if self.cancelled.is_cancelled() || !self.move_all(batch).await {
                return Ok(JobState::Cancelled);
            }
            // As much time for others as was taken.
            self.rest(began.elapsed().min(LONGEST_REST)).await;
        }
        Ok(JobState::Done)
    }

    /// Moves a batch; says whether the job is to go on.
    async fn move_all(&self, mut batch: Vec<(DeadLetterId, u64)>) -> bool {
        while !batch.is_empty() {
            if self.kind == JobKind::Redrive {
                self.wait_for_short_queues(&batch).await;
            }
            if self.cancelled.is_cancelled() {
                return false;
            }
            let moves = batch.iter().map(|(id, size)| self.move_one(id, *size));
            let outcomes = join_all(moves.collect::<Vec<_>>()).await;
            let results = batch.iter().map(|(id, _)| id.clone()).zip(outcomes);
            let (full, results): (Vec<_>, Vec<_>) =
                results.partition(|(_, outcome)| *outcome == "queue_full");
            self.shared.jobs.change(self.id, |job| {
                for (_, outcome) in &results {
                    match *outcome {
                        "moved" | "deleted" => job.done += 1,
                        other => *job.failed.entry(other).or_insert(0) += 1,
                    }
                }
            });
            if !results.is_empty() {
                self.observer.came(self.id, &results);
            }
            batch.retain(|(id, _)| full.iter().any(|(other, _)| other == id));
            if !batch.is_empty() {
                self.rest(FULL_PACE).await;
            }
        }
        true
    }

    async fn move_one(&self, id: &DeadLetterId, size: u64) -> &'static str {
        if self.kind == JobKind::Delete {
            return delete_one(&self.shared, id).await.as_str();
        }
        let begun = begin_redrive(&self.shared, id, Some(size), false).await;
        let (outcome, _) = begun.ended().await;
        if outcome != RedriveOutcome::QueueFull {
            // A full queue is waited for.
            self.shared.count_redrive(id, &outcome);
        }
        outcome.as_str()
    }

    /// What arrives waits behind what is redriven: as long as a binding is served, little is put
    /// before it at a time. One that is not served makes everything wait anyway.
    async fn wait_for_short_queues(&self, batch: &[(DeadLetterId, u64)]) {
        for (id, _) in batch {
            let Some(lane) = self.shared.lanes.get(&id.binding) else {
                continue;
            };
            let depth = || self.shared.store.usage(&id.binding).queue.entries;
            while lane.is_sending() && depth() > SHORT && !self.cancelled.is_cancelled() {
                sleep(PACE).await;
            }
        }
    }

    async fn rest(&self, time: Duration) {
        tokio::select! {
            () = self.cancelled.cancelled() => {}
            () = sleep(time) => {}
        }
    }
}
