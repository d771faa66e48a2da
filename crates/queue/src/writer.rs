//! The writer: the one thread that decides what is appended, and in which order. It takes what has
//! arrived, drafts a batch, has it made durable with one write and one fdatasync, and tells who
//! waits. Messages go through the [pipe](crate::pipe), so that the disk never waits for a draft;
//! everything else is written while the pipe is empty, for it depends on what came before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bridge_core::StoreError;
use tracing::error;

use crate::active::{Active, Append, error_at};
use crate::answers::split;
use crate::draft::Draft;
use crate::fetch::Fetcher;
use crate::head::Head;
use crate::pipe::{Batch, Pipe, Settles};
use crate::reserve::Reserve;
use crate::shared::{Change, Request, Shared};
use crate::tidy::Tidying;

/// A buffer that grew beyond this for one large message is not kept.
const KEPT_BUFFER: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) active: Option<Active>,
    /// The number that the next record gets, those that are under way counted.
    pub(crate) next_seq: u64,
    /// What was taken from the shared state and is not drafted yet.
    pub(crate) work: VecDeque<Request>,
    pub(crate) pipe: Pipe,
    pub(crate) reserve: Reserve,
    pub(crate) tidying: Tidying,
    pub(crate) fetcher: Fetcher,
    /// Kept for the next batches.
    buffers: Vec<Vec<u8>>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        active: Option<Active>,
        next_seq: u64,
        pipe: Pipe,
    ) -> Self {
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
            pipe,
            reserve,
            tidying: Tidying::default(),
            buffers: Vec::new(),
        }
    }

    /// Writes until the journal closes and everything that was asked for before is written.
    pub(crate) fn run(mut self) {
        let _closed = ClosedAtEnd(self.shared.clone());
        self.shared.wake_me();
        self.tidy();
        loop {
            for (batch, appended) in self.pipe.take_done() {
                self.land(batch, appended);
            }
            let (closing, settles_due) = self.look();
            self.feed();
            let stages = self.pipe.lock();
            let (idle, broken) = (stages.is_idle(), stages.is_broken());
            drop(stages);
            if broken {
                return;
            }
            if !idle {
                thread::park();
            } else if !self.work.is_empty() {
                let requests = self.next_batch();
                self.serve(requests);
                self.tidy();
            } else if settles_due {
                self.serve(Vec::new());
                if closing {
                    return self.note_end();
                }
                self.tidy();
            } else if closing {
                return self.note_end();
            } else if self.wants_to_tidy() {
                self.tidy();
            } else {
                self.rest();
            }
        }
    }

    /// Notes how far the journal has come, for the next opening.
    fn note_end(&self) {
        // Where nothing was written since numbers were skipped, it is not known.
        if self.active.is_some() {
            Head::closed(&*self.shared.disk, &self.shared.layout, self.next_seq);
        }
    }

    /// Takes what has arrived. Says whether the journal is closing, and whether it is time to
    /// write the settles.
    fn look(&mut self) -> (bool, bool) {
        let mut state = self.shared.lock();
        self.work.append(&mut state.requests);
        let closing = state.closing;
        let due = state.settles_due_at(&self.shared.options);
        (
            closing,
            due.is_some_and(|due| closing || due <= Instant::now()),
        )
    }

    /// Sleeps until something arrives, the settles that wait are due, or tidying that failed is.
    fn rest(&self) {
        let settles = self.shared.lock().settles_due_at(&self.shared.options);
        match settles.into_iter().chain(self.tidying.due_at()).min() {
            Some(due) => thread::park_timeout(due.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }

    /// Takes from the front of the work what fits one batch; puts that may not go are answered.
    fn next_batch(&mut self) -> Vec<Request> {
        let options = &self.shared.options;
        let left = |active: &Active| options.segment_bytes.saturating_sub(active.len);
        // A full segment is followed by one that has all of its room.
        let room = self.active.as_ref().map(left).filter(|room| *room > 0);
        let room = room.unwrap_or(options.segment_bytes);
        let mut room = room.min(options.batch_bytes as u64);
        let mut batch = Vec::new();
        let mut behind = Vec::new();
        let mut state = self.shared.lock();
        while batch.len() < options.batch_records
            && let Some(request) = self.work.front()
        {
            let size = match request {
                Request::Put(put) => put.message.message.size(),
                // It writes the whole message again.
                Request::Move {
                    slot,
                    seq,
                    change: Change::Redrive(_),
                    ..
                } => state.index.size_of_dead_letter(*slot, *seq),
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
        if batch.iter().any(Request::takes_space)
            && let Err(error) = self.reserve.take()
        {
            let place = self.reserve.path();
            let error = error_at(&self.shared.layout, place, "set aside space in", &error);
            let (refused, rest) = split(batch);
            self.fail(refused, &error);
            batch = rest;
        }
        match self.write(batch, settles) {
            Ok(batch) => self.succeed(batch),
            Err((requests, settles, error)) => self.not_written(requests, settles, &error),
        }
    }

    /// On a full disk, what helps to drain it may be written with the reserve. Everything else
    /// is answered with the error.
    fn not_written(&mut self, requests: Vec<Request>, settles: Settles, error: &StoreError) {
        if !matches!(error, StoreError::Full { .. }) {
            self.shared.lock().return_settles(settles);
            return self.fail(requests, error);
        }
        let (refused, rest) = split(requests);
        self.fail(refused, error);
        if rest.is_empty() && settles.is_empty() {
            return;
        }
        self.reserve.release();
        match self.write(rest, settles) {
            Ok(batch) => self.succeed(batch),
            Err((requests, settles, error)) => {
                self.shared.lock().return_settles(settles);
                self.fail(requests, &error);
            }
        }
    }

    /// Makes a batch durable while nothing else is under way; `Err` means that nothing of it is.
    fn write(
        &mut self,
        requests: Vec<Request>,
        settles: Settles,
    ) -> Result<Batch, (Vec<Request>, Settles, StoreError)> {
        let mut batch = match self.batch() {
            Ok(batch) => batch,
            Err(error) => return Err((requests, settles, error)),
        };
        for (slot, seqs) in &settles {
            batch.draft.settle(&self.shared, *slot, seqs.clone());
        }
        for request in &requests {
            let outcome = batch
                .draft
                .request(&self.shared, &mut self.fetcher, request);
            batch.outcomes.push(outcome);
        }
        match self.commit(&batch.draft) {
            Ok(()) => {
                batch.requests = requests;
                Ok(batch)
            }
            Err(error) => Err((requests, settles, error)),
        }
    }

    /// An empty batch at the end of the segment to write to.
    pub(crate) fn batch(&mut self) -> Result<Batch, StoreError> {
        let draft = self.draft()?;
        let active = self.active.as_ref().ok_or(StoreError::Closed)?;
        Ok(Batch::new(draft, active.sink.clone()))
    }

    /// An empty draft at the end of the segment to write to.
    pub(crate) fn draft(&mut self) -> Result<Draft, StoreError> {
        let (segment, salt, len) = self.segment()?;
        let mut buffer = self.buffers.pop().unwrap_or_default();
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

    pub(crate) fn begin_segment(&mut self) -> Result<(), StoreError> {
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

    /// Makes a draft durable while nothing else is under way.
    pub(crate) fn commit(&mut self, draft: &Draft) -> Result<(), StoreError> {
        if draft.bytes.is_empty() {
            return Ok(());
        }
        let Some(active) = &mut self.active else {
            return Err(StoreError::Closed);
        };
        let appended = active.sink.append(&draft.bytes, draft.base);
        active.len = draft.end();
        self.next_seq = draft.next_seq;
        self.account(draft, appended)
    }

    /// Takes note of what came of the latest draft. After a failure the next one goes where the
    /// failed one was to go, or to a new segment.
    fn account(&mut self, draft: &Draft, appended: Append) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        let failure = match appended {
            Append::Done => {
                state.stats.written_bytes += draft.bytes.len() as u64;
                state.stats.syncs += u64::from(!draft.bytes.is_empty());
                state.stats.records += draft.next_seq - draft.first_seq;
                state.index.segments.grow(draft.segment, draft.end());
                self.tidying.may_be_due = true;
                return Ok(());
            }
            Append::CutBack(failure) => {
                if let Some(active) = &mut self.active {
                    active.len = draft.base;
                }
                failure
            }
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
        self.next_seq = draft.first_seq;
        state.stats.write_failures += 1;
        Err(failure)
    }

    /// Takes a batch that comes out of the pipe.
    pub(crate) fn land(&mut self, batch: Batch, appended: Append) {
        let Err(error) = self.account(&batch.draft, appended) else {
            return self.succeed(batch);
        };
        let Batch {
            requests,
            mut settles,
            ..
        } = batch;
        // What was drafted behind it is drafted again, for it may not go where it was to go.
        let behind = self.pipe.lock().take_back();
        if let Some(behind) = behind {
            settles.extend(behind.settles);
            for request in behind.requests.into_iter().rev() {
                self.work.push_front(request);
            }
        }
        self.not_written(requests, settles, &error);
    }

    /// Keeps a buffer for the next batches.
    pub(crate) fn keep(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_BUFFER && self.buffers.len() < 3 {
            self.buffers.push(buffer);
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
