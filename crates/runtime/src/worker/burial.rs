//! Entries of the queue on their way to the dead letters, until the store has them there.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Backoff, BindingKey, BoxFuture, DeadLetterInfo, Move, Moved, Reason, Seq, Store, StoreError,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::error;

type Attempt = (Seq, DeadLetterInfo, Result<Moved, StoreError>);

/// The moves under way. One that fails is made again, without limit and with capped back-off (I20).
pub(super) struct Burials {
    store: Arc<dyn Store>,
    binding: BindingKey,
    backoff: Backoff,
    under_way: FuturesUnordered<BoxFuture<'static, Attempt>>,
    /// How often in a row the store failed.
    failures: u32,
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Burial {
    /// The entry is a dead letter.
    Done(Seq, Reason),
    /// The entry was no longer in the queue.
    Gone(Seq),
    /// The store failed; it is tried again.
    Failed,
}

impl Burials {
    pub(super) fn new(store: Arc<dyn Store>, binding: BindingKey, backoff: Backoff) -> Self {
        Self {
            store,
            binding,
            backoff,
            under_way: FuturesUnordered::new(),
            failures: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Moves `seq` from the queue to the dead letters.
    pub(super) fn begin(&self, seq: Seq, info: DeadLetterInfo) {
        self.attempt(seq, info, Duration::ZERO);
    }

    fn attempt(&self, seq: Seq, info: DeadLetterInfo, delay: Duration) {
        let store = self.store.clone();
        let binding = self.binding.clone();
        self.under_way.push(Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let change = Move::DeadLetter {
                binding,
                seq,
                info: info.clone(),
            };
            let result = store.apply(change).await;
            (seq, info, result)
        }));
    }

    /// Ends with the next attempt that ends; never, when none is under way.
    pub(super) async fn next(&mut self) -> Burial {
        let Some((seq, info, result)) = self.under_way.next().await else {
            return std::future::pending().await;
        };
        match result {
            Ok(moved) => {
                self.failures = 0;
                match moved {
                    Moved::Done { .. } => Burial::Done(seq, info.reason),
                    Moved::NotThere => Burial::Gone(seq),
                }
            }
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == 1 {
                    error!(
                        event = "dead_letter_failed",
                        binding = %self.binding,
                        error = %failure,
                        "a dead letter cannot be written: it is held and written again"
                    );
                }
                let delay = self.backoff.delay(self.failures, rand::random());
                self.attempt(seq, info, delay);
                Burial::Failed
            }
        }
    }
}
