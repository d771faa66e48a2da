//! Redriving and deleting what was chosen, and what came of each entry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{BindingKey, GivenUp, MessageId, ReadFrom, ReadLimit, Reason, Seq, StoreError};
use futures_util::stream::{self, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::delete::{DeleteResult, delete_one};
use super::mover::{self, Outcome, Request, Wanted};
use super::scan::{Scan, Way};
use super::{Control, ControlError, DeadLetter, DeadLetterFilter, DeadLetterId, Shared};
use crate::lane::{Came, Watched};

/// How many entries one call may choose; a job takes any number.
pub const MOST_AT_ONCE: usize = 10_000;
/// Entries of one call that are on their way at a time.
const PIPELINE: usize = 64;

/// Which dead letters a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// These, at most [`MOST_AT_ONCE`].
    Ids(Vec<DeadLetterId>),
    /// The oldest `limit` that the filter takes, at most [`MOST_AT_ONCE`].
    Matching {
        /// Which ones.
        filter: DeadLetterFilter,
        /// How many.
        limit: usize,
    },
}

/// How to redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedriveOptions {
    /// Only say what would happen.
    pub dry_run: bool,
    /// How long to wait for the verdict of each entry; `None` asks for none.
    pub wait: Option<Duration>,
}

/// What came of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveResult {
    /// Which one.
    pub id: DeadLetterId,
    /// What.
    pub outcome: RedriveOutcome,
}

/// What came of the redrive of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedriveOutcome {
    /// It is back in its binding's queue.
    Moved {
        /// The id of its message from now on.
        message_id: MessageId,
        /// Its number in the queue.
        seq: Seq,
        /// What became of it since, if that was asked for.
        verdict: Option<RedriveVerdict>,
    },
    /// It would be moved: nothing was done.
    WouldMove,
    /// There is no such dead letter.
    NotFound,
    /// The running configuration has no such binding: the entry stays.
    BindingNotFound,
    /// Another redrive moved it before.
    AlreadyRedriven {
        /// The id of its message since then.
        message_id: MessageId,
    },
    /// The binding's queue has no room for it: the entry stays.
    QueueFull,
    /// The store failed on it: the entry stays.
    StoreFailed(StoreError),
    /// The bridge stops: the entry stays.
    Stopping,
    /// The bridge stopped before the store had answered: the journal knows whether the entry is
    /// gone.
    Unanswered,
}

/// What became of a redriven message within the time that was waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedriveVerdict {
    /// The destination accepted it.
    Delivered,
    /// It was given up on again.
    Refused {
        /// Why.
        reason: Reason,
        /// The dead letter that it is now.
        dead_letter: DeadLetterId,
    },
    /// It was refused by a policy that may change, or waits behind such a message of its topic.
    Deferred,
    /// A policy of the configuration dropped it.
    Dropped {
        /// Which one, as the metrics name it.
        policy: &'static str,
    },
    /// It is still in the queue.
    Queued,
}

impl RedriveOutcome {
    /// The word for it in the API and in metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Moved { .. } => "moved",
            Self::WouldMove => "would_move",
            Self::NotFound => "not_found",
            Self::BindingNotFound => "binding_not_found",
            Self::AlreadyRedriven { .. } => "already_redriven",
            Self::QueueFull => "queue_full",
            Self::StoreFailed(_) => "store_failed",
            Self::Stopping => "stopping",
            Self::Unanswered => "unanswered",
        }
    }

    /// Whether the entry moved, or would.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Moved { .. } | Self::WouldMove)
    }
}

impl RedriveVerdict {
    /// The word for it in the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Refused { .. } => "refused",
            Self::Deferred => "deferred",
            Self::Dropped { .. } => "dropped",
            Self::Queued => "queued",
        }
    }
}

impl Control {
    /// Puts dead letters back at the tails of their own bindings' queues, the oldest first, and
    /// says what came of each: in the order of the ids, or of the entries' numbers.
    ///
    /// What was begun is done, also when the future is dropped.
    pub async fn redrive(
        &self,
        selection: Selection,
        options: RedriveOptions,
    ) -> Result<Vec<RedriveResult>, ControlError> {
        let shared = self.running()?;
        let work = shared.clone();
        work.detached(asked(&selection), async move {
            let chosen = choose(&shared, &selection).await?;
            let deadline = options.wait.map(|wait| Instant::now() + wait);
            let moved = if options.dry_run {
                let mut would = Vec::with_capacity(chosen.len());
                for id in chosen {
                    let outcome = would_move(&shared, &id).await;
                    would.push((id, (outcome, None)));
                }
                would
            } else {
                redrive_all(&shared, chosen, deadline.is_some()).await
            };
            // All are moved before any is waited for.
            let mut results = Vec::with_capacity(moved.len());
            for (id, (mut outcome, watched)) in as_asked(moved, selection) {
                if let (RedriveOutcome::Moved { verdict, .. }, Some(watched), Some(deadline)) =
                    (&mut outcome, watched, deadline)
                {
                    *verdict = Some(verdict_of(&shared, &id.binding, watched, deadline).await);
                }
                results.push(RedriveResult { id, outcome });
            }
            Ok(results)
        })
        .await
    }

