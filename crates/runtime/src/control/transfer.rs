//! Dead letters on their way out of a bridge and into one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bridge_core::{BindingKey, Cause, DeadLetterInfo, MessageId, StoreError, StoredMessage};
use tokio::sync::OwnedSemaphorePermit;

use super::scan::{Scan, Way};
use super::{Control, ControlError, DeadLetter, DeadLetterFilter, DeadLetterId, Shared};
use crate::lane::{Came, NotTaken, Watched};

/// Of how many imports is known that they were made, for one that is made again.
const REMEMBERED: usize = 65_536;
/// How long a bridge that stops waits for the store's answer to an import.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Dead letters one after the other, whole, the oldest first: those that are there when it begins.
#[derive(Debug)]
pub struct Export {
    shared: Weak<Shared>,
    filter: DeadLetterFilter,
    scan: Scan,
}

/// One entry of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    /// A dead letter.
    DeadLetter(DeadLetter),
    /// One that cannot be read: no one knows whether the filter takes it.
    Unreadable(DeadLetterId, StoreError),
}

/// A dead letter that was exported, to be kept again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// At which binding.
    pub binding: BindingKey,
    /// The message as it was exported.
    pub stored: StoredMessage,
    /// Why it was given up on.
    pub info: DeadLetterInfo,
}

/// The right to import, which one has at a time; its drop gives it back.
#[derive(Debug)]
pub struct Importer {
    control: Control,
    turn: OwnedSemaphorePermit,
}

/// What came of one import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// It is a dead letter, with a new message id that names the exported one as its cause.
    Imported(DeadLetterId),
    /// The same message was imported at the same binding before, by this process, and not deleted
    /// since: nothing was done.
    AlreadyImported(DeadLetterId),
    /// The running configuration has no such binding.
    BindingNotFound,
    /// The binding's dead letters have no room for it.
    DeadLettersFull,
    /// The store fails, or can never hold a message of its size.
    StoreFailed,
    /// The bridge stops: it was not kept. Only where the store did not answer in time any more it
    /// may have been.
    Stopping,
}

impl ImportOutcome {
    /// The word for it in the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Imported(_) => "imported",
            Self::AlreadyImported(_) => "already_imported",
            Self::BindingNotFound => "binding_not_found",
            Self::DeadLettersFull => "dead_letters_full",
            Self::StoreFailed => "store_failed",
            Self::Stopping => "stopping",
        }
    }
}

type What = (BindingKey, MessageId);

/// The latest imports.
#[derive(Debug, Default)]
pub(super) struct Imports(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    made: HashMap<What, DeadLetterId>,
    /// What each of these was made of.
    of: HashMap<DeadLetterId, What>,
    /// Those that were made, the latest last; some of them are forgotten.
    in_order: VecDeque<DeadLetterId>,
}

impl Recent {
    fn forget(&mut self, letter: &DeadLetterId) {
        if let Some(what) = self.of.remove(letter) {
            self.made.remove(&what);
        }
    }
}

impl Imports {
    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made(&self, what: &What) -> Option<DeadLetterId> {
        self.lock().made.get(what).cloned()
    }

    fn remember(&self, what: What, made: DeadLetterId) {
        let mut recent = self.lock();
        if recent.in_order.len() >= REMEMBERED
            && let Some(oldest) = recent.in_order.pop_front()
        {
            recent.forget(&oldest);
        }
        recent.in_order.push_back(made.clone());
        recent.of.insert(made.clone(), what.clone());
        recent.made.insert(what, made);
    }

    /// That dead letter is deleted: what it was made of may be imported again. One that is
    /// redriven is still somewhere.
    pub(super) fn forget(&self, letter: &DeadLetterId) {
        self.lock().forget(letter);
    }
}

impl Export {
    /// The next one that the filter takes; a few are in memory at a time.
    pub async fn next(&mut self) -> Result<Option<Exported>, ControlError> {
        let shared = self.shared.upgrade();
        let shared = shared.filter(|shared| !shared.stopping.is_cancelled());
        let shared = shared.ok_or(ControlError::Stopping)?;
        while let Some((binding, seated)) = self.scan.next(&*shared.store).await? {
            let id = DeadLetterId {
                binding: binding.clone(),
                seq: seated.seq,
            };
            match DeadLetter::of(&binding, seated) {
                Ok(letter) if self.filter.takes(&letter.stored, &letter.info) => {
                    return Ok(Some(Exported::DeadLetter(letter)));
                }
                Ok(_) => {}
                Err(failure) => return Ok(Some(Exported::Unreadable(id, failure))),
            }
        }
        Ok(None)
    }
}

