//! The writer: the one thread that appends. It takes what has arrived while the last batch was
//! being made durable, writes it with one write and one fdatasync, and tells who waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::StoreError;
use tracing::{error, warn};

use crate::active::{Active, Append, full};
use crate::draft::{Draft, Outcome};
use crate::fetch::Fetcher;
use crate::index::SlotId;
use crate::reserve::Reserve;
use crate::shared::{Place, Put, Request, Shared, State};
use crate::tidy::Tidying;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    active: Option<Active>,
    next_seq: u64,
    /// What was taken from the shared state and is not written yet.
    work: VecDeque<Request>,
    pub(crate) reserve: Reserve,
    pub(crate) tidying: Tidying,
    pub(crate) fetcher: Fetcher,
    /// Kept for the next batch.
    buffer: Vec<u8>,
}

type Settles = Vec<(SlotId, Vec<u64>)>;

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, active: Option<Active>, next_seq: u64) -> Self {
        let reserve = Reserve::new(
            shared.disk.clone(),
            shared.layout.reserve(),
            shared.options.reserve_bytes,
        );
        Self {
            fetcher: Fetcher::new(shared.disk.clone(), shared.layout.clone()),
            shared,
            active,
            next_seq,
            work: VecDeque::new(),
            reserve,
            tidying: Tidying::default(),
            buffer: Vec::new(),
        }
    }

    /// Writes until the journal closes and everything that was asked for before is written.
    pub(crate) fn run(mut self) {
        let _closed = ClosedAtEnd(self.shared.clone());
        self.tidy();
        loop {
            let shared = self.shared.clone();
            let idle = self.tidying.has_more().then_some(Duration::ZERO);
            let mut state = shared.wait(idle);
            self.work.append(&mut state.requests);
            let closing = state.closing;
            let settles_due = state
                .settles_due_at(&shared.options)
                .is_some_and(|due| closing || due <= Instant::now());
            drop(state);
            if self.work.is_empty() {
                if settles_due {
                    self.serve(Vec::new());
                }
                if closing {
                    return;
                }
            }
            while !self.work.is_empty() {
                let batch = self.next_batch();
                self.serve(batch);
            }
            self.tidy();
        }
    }

    /// Takes from the front of the work what fits one batch; puts that may not go are answered.
    fn next_batch(&mut self) -> Vec<Request> {
        let options = &self.shared.options;
        let room = self
            .active
            .as_ref()
            .map_or(options.segment_bytes, |active| {
                options.segment_bytes.saturating_sub(active.len)
            });
        let mut room = room.min(options.batch_bytes as u64);
        let mut batch = Vec::new();
        let mut behind = Vec::new();
        let mut state = self.shared.lock();
        while batch.len() < options.batch_records
            && let Some(request) = self.work.front()
        {
            let size = match request {
                Request::Put(put) => put.message.message.size(),
                _ => 0,
            };
            if size > room && !batch.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            match self.work.pop_front() {
                Some(Request::Put(put)) if state.is_behind(&put.places) => {
                    state.put_failed(&put);
                    behind.push(put);
                }
                Some(request) => batch.push(request),
                None => break,
            }
        }
        drop(state);
        for put in behind {
            // Who asked may have lost interest.
            let _ = put.answer.send(Err(StoreError::Behind));
        }
        batch
    }

    /// Writes a batch with the settles that wait, and answers it.
    fn serve(&mut self, mut batch: Vec<Request>) {
        let settles = self.shared.lock().take_settles();
        let full = full(&self.shared.layout);
        if batch.iter().any(Request::takes_space) && !self.reserve.take() {
            let (refused, rest) = split(batch);
            self.fail(refused, &full);
            batch = rest;
        }
        match self.write(&batch, &settles) {
            Ok(written) => return self.succeed(batch, written),
            Err(error @ StoreError::Full { .. }) => {
                let (refused, rest) = split(batch);
                self.fail(refused, &error);
                if rest.is_empty() && settles.is_empty() {
                    return;
                }
                self.reserve.release();
                batch = rest;
            }
            Err(error) => {
                self.shared.lock().return_settles(settles);
                return self.fail(batch, &error);
            }
        }
        match self.write(&batch, &settles) {
            Ok(written) => self.succeed(batch, written),
            Err(error) => {
                self.shared.lock().return_settles(settles);
                self.fail(batch, &error);
            }
        }
    }

    /// Makes a batch durable; `Err` means that nothing of it is.
    fn write(
        &mut self,
        batch: &[Request],
        settles: &Settles,
    ) -> Result<(Draft, Vec<Outcome>), StoreError> {
        let mut draft = self.draft()?;
        for (slot, seqs) in settles {
            draft.settle(&self.shared, *slot, seqs.clone());
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        for request in batch {
            outcomes.push(draft.request(&self.shared, &mut self.fetcher, request));
        }
        self.commit(&draft)?;
        Ok((draft, outcomes))
    }

    /// An empty draft at the end of the segment to write to.
    pub(crate) fn draft(&mut self) -> Result<Draft, StoreError> {
        let (segment, salt, len) = self.segment()?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        Ok(Draft::new(segment, salt, len, self.next_seq, buffer))
    }

    /// The segment to write to, its salt and its length; a new one when the last is full.
    fn segment(&mut self) -> Result<(u32, crate::segment::Salt, u64), StoreError> {
        let limit = self.shared.options.segment_bytes;
        if self
            .active
            .as_ref()
            .is_none_or(|active| active.len >= limit)
        {
            self.begin_segment()?;
        }
        let state = self.shared.lock();
        let last = state.index.segments.last().map(|segment| segment.id);
        match (&self.active, last) {
            (Some(active), Some(id)) => Ok((id, active.salt, active.len)),
            _ => Err(StoreError::Closed),
        }
    }

    fn begin_segment(&mut self) -> Result<(), StoreError> {
        let first_seq = self.next_seq;
        let state = self.shared.lock();
        let mut older = Vec::new();
        for segment in state.index.segments.iter() {
            let numbers = segment.numbers();
            older.extend([numbers.start, numbers.end.min(first_seq)]);
        }
        drop(state);
        let shared = self.shared.clone();
        let created = Active::create(&*shared.disk, &shared.layout, first_seq, &older);
        let mut state = shared.lock();
        match created {
            Ok(active) => {
                state.index.segments.add(first_seq, active.salt, active.len);
                state.stats.written_bytes += active.len;
                state.stats.syncs += 1;
                self.active = Some(active);
                self.next_seq += 1;
                Ok(())
            }
            Err(error) => {
                state.stats.write_failures += 1;
                Err(error)
            }
        }
    }

    pub(crate) fn commit(&mut self, draft: &Draft) -> Result<(), StoreError> {
        if draft.bytes.is_empty() {
            return Ok(());
        }
        let Some(active) = &mut self.active else {
            return Err(StoreError::Closed);
        };
        let appended = active.append(&draft.bytes);
        let len = active.len;
        let mut state = self.shared.lock();
        let failure = match appended {
            Append::Done => {
                if let Some(id) = state.index.segments.last().map(|segment| segment.id) {
                    state.index.segments.grow(id, len);
                }
                state.stats.written_bytes += draft.bytes.len() as u64;
                state.stats.syncs += 1;
                state.stats.records += draft.next_seq - self.next_seq;
                self.next_seq = draft.next_seq;
                return Ok(());
            }
            Append::CutBack(failure) => failure,
            Append::Sealed(failure) => {
                state.stats.sealed_segments += 1;
                self.active = None;
                error!(
                    event = "journal_segment_sealed",
                    error = %failure,
                    "what was written last cannot be trusted and was not acknowledged; a new \
                     segment begins; check the disk"
                );
                failure
            }
        };
        state.stats.write_failures += 1;
        Err(failure)
    }

    fn succeed(&mut self, batch: Vec<Request>, (draft, outcomes): (Draft, Vec<Outcome>)) {
        let mut state = self.shared.lock();
        for effect in draft.effects {
            effect.apply(&mut state.index);
        }
        for request in &batch {
            state.done(request);
            if request.takes_space() {
                state.stats.full = false;
            }
        }
        drop(state);
        self.buffer = draft.bytes;
        for (request, outcome) in batch.into_iter().zip(outcomes) {
            // Who asked may have lost interest: what was asked for is done all the same.
            match (request, outcome) {
                (Request::Put(put), Outcome::Put(seq)) => drop(put.answer.send(Ok(seq))),
                (Request::Move { answer, .. }, Outcome::Moved(moved)) => drop(answer.send(moved)),
                (Request::Flush(answer), _) => drop(answer.send(Ok(()))),
                _ => {}
            }
        }
    }

    fn fail(&mut self, batch: Vec<Request>, error: &StoreError) {
        let mut state = self.shared.lock();
        if matches!(error, StoreError::Full { .. }) && !state.stats.full {
            state.stats.full = true;
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

/// Tells the callers when the writer ends, also when it ends by a panic.
#[derive(Debug)]
struct ClosedAtEnd(Arc<Shared>);

impl Drop for ClosedAtEnd {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let unanswered = std::mem::take(&mut state.requests);
        drop(state);
        // Their answers are dropped with them, which reads as "closed".
        drop(unanswered);
    }
}

/// What takes new space, and what helps a full disk to drain.
fn split(batch: Vec<Request>) -> (Vec<Request>, Vec<Request>) {
    batch.into_iter().partition(Request::takes_space)
}

impl Request {
    const fn takes_space(&self) -> bool {
        use crate::shared::Change;
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
                crate::record::Placed::Queue => {
                    traffic.received.pop_front();
                    &mut traffic.queued
                }
                _ => &mut traffic.dead,
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
        use bridge_core::View;
        if matches!(
            self.index.view_of(slot, seq),
            Some(View::Queue | View::Deferred)
        ) && self.index.remove(slot, seq).is_some()
        {
            self.settle_later(slot, seq);
        }
    }
}
