//! The reader: a thread of its own, so that reading a disk never holds up an async runtime.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bridge_core::{GivenUp, ReadFrom, ReadLimit, Seated, Seq, StoreError, View};

use crate::fetch::{Address, FetchError, Fetcher, Info, info_in, message_in};
use crate::index::{Index, SlotId, behind};
use crate::run::{Location, Seat};
use crate::shared::{Answer, Shared};

/// What the reader is asked for.
#[derive(Debug)]
pub(crate) enum Job {
    Read(ReadJob),
    CountDeadLetters {
        slot: SlotId,
        which: GivenUp,
        answer: Answer<u64>,
    },
}

/// One read of one view.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) slot: SlotId,
    pub(crate) what: Wanted,
    pub(crate) limit: ReadLimit,
    pub(crate) answer: Answer<Vec<Seated>>,
}

/// Of what a page is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// What comes behind an entry of a view.
    View(View, Option<Seq>),
    DeadLetters(GivenUp, ReadFrom),
}

impl Wanted {
    const fn view(self) -> View {
        match self {
            Self::View(view, _) => view,
            Self::DeadLetters(..) => View::DeadLetters,
        }
    }

    /// What is left when those from `first` to `last` are done with.
    const fn but(self, first: Seq, last: Seq) -> Self {
        match self {
            Self::View(view, _) => Self::View(view, Some(last)),
            Self::DeadLetters(which, ReadFrom::After(_)) => {
                Self::DeadLetters(which, ReadFrom::After(Some(last)))
            }
            Self::DeadLetters(which, ReadFrom::Before(_)) => {
                Self::DeadLetters(which, ReadFrom::Before(Some(first)))
            }
        }
    }
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
pub(crate) fn run(shared: &Arc<Shared>, jobs: &Receiver<Job>) {
    let mut fetcher = Fetcher::new(shared.disk.clone(), shared.layout.clone());
    loop {
        let job = jobs.try_recv().or_else(|_| {
            // The space of a segment that is unlinked meanwhile is free only once no one has it
            // open, and it may be long before the next job.
            fetcher.close_all_but(|_| false);
            jobs.recv()
        });
        // Who asked may have lost interest.
        match job {
            Ok(Job::Read(job)) => {
                let page = read(shared, &mut fetcher, &job);
                let _ = job.answer.send(Ok(page));
            }
            Ok(Job::CountDeadLetters {
                slot,
                which,
                answer,
            }) => {
                let count = shared.lock().index.count_dead_letters(slot, &which);
                let _ = answer.send(Ok(count));
            }
            Err(_) => return,
        }
    }
}

/// Reads a page, which is empty only when nothing is left.
fn read(shared: &Shared, fetcher: &mut Fetcher, job: &ReadJob) -> Vec<Seated> {
    let mut what = job.what;
    loop {
        let (rows, page) = page(shared, fetcher, job, what);
        match (rows.first(), rows.last()) {
            // All of them have left the view meanwhile.
            (Some(first), Some(last)) if page.is_empty() => {
                what = what.but(Seq::new(first.entry.seq), Seq::new(last.entry.seq));
            }
            _ => return page,
        }
    }
}

/// The rows of a page, and those that were still there when they were read.
fn page(
    shared: &Shared,
    fetcher: &mut Fetcher,
    job: &ReadJob,
    what: Wanted,
) -> (Vec<Row>, Vec<Seated>) {
    let ReadLimit { entries, bytes } = job.limit;
    let state = shared.lock();
    let index = &state.index;
    let name = index.name(job.slot);
    // Frames are read in the order in which they lie, whichever way the read goes.
    let entries = match what {
        Wanted::View(view, after) => index.page(job.slot, view, behind(after), entries, bytes),
        Wanted::DeadLetters(which, from) => {
            index.dead_letters(job.slot, which, from, entries, bytes)
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
    if matches!(what, Wanted::DeadLetters(_, ReadFrom::Before(_))) {
        page.reverse();
    }
    (rows, page)
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
        if view != job.what.view() {
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
