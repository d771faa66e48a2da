//! Redrives and deletes of any number of dead letters, at the pace that live traffic leaves.
//!
//! A job goes through what its filter takes up to what was there when it began: what is refused
//! again is not redriven again. Its bindings take turns, at each the oldest goes first, and none
//! holds up another. It holds a few numbers of each binding in memory, moves a few entries at a
//! time, and leaves the store as much time as it has taken.
//!
//! A redrive keeps the queue of a binding that is being served short, for what arrives waits behind
//! it; it fills no queue beyond half of its bounds, for what arrives needs room. Where a queue has
//! no room for it, or the store fails for a reason that may pass, the binding is *held up*: the job
//! says so, tries again, and goes on elsewhere. What has not moved for ten minutes is given up on:
//! the rest of that binding's entries stays, and is counted by that reason. Where nothing is sent
//! at all, that is at once.
//!
//! A job that is cancelled, or whose bridge stops, begins nothing more; what it has asked the store
//! for is waited for, but not for long: no one knows then whether that has moved. After a restart
//! of the bridge its jobs are gone: what was moved is moved.

mod turns;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_core::{BindingKey, InvalidMessageId, MessageId, Timestamp};
use tokio_util::sync::CancellationToken;

use self::worker::Worker;
use super::{Control, ControlError, DeadLetterFilter, DeadLetterId};

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
    /// The store could not be read to the end, or the task has panicked.
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

/// Why a job gets no further at a binding for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldUpBy {
    /// The queue has no more room that could be left to what arrives.
    QueueFull,
    /// The store fails for a reason that may pass, as on a full disk.
    StoreFailed,
}

impl HeldUpBy {
    /// The word for it in the API: that of the results of single entries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::StoreFailed => "store_failed",
        }
    }
}

/// A binding at which a job gets no further for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldUp {
    /// Why.
    pub by: HeldUpBy,
    /// Since when nothing has moved there.
    pub since: Timestamp,
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
    /// How many it has to look through: the dead letters that there were when it began, of its
    /// bindings, its reason and its time.
    pub among: u64,
    /// How many of those it has looked at.
    pub looked_at: u64,
    /// How many of these its filter takes.
    pub matched: u64,
    /// How many of these it has moved or deleted.
    pub done: u64,
    /// The others, by what came of them: the words are those of single results, and `unanswered` of
    /// what a job that was cancelled did not wait for any longer.
    pub failed: BTreeMap<&'static str, u64>,
    /// Where it gets no further for now, while it is running.
    pub held_up: BTreeMap<BindingKey, HeldUp>,
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
            held_up: BTreeMap::new(),
            started: shared.clock.wall(),
            ended: None,
        };
        let cancelled = shared.stopping.child_token();
        shared.jobs.begin(&job, &cancelled)?;
        let id = job.id;
        let worker = Worker::new(shared.clone(), &job, cancelled, observer.clone());
        let tasks = shared.tasks.clone();
        // Whatever ends it, also a panic, it is running no more.
        tasks.spawn(async move {
            let run = tokio::spawn(worker.run());
            let broken =
                |failure: tokio::task::JoinError| ControlError::Failed(failure.to_string());
            let state = run
                .await
                .unwrap_or_else(|failure| JobState::Failed(broken(failure)));
            let ended = shared.clock.wall();
            let job = shared.jobs.change(id, |job| {
                job.state = state;
                job.ended = Some(ended);
                job.held_up.clear();
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
