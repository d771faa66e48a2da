//! What a batch comes to: its effects in the index, and the answers to those who wait.

use bridge_core::{StoreError, View};
use tracing::warn;

use crate::draft::Outcome;
use crate::index::SlotId;
use crate::pipe::Batch;
use crate::record::Placed;
use crate::shared::{Change, Place, Put, Request, State};
use crate::writer::Writer;

impl Writer {
    /// Makes true what a durable batch says, and answers it.
    pub(crate) fn succeed(&mut self, batch: Batch) {
        let Batch {
            mut requests,
            mut outcomes,
            mut draft,
            ..
        } = batch;
        let mut state = self.shared.lock();
        for effect in draft.effects.drain(..) {
            effect.apply(&mut state.index);
        }
        for request in &requests {
            state.done(request);
            if request.takes_space() {
                state.stats.full = false;
            }
        }
        drop(state);
        for (request, outcome) in requests.drain(..).zip(outcomes.drain(..)) {
            // Who asked may have lost interest: what was asked for is done all the same.
            match (request, outcome) {
                (Request::Put(put), Outcome::Put(seq)) => drop(put.answer.send(Ok(seq))),
                (Request::Move { answer, .. }, Outcome::Moved(moved)) => drop(answer.send(moved)),
                (Request::Flush(answer), _) => drop(answer.send(Ok(()))),
                _ => {}
            }
        }
        self.keep(draft.bytes);
    }

    /// Answers what nothing came of.
    pub(crate) fn fail(&mut self, batch: Vec<Request>, error: &StoreError) {
        let mut state = self.shared.lock();
        if matches!(error, StoreError::Full { .. }) && !state.stats.full {
            state.stats.full = true;
            self.tidying.may_be_due = true;
            warn!(
                event = "journal_full",
                error = %error,
                "messages are left with their source until there is space"
            );
        }
        for request in &batch {
            match request {
                Request::Put(put) => state.put_failed(put),
                request => state.done(request),
            }
            if let Request::Settle { slot, seq } = request {
                state.settle_at_once(*slot, *seq);
            }
        }
        drop(state);
        for request in batch {
            let failed = error.clone();
            match request {
                Request::Put(put) => drop(put.answer.send(Err(failed))),
                Request::Move { answer, .. } => drop(answer.send(Err(failed))),
                Request::Flush(answer) => drop(answer.send(Err(failed))),
                Request::Settle { .. } => {}
            }
        }
    }
}

/// What takes new space, and what helps a full disk to drain.
pub(crate) fn split(requests: Vec<Request>) -> (Vec<Request>, Vec<Request>) {
    requests.into_iter().partition(Request::takes_space)
}

impl Request {
    pub(crate) const fn takes_space(&self) -> bool {
        matches!(
            self,
            Self::Put(_)
                | Self::Move {
                    change: Change::Redrive(_),
                    ..
                }
        )
    }
}

impl State {
    /// Whether an earlier put for one of the places failed, and puts were not let in again since.
    pub(crate) fn is_behind(&mut self, places: &[Place]) -> bool {
        places
            .iter()
            .any(|place| self.traffic(place.slot).failed >= Some(place.epoch))
    }

    /// Takes a put out of what is under way, and holds what comes behind it.
    pub(crate) fn put_failed(&mut self, put: &Put) {
        self.put_ended(put);
        for place in &put.places {
            let traffic = self.traffic(place.slot);
            traffic.failed = traffic.failed.max(Some(place.epoch));
        }
    }

    fn put_ended(&mut self, put: &Put) {
        let size = put.message.message.size();
        for place in &put.places {
            let traffic = self.traffic(place.slot);
            let quantity = match place.placed {
                Placed::Queue => {
                    traffic.received.pop_front();
                    &mut traffic.queued
                }
                Placed::Deferred(_) => &mut traffic.deferred,
                Placed::Dead(_) => &mut traffic.dead,
            };
            quantity.entries = quantity.entries.saturating_sub(1);
            quantity.bytes = quantity.bytes.saturating_sub(size);
        }
    }

    /// Takes a request out of what is under way.
    fn done(&mut self, request: &Request) {
        match request {
            Request::Put(put) => self.put_ended(put),
            Request::Move { slot, seq, .. } | Request::Settle { slot, seq } => {
                let moving = &mut self.traffic(*slot).moving;
                if let Some(count) = moving.get_mut(seq) {
                    *count -= 1;
                    if *count == 0 {
                        moving.remove(seq);
                    }
                }
            }
            Request::Flush(_) => {}
        }
    }

    /// Takes an entry out of the queue or the deferred messages, and has the disk told of it.
    pub(crate) fn settle_at_once(&mut self, slot: SlotId, seq: u64) {
        if matches!(
            self.index.view_of(slot, seq),
            Some(View::Queue | View::Deferred)
        ) && self.index.remove(slot, seq).is_some()
        {
            self.settle_later(slot, seq);
        }
    }
}
