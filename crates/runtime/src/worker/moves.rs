//! Entries on their way to another view of the store, until the store has them there.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Backoff, BindingKey, BoxFuture, DeadLetterInfo, DeferInfo, Move, Moved, Quantity, Reason, Seq,
    Store, StoreError,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::error;

use crate::settlement::Token;

/// More are not begun at a time, nor held for room: what would be moved waits in its place.
const MOST: usize = 1_024;

/// A move that was asked for.
#[derive(Debug, Clone)]
enum Wanted {
    Deferred(DeferInfo),
    Dead(DeadLetterInfo, u64),
}

type Attempt = (Seq, Wanted, Result<Moved, StoreError>);

/// The moves under way. One that fails is made again, without limit and with capped back-off (I20).
pub(super) struct Moves {
    store: Arc<dyn Store>,
    binding: BindingKey,
    backoff: Backoff,
    under_way: FuturesUnordered<BoxFuture<'static, Attempt>>,
    /// What is to be known of each entry that is being deferred in the end, and how many attempts
    /// at that are under way: one that is made again does not bring back what was known before.
    deferring: HashMap<Seq, (usize, DeferInfo)>,
    /// Accepted messages, and the deferred ones of which is being noted that these overtook them.
    overtaking: Vec<(HashSet<Seq>, Done)>,
    /// Of what is under way, that to the dead letters.
    dying: Quantity,
    /// Those to the dead letters that there is no room for.
    held: VecDeque<(Seq, DeadLetterInfo, u64)>,
    /// How often in a row the store failed.
    failures: u32,
}

/// What remains to be done of a message that the destination has accepted.
pub(super) enum Done {
    /// Its source is to hear of it.
    Live(Token),
    /// It is to leave the queue, or the deferred ones.
    Stored(Seq),
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The entry is deferred; what came to be known of it later is noted.
    Deferred(Seq),
    /// The entry is deferred, and what came to be known of it later is still being noted.
    Noted,
    /// The entry is a dead letter.
    Dead(Seq, Reason),
    /// The entry was no longer there.
    Gone(Seq),
    /// The store failed; it is tried again.
    Failed,
}

impl Moves {
    pub(super) fn new(store: Arc<dyn Store>, binding: BindingKey, backoff: Backoff) -> Self {
        Self {
            store,
            binding,
            backoff,
            under_way: FuturesUnordered::new(),
            deferring: HashMap::new(),
            overtaking: Vec::new(),
            dying: Quantity::default(),
            held: VecDeque::new(),
            failures: 0,
        }
    }

    /// How many entries have not reached where they go.
    pub(super) fn len(&self) -> usize {
        self.under_way.len() + self.held.len()
    }

    /// Whether no more should be begun for now.
    pub(super) fn are_many(&self) -> bool {
        self.len() >= MOST
    }

    /// Whether nothing is under way; what is held for room would be held for ever.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Dead letters that the store does not count yet.
    pub(super) const fn dying(&self) -> Quantity {
        self.dying
    }

    /// Entries that are to become dead letters.
    pub(super) fn unburied(&self) -> u64 {
        self.dying.entries + self.held.len() as u64
    }

    /// Moves `seq` from the queue to the deferred messages, or notes its later refusal.
    pub(super) fn defer(&mut self, seq: Seq, info: DeferInfo) {
        let (attempts, known) = self
            .deferring
            .entry(seq)
            .or_insert_with(|| (0, info.clone()));
        *attempts += 1;
        known.clone_from(&info);
        self.attempt(seq, Wanted::Deferred(info), Duration::ZERO);
    }

    /// Notes what is known of deferred entries since `done` has overtaken them.
    pub(super) fn note(&mut self, overtaken: Vec<(Seq, DeferInfo)>, done: Done) {
        let seqs = overtaken.iter().map(|(seq, _)| *seq);
        self.overtaking.push((seqs.collect(), done));
        for (seq, info) in overtaken {
            self.defer(seq, info);
        }
    }

    /// All that is known of `seq` is stored, or it is there no longer. Says what is done with now.
    pub(super) fn noted(&mut self, seq: Seq) -> Vec<Done> {
        for (overtaken, _) in &mut self.overtaking {
            overtaken.remove(&seq);
        }
        let done = self.overtaking.extract_if(.., |(left, _)| left.is_empty());
        done.map(|(_, done)| done).collect()
    }

