//! Dead letters on their way into a bridge, as an export of it or of another one has them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_core::{BindingKey, BoxFuture, Cause, DeadLetterInfo, MessageId, StoredMessage};
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Control, ControlError, DeadLetterId, Shared};
use crate::lane::{Came, NotTaken, Watched};

/// How many imports, and how many bytes of them, are on their way to the store at a time; what
/// arrives meanwhile is made durable behind them.
const AT_ONCE: usize = 256;
const BYTES_AT_ONCE: u64 = 1 << 20;
/// Of how many imports is known that they were made, for one that is made again.
const REMEMBERED: usize = 65_536;

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
    /// The bridge stops: it was not kept.
    Stopping,
    /// The bridge stopped before the store had answered: the journal knows whether it was kept.
    Unanswered,
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
            Self::Unanswered => "unanswered",
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
    /// Whether an import is under way.
    under_way: bool,
    /// Those that were deleted meanwhile: it may not know yet that it has made one.
    gone: HashSet<DeadLetterId>,
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
        if recent.gone.remove(&made) {
            return;
        }
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
        let mut recent = self.lock();
        let known = recent.of.contains_key(letter);
        recent.forget(letter);
        if !known && recent.under_way && recent.gone.len() < REMEMBERED {
            recent.gone.insert(letter.clone());
        }
    }

    /// An import begins, or has ended; there is one at a time.
    fn set_under_way(&self, under_way: bool) {
        let mut recent = self.lock();
        recent.under_way = under_way;
        recent.gone = HashSet::new();
    }
}

impl Control {
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
            shared.imports.set_under_way(true);
            let mut pipeline = Pipeline::new(shared.clone(), all.len());
            for import in all {
                pipeline.begin(import).await;
            }
            let outcomes = pipeline.ended().await;
            shared.imports.set_under_way(false);
            Ok(outcomes)
        })
        .await
    }
}

/// Imports of which several are on their way to the store at a time, so that they share what it
/// costs to make one durable: in the order in which they were given, as are their outcomes.
struct Pipeline {
    shared: Arc<Shared>,
    /// One for each on its way: those that have not settled.
    share: Arc<Semaphore>,
    under_way: FuturesOrdered<BoxFuture<'static, Ended>>,
    /// Those whose puts were made.
    posted: HashSet<What>,
    bytes: u64,
    outcomes: Vec<ImportOutcome>,
}

/// What came of one, and what was on its way, if its put was made.
struct Ended {
    outcome: ImportOutcome,
    posted: Option<(What, u64)>,
}

/// An import whose put was made.
struct Posted {
    what: What,
    size: u64,
    watched: Watched,
}

impl Pipeline {
    fn new(shared: Arc<Shared>, imports: usize) -> Self {
        Self {
            shared,
            share: Arc::new(Semaphore::new(AT_ONCE)),
            under_way: FuturesOrdered::new(),
            posted: HashSet::new(),
            bytes: 0,
            outcomes: Vec::with_capacity(imports),
        }
    }

    /// Makes the put of one import as soon as there is place for it, unless it was made before or
    /// the bridge stops.
    async fn begin(&mut self, import: Import) {
        let Import {
            binding,
            mut stored,
            info,
        } = import;
        let size = stored.message.size();
        let what = (binding, stored.id);
        while self.under_way.len() >= AT_ONCE
            || (self.bytes > 0 && self.bytes + size > BYTES_AT_ONCE)
            // The same once more: what came of the first decides.
            || self.posted.contains(&what)
        {
            self.one_ends().await;
        }
        stored.cause = Some(Cause {
            id: stored.id,
            redrives: stored.redrives(),
        });
        stored.id = self.shared.new_id();
        let stored = Arc::new(stored);
        let posted = loop {
            match post(&self.shared, &self.share, &what, &stored, &info).await {
                // Those that the store failed on are held until it works again: so is this one.
                Err(ImportOutcome::StoreFailed) if !self.posted.is_empty() => self.one_ends().await,
                posted => break posted,
            }
        };
        let ended: BoxFuture<'static, Ended> = match posted {
            Ok(watched) => {
                self.bytes += size;
                self.posted.insert(what.clone());
                let posted = Posted {
                    what,
                    size,
                    watched,
                };
                Box::pin(posted.ended(self.shared.clone()))
            }
            Err(outcome) => Box::pin(std::future::ready(Ended {
                outcome,
                posted: None,
            })),
        };
        self.under_way.push_back(ended);
    }

    /// Waits for the end of the one that was begun first.
    async fn one_ends(&mut self) {
        let Some(Ended { outcome, posted }) = self.under_way.next().await else {
            return;
        };
        self.outcomes.push(outcome);
        if let Some((what, size)) = posted {
            self.posted.remove(&what);
            self.bytes = self.bytes.saturating_sub(size);
        }
    }

    /// What came of each.
    async fn ended(mut self) -> Vec<ImportOutcome> {
        while !self.under_way.is_empty() {
            self.one_ends().await;
        }
        self.outcomes
    }
}

