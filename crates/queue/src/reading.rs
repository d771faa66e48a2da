//! The reader: a thread of its own, so that reading a disk never holds up an async runtime.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bridge_core::{ReadLimit, Seated, Seq, StoreError, View};

use crate::fetch::{Address, FetchError, Fetcher, Info, info_in, message_in};
use crate::index::{Index, SlotId};
use crate::run::{Location, Seat};
use crate::shared::{Answer, Shared};

/// One read of one view.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) slot: SlotId,
    pub(crate) view: View,
    pub(crate) from: From,
    pub(crate) limit: ReadLimit,
    pub(crate) answer: Answer<Vec<Seated>>,
}

/// Where a read begins, and which way it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    /// At the first entry behind that one, or at the first of all.
    After(Option<Seq>),
    /// At the last entry before that one, or at the last of all; backwards.
    Before(Option<Seq>),
}

/// An entry of a page, with the addresses at which it is to be read.
#[derive(Debug, Clone, Copy)]
struct Row {
    entry: Seat,
    message: Option<Address>,
    info: InfoAt,
}

/// Where the circumstances of an entry are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InfoAt {
    /// It has none: it is in the queue.
    Nowhere,
    There(Address),
    Gone,
}

impl InfoAt {
    fn of(index: &Index, location: Location) -> Self {
        Address::of(index, location).map_or(Self::Gone, Self::There)
    }
}

/// Reads until no one can ask any more.
pub(crate) fn run(shared: &Arc<Shared>, jobs: &Receiver<ReadJob>) {
    let mut fetcher = Fetcher::new(shared.disk.clone(), shared.layout.clone());
    loop {
        let job = jobs.try_recv().or_else(|_| {
            // The space of a segment that is unlinked meanwhile is free only once no one has it
            // open, and it may be long before the next job.
            fetcher.close_all_but(|_| false);
            jobs.recv()
        });
        let Ok(job) = job else { return };
        let page = read(shared, &mut fetcher, &job);
        // Who asked may have lost interest.
        let _ = job.answer.send(Ok(page));
    }
}

fn read(shared: &Shared, fetcher: &mut Fetcher, job: &ReadJob) -> Vec<Seated> {
    let ReadLimit { entries, bytes } = job.limit;
    let state = shared.lock();
    let index = &state.index;
    let name = index.name(job.slot);
    // Frames are read in the order in which they lie, whichever way the read goes.
    let entries = match job.from {
        From::After(seq) => {
            let from = seq.map_or(0, |seq| seq.get().saturating_add(1));
            index.page(job.slot, job.view, from, entries, bytes)
        }
        From::Before(seq) => {
            let before = seq.map_or(u64::MAX, Seq::get);
            index.page_back(job.slot, job.view, before, entries, bytes)
        }
    };
    let address = |location| Address::of(index, location);
    let row = |(entry, info): (Seat, Option<Location>)| Row {
        entry,
        message: address(entry.location),
        info: info.map_or(InfoAt::Nowhere, |info| InfoAt::of(index, info)),
    };
    let rows: Vec<Row> = entries.into_iter().map(row).collect();
    fetcher.close_all_but(|id| index.segments.get(id).is_some());
    drop(state);
    fetcher.forget();
    let mut page = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        if let Some(address) = row.message {
            let rest = rows.iter().skip(number + 1);
            fetcher.read_ahead(address, rest.map(|row| row.entry.location));
        }
        page.extend(seat(shared, fetcher, job, &name, *row));
    }
    if matches!(job.from, From::Before(_)) {
        page.reverse();
    }
    page
}

/// Reads one entry; `None` when it has left the view meanwhile.
fn seat(
    shared: &Shared,
    fetcher: &mut Fetcher,
    job: &ReadJob,
    name: &str,
    mut row: Row,
) -> Option<Seated> {
    let seq = row.entry.seq;
    loop {
        let error = match fetch(fetcher, name, &row) {
            Ok(seated) => return Some(seated),
            Err(error) => error,
        };
        // Settled, moved on or moved to another segment since the page was made?
        let state = shared.lock();
        let (view, entry, info) = state.index.find(job.slot, seq)?;
        if view != job.view {
            return None;
        }
        let again = Row {
            entry,
            message: Address::of(&state.index, entry.location),
            info: info.map_or(InfoAt::Nowhere, |info| InfoAt::of(&state.index, info)),
        };
        drop(state);
        if (again.message, again.info) == (row.message, row.info) {
            let error = error.into_store_error(&shared.layout, seq, row.message);
            return Some(unreadable(seq, error));
        }
        row = again;
    }
}

fn fetch(fetcher: &mut Fetcher, name: &str, row: &Row) -> Result<Seated, FetchError> {
    let address = row.message.ok_or(FetchError::Gone)?;
    let message = fetcher.frame(address, message_in)?;
    let info = match row.info {
        InfoAt::Nowhere => None,
        InfoAt::Gone => return Err(FetchError::Gone),
        InfoAt::There(address) => Some(fetcher.frame(address, |frame| info_in(frame, name))?),
    };
    let (deferred, dead_letter) = match info {
        None => (None, None),
        Some(Info::Deferred(info)) => (Some(info), None),
        Some(Info::Dead(info)) => (None, Some(info)),
    };
    Ok(Seated {
        seq: Seq::new(row.entry.seq),
        message: Ok(Arc::new(message)),
        deferred,
        dead_letter,
    })
}

fn unreadable(seq: u64, error: StoreError) -> Seated {
    Seated {
        seq: Seq::new(seq),
        message: Err(error),
        deferred: None,
        dead_letter: None,
    }
}
