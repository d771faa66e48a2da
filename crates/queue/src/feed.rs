//! Feeding the pipe: messages, and the settles that wait, are drafted while the batch before them is
//! being made durable.

use bridge_core::StoreError;

use crate::draft::Outcome;
use crate::pipe::Batch;
use crate::shared::{Put, Request, Shared};
use crate::writer::Writer;

/// So many requests are drafted before the disk may take what is there.
const STRIDE: usize = 16;

impl Writer {
    /// Drafts what has arrived, as far as it may go through the pipe, and starts it if the disk
    /// is free.
    pub(crate) fn feed(&mut self) {
        let tidies = self.wants_to_tidy();
        self.tidying.looked(tidies);
        while !tidies && self.may_feed() && self.feed_some() {}
        let Some(batch) = self.pipe.lock().take_ready() else {
            return;
        };
        let more = !self.work.is_empty() || !self.shared.lock().requests.is_empty();
        if more {
            self.pipe.hand_over(batch);
            while !tidies && self.may_feed() && self.feed_some() {}
        } else {
            // Nothing is there to be drafted meanwhile: no other thread need be woken for it.
            let appended = batch.append();
            // What the other thread made durable before is older, and becomes visible before.
            for (older, appended) in self.pipe.take_done() {
                self.land(older, appended);
            }
            self.land(batch, appended);
        }
    }

    /// Whether the next request may go through the pipe: what depends on what was before it, a new
    /// segment, and giving space back wait until the pipe is empty.
    fn may_feed(&self) -> bool {
        let limit = self.shared.options.segment_bytes;
        matches!(self.work.front(), Some(Request::Put(_) | Request::Flush(_)))
            && self.reserve.is_held()
            && self
                .active
                .as_ref()
                .is_some_and(|active| active.len < limit)
    }

    /// Drafts some requests behind the open batch, if they fit it. Says whether it did.
    fn feed_some(&mut self) -> bool {
        let pipe = self.pipe.inner();
        let mut stages = pipe.lock();
        let batch = match stages.open.take() {
            Some(batch) => batch,
            None => match self.batch() {
                Ok(mut batch) => {
                    batch.take_settles(&self.shared);
                    batch
                }
                // Told to who waits when it is tried with an empty pipe.
                Err(_) => return false,
            },
        };
        let batch = stages.open.insert(batch);
        let (taken, behind) = self.take_fitting(batch);
        let any = !(taken.is_empty() && behind.is_empty());
        for request in taken {
            batch.add(&self.shared, request);
        }
        if let Some(active) = &mut self.active {
            active.len = batch.draft.end();
        }
        self.next_seq = batch.draft.next_seq;
        drop(stages);
        for put in behind {
            // Who asked may have lost interest.
            let _ = put.answer.send(Err(StoreError::Behind));
        }
        any
    }

    /// Takes requests that fit `batch`, and puts that may not go.
    fn take_fitting(&mut self, batch: &Batch) -> (Vec<Request>, Vec<Put>) {
        let options = &self.shared.options;
        let mut room = options
            .segment_bytes
            .saturating_sub(batch.draft.end())
            .min((options.batch_bytes as u64).saturating_sub(batch.draft.bytes.len() as u64));
        let count = options.batch_records.saturating_sub(batch.requests.len());
        let (mut taken, mut behind) = (Vec::with_capacity(STRIDE), Vec::new());
        let mut state = self.shared.lock();
        while taken.len() < count.min(STRIDE)
            && let Some(request) = self.work.front()
        {
            let size = match request {
                Request::Put(put) => put.message.message.size(),
                Request::Flush(_) => 0,
                _ => break,
            };
            if size > room && !(batch.requests.is_empty() && taken.is_empty()) {
                break;
            }
            room = room.saturating_sub(size);
            match self.work.pop_front() {
                Some(Request::Put(put)) if state.is_behind(&put.places) => {
                    state.put_failed(&put);
                    behind.push(put);
                }
                Some(request) => taken.push(request),
                None => break,
            }
        }
        (taken, behind)
    }
}

impl Batch {
    /// Drafts the settles that wait.
    fn take_settles(&mut self, shared: &Shared) {
        let settles = shared.lock().take_settles();
        for (slot, seqs) in settles {
            self.draft.settle(shared, slot, seqs.clone());
            self.settles.push((slot, seqs));
        }
    }

    fn add(&mut self, shared: &Shared, request: Request) {
        let outcome = match &request {
            Request::Put(put) => Outcome::Put(self.draft.put(put)),
            Request::Flush(_) => {
                self.take_settles(shared);
                Outcome::Nothing
            }
            // They do not come this way.
            Request::Move { .. } | Request::Settle { .. } => Outcome::Nothing,
        };
        self.outcomes.push(outcome);
        self.requests.push(request);
    }
}
