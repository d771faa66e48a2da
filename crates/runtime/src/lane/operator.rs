//! What an operator does with a binding: pauses it, and gives it messages that come from no source.
//!
//! A redrive is refused where the queue has no room for it, and so is a test message, so that
//! neither costs a message that waits, nor goes beyond the bounds (I13).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bridge_core::{DeadLetterInfo, Destination, Placement, Quantity, Seq, StoreError};

use super::{Came, Job, Lane, Parcel, conclude};
use crate::metrics::DropPolicy;

/// Why a message that an operator gives is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// There is no room for it, or others wait for room.
    Full,
    /// The store fails at the moment.
    StoreFails,
}

impl Lane {
    /// Has nothing sent any more, or lets it go on; says whether that is new.
    pub(crate) fn pause(&self, paused: bool) -> bool {
        let new = self.paused.swap(paused, Ordering::AcqRel) != paused;
        self.wake.notify_one();
        new
    }

    /// Whether an operator wants nothing sent.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Whether what the queue holds is being sent, so that it grows shorter by itself.
    pub(crate) fn is_sending(&self) -> bool {
        self.lock().shown.phase.sends()
    }

    /// Keeps room in the queue for a message of `size` bytes, if there is any: what waits for room
    /// already goes first.
    pub(crate) fn reserve(&self, size: u64) -> bool {
        let mut state = self.lock();
        let room = state.held.is_empty() && self.has_room(&state, size);
        if room {
            state.reserved.entries += 1;
            state.reserved.bytes += size;
        }
        room
    }

    /// Whether one more message of `size` bytes may be put into the queue behind `before` and leave
    /// half of its bounds to what arrives.
    pub(crate) fn leaves_room(&self, before: Quantity, size: u64) -> bool {
        let state = self.lock();
        let mut waiting = self.waiting(&state);
        waiting.entries += before.entries;
        waiting.bytes = waiting.bytes.saturating_add(before.bytes);
        state.held.is_empty() && self.spec.queue.leave_room(&waiting, size)
    }

    /// Gives back room that was kept: the message is in the queue, or does not come.
    pub(crate) fn release(&self, size: u64) {
        let mut state = self.lock();
        state.reserved.entries = state.reserved.entries.saturating_sub(1);
        state.reserved.bytes = state.reserved.bytes.saturating_sub(size);
    }

    /// Keeps a dead letter that was exported before.
    pub(crate) fn import(self: &Arc<Self>, job: Job, info: DeadLetterInfo) -> Result<(), NotTaken> {
        let size = job.stored.message.size();
        if !self.has_room_for_a_dead_letter(size, Quantity::default()) {
            return Err(NotTaken::Full);
        }
        let mut state = self.lock();
        if state.holds_aside() {
            return Err(NotTaken::StoreFails);
        }
        self.metrics.imported.inc();
        let parcel = Parcel {
            job,
            placement: Placement::DeadLetter(info),
            line: None,
            by_hand: true,
        };
        self.post(&mut state, parcel);
        Ok(())
    }

    /// A message that an operator gave is in the store.
    pub(super) fn stored_by_hand(&self, parcel: &Parcel, result: &Result<Seq, StoreError>) {
        if let (Placement::DeadLetter(info), Ok(seq)) = (&parcel.placement, result) {
            let came = Came::Dead(*seq, info.reason);
            self.watched.tell(parcel.job.stored.id, came);
        }
    }

    /// A message that an operator gave can never be stored.
    pub(super) fn refused_by_hand(&self, parcel: &Parcel) {
        self.metrics.dropped_queued(DropPolicy::TooLarge);
        let came = Came::Dropped(DropPolicy::TooLarge);
        self.watched.tell(parcel.job.stored.id, came);
    }
}

/// Puts one test message into the queues of `lanes`, as one record, if each has room for it.
pub(crate) fn inject(lanes: Vec<(Arc<Lane>, Job)>) -> Result<(), NotTaken> {
    let Some((stored, store, tasks)) = lanes
        .first()
        .map(|(lane, job)| (job.stored.clone(), lane.store.clone(), lane.tasks.clone()))
    else {
        return Ok(());
    };
    let (lanes, jobs): (Vec<_>, Vec<_>) = lanes.into_iter().unzip();
    // All locks are held until the put is made, as when a message arrives: the order is the same.
    let mut guards = Vec::with_capacity(lanes.len());
    for lane in &lanes {
        let state = lane.lock();
        if state.is_failing() {
            return Err(NotTaken::StoreFails);
        }
        if !state.held.is_empty() || !lane.has_room(&state, stored.message.size()) {
            return Err(NotTaken::Full);
        }
        guards.push(state);
    }
    let mut posted = Vec::new();
    let mut destinations = Vec::new();
    for ((lane, state), job) in lanes.iter().zip(&mut guards).zip(jobs) {
        lane.metrics.injected.inc();
        let mut parcel = Parcel::queue(job);
        parcel.by_hand = true;
        posted.push(lane.number(state, parcel));
        destinations.push(Destination {
            binding: lane.key.clone(),
            placement: Placement::Queue,
        });
    }
    let pending = store.put(stored, destinations);
    tasks.spawn(conclude(pending, posted));
    Ok(())
}