    /// Deletes dead letters for good, and says what came of each, like [`Control::redrive`].
    pub async fn delete(&self, selection: Selection) -> Result<Vec<DeleteResult>, ControlError> {
        let shared = self.running()?;
        let work = shared.clone();
        work.detached(asked(&selection), async move {
            let chosen = choose(&shared, &selection).await?;
            let all = chosen.into_iter().map(|id| {
                let shared = shared.clone();
                async move {
                    let outcome = delete_one(&shared, &id).await;
                    (id, outcome)
                }
            });
            let deleted = stream::iter(all).buffered(PIPELINE).collect().await;
            let results = as_asked(deleted, selection).into_iter();
            Ok(results
                .map(|(id, outcome)| DeleteResult { id, outcome })
                .collect())
        })
        .await
    }
}

/// How many entries a call may be about.
const fn asked(selection: &Selection) -> usize {
    match selection {
        Selection::Ids(ids) => ids.len(),
        Selection::Matching { limit, .. } => *limit,
    }
}

/// The entries that are chosen, the oldest first, each once.
async fn choose(shared: &Shared, selection: &Selection) -> Result<Vec<DeadLetterId>, ControlError> {
    match selection {
        Selection::Ids(ids) => {
            let mut ids = ids.clone();
            ids.sort_by(|a, b| (a.seq, &a.binding).cmp(&(b.seq, &b.binding)));
            ids.dedup();
            Ok(ids)
        }
        Selection::Matching { filter, limit } => {
            let bindings = shared.bindings(filter);
            let store = &*shared.store;
            let mut scan = Scan::new(Way::OldestFirst, bindings, filter.given_up())
                .up_to_now(store)
                .await?;
            let mut chosen = Vec::new();
            while chosen.len() < *limit
                && let Some((binding, seated)) = scan.next(store).await?
            {
                let (seq, known) = (seated.seq, !filter.looks_at_messages());
                let letter = DeadLetter::of(&binding, seated);
                // One that cannot be read is taken by a filter that asks for nothing of the message.
                let taken =
                    letter.map_or(known, |letter| filter.takes(&letter.stored, &letter.info));
                if taken {
                    chosen.push(DeadLetterId { binding, seq });
                }
            }
            Ok(chosen)
        }
    }
}

/// Redrives entries in the order in which they are given, several at a time.
async fn redrive_all(
    shared: &Arc<Shared>,
    ids: Vec<DeadLetterId>,
    watch: bool,
) -> Vec<(DeadLetterId, (RedriveOutcome, Option<Watched>))> {
    let read = ids.into_iter().map(|id| {
        let shared = shared.clone();
        async move {
            let read = get(&shared, &id).await;
            (id, read)
        }
    });
    // Asked for one after the other: that is the order in which they come into the queue.
    let asked = stream::iter(read).buffered(PIPELINE).then(|(id, read)| {
        let shared = shared.clone();
        async move {
            let begun = match read {
                Ok(letter) => {
                    // Without one, another redrive was first, and may be remembered.
                    let size = letter.map(|letter| letter.stored.message.size());
                    Ok(begin_redrive(&shared, &id, size, watch).await)
                }
                Err(StoreError::Closed) => Err(RedriveOutcome::Stopping),
                Err(failure) => Err(RedriveOutcome::StoreFailed(failure)),
            };
            (id, begun)
        }
    });
    let ended = asked.map(|(id, begun)| {
        let shared = shared.clone();
        async move {
            let (outcome, watched) = match begun {
                Ok(begun) => begun.ended().await,
                Err(outcome) => (outcome, None),
            };
            shared.count_redrive(&id, &outcome);
            (id, (outcome, watched))
        }
    });
    ended.buffered(PIPELINE).collect().await
}

/// Results of ids that were asked for in the order in which they were: one that was asked for
/// twice has one.
fn as_asked<T>(done: Vec<(DeadLetterId, T)>, selection: Selection) -> Vec<(DeadLetterId, T)> {
    let Selection::Ids(asked) = selection else {
        return done;
    };
    let mut by_id: HashMap<DeadLetterId, T> = done.into_iter().collect();
    let results = asked.into_iter().filter_map(|id| {
        let result = by_id.remove(&id)?;
        Some((id, result))
    });
    results.collect()
}

