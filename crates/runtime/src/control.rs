//! What an operator does with a running bridge: looks at dead letters, sends them on, deletes them.

mod at_rest;
mod delete;
mod export;
mod filter;
mod import;
mod inject;
mod job;
mod letter;
mod list;
mod mover;
mod redrive;
mod scan;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bridge_core::{BindingKey, Clock, MessageId, Name, Store, StoreError};
use futures_util::future::try_join_all;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::at_rest::AtRest;
pub use self::delete::{DeleteOutcome, DeleteResult};
pub use self::export::{Export, Exported};
pub use self::filter::DeadLetterFilter;
use self::import::Imports;
pub use self::import::{Import, ImportOutcome, Importer};
use self::inject::Route;
pub use self::inject::{InjectTarget, Injected};
use self::job::Jobs;
pub use self::job::{HeldUp, HeldUpBy, Job, JobId, JobKind, JobObserver, JobState};
pub use self::letter::{DeadLetter, DeadLetterId, DeadLetterSummary, InvalidDeadLetterId};
pub use self::list::{Cursor, Page, Total};
pub use self::redrive::{
    MOST_AT_ONCE, RedriveOptions, RedriveOutcome, RedriveResult, RedriveVerdict, Selection,
};
use crate::RouteSpec;
use crate::lane::Lane;
use crate::metrics::Metrics;

/// How many entries all calls together may have chosen at a time.
const CHOSEN: usize = 1_000_000;
/// Requests that wait for the mover.
const REQUESTS: usize = 1_024;
/// Test messages that have not settled.
const BY_HAND: usize = 64;

/// The operator's hands on running routes; cheap to clone. It stays good while they stop: what
/// they can do no more then ends with [`ControlError::Stopping`].
#[derive(Debug, Clone)]
pub struct Control {
    /// Weak, so that whoever still holds one does not keep the store from closing.
    shared: Weak<Shared>,
}

/// Why a call came to nothing. What it says of single entries is in its results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The bridge stops.
    #[error("the bridge stops; ask again when it runs")]
    Stopping,
    /// The store failed on a read.
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
    /// More entries than one call may choose.
    #[error("{asked} dead letters are too many for one call, which takes {most}; use a job")]
    TooMany {
        /// How many were asked for.
        asked: usize,
        /// How many are possible.
        most: usize,
    },
    /// The running configuration has no such route.
    #[error("there is no such route")]
    NoSuchRoute,
    /// The running configuration has no such binding.
    #[error("there is no such binding")]
    NoSuchBinding,
    /// The route would not take a message of that topic.
    #[error("none of the route's topic filters matches that topic")]
    NotTaken,
    /// No binding could make a topic of that one.
    #[error("no binding can publish a message of that topic: what it becomes there is no topic")]
    TopicInvalid,
    /// The queue of one of the bindings has no room: nothing was stored.
    #[error("the queue is full; make room first")]
    QueueFull,
    /// The store fails at the moment: nothing was stored.
    #[error("the store fails at the moment; see the log")]
    StoreFails,
    /// Calls that are under way have chosen all that can be held in memory.
    #[error("too many redrives and deletes are under way; ask again later")]
    Busy,
    /// There is one import at a time.
    #[error("another import is under way; ask again when it has ended")]
    ImportUnderWay,
    /// A task has panicked.
    #[error("the call failed: {0}")]
    Failed(String),
}

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    lanes: BTreeMap<BindingKey, Arc<Lane>>,
    routes: BTreeMap<Name, Route>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    mover: mpsc::Sender<mover::Request>,
    chosen: Arc<Semaphore>,
    /// For test messages.
    by_hand: Arc<Semaphore>,
    /// The turn of an import.
    importing: Arc<Semaphore>,
    imports: Imports,
    jobs: Jobs,
    /// Whether workers send what waits, so that a full queue grows shorter by itself.
    delivering: bool,
    /// Held by who looks through many messages to count some.
    counting: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// The time for a stop is up: the store is not waited for any more.
    given_up: CancellationToken,
}

