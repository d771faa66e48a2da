//! Puts into the store: what is made of a message that goes there, and what became of it.

use std::sync::Arc;

use bridge_core::{
    DeadLetterInfo, DeferInfo, Destination, Pending, Placement, Seq, StoreError, Topic,
};
use tracing::{error, info};

use super::parcel::Parcel;
use super::{Job, Lane, State};
use crate::OnFull;
use crate::metrics::DropPolicy;

/// A put that was made, and whom to tell about it.
#[derive(Debug)]
pub(super) struct Posted {
    lane: Arc<Lane>,
    number: u64,
    parcel: Parcel,
}

impl Lane {
    /// Keeps a message of the live path as a dead letter. It is held and stored again until that
    /// succeeds (I20); only then it has settled.
    pub(crate) fn dead_letter(self: &Arc<Self>, job: Job, info: DeadLetterInfo) {
        self.store_aside(Parcel {
            job,
            placement: Placement::DeadLetter(info),
            line: None,
            by_hand: false,
        });
    }

    /// Lets a message of the live path join the line of deferred ones of its topic.
    pub(crate) fn defer(self: &Arc<Self>, job: Job, line: Topic, info: DeferInfo) {
        self.store_aside(Parcel {
            job,
            placement: Placement::Deferred(info),
            line: Some(line),
            by_hand: false,
        });
    }

    /// Stores what does not go through the queue, in the order of the calls.
    fn store_aside(self: &Arc<Self>, parcel: Parcel) {
        let mut state = self.lock();
        if state.holds_aside() {
            state.held.push_back(parcel);
        } else {
            self.post(&mut state, parcel);
        }
    }

    /// Puts what is held into the store as far as there is room. Says whether something waits
    /// for room that only dropping the oldest can make, and how many bytes that message has.
    pub(crate) fn retry_held(self: &Arc<Self>) -> Option<u64> {
        let mut state = self.lock();
        if state.outstanding > 0 && state.failures > 0 {
            // One probe at a time while the store fails.
            return None;
        }
        while let Some(parcel) = state.held.pop_front() {
            let size = parcel.job.stored.message.size();
            if parcel.placement == Placement::Queue && !self.has_room(&state, size) {
                state.held.push_front(parcel);
                return (self.spec.queue.on_full == OnFull::DropOldest).then_some(size);
            }
            self.post(&mut state, parcel);
            if state.failures > 0 {
                break;
            }
        }
        None
    }

    /// How often in a row the store has failed.
    pub(crate) fn store_failures(&self) -> u32 {
        self.lock().failures
    }

    pub(super) fn post(self: &Arc<Self>, state: &mut State, parcel: Parcel) {
        let destination = Destination {
            binding: self.key.clone(),
            placement: parcel.placement.clone(),
        };
        let message = parcel.job.stored.clone();
        let posted = self.number(state, parcel);
        let pending = self.store.put(message, vec![destination]);
        self.tasks.spawn(conclude(pending, vec![posted]));
    }

    pub(super) fn number(self: &Arc<Self>, state: &mut State, parcel: Parcel) -> Posted {
        let number = state.next_put;
        state.next_put += 1;
        state.outstanding += 1;
        if parcel.line.is_some() {
            state.joining.insert(number);
        }
        Posted {
            lane: self.clone(),
            number,
            parcel,
        }
    }

    /// What the store made of one put.
    fn concluded(self: &Arc<Self>, number: u64, parcel: Parcel, result: &Result<Seq, StoreError>) {
        let mut state = self.lock();
        state.outstanding -= 1;
        state.joining.remove(&number);
        let settled = match result {
            Ok(_) => {
                if state.told && state.failed.is_empty() {
                    state.told = false;
                    info!(event = "store_recovered", binding = %self.key, "storing again");
                }
                state.failures = 0;
                match &parcel.placement {
                    _ if parcel.by_hand => self.stored_by_hand(&parcel, result),
                    Placement::Queue => self.metrics.queued.inc(),
                    Placement::Deferred(_) => {
                        self.metrics.queued.inc();
                        self.metrics.deferred.inc();
                    }
                    Placement::DeadLetter(info) => self.metrics.dead_lettered(info.reason),
                }
                let placed = parcel.placed(result.as_ref().ok());
                state.placed.extend(placed.map(|placed| (number, placed)));
                Some(parcel)
            }
            Err(failure) if failure.is_transient() => {
                self.metrics.store_failures.inc();
                if parcel.placement == Placement::Queue && !parcel.by_hand {
                    // What has come since was to follow the queue: it lines up behind this one.
                    // What an operator gave to a live binding came after what is under way, which
                    // may be lost still.
                    state.line_up();
                }
                if !state.told && *failure != StoreError::Behind {
                    // Once, though all that was outstanding fails with it.
                    state.told = true;
                    error!(
                        event = "store_failed",
                        binding = %self.key,
                        error = %failure,
                        "cannot store messages: they are held and stored again, and nothing is \
                         acknowledged meanwhile"
                    );
                }
                state.failed.insert(number, parcel);
                None
            }
            Err(failure) => {
                error!(
                    event = "store_refused",
                    binding = %self.key,
                    message_id = %parcel.job.stored.id,
                    error = %failure,
                    "a message can never be stored and is dropped"
                );
                if parcel.by_hand {
                    self.refused_by_hand(&parcel);
                } else {
                    self.metrics.dropped_live(DropPolicy::TooLarge);
                }
                let placed = parcel.placed(None);
                state.placed.extend(placed.map(|placed| (number, placed)));
                Some(parcel)
            }
        };
        if state.outstanding == 0 && !state.failed.is_empty() {
            state.failures = state.failures.saturating_add(1);
            let failed = std::mem::take(&mut state.failed);
            for parcel in failed.into_values().rev() {
                state.held.push_front(parcel);
            }
            self.store.resume(&self.key);
        }
        drop(state);
        if let Some(parcel) = settled {
            parcel.job.token.settled();
        }
        self.wake.notify_one();
    }
}

/// Tells the lanes what became of the record that was put for all of them.
pub(super) async fn conclude(pending: Pending<Seq>, posted: Vec<Posted>) {
    let result = pending.await;
    for Posted {
        lane,
        number,
        parcel,
    } in posted
    {
        lane.concluded(number, parcel, &result);
    }
}
