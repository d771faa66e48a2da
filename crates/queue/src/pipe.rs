//! The pipe between drafting and the disk: while one batch is being made durable, the next one is
//! being drafted, and it leaves the moment the disk is free.
//!
//! ```text
//! writer ─ drafts ─► open batch ─ the disk is free ─► write, fdatasync ─► done ─► writer: answers
//! ```
//!
//! Batches go to the disk one after the other, each after the one before it is durable: what a
//! crash may leave is the same as if one thread did everything. When one fails, the pipe stands
//! still until the writer has taken back what was drafted behind it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::active::{Append, Sink};
use crate::draft::{Draft, Outcome};
use crate::index::SlotId;
use crate::shared::{Request, Shared};

/// Entries that are done, per binding.
pub(crate) type Settles = Vec<(SlotId, Vec<u64>)>;

/// Requests whose frames are drafted, and the file to which they go.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<Request>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) settles: Settles,
    pub(crate) draft: Draft,
    pub(crate) sink: Arc<Sink>,
}

impl Batch {
    pub(crate) const fn new(draft: Draft, sink: Arc<Sink>) -> Self {
        Self {
            requests: Vec::new(),
            outcomes: Vec::new(),
            settles: Vec::new(),
            draft,
            sink,
        }
    }

    /// Writes it and makes it durable.
    pub(crate) fn append(&self) -> Append {
        self.sink.append(&self.draft.bytes, self.draft.base)
    }
}

/// What is in the pipe.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// Grows until the disk is free.
    pub(crate) open: Option<Batch>,
    /// To be made durable next, without waiting for more.
    next: Option<Batch>,
    /// Whether a batch is at the disk, or about to be.
    flying: bool,
    /// A batch failed: nothing goes to the disk before what is behind it was taken back.
    halted: bool,
    /// What came of the batches, in their order. Nothing follows a failure.
    done: VecDeque<(Batch, Append)>,
    closing: bool,
    /// The other thread has panicked.
    broken: bool,
}

/// What both ends share.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    stages: Mutex<Stages>,
}

impl Inner {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Stages> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's end of the pipe; the other end is a thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Pipe {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Pipe {
    pub(crate) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let inner = Arc::new(Inner::default());
        let other = inner.clone();
        let thread = thread::Builder::new().name("journal-sync".to_owned());
        Ok(Self {
            inner,
            thread: Some(thread.spawn(move || run(&other, &shared))?),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Stages> {
        self.inner.lock()
    }

    pub(crate) fn inner(&self) -> Arc<Inner> {
        self.inner.clone()
    }

    /// Has a batch made durable by the other thread, while this one goes on.
    pub(crate) fn hand_over(&self, batch: Batch) {
        let mut stages = self.lock();
        stages.next = Some(batch);
        stages.flying = true;
        drop(stages);
        self.wake();
    }

    /// What has come out since it was last asked.
    pub(crate) fn take_done(&self) -> VecDeque<(Batch, Append)> {
        std::mem::take(&mut self.lock().done)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Stages {
    /// The batch that was drafted, when the disk is free for it.
    pub(crate) fn take_ready(&mut self) -> Option<Batch> {
        if self.flying || self.halted {
            None
        } else {
            self.open.take()
        }
    }

    #[cfg(test)]
    pub(crate) const fn is_flying(&self) -> bool {
        self.flying
    }

    /// Takes note of what came of the batch at the disk; the next one may go, if all is well.
    fn land(&mut self, batch: Batch, appended: Append) {
        if matches!(appended, Append::Done) {
            self.next = self.open.take();
        } else {
            self.halted = true;
        }
        self.flying = self.next.is_some();
        self.done.push_back((batch, appended));
    }

    /// Takes back what was drafted behind a batch that failed.
    pub(crate) fn take_back(&mut self) -> Option<Batch> {
        self.halted = false;
        self.open.take()
    }

    /// Whether nothing comes out any more.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether nothing is in the pipe, so that the writer may do as it likes with the segment.
    pub(crate) fn is_idle(&self) -> bool {
        !self.flying && self.open.is_none() && self.done.is_empty()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.lock().closing = true;
        self.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(
                event = "journal_thread_panicked",
                "a thread of the journal panicked; what it had not written is not stored"
            );
        }
    }
}

/// Tells the writer when the other thread panics: what it held is lost, and so is the journal.
struct BrokenByPanic<'a>(&'a Inner, &'a Shared);

impl Drop for BrokenByPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().broken = true;
            self.1.wake();
        }
    }
}

/// Makes batches durable until the pipe is closed.
fn run(inner: &Inner, shared: &Shared) {
    let _broken = BrokenByPanic(inner, shared);
    let mut stages = inner.lock();
    loop {
        let Some(batch) = stages.next.take() else {
            if stages.closing {
                return;
            }
            drop(stages);
            thread::park();
            stages = inner.lock();
            continue;
        };
        drop(stages);
        let appended = batch.append();
        stages = inner.lock();
        stages.land(batch, appended);
        shared.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bridge_core::StoreError;

    use super::*;
    use crate::active::Active;
    use crate::disk::Layout;
    use crate::sim::SimDisk;

    fn batch(base: u64) -> Batch {
        let active = Active::create(
            &SimDisk::default(),
            &Layout::new(Path::new("/data")),
            1,
            &[],
        )
        .unwrap();
        let draft = Draft::new(0, active.salt, base, 2, Vec::new());
        Batch::new(draft, active.sink)
    }

    fn at_the_disk() -> Stages {
        Stages {
            flying: true,
            open: Some(batch(200)),
            ..Stages::default()
        }
    }

    #[test]
    fn what_was_drafted_leaves_when_the_disk_is_free() {
        let mut stages = at_the_disk();
        assert!(stages.take_ready().is_none(), "the disk is busy");
        stages.land(batch(100), Append::Done);
        assert_eq!(stages.next.take().map(|next| next.draft.base), Some(200));
        stages.land(batch(200), Append::Done);
        assert!(!stages.is_idle(), "two are to be answered");
        assert_eq!(stages.done.len(), 2);
    }

    #[test]
    fn nothing_follows_a_failure_before_it_was_taken_back() {
        let mut stages = at_the_disk();
        stages.land(batch(100), Append::CutBack(StoreError::Closed));
        assert!(stages.next.is_none() && !stages.flying);
        assert!(stages.take_ready().is_none(), "it would leave a hole");
        assert_eq!(stages.take_back().map(|back| back.draft.base), Some(200));
        stages.open = Some(batch(100));
        assert!(stages.take_ready().is_some());
    }
}