    /// Moves `seq` with its `size` to the dead letters.
    pub(super) fn bury(&mut self, seq: Seq, info: DeadLetterInfo, size: u64) {
        self.dying.entries += 1;
        self.dying.bytes += size;
        self.attempt(seq, Wanted::Dead(info, size), Duration::ZERO);
    }

    /// Holds an entry that is to become a dead letter until there is room.
    pub(super) fn hold(&mut self, seq: Seq, info: DeadLetterInfo, size: u64) {
        self.held.push_back((seq, info, size));
    }

    /// Begins what was held as far as `has_room` says so of its size and [`Moves::dying`].
    pub(super) fn retry_held(&mut self, has_room: impl Fn(u64, Quantity) -> bool) {
        while let Some((_, _, size)) = self.held.front()
            && has_room(*size, self.dying)
            && let Some((seq, info, size)) = self.held.pop_front()
        {
            self.bury(seq, info, size);
        }
    }

    /// Takes one out that is held.
    pub(super) fn take_held(&mut self) -> Option<Seq> {
        self.held.pop_front().map(|(seq, ..)| seq)
    }

    fn attempt(&mut self, seq: Seq, wanted: Wanted, delay: Duration) {
        let store = self.store.clone();
        let binding = self.binding.clone();
        // A move that is made at once is admitted now: settles that follow come after it.
        let first = delay
            .is_zero()
            .then(|| store.apply(wanted.change(binding.clone(), seq)));
        self.under_way.push(Box::pin(async move {
            let result = if let Some(result) = first {
                result.await
            } else {
                tokio::time::sleep(delay).await;
                store.apply(wanted.change(binding, seq)).await
            };
            (seq, wanted, result)
        }));
    }

    /// Ends with the next attempt that ends; never, when none is under way.
    pub(super) async fn next(&mut self) -> Ended {
        let Some((seq, wanted, result)) = self.under_way.next().await else {
            return std::future::pending().await;
        };
        let moved = match result {
            Ok(moved) => moved,
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == 1 {
                    error!(
                        event = "move_failed",
                        binding = %self.binding,
                        error = %failure,
                        "a refusal cannot be stored: its message is held and stored again"
                    );
                }
                let delay = self.backoff.delay(self.failures, rand::random());
                let wanted = match wanted {
                    Wanted::Deferred(info) => {
                        let newest = self.deferring.get(&seq);
                        Wanted::Deferred(newest.map_or(info, |(_, newest)| newest.clone()))
                    }
                    dead @ Wanted::Dead(..) => dead,
                };
                self.attempt(seq, wanted, delay);
                return Ended::Failed;
            }
        };
        self.failures = 0;
        if let Wanted::Dead(_, size) = &wanted {
            self.dying.entries = self.dying.entries.saturating_sub(1);
            self.dying.bytes = self.dying.bytes.saturating_sub(*size);
        }
        let more = matches!(wanted, Wanted::Deferred(_)) && self.deferral_ended(seq);
        match (moved, wanted) {
            (Moved::NotThere, _) => Ended::Gone(seq),
            (Moved::Done { .. }, Wanted::Deferred(_)) if more => Ended::Noted,
            (Moved::Done { .. }, Wanted::Deferred(_)) => Ended::Deferred(seq),
            (Moved::Done { .. }, Wanted::Dead(info, _)) => Ended::Dead(seq, info.reason),
        }
    }
}

impl Moves {
    /// One attempt at deferring `seq` has ended well. Says whether more are under way.
    fn deferral_ended(&mut self, seq: Seq) -> bool {
        let Entry::Occupied(mut deferring) = self.deferring.entry(seq) else {
            return false;
        };
        let (attempts, _) = deferring.get_mut();
        *attempts = attempts.saturating_sub(1);
        let more = *attempts > 0;
        if !more {
            deferring.remove();
        }
        more
    }
}

impl Wanted {
    fn change(&self, binding: BindingKey, seq: Seq) -> Move {
        match self {
            Self::Deferred(info) => Move::Defer {
                binding,
                seq,
                info: info.clone(),
            },
            Self::Dead(info, _) => Move::DeadLetter {
                binding,
                seq,
                info: info.clone(),
            },
        }
    }
}
