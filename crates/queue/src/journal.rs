//! The journal as the runtime sees it: a [`Store`] over one folder.

use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bridge_core::{
    BindingKey, Destination, Durability, GivenUp, Move, Moved, Pending, Placement, Quantity,
    ReadFrom, ReadLimit, Seated, Seq, Store, StoreError, StoredMessage, Usage, View,
};
use futures_channel::oneshot;

use crate::active::Active;
use crate::disk::{Disk, Layout, RealDisk};
use crate::index::SlotId;
use crate::lock::{self, FolderLock};
use crate::options::{JournalOptions, OpenError};
use crate::pipe::Pipe;
use crate::reading::{self, Job, ReadJob, Wanted};
use crate::record::Placed;
use crate::recovery::{io_error, scan};
use crate::repair::repair;
use crate::report::RecoveryReport;
use crate::segments::SegmentState;
use crate::shared::{Answer, Change, JournalStats, Place, Put, Request, Shared, State};
use crate::writer::Writer;

/// The durable store: see the [crate's documentation](crate).
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    reader: Mutex<Option<Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<FolderLock>>,
}

impl Journal {
    /// Opens the journal in `folder`, which is created if it is not there.
    ///
    /// What is damaged is set aside under `quarantine/` and reported: it never keeps the journal
    /// from opening. Reads all segments, and blocks meanwhile.
    pub fn open(
        folder: &Path,
        options: JournalOptions,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        disk.create_folder(folder)
            .map_err(|source| io_error("create", folder, source))?;
        let lock = FolderLock::take(&Layout::new(folder).lock())?;
        Self::open_on(disk, folder, options, Some(lock))
    }

