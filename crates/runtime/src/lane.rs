//! What a binding's worker and the intake of its source share: who takes the next message, and
//! in which order what cannot be published live gets into the store.
//!
//! Everything here is done under one short lock per binding, so that the order in which messages
//! came is the order in which they are handed on, whichever way they go:
//!
//! ```text
//!                       ┌─ mode live ───► live ───► worker publishes
//!   intake ──accept()───┤
//!                       └─ mode queue ──► store ──► (durable) ──► settled
//!                              │            │ fails
//!                              └► held ◄────┘        worker puts them again, in order
//! ```

mod operator;
mod parcel;
mod puts;
mod unburied;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_core::{BindingKey, DeadLetterInfo, Destination, Placement, Quantity, Store};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

pub(crate) use self::operator::{NotTaken, inject};
use self::parcel::Parcel;
pub(crate) use self::parcel::{Job, Placed, Shown, Standing};
use self::puts::conclude;
pub(crate) use self::watch::{Came, Watch, Watched};
use crate::metrics::{BindingMetrics, DropPolicy};
use crate::phase::Phase;
use crate::{BindingSpec, DeliveryMode, OnFull};

/// One binding: its settings, and what its worker and the intake share.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) key: BindingKey,
    pub(crate) spec: BindingSpec,
    pub(crate) mode: DeliveryMode,
    pub(crate) metrics: BindingMetrics,
    pub(crate) store: Arc<dyn Store>,
    /// Rings when there may be something for the worker to do.
    pub(crate) wake: Notify,
    /// Whether an operator wants nothing sent.
    paused: AtomicBool,
    /// Who waits to hear what becomes of which message.
    pub(crate) watched: Watch,
    tasks: TaskTracker,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether messages are handed to the worker; else they go to the store.
    live: bool,
    /// Handed to the worker, and not yet taken by it.
    inbox: VecDeque<Job>,
    /// Waits for room in the queue, or for the store to work again; in order.
    held: VecDeque<Parcel>,
    /// Puts that the store has not answered.
    outstanding: usize,
    /// Puts that failed, by the order in which they were made.
    failed: BTreeMap<u64, Parcel>,
    next_put: u64,
    /// How often in a row the store failed; what is held waits for the worker's retry meanwhile.
    failures: u32,
    /// Whether it is in the log that the store fails, and not yet that it works again.
    told: bool,
    /// Puts under way of messages that join a line.
    joining: BTreeSet<u64>,
    /// Messages that have joined a line, by their puts, for the worker to know of.
    placed: BTreeMap<u64, Placed>,
    /// Room in the queue that is spoken for by redrives under way.
    reserved: Quantity,
    /// Dead letters that there is no room for; the operator wants them held.
    unburied: VecDeque<(Job, DeadLetterInfo)>,
    /// How the worker stands, for those who ask.
    shown: Shown,
}

impl State {
    /// Nothing on its way to the store, and nothing that waits for it.
    fn is_clear(&self) -> bool {
        self.held.is_empty() && self.outstanding == 0 && self.failed.is_empty()
    }

    /// Whether the store has failed on something that it has not taken since.
    fn is_failing(&self) -> bool {
        self.failures > 0 || !self.failed.is_empty()
    }

    /// Whether something waits to be stored beside the queue: what comes now is behind it. What
    /// waits for room in the queue holds up nothing but the queue.
    fn holds_aside(&self) -> bool {
        let aside = |parcel: &Parcel| parcel.placement != Placement::Queue;
        self.is_failing() || self.held.iter().any(aside)
    }

    /// Messages go to the store from now on, and so do those that the worker has not taken.
    fn line_up(&mut self) {
        if !self.live {
            return;
        }
        self.live = false;
        self.held.extend(self.inbox.drain(..).map(Parcel::queue));
    }
}

