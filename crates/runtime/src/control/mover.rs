//! The one task that redrives and deletes.
//!
//! Whoever wants an entry moved asks here, in a queue, and the answers are seen in the order in
//! which the store was asked: so of two that want the same entry the second one learns what the
//! first one did with it. Who asked may hang up: what was asked for is done (I21, I23).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bridge_core::{BoxFuture, MessageId, Move, Moved, Seq, StoreError};
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{DeadLetterId, Shared};
use crate::lane::Lane;

/// How many moves the store is asked for at a time.
const AT_ONCE: usize = 128;
/// Of how many redrives is known what they were for a second one that comes too late.
const REMEMBERED: usize = 65_536;

/// What is wanted.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Back to the queue, under that id. The entry has that many bytes; there was none of its name
    /// when there is no size.
    Redrive(MessageId, Option<u64>),
    Delete,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The entry has that number from now on, if it is still there.
    Done(Seq),
    NotFound,
    BindingNotFound,
    AlreadyRedriven(MessageId),
    QueueFull,
    Failed(StoreError),
    Stopping,
    /// The bridge stopped before the store had answered.
    Unanswered,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) letter: DeadLetterId,
    pub(super) wanted: Wanted,
    pub(super) answer: oneshot::Sender<Outcome>,
}

struct Ended {
    request: Request,
    lane: Option<Arc<Lane>>,
    /// `None` when the queue had no room.
    result: Option<Result<Moved, StoreError>>,
}

/// Serves requests until it is stopped; then answers those that wait, and sees to the end of what
/// the store was asked for.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut requests: mpsc::Receiver<Request>,
    stopping: CancellationToken,
) {
    let mut under_way: FuturesOrdered<BoxFuture<'static, Ended>> = FuturesOrdered::new();
    let mut recent = Recent::default();
    loop {
        tokio::select! {
            Some(ended) = under_way.next(), if !under_way.is_empty() => {
                conclude(&shared, &mut recent, ended);
            }
            request = requests.recv(), if under_way.len() < AT_ONCE => match request {
                Some(request) if stopping.is_cancelled() => answer(request, Outcome::Stopping),
                Some(request) => begin(&shared, &mut under_way, request),
                None if under_way.is_empty() => return,
                None => {
                    while let Some(ended) = under_way.next().await {
                        conclude(&shared, &mut recent, ended);
                    }
                    return;
                }
            },
            () = stopping.cancelled(), if !requests.is_closed() => requests.close(),
        }
    }
}

pub(super) fn answer(request: Request, outcome: Outcome) {
    // Who asked may have gone.
    let _ = request.answer.send(outcome);
}

fn begin(
    shared: &Arc<Shared>,
    under_way: &mut FuturesOrdered<BoxFuture<'static, Ended>>,
    request: Request,
) {
    let lane = shared.lanes.get(&request.letter.binding).cloned();
    let DeadLetterId { binding, seq } = request.letter.clone();
    let change = match request.wanted {
        Wanted::Redrive(id, size) => {
            let Some(lane) = &lane else {
                return answer(request, Outcome::BindingNotFound);
            };
            if size.is_some_and(|size| !lane.reserve(size)) {
                // It is told in its turn: the one before may have moved this very entry.
                let ended = Ended {
                    request,
                    lane: None,
                    result: None,
                };
                return under_way.push_back(Box::pin(std::future::ready(ended)));
            }
            Move::Redrive { binding, seq, id }
        }
        Wanted::Delete => Move::Delete { binding, seq },
    };
    let moved = shared.store.apply(change);
    under_way.push_back(Box::pin(async move {
        Ended {
            request,
            lane,
            result: Some(moved.await),
        }
    }));
}

fn conclude(shared: &Shared, recent: &mut Recent, ended: Ended) {
    let Ended {
        request,
        lane,
        result,
    } = ended;
    if let (Wanted::Redrive(_, Some(size)), Some(lane)) = (&request.wanted, &lane) {
        lane.release(*size);
    }
    let already = || {
        let now = recent.get(&request.letter);
        now.map(Outcome::AlreadyRedriven)
    };
    let outcome = match result {
        None => already().unwrap_or(Outcome::QueueFull),
        Some(Ok(Moved::NotThere)) => already().unwrap_or(Outcome::NotFound),
        Some(Ok(Moved::Done { seq })) => {
            match request.wanted {
                Wanted::Redrive(id, _) => {
                    recent.remember(request.letter.clone(), id);
                    if let Some(lane) = &lane {
                        lane.wake.notify_one();
                    }
                }
                Wanted::Delete => {
                    shared.imports.forget(&request.letter);
                    shared.metrics.dead_letter_deleted(&request.letter.binding);
                    if let Some(lane) = lane.filter(|lane| lane.standing().unburied > 0) {
                        // There is room for what is held.
                        lane.wake.notify_one();
                    }
                }
            }
            Outcome::Done(seq)
        }
        Some(Err(StoreError::Closed)) => Outcome::Stopping,
        Some(Err(failure)) => Outcome::Failed(failure),
    };
    answer(request, outcome);
}

/// The latest redrives, by the dead letter that was redriven.
#[derive(Debug, Default)]
struct Recent {
    by_letter: HashMap<DeadLetterId, MessageId>,
    in_order: VecDeque<DeadLetterId>,
}

impl Recent {
    fn remember(&mut self, letter: DeadLetterId, now: MessageId) {
        if self.in_order.len() >= REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.by_letter.remove(&oldest);
        }
        self.in_order.push_back(letter.clone());
        self.by_letter.insert(letter, now);
    }

    fn get(&self, letter: &DeadLetterId) -> Option<MessageId> {
        self.by_letter.get(letter).copied()
    }
}