/// Reads one dead letter; `None` when there is none of that name.
pub(super) async fn get(
    shared: &Shared,
    id: &DeadLetterId,
) -> Result<Option<DeadLetter>, StoreError> {
    let limit = ReadLimit {
        entries: 1,
        bytes: 0,
    };
    let from = ReadFrom::Before(Some(Seq::new(id.seq.get().saturating_add(1))));
    let found = shared
        .store
        .read_dead_letters(&id.binding, GivenUp::ALL, from, limit);
    match found.await?.pop() {
        Some(seated) if seated.seq == id.seq => DeadLetter::of(&id.binding, seated).map(Some),
        _ => Ok(None),
    }
}

async fn would_move(shared: &Shared, id: &DeadLetterId) -> RedriveOutcome {
    let letter = match get(shared, id).await {
        Ok(Some(letter)) => letter,
        Ok(None) => return RedriveOutcome::NotFound,
        Err(failure) => return RedriveOutcome::StoreFailed(failure),
    };
    let Some(lane) = shared.lanes.get(&id.binding) else {
        return RedriveOutcome::BindingNotFound;
    };
    let size = letter.stored.message.size();
    if !lane.reserve(size) {
        return RedriveOutcome::QueueFull;
    }
    lane.release(size);
    RedriveOutcome::WouldMove
}

/// A redrive that was asked for.
pub(super) struct Begun {
    message_id: MessageId,
    /// Whether there was such an entry a moment ago.
    was_there: bool,
    outcome: oneshot::Receiver<Outcome>,
    watched: Option<Watched>,
}

/// Asks for the redrive of one entry, and watches what becomes of it if that is wanted. It has
/// that `size`; there is none of its name when there is no size.
pub(super) async fn begin_redrive(
    shared: &Shared,
    id: &DeadLetterId,
    size: Option<u64>,
    watch: bool,
) -> Begun {
    let message_id = shared.new_id();
    let lane = shared.lanes.get(&id.binding);
    // Before it moves: its binding may be faster than this task.
    let watched = lane.filter(|_| watch).map(|lane| lane.watch(message_id));
    Begun {
        message_id,
        was_there: size.is_some(),
        outcome: ask(shared, id, Wanted::Redrive(message_id, size)).await,
        watched,
    }
}

impl Begun {
    /// What came of it, and what it is to be watched by; it is not counted.
    pub(super) async fn ended(self) -> (RedriveOutcome, Option<Watched>) {
        let outcome = match self.outcome.await.unwrap_or(Outcome::Unanswered) {
            Outcome::Done(seq) => RedriveOutcome::Moved {
                message_id: self.message_id,
                seq,
                verdict: None,
            },
            Outcome::BindingNotFound if self.was_there => RedriveOutcome::BindingNotFound,
            Outcome::NotFound | Outcome::BindingNotFound => RedriveOutcome::NotFound,
            Outcome::AlreadyRedriven(message_id) => RedriveOutcome::AlreadyRedriven { message_id },
            Outcome::QueueFull => RedriveOutcome::QueueFull,
            Outcome::Failed(failure) => RedriveOutcome::StoreFailed(failure),
            Outcome::Stopping => RedriveOutcome::Stopping,
            Outcome::Unanswered => RedriveOutcome::Unanswered,
        };
        (outcome, self.watched)
    }
}

/// Asks for a move. A mover that is ended amid it gives no answer.
pub(super) async fn ask(
    shared: &Shared,
    letter: &DeadLetterId,
    wanted: Wanted,
) -> oneshot::Receiver<Outcome> {
    let (answer, outcome) = oneshot::channel();
    let request = Request {
        letter: letter.clone(),
        wanted,
        answer,
    };
    if let Err(mpsc::error::SendError(request)) = shared.mover.send(request).await {
        mover::answer(request, Outcome::Stopping);
    }
    outcome
}

/// Waits for what comes of a watched message.
pub(super) async fn verdict_of(
    shared: &Shared,
    binding: &BindingKey,
    watched: Watched,
    deadline: Instant,
) -> RedriveVerdict {
    let came = tokio::select! {
        biased;
        came = watched.came() => came,
        () = shared.stopping.cancelled() => None,
        () = tokio::time::sleep_until(deadline) => None,
    };
    verdict(binding, came)
}

/// What came of a watched message, as it is told.
fn verdict(binding: &BindingKey, came: Option<Came>) -> RedriveVerdict {
    match came {
        None => RedriveVerdict::Queued,
        Some(Came::Delivered) => RedriveVerdict::Delivered,
        Some(Came::Deferred) => RedriveVerdict::Deferred,
        Some(Came::Dropped(policy)) => RedriveVerdict::Dropped {
            policy: policy.as_str(),
        },
        Some(Came::Dead(seq, reason)) => RedriveVerdict::Refused {
            reason,
            dead_letter: DeadLetterId {
                binding: binding.clone(),
                seq,
            },
        },
    }
}