impl Lane {
    pub(crate) fn new(
        key: BindingKey,
        spec: BindingSpec,
        mode: DeliveryMode,
        metrics: BindingMetrics,
        store: Arc<dyn Store>,
        tasks: TaskTracker,
    ) -> Self {
        metrics.set_carried_over(&store.usage(&key));
        Self {
            state: Mutex::new(State {
                // Until the worker has seen a connection and an empty queue, messages queue up.
                live: matches!(mode, DeliveryMode::DirectHold { .. }),
                inbox: VecDeque::new(),
                held: VecDeque::new(),
                outstanding: 0,
                failed: BTreeMap::new(),
                next_put: 0,
                failures: 0,
                told: false,
                joining: BTreeSet::new(),
                placed: BTreeMap::new(),
                reserved: Quantity::default(),
                unburied: VecDeque::new(),
                shown: Shown {
                    phase: Phase::LinkDown,
                    taken: 0,
                    head_failed: false,
                    held: None,
                    unburied: 0,
                    counted: 0,
                },
            }),
            key,
            spec,
            mode,
            metrics,
            store,
            wake: Notify::new(),
            paused: AtomicBool::new(false),
            watched: Watch::default(),
            tasks,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this binding never queues.
    pub(crate) const fn holds_directly(&self) -> bool {
        matches!(self.mode, DeliveryMode::DirectHold { .. })
    }

    pub(crate) fn standing(&self) -> Standing {
        let state = self.lock();
        let unburied = state.unburied.len();
        // A dead letter that the store has just failed on is held like one that has no room.
        let parcels = state.held.iter().chain(state.failed.values());
        let failed = parcels.filter(|parcel| parcel.is_dead_letter()).count();
        let waiting = state.inbox.len() + state.held.len() + state.outstanding + state.failed.len();
        Standing {
            phase: state.shown.phase,
            head_failed: state.shown.head_failed,
            held: state.shown.held.clone(),
            open: (waiting + unburied) as u64 + state.shown.taken,
            unburied: (unburied + failed) as u64 + state.shown.unburied,
            counted: state.shown.counted,
            paused: self.is_paused(),
        }
    }

    /// Lets others see how the worker stands.
    pub(crate) fn show(&self, shown: Shown) {
        self.lock().shown = shown;
    }

    /// What the worker is to publish next of what has just arrived.
    pub(crate) fn take_live(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = state.inbox.pop_front();
        state.shown.taken += u64::from(job.is_some());
        job
    }

    /// The next that has just arrived and is as `wanted`, out of its turn.
    pub(crate) fn take_live_that(&self, wanted: impl FnMut(&Job) -> bool) -> Option<Job> {
        let mut state = self.lock();
        let place = state.inbox.iter().position(wanted)?;
        let job = state.inbox.remove(place);
        state.shown.taken += u64::from(job.is_some());
        job
    }

    /// What has joined a line of deferred messages since the last call, in the order of the puts:
    /// none is told of before those that were put before it.
    pub(crate) fn take_placed(&self) -> impl Iterator<Item = Placed> {
        let mut state = self.lock();
        let State {
            joining, placed, ..
        } = &mut *state;
        let too_early = match joining.first() {
            Some(first) => placed.split_off(first),
            None => BTreeMap::new(),
        };
        std::mem::replace(placed, too_early).into_values()
    }

    /// Whether what arrives is handed to the worker; it may wait there for its turn.
    pub(crate) fn is_live(&self) -> bool {
        self.lock().live
    }

    /// Whether nothing that arrived waits for the worker or is on its way to the store.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.lock();
        state.inbox.is_empty() && state.is_clear()
    }

    /// Whether nothing more is put into the queue that arrives, and nothing is on its way there.
    pub(crate) fn is_complete(&self) -> bool {
        let state = self.lock();
        state.live && state.is_clear()
    }

    /// From now on messages are handed to the worker, if that keeps the order: nothing may be
    /// held, and the queue must be short enough for the worker to go through it first.
    pub(crate) fn go_live(&self, longest_queue: u64) -> bool {
        let mut state = self.lock();
        if state.live {
            return true;
        }
        state.live = self.mode == DeliveryMode::StoreAndForward
            && state.held.is_empty()
            && state.failed.is_empty()
            && self.store.usage(&self.key).queue.entries <= longest_queue;
        state.live
    }

    /// Puts back what the worker could not publish, before everything that has come since; from
    /// now on messages go to the store. A binding that never queues keeps them for the worker.
    pub(crate) fn recall(self: &Arc<Self>, lost: impl DoubleEndedIterator<Item = Job>) {
        let mut state = self.lock();
        if self.holds_directly() {
            for job in lost.rev() {
                state.inbox.push_front(job);
            }
            return;
        }
        state.live = false;
        let mut waiting: VecDeque<Job> = lost.collect();
        waiting.extend(state.inbox.drain(..));
        for job in waiting {
            self.queue_or_hold(&mut state, job);
        }
    }

    /// Takes the oldest held job out when `expired` says so of its age.
    pub(crate) fn take_live_if(&self, expired: impl Fn(&Job) -> bool) -> Option<Job> {
        let mut state = self.lock();
        if state.inbox.front().is_some_and(expired) {
            return state.inbox.pop_front();
        }
        None
    }

    /// When the oldest message that waits for the worker was given to the binding.
    pub(crate) fn oldest_given(&self) -> Option<Duration> {
        self.lock().inbox.front().map(|job| job.given)
    }

    fn has_room(&self, state: &State, size: u64) -> bool {
        self.spec.queue.have_room(&self.waiting(state), size)
    }

    /// What is in the queue, or on its way there by a redrive.
    fn waiting(&self, state: &State) -> Quantity {
        let waiting = self.store.usage(&self.key).queue;
        Quantity {
            entries: waiting.entries + state.reserved.entries,
            bytes: waiting.bytes + state.reserved.bytes,
        }
    }

    fn queue_or_hold(self: &Arc<Self>, state: &mut State, job: Job) {
        if let Some(parcel) = self.admit(state, job) {
            self.post(state, parcel);
        }
    }

    /// Decides about a message that is to be queued: what comes back is to be put right away.
    fn admit(&self, state: &mut State, job: Job) -> Option<Parcel> {
        let parcel = Parcel::queue(job);
        if !state.held.is_empty() || state.is_failing() {
            state.held.push_back(parcel);
            self.wake.notify_one();
            return None;
        }
        if self.has_room(state, parcel.job.stored.message.size()) {
            return Some(parcel);
        }
        if self.spec.queue.on_full == OnFull::DropNewest {
            self.metrics.dropped_live(DropPolicy::Newest);
            parcel.job.token.settled();
        } else {
            state.held.push_back(parcel);
            self.wake.notify_one();
        }
        None
    }
}

/// Gives one message to each of `lanes`, in one step: those that are live hand it to their
/// workers, and for all the others together it is stored as one record (I09).
pub(crate) fn give(lanes: Vec<(Arc<Lane>, Job)>) {
    let Some((first, store, tasks)) = lanes
        .first()
        .map(|(lane, job)| (job.stored.clone(), lane.store.clone(), lane.tasks.clone()))
    else {
        return;
    };
    let (lanes, jobs): (Vec<_>, Vec<_>) = lanes.into_iter().unzip();
    // All locks are held until the put is made: no worker can come in between and reorder.
    let mut guards = Vec::with_capacity(lanes.len());
    let mut posted = Vec::new();
    let mut destinations = Vec::new();
    for (lane, job) in lanes.iter().zip(jobs) {
        lane.metrics.received.inc();
        let mut state = lane.lock();
        if state.live {
            state.inbox.push_back(job);
            lane.wake.notify_one();
        } else if let Some(parcel) = lane.admit(&mut state, job) {
            destinations.push(Destination {
                binding: lane.key.clone(),
                placement: Placement::Queue,
            });
            posted.push(lane.number(&mut state, parcel));
        }
        guards.push(state);
    }
    if !posted.is_empty() {
        let pending = store.put(first, destinations);
        tasks.spawn(conclude(pending, posted));
    }
}