impl Control {
    /// Begins an export of what `filter` takes.
    pub async fn export(&self, filter: DeadLetterFilter) -> Result<Export, ControlError> {
        let shared = self.running()?;
        let scan = Scan::new(Way::OldestFirst, shared.bindings(&filter));
        Ok(Export {
            shared: Arc::downgrade(&shared),
            scan: scan.up_to_now(&*shared.store).await?,
            filter,
        })
    }

    /// The turn of an import, if no other one is under way: to be had before its lines are read,
    /// so that those of one alone are in memory.
    pub fn importer(&self) -> Result<Importer, ControlError> {
        let turn = self.running()?.importing.clone().try_acquire_owned();
        Ok(Importer {
            control: self.clone(),
            turn: turn.map_err(|_| ControlError::ImportUnderWay)?,
        })
    }
}

impl Importer {
    /// Keeps dead letters that were exported, here or at another bridge, in the order in which
    /// they are given, and says what came of each; at most [`MOST_AT_ONCE`] in one call. What was
    /// begun is done, also when the future is dropped, and a call that is made again for that
    /// reason changes nothing, unless the bridge was started anew meanwhile. A stop ends it: none
    /// is begun any more.
    ///
    /// [`MOST_AT_ONCE`]: super::MOST_AT_ONCE
    pub async fn import(self, all: Vec<Import>) -> Result<Vec<ImportOutcome>, ControlError> {
        let Self { control, turn } = self;
        let shared = control.running()?;
        let work = shared.clone();
        work.detached(all.len(), async move {
            let _turn = turn;
            let mut outcomes = Vec::with_capacity(all.len());
            for import in all {
                outcomes.push(match begin_import(&shared, import).await {
                    Ok(posted) => posted.ended(&shared).await,
                    Err(outcome) => outcome,
                });
            }
            Ok(outcomes)
        })
        .await
    }
}

/// An import whose put was made.
struct Posted {
    what: What,
    watched: Watched,
}

/// What an import came to, or the put that it waits for.
type Begun = Result<Posted, ImportOutcome>;

/// Makes the put of one import, unless it was made before or the bridge stops.
async fn begin_import(shared: &Arc<Shared>, import: Import) -> Begun {
    let Import {
        binding,
        mut stored,
        info,
    } = import;
    let what = (binding, stored.id);
    if let Some(made) = shared.imports.made(&what) {
        return Err(ImportOutcome::AlreadyImported(made));
    }
    let Some(lane) = shared.lanes.get(&what.0) else {
        return Err(ImportOutcome::BindingNotFound);
    };
    stored.cause = Some(Cause {
        id: stored.id,
        redrives: stored.redrives(),
    });
    stored.id = shared.new_id();
    let stored = Arc::new(stored);
    let watched = lane.watch(stored.id);
    let share = tokio::select! {
        biased;
        () = shared.stopping.cancelled() => return Err(ImportOutcome::Stopping),
        share = shared.by_hand.clone().acquire_owned() => share,
    };
    // The semaphore is never closed; if it were, the bridge would stop.
    let share = share.map_err(|_| ImportOutcome::Stopping)?;
    let (mut jobs, _) = shared.jobs_of(&stored, share, 1);
    let job = jobs.pop().ok_or(ImportOutcome::StoreFailed)?;
    match lane.import(job, info) {
        Ok(()) => Ok(Posted { what, watched }),
        Err(NotTaken::Full) => Err(ImportOutcome::DeadLettersFull),
        Err(NotTaken::StoreFails) => Err(ImportOutcome::StoreFailed),
    }
}

impl Posted {
    /// What came of it. A put that was made is answered, also in a bridge that stops; only of a
    /// store that does not answer then nothing is known.
    async fn ended(self, shared: &Shared) -> ImportOutcome {
        let given_up = async {
            shared.stopping.cancelled().await;
            tokio::time::sleep(ANSWERED_WITHIN).await;
        };
        let came = tokio::select! {
            biased;
            came = self.watched.came() => came,
            () = given_up => None,
        };
        match came {
            Some(Came::Dead(seq, _)) => {
                let made = DeadLetterId {
                    binding: self.what.0.clone(),
                    seq,
                };
                shared.imports.remember(self.what, made.clone());
                ImportOutcome::Imported(made)
            }
            Some(_) => ImportOutcome::StoreFailed,
            None => ImportOutcome::Stopping,
        }
    }
}