    /// The same for a journal that is there, and is to stay usable for who made it: for work in a
    /// folder of which the bridge takes its turn again afterwards.
    pub fn open_existing(
        folder: &Path,
        options: JournalOptions,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        lock::usable(&Layout::new(folder).lock(), folder)?;
        Self::open(folder, options)
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
        lock: Option<FolderLock>,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let (shared, writer, report) = Self::prepare(disk, folder, options)?;
        let (reader, jobs) = mpsc::channel();
        let for_reader = shared.clone();
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread
                .spawn(work)
                .map_err(|source| io_error("start a thread for", folder, source))
        };
        let mut journal = Self {
            shared,
            reader: Mutex::new(Some(reader)),
            threads: Mutex::default(),
            lock: Mutex::new(lock),
        };
        let threads = journal
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        threads.push(spawn("journal-write", Box::new(move || writer.run()))?);
        threads.push(spawn(
            "journal-read",
            Box::new(move || reading::run(&for_reader, &jobs)),
        )?);
        Ok((journal, report))
    }

    /// Reads what is in `folder`, repairs it, and makes a writer that goes on from there.
    fn prepare(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
    ) -> Result<(Arc<Shared>, Writer, RecoveryReport), OpenError> {
        let options = options.checked();
        let layout = Layout::new(folder);
        let journal = layout.journal();
        disk.create_folder(&journal)
            .and_then(|()| disk.sync_folder(folder))
            .map_err(|source| io_error("create", &journal, source))?;
        let mut found = scan(&*disk, &layout)?;
        let report = repair(&*disk, &layout, &mut found)?;
        let active = found
            .tail
            .as_ref()
            .map(|tail| {
                Active::resume(&*disk, &layout, tail)
                    .map_err(|source| io_error("sync", &layout.segment(tail.first_seq), source))
            })
            .transpose()?;
        let shared = Arc::new(Shared::new(found.index, disk, layout, options));
        let pipe = Pipe::start(shared.clone())
            .map_err(|source| io_error("start a thread for", folder, source))?;
        let writer = Writer::new(shared.clone(), active, found.next_seq, pipe);
        Ok((shared, writer, report))
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A journal whose writer does only what a test has it do.
    #[cfg(test)]
    pub(crate) fn with_idle_writer(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: JournalOptions,
    ) -> (Self, Writer) {
        let (shared, writer, _) = Self::prepare(disk, folder, options).unwrap();
        let journal = Self {
            shared,
            reader: Mutex::default(),
            threads: Mutex::default(),
            lock: Mutex::default(),
        };
        (journal, writer)
    }

    /// Writes what was asked for, settles included, and stops. What is asked for later fails.
    /// Blocks until the disk has answered; done by `Drop` as well.
    pub fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.wake();
        let lock = |reader: &Mutex<Option<Sender<Job>>>| {
            drop(reader.lock().unwrap_or_else(PoisonError::into_inner).take());
        };
        lock(&self.reader);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(
                    event = "journal_thread_panicked",
                    "a thread of the journal panicked; what it had not written is not stored"
                );
            }
        }
        drop(threads);
        drop(
            self.lock
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// How the journal is doing.
    pub fn stats(&self) -> JournalStats {
        let guard = self.shared.lock();
        let segments = &guard.index.segments;
        JournalStats {
            segments: segments.iter().len() as u64,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            live_bytes: segments.iter().map(SegmentState::live_bytes).sum(),
            ..guard.stats
        }
    }

    fn read_page(
        &self,
        binding: &BindingKey,
        what: Wanted,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        self.ask(binding, |slot, answer| {
            Job::Read(ReadJob {
                slot,
                what,
                limit,
                answer,
            })
        })
    }

    /// Asks the reader for something of `binding`; of one that is not known there is nothing.
    fn ask<T: Default + Send + 'static>(
        &self,
        binding: &BindingKey,
        job: impl FnOnce(SlotId, Answer<T>) -> Job,
    ) -> Pending<T> {
        let Some(slot) = self.shared.lock().index.slot_of(binding) else {
            return at_once(Ok(T::default()));
        };
        let (answer, result) = oneshot::channel();
        let job = job(slot, answer);
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = reader.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent {
            answered(result)
        } else {
            at_once(Err(StoreError::Closed))
        }
    }

    fn usage_of(state: &mut State, key: &BindingKey) -> Usage {
        let Some(slot) = state.index.slot_of(key) else {
            return Usage::default();
        };
        let [queue, deferred, dead] = state.index.quantities(slot);
        let head = state.index.head(slot).map(|entry| entry.received);
        let traffic = state.traffic(slot);
        Usage {
            queue: sum(queue, traffic.queued),
            deferred: sum(deferred, traffic.deferred),
            dead_letters: sum(dead, traffic.dead),
            oldest: head.or_else(|| traffic.received.front().copied()),
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}

const fn sum(a: Quantity, b: Quantity) -> Quantity {
    Quantity {
        entries: a.entries + b.entries,
        bytes: a.bytes + b.bytes,
    }
}

fn answered<T: Send + 'static>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Pending<T> {
    Box::pin(async move { answer.await.unwrap_or(Err(StoreError::Closed)) })
}

fn at_once<T: Send + 'static>(result: Result<T, StoreError>) -> Pending<T> {
    Box::pin(std::future::ready(result))
}

impl Store for Journal {
    fn durability(&self) -> Durability {
        Durability::PowerLoss
    }

    fn put(&self, message: Arc<StoredMessage>, to: Vec<Destination>) -> Pending<Seq> {
        let size = message.message.size();
        let maximum = self.shared.options.max_message_bytes;
        if size > maximum {
            // Not a failure that what comes behind would overtake: it can never be put.
            return at_once(Err(StoreError::TooLarge { size, maximum }));
        }
        let (answer, result) = oneshot::channel();
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if state.closing || state.closed {
            return at_once(Err(StoreError::Closed));
        }
        let mut seats = Vec::with_capacity(to.len());
        for Destination { binding, placement } in to {
            let slot = state.index.intern(&binding);
            let placed = match placement {
                Placement::Queue => Placed::Queue,
                Placement::Deferred(info) => Placed::Deferred(info),
                Placement::DeadLetter(info) => Placed::Dead(info),
            };
            let epoch = state.traffic(slot).epoch;
            seats.push(Place {
                slot,
                name: state.index.name(slot),
                placed,
                epoch,
            });
        }
        for place in &seats {
            let traffic = state.traffic(place.slot);
            let quantity = match place.placed {
                Placed::Queue => {
                    traffic.received.push_back(message.received);
                    &mut traffic.queued
                }
                Placed::Deferred(_) => &mut traffic.deferred,
                Placed::Dead(_) => &mut traffic.dead,
            };
            quantity.entries += 1;
            quantity.bytes += size;
        }
        state.requests.push_back(Request::Put(Put {
            message,
            places: seats,
            answer,
        }));
        drop(guard);
        self.shared.wake();
        answered(result)
    }

