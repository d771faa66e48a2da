//! What the callers, the writer and the reader of a journal share: the index, and what waits to
//! be written.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bridge_core::{
    DeadLetterInfo, DeferInfo, MessageId, Moved, Quantity, Seq, StoreError, StoredMessage,
    Timestamp,
};
use futures_channel::oneshot;

use crate::disk::{Disk, Layout};
use crate::index::{Index, SlotId};
use crate::options::JournalOptions;
use crate::record::Placed;

/// How long settles rest after they could not be written.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// The way back to who asked.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked for, in the order of the calls.
#[derive(Debug)]
pub(crate) enum Request {
    Put(Put),
    Move {
        slot: SlotId,
        seq: u64,
        change: Change,
        answer: Answer<Moved>,
    },
    /// A settle of an entry that is on the move: it takes its turn behind the move.
    Settle {
        slot: SlotId,
        seq: u64,
    },
    Flush(Answer<()>),
}

#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) message: Arc<StoredMessage>,
    pub(crate) places: Vec<Place>,
    pub(crate) answer: Answer<Seq>,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) slot: SlotId,
    /// What records call the binding.
    pub(crate) name: Arc<str>,
    pub(crate) placed: Placed,
    /// How often puts for the binding had been let in again at the time of the call.
    pub(crate) epoch: u64,
}

#[derive(Debug)]
pub(crate) enum Change {
    Defer(DeferInfo),
    DeadLetter(DeadLetterInfo),
    Redrive(MessageId),
    Delete,
}

/// What is under way at one binding.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Admitted puts that are not durable yet.
    pub(crate) queued: Quantity,
    pub(crate) deferred: Quantity,
    pub(crate) dead: Quantity,
    /// When those for the queue were received, in their order.
    pub(crate) received: VecDeque<Timestamp>,
    /// How often puts were let in again after a failure.
    pub(crate) epoch: u64,
    /// Puts of this epoch and of earlier ones fail.
    pub(crate) failed: Option<u64>,
    /// Entries that are done, and of which the disk does not know yet.
    pub(crate) settled: Vec<u64>,
    /// Entries with moves that are under way, and how many.
    pub(crate) moving: HashMap<u64, u32>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) requests: VecDeque<Request>,
    traffic: Vec<Traffic>,
    /// How many settles wait, and since when.
    pub(crate) settles: usize,
    pub(crate) settles_since: Option<Instant>,
    /// Writing them failed: not again before.
    settles_not_before: Option<Instant>,
    pub(crate) closing: bool,
    /// The writer has ended: nothing is answered any more.
    pub(crate) closed: bool,
    pub(crate) stats: JournalStats,
}

/// How a journal is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    /// Files.
    pub segments: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// Bytes that are still needed.
    pub live_bytes: u64,
    /// Bytes that were written since the journal was opened.
    pub written_bytes: u64,
    /// How often data was made durable since the journal was opened.
    pub syncs: u64,
    /// Records that were written since the journal was opened.
    pub records: u64,
    /// How often writing failed since the journal was opened, for whichever reason.
    pub write_failures: u64,
    /// How often a segment was given up on because its data could not be made durable.
    pub sealed_segments: u64,
    /// Bytes that were copied to free the rest of their segments.
    pub copied_bytes: u64,
    /// Whether the disk was full at the latest attempt to store a message.
    pub full: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    writer: OnceLock<Thread>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) layout: Layout,
    pub(crate) options: JournalOptions,
}

impl Shared {
    pub(crate) fn new(
        index: Index,
        disk: Arc<dyn Disk>,
        layout: Layout,
        options: JournalOptions,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                index,
                requests: VecDeque::new(),
                traffic: Vec::new(),
                settles: 0,
                settles_since: None,
                settles_not_before: None,
                closing: false,
                closed: false,
                stats: JournalStats::default(),
            }),
            writer: OnceLock::new(),
            disk,
            layout,
            options,
        }
    }

    /// No panic leaves the state half changed that would not be the end of the writer anyway.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread that calls woken whenever there is something to write.
    pub(crate) fn wake_me(&self) {
        let _ = self.writer.set(std::thread::current());
    }

    /// Wakes the writer. Costs next to nothing while it is awake; one that has not begun yet
    /// looks before it rests.
    pub(crate) fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

impl State {
    pub(crate) fn traffic(&mut self, slot: SlotId) -> &mut Traffic {
        let number = slot.number();
        if self.traffic.len() <= number {
            self.traffic.resize_with(number + 1, Traffic::default);
        }
        // Just made long enough.
        #[expect(clippy::indexing_slicing, reason = "resized to hold the number above")]
        &mut self.traffic[number]
    }

    /// When the settles that wait are to be written at the latest, if any wait.
    pub(crate) fn settles_due_at(&self, options: &JournalOptions) -> Option<Instant> {
        let since = self.settles_since?;
        let due = if self.settles >= options.settle_count {
            since
        } else {
            since.checked_add(options.settle_delay).unwrap_or(since)
        };
        Some(self.settles_not_before.map_or(due, |hold| hold.max(due)))
    }

    /// Takes out what is settled and not written yet, per binding.
    pub(crate) fn take_settles(&mut self) -> Vec<(SlotId, Vec<u64>)> {
        self.settles = 0;
        self.settles_since = None;
        self.settles_not_before = None;
        let mut taken = Vec::new();
        for (number, traffic) in self.traffic.iter_mut().enumerate() {
            if !traffic.settled.is_empty() {
                taken.push((SlotId::new(number), std::mem::take(&mut traffic.settled)));
            }
        }
        taken
    }

    /// Puts back settles that could not be written.
    pub(crate) fn return_settles(&mut self, taken: Vec<(SlotId, Vec<u64>)>) {
        for (slot, seqs) in taken {
            for seq in seqs {
                self.settle_later(slot, seq);
            }
        }
        if self.settles > 0 {
            self.settles_not_before = Instant::now().checked_add(SETTLE_PAUSE);
        }
    }

    /// Notes an entry of which the disk is to be told that it is done.
    pub(crate) fn settle_later(&mut self, slot: SlotId, seq: u64) {
        self.traffic(slot).settled.push(seq);
        self.settles += 1;
        self.settles_since.get_or_insert_with(Instant::now);
    }
}
