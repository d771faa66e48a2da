//! A store that fails when a test wants it to.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bridge_core::{
    BindingKey, Destination, Durability, GivenUp, Move, Moved, Pending, ReadFrom, ReadLimit,
    Seated, Seq, Store, StoreError, StoredMessage, Usage, View,
};
use tokio::sync::{oneshot, watch};

/// What a store is asked to write.
#[derive(Debug, Clone, Copy)]
pub enum Write<'a> {
    /// A message, for these.
    Put(&'a [Destination]),
    /// A move from one view to another.
    Move(&'a Move),
    /// All that waits.
    Flush,
}

type Failing = Box<dyn Fn(Write<'_>) -> Option<StoreError> + Send + Sync>;

/// Another store, behind a switch: while it is on, some or all of what is written fails. As the
/// contract of [`Store::put`] has it, nothing overtakes a put that has failed until its binding is
/// resumed.
pub struct FailingStore<S> {
    store: S,
    failing: Failing,
    on: AtomicBool,
    failed: AtomicU64,
    puts: AtomicU64,
    moves: AtomicU64,
    behind: Mutex<BTreeSet<BindingKey>>,
    answering: watch::Sender<bool>,
    /// Up to which number moves are answered.
    answering_moves: watch::Sender<u64>,
    holding_next: Mutex<Option<oneshot::Receiver<()>>>,
    failing_moves: Mutex<Option<StoreError>>,
    failing_reads: Mutex<Option<StoreError>>,
}

impl<S: Store> FailingStore<S> {
    /// Stands before `store`; while it is to [fail][Self::fail], what `failing` has an error for
    /// fails with that.
    pub fn new(
        store: S,
        failing: impl Fn(Write<'_>) -> Option<StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            failing: Box::new(failing),
            on: AtomicBool::new(false),
            failed: AtomicU64::new(0),
            puts: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            behind: Mutex::default(),
            answering: watch::Sender::new(true),
            answering_moves: watch::Sender::new(u64::MAX),
            holding_next: Mutex::default(),
            failing_moves: Mutex::default(),
            failing_reads: Mutex::default(),
        }
    }

    /// Has it fail from now on, or work again.
    pub fn fail(&self, failing: bool) {
        self.on.store(failing, Ordering::SeqCst);
    }

    /// Has puts be answered from now on, or be made while their answers wait for that.
    pub fn answer(&self, answering: bool) {
        self.answering.send_replace(answering);
    }

    /// Has the next put alone be made while its answer waits, until what comes back is dropped.
    #[must_use]
    pub fn hold_next(&self) -> oneshot::Sender<()> {
        let (held, until_dropped) = oneshot::channel();
        *self.holding_next.lock().unwrap() = Some(until_dropped);
        held
    }

    /// Has moves be answered from now on, or be made while their answers wait for that.
    pub fn answer_moves(&self, answering: bool) {
        let most = if answering { u64::MAX } else { 0 };
        self.answer_moves_up_to(most);
    }

    /// Has moves be answered up to that many, counted like [`Self::moves`], and those behind them be
    /// made while their answers wait.
    pub fn answer_moves_up_to(&self, most: u64) {
        self.answering_moves.send_replace(most);
    }

    /// Has moves fail with that error from now on, or work again.
    pub fn fail_moves(&self, failure: Option<StoreError>) {
        *self.failing_moves.lock().unwrap() = failure;
    }

    /// Has reads fail with that error from now on, or work again.
    pub fn fail_reads(&self, failure: Option<StoreError>) {
        *self.failing_reads.lock().unwrap() = failure;
    }

    fn read_failure(&self) -> Option<StoreError> {
        self.failing_reads.lock().unwrap().clone()
    }

    /// How often it has failed; a put that only may not overtake one is not counted.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// How many puts it has passed on, each one record.
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::SeqCst)
    }

    /// How many moves it has passed on.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    fn failure(&self, write: Write<'_>) -> Option<StoreError> {
        let on = self.on.load(Ordering::SeqCst);
        let failure = on.then(|| (self.failing)(write)).flatten();
        self.failed
            .fetch_add(u64::from(failure.is_some()), Ordering::SeqCst);
        failure
    }
}