    fn resume(&self, binding: &BindingKey) {
        let mut state = self.shared.lock();
        let slot = state.index.intern(binding);
        let traffic = state.traffic(slot);
        if traffic.failed >= Some(traffic.epoch) {
            traffic.epoch += 1;
        }
    }

    fn settle(&self, binding: &BindingKey, done: &[Seq]) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let Some(slot) = state.index.slot_of(binding) else {
            return;
        };
        let before = state.settles;
        for seq in done {
            let seq = seq.get();
            match state.traffic(slot).moving.get_mut(&seq) {
                Some(count) => {
                    *count += 1;
                    state.requests.push_back(Request::Settle { slot, seq });
                }
                None => state.settle_at_once(slot, seq),
            }
        }
        // The writer sleeps until the first settle is due, or for ever if there was none.
        let wake = !state.requests.is_empty()
            || (before == 0 && state.settles > 0)
            || state.settles >= self.shared.options.settle_count;
        drop(guard);
        if wake {
            self.shared.wake();
        }
    }

    fn apply(&self, change: Move) -> Pending<Moved> {
        let (binding, seq, change) = match change {
            Move::Defer { binding, seq, info } => (binding, seq, Change::Defer(info)),
            Move::DeadLetter { binding, seq, info } => (binding, seq, Change::DeadLetter(info)),
            Move::Redrive { binding, seq, id } => (binding, seq, Change::Redrive(id)),
            Move::Delete { binding, seq } => (binding, seq, Change::Delete),
        };
        let (answer, result) = oneshot::channel();
        let mut state = self.shared.lock();
        if state.closing || state.closed {
            return at_once(Err(StoreError::Closed));
        }
        let Some(slot) = state.index.slot_of(&binding) else {
            return at_once(Ok(Moved::NotThere));
        };
        let seq = seq.get();
        *state.traffic(slot).moving.entry(seq).or_insert(0) += 1;
        state.requests.push_back(Request::Move {
            slot,
            seq,
            change,
            answer,
        });
        drop(state);
        self.shared.wake();
        answered(result)
    }

    fn read(
        &self,
        binding: &BindingKey,
        view: View,
        after: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        self.read_page(binding, Wanted::View(view, after), limit)
    }

    fn read_dead_letters(
        &self,
        binding: &BindingKey,
        which: GivenUp,
        from: ReadFrom,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        self.read_page(binding, Wanted::DeadLetters(which, from), limit)
    }

    fn count_dead_letters(&self, binding: &BindingKey, which: GivenUp) -> Pending<u64> {
        self.ask(binding, |slot, answer| Job::CountDeadLetters {
            slot,
            which,
            answer,
        })
    }

    fn usage(&self, binding: &BindingKey) -> Usage {
        Self::usage_of(&mut self.shared.lock(), binding)
    }

    fn bindings(&self) -> Vec<BindingKey> {
        let mut state = self.shared.lock();
        let keys: Vec<BindingKey> = state.index.keys().map(|(_, key)| key.clone()).collect();
        let waits = |key: &BindingKey| {
            let Usage {
                queue,
                deferred,
                dead_letters,
                ..
            } = Self::usage_of(&mut state, key);
            queue.entries + deferred.entries + dead_letters.entries > 0
        };
        keys.into_iter().filter(waits).collect()
    }

    fn flush(&self) -> Pending<()> {
        let (answer, result) = oneshot::channel();
        let mut state = self.shared.lock();
        if state.closing || state.closed {
            return at_once(Err(StoreError::Closed));
        }
        state.requests.push_back(Request::Flush(answer));
        drop(state);
        self.shared.wake();
        answered(result)
    }
}