/// Makes the put of one import, unless it was made before or the bridge stops.
async fn post(
    shared: &Shared,
    share: &Arc<Semaphore>,
    what: &What,
    stored: &Arc<StoredMessage>,
    info: &DeadLetterInfo,
) -> Result<Watched, ImportOutcome> {
    if let Some(made) = shared.imports.made(what) {
        return Err(ImportOutcome::AlreadyImported(made));
    }
    let lane = shared.lanes.get(&what.0);
    let lane = lane.ok_or(ImportOutcome::BindingNotFound)?;
    let share = tokio::select! {
        biased;
        () = shared.stopping.cancelled() => return Err(ImportOutcome::Stopping),
        share = share.clone().acquire_owned() => share,
    };
    // The semaphore is never closed; if it were, the bridge would stop.
    let share = share.map_err(|_| ImportOutcome::Stopping)?;
    let watched = lane.watch(stored.id);
    let (mut jobs, _) = shared.jobs_of(stored, share, 1);
    let job = jobs.pop().ok_or(ImportOutcome::StoreFailed)?;
    match lane.import(job, info.clone()) {
        Ok(()) => Ok(watched),
        Err(NotTaken::Full) => Err(ImportOutcome::DeadLettersFull),
        Err(NotTaken::StoreFails) => Err(ImportOutcome::StoreFailed),
    }
}

impl Posted {
    /// What came of it. A put that was made is answered, also in a bridge that stops; only of a
    /// store that does not answer in the time for that nothing is known.
    async fn ended(self, shared: Arc<Shared>) -> Ended {
        let came = tokio::select! {
            biased;
            came = self.watched.came() => came,
            () = shared.given_up.cancelled() => None,
        };
        let outcome = match came {
            Some(Came::Dead(seq, _)) => {
                let made = DeadLetterId {
                    binding: self.what.0.clone(),
                    seq,
                };
                shared.imports.remember(self.what.clone(), made.clone());
                ImportOutcome::Imported(made)
            }
            Some(_) => ImportOutcome::StoreFailed,
            None => ImportOutcome::Unanswered,
        };
        Ended {
            outcome,
            posted: Some((self.what, self.size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_that_is_deleted_before_its_import_knows_of_it_is_not_remembered() {
        let imports = Imports::default();
        let letter = |text: &str| text.parse::<DeadLetterId>().unwrap();
        let made_of = |n: u8| (letter("a~b~1").binding, MessageId::from_bytes([n; 16]));
        imports.set_under_way(true);
        imports.forget(&letter("a~b~7"));
        imports.remember(made_of(7), letter("a~b~7"));
        imports.remember(made_of(8), letter("a~b~8"));
        imports.set_under_way(false);
        assert_eq!(imports.made(&made_of(7)), None);
        assert_eq!(imports.made(&made_of(8)), Some(letter("a~b~8")));
        // What an import made is deleted later on.
        imports.forget(&letter("a~b~8"));
        assert_eq!(imports.made(&made_of(8)), None);
    }
}