/// Ends like `made`, once `answering` is as `wanted`.
fn answered<T: Send + 'static, S: Send + Sync + 'static>(
    made: Pending<T>,
    answering: &watch::Sender<S>,
    wanted: impl FnMut(&S) -> bool + Send + 'static,
) -> Pending<T> {
    let mut answering = answering.subscribe();
    Box::pin(async move {
        let made = made.await;
        // Without its sender there is no test any more that could hold it.
        let _ = answering.wait_for(wanted).await;
        made
    })
}

fn failed<T: Send + 'static>(failure: StoreError) -> Pending<T> {
    Box::pin(async { Err(failure) })
}

impl<S: fmt::Debug> fmt::Debug for FailingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailingStore")
            .field("store", &self.store)
            .field("on", &self.on)
            .field("behind", &self.behind)
            .finish_non_exhaustive()
    }
}

impl<S: Store> Store for FailingStore<S> {
    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn put(&self, message: Arc<StoredMessage>, to: Vec<Destination>) -> Pending<Seq> {
        let mut behind = self.behind.lock().unwrap();
        let failure = if to.iter().any(|to| behind.contains(&to.binding)) {
            Some(StoreError::Behind)
        } else {
            self.failure(Write::Put(&to))
        };
        if let Some(failure) = failure {
            behind.extend(to.into_iter().map(|to| to.binding));
            return failed(failure);
        }
        self.puts.fetch_add(1, Ordering::SeqCst);
        let made = self.store.put(message, to);
        let made = answered(made, &self.answering, |answering| *answering);
        let Some(until_dropped) = self.holding_next.lock().unwrap().take() else {
            return made;
        };
        Box::pin(async move {
            let made = made.await;
            // It ends with an error, when what holds it is dropped.
            let _ = until_dropped.await;
            made
        })
    }

    fn resume(&self, binding: &BindingKey) {
        self.behind.lock().unwrap().remove(binding);
        self.store.resume(binding);
    }

    fn settle(&self, binding: &BindingKey, done: &[Seq]) {
        self.store.settle(binding, done);
    }

    fn apply(&self, change: Move) -> Pending<Moved> {
        let failure = self.failing_moves.lock().unwrap().clone();
        if let Some(failure) = failure.or_else(|| self.failure(Write::Move(&change))) {
            return failed(failure);
        }
        let number = self.moves.fetch_add(1, Ordering::SeqCst) + 1;
        let made = self.store.apply(change);
        answered(made, &self.answering_moves, move |most| number <= *most)
    }

    fn read(
        &self,
        binding: &BindingKey,
        view: View,
        after: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        match self.read_failure() {
            Some(failure) => failed(failure),
            None => self.store.read(binding, view, after, limit),
        }
    }

    fn read_dead_letters(
        &self,
        binding: &BindingKey,
        which: GivenUp,
        from: ReadFrom,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        match self.read_failure() {
            Some(failure) => failed(failure),
            None => self.store.read_dead_letters(binding, which, from, limit),
        }
    }

    fn count_dead_letters(&self, binding: &BindingKey, which: GivenUp) -> Pending<u64> {
        match self.read_failure() {
            Some(failure) => failed(failure),
            None => self.store.count_dead_letters(binding, which),
        }
    }

    fn usage(&self, binding: &BindingKey) -> Usage {
        self.store.usage(binding)
    }

    fn bindings(&self) -> Vec<BindingKey> {
        self.store.bindings()
    }

    fn flush(&self) -> Pending<()> {
        match self.failure(Write::Flush) {
            Some(failure) => failed(failure),
            None => self.store.flush(),
        }
    }
}