impl Shared {
    /// Makes it, and the task that moves entries, which is to be spawned.
    pub(crate) fn new(
        specs: &[RouteSpec],
        lanes: &BTreeMap<Name, Vec<Arc<Lane>>>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        delivering: bool,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + 'static) {
        let (mover, requests) = mpsc::channel(REQUESTS);
        let stopping = CancellationToken::new();
        let by_key = |lane: &Arc<Lane>| (lane.key.clone(), lane.clone());
        let route = |spec: &RouteSpec| {
            let route = Route {
                source: spec.source.clone(),
                subscriptions: spec.subscriptions.clone(),
                lanes: lanes.get(&spec.name).cloned().unwrap_or_default(),
            };
            (spec.name.clone(), route)
        };
        let shared = Arc::new(Self {
            lanes: lanes.values().flatten().map(by_key).collect(),
            routes: specs.iter().map(route).collect(),
            store,
            clock,
            metrics,
            mover,
            chosen: Arc::new(Semaphore::new(CHOSEN)),
            by_hand: Arc::new(Semaphore::new(BY_HAND)),
            importing: Arc::new(Semaphore::new(1)),
            imports: Imports::default(),
            jobs: Jobs::default(),
            delivering,
            counting: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            stopping: stopping.clone(),
            given_up: CancellationToken::new(),
        });
        let serving = mover::run(shared.clone(), requests, stopping);
        (shared, serving)
    }

    /// Nothing more is begun; what is under way ends.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
    }

    /// What is under way waits for nothing any more, and says so.
    pub(crate) fn give_up(&self) {
        self.given_up.cancel();
    }

    /// Ends when every call has ended after a stop.
    pub(crate) async fn stopped(&self) {
        self.tasks.wait().await;
    }

    /// Every binding that `filter` takes and that has dead letters, configured or not.
    fn bindings(&self, filter: &DeadLetterFilter) -> Vec<BindingKey> {
        let mut bindings = self.store.bindings();
        bindings.retain(|key| filter.takes_binding(key));
        bindings.retain(|key| self.store.usage(key).dead_letters.entries > 0);
        bindings
    }

    /// How many dead letters of `bindings` the filter takes, as far as that is known without a look
    /// at the messages.
    async fn count(
        &self,
        bindings: &[BindingKey],
        filter: &DeadLetterFilter,
    ) -> Result<u64, StoreError> {
        let which = filter.given_up();
        let counts = bindings
            .iter()
            .map(|key| self.store.count_dead_letters(key, which));
        try_join_all(counts)
            .await
            .map(|counts| counts.into_iter().sum())
    }

    fn new_id(&self) -> MessageId {
        MessageId::new(self.clock.wall(), rand::random())
    }

    /// Counts a redrive, but none at a binding that does not exist: strangers choose its name.
    fn count_redrive(&self, id: &DeadLetterId, outcome: &RedriveOutcome) {
        let there = self.lanes.contains_key(&id.binding)
            || matches!(outcome, RedriveOutcome::BindingNotFound);
        if there {
            self.metrics.redriven(&id.binding, outcome.as_str(), 1);
        }
    }
}

impl Control {
    /// The same, for who makes calls.
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
        }
    }

    /// One page of the dead letters that `filter` takes, the newest first.
    pub async fn list(
        &self,
        filter: &DeadLetterFilter,
        limit: usize,
        cursor: Option<&Cursor>,
    ) -> Result<Page, ControlError> {
        Ok(list::list(&*self.running()?, filter, limit, cursor).await?)
    }

    /// How many dead letters `filter` takes, as far as that is found out `within` that time: a list
    /// has less time for it. Several such calls have their turns, so that all together take no more
    /// of the disk than one.
    pub async fn total(
        &self,
        filter: &DeadLetterFilter,
        within: Duration,
    ) -> Result<Total, ControlError> {
        Ok(list::total(&*self.running()?, filter, within).await?)
    }

    /// One dead letter whole; `None` when there is none of that name.
    pub async fn get(&self, id: &DeadLetterId) -> Result<Option<DeadLetter>, ControlError> {
        Ok(redrive::get(&*self.running()?, id).await?)
    }

    fn running(&self) -> Result<Arc<Shared>, ControlError> {
        let shared = self.shared.upgrade();
        shared
            .filter(|shared| !shared.stopping.is_cancelled())
            .ok_or(ControlError::Stopping)
    }
}

impl Shared {
    /// Does what was asked for in a task of its own, so that who asked may hang up.
    async fn detached<T: Send + 'static>(
        &self,
        asked: usize,
        work: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, ControlError> {
        if asked > MOST_AT_ONCE {
            return Err(ControlError::TooMany {
                asked,
                most: MOST_AT_ONCE,
            });
        }
        let share = u32::try_from(asked).unwrap_or(u32::MAX);
        let share = self.chosen.clone().try_acquire_many_owned(share);
        let share = share.map_err(|_| ControlError::Busy)?;
        let task = self.tasks.spawn(async move {
            let _share = share;
            work.await
        });
        match task.await {
            Ok(result) => result,
            Err(failure) if failure.is_cancelled() => Err(ControlError::Stopping),
            Err(failure) => Err(ControlError::Failed(failure.to_string())),
        }
    }
}
