//! A lease in a file: for the instances of one host, or of several that share a volume.
//!
//! The record is replaced as a whole, under a lock that is held for the moment of replacing it
//! alone. Whether a lease has run out is judged without anybody's wall clock: whoever wants it
//! looks on for the `ttl` that stands in the record, by its own monotonic clock; what has not been
//! renewed for so long is free. So neither a clock that is set nor hosts that disagree about the
//! time do any harm.
//!
//! Where there is no record, it may have been removed under a holder that does not know yet, so
//! that is looked at for a `ttl` as well; only where there never was a lease, which a missing lock
//! file tells, it is given at once. A damaged record is given to nobody: who holds the lease cannot
//! renew it and steps down, and a person removes the file.

mod record;
#[cfg(test)]
mod tests;
mod volume;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{BoxFuture, Clock};
use tokio::sync::Mutex as AsyncMutex;

use self::record::{Damage, Record};
use self::volume::{Failure, Replaced, Volume};
use crate::observation::Observation;
use crate::store::{AcquireError, Claim, Holder, LeaseStore, StoreFailure, TenureError, Token};

/// How long to wait for another process that is replacing the record.
const PACE: Duration = Duration::from_millis(5);
/// How often a record that is missing is looked for before that is said: where instances start
/// together for the first time, one of them is just writing it.
const LOOKS: u32 = 40;
/// How often the lock is tried for before it is said that another does not let go of it.
const TRIES: u32 = 200;

/// The lease in one file.
///
/// The file system must know `flock`, between hosts too where several share it: NFS from version 4
/// on does.
#[derive(Debug, Clone)]
pub struct FileLease {
    shared: Arc<Shared>,
    /// One request at a time: where the volume hangs, what was given up still hangs there, and
    /// must not be joined by a thread for each further attempt.
    turn: Arc<AsyncMutex<()>>,
}

#[derive(Debug)]
struct Shared {
    volume: Volume,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
    /// How often in a row another process had the lock.
    busy: AtomicU32,
}

#[derive(Debug)]
struct Seen {
    record: Observation<Option<Record>>,
    /// How often in a row there was none.
    missing: u32,
}

impl FileLease {
    /// The lease in the file at `path`, whose folder has to exist; beside it there will be
    /// `<path>.lock`. Nothing is read or written yet.
    pub fn new(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            volume: Volume::new(path.into()),
            clock,
            seen: Mutex::new(Seen {
                record: Observation::new(),
                missing: 0,
            }),
            busy: AtomicU32::new(0),
        };
        Self {
            shared: Arc::new(shared),
            turn: Arc::default(),
        }
    }

    /// Where the record is.
    pub fn path(&self) -> &Path {
        self.shared.volume.record()
    }

    /// Does `step` on a thread where it may block, again for as long as others are in its way.
    async fn attempt<T: Send + 'static, E: From<StoreFailure> + Send + 'static>(
        &self,
        step: impl Fn(&Shared) -> Result<Option<T>, E> + Clone + Send + 'static,
    ) -> Result<T, E> {
        loop {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let (shared, step) = (Arc::clone(&self.shared), step.clone());
            let done = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                step(&shared)
            });
            let done = done.await.map_err(|error| StoreFailure::Unreachable {
                store: self.to_string(),
                why: format!("its thread ended: {error}"),
            })?;
            if let Some(value) = done? {
                return Ok(value);
            }
            tokio::time::sleep(PACE).await;
        }
    }
}

impl fmt::Display for FileLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path().display())
    }
}

impl LeaseStore for FileLease {
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Token, AcquireError>> {
        let claim = claim.clone();
        Box::pin(self.attempt(move |shared| shared.acquire(&claim)))
    }

    fn renew<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>> {
        let claim = claim.clone();
        Box::pin(self.attempt(move |shared| {
            shared.change(&claim, token, |held| Record {
                renewals: held.renewals.saturating_add(1),
                ttl: claim.ttl,
                ..held
            })
        }))
    }

    fn release<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>> {
        let claim = claim.clone();
        Box::pin(self.attempt(move |shared| {
            shared.change(&claim, token, |held| Record {
                held: false,
                ..held
            })
        }))
    }
}

/// Each step yields `None` where another process is in its way.
impl Shared {
    fn acquire(&self, claim: &Claim) -> Result<Option<Token>, AcquireError> {
        let (bytes, record) = self.read(claim)?;
        let (unchanged, missing) = self.look(record.as_ref());
        let token = match &record {
            Some(record) => successor(record, claim, unchanged)?,
            None => match self.first(claim, unchanged)? {
                Ok(token) => token,
                Err(_) if missing < LOOKS => return Ok(None),
                Err(failure) => return Err(failure.into()),
            },
        };
        let tenure = Record {
            name: claim.name.clone(),
            owner: claim.owner.clone(),
            token,
            renewals: 0,
            ttl: claim.ttl,
            held: true,
        };
        let done = self.replace(bytes.as_deref(), &tenure, claim)?;
        Ok(done.then(|| {
            self.volume.sweep();
            token
        }))
    }

    /// Takes note of what was read: for how long it has been so, and how often it was missing.
    fn look(&self, record: Option<&Record>) -> (Duration, u32) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.missing = match record {
            Some(_) => 0,
            None => seen.missing.saturating_add(1),
        };
        let now = self.clock.monotonic();
        let unchanged = seen.record.unchanged_for(record.cloned(), now);
        (unchanged, seen.missing)
    }

    /// The token where there is no record, or that it is too early for one.
    fn first(
        &self,
        claim: &Claim,
        unchanged: Duration,
    ) -> Result<Result<Token, StoreFailure>, StoreFailure> {
        let never_was_one = self.volume.make_lock().map_err(|f| self.failure(f))?;
        let remaining = claim.ttl.saturating_sub(unchanged);
        if !never_was_one && !remaining.is_zero() {
            return Ok(Err(self.missing(remaining)));
        }
        // Greater than what stood in a record that was removed.
        Ok(Ok(self.clock.wall().as_millis().max(1)))
    }

    fn change(
        &self,
        claim: &Claim,
        token: Token,
        change: impl FnOnce(Record) -> Record,
    ) -> Result<Option<()>, TenureError> {
        let (bytes, record) = self.read(claim)?;
        let ours = record.filter(|r| r.held && r.owner == claim.owner && r.token == token);
        let changed = change(ours.ok_or(TenureError::Lost)?);
        let done = self.replace(bytes.as_deref(), &changed, claim)?;
        Ok(done.then_some(()))
    }

    fn read(&self, claim: &Claim) -> Result<(Option<Vec<u8>>, Option<Record>), StoreFailure> {
        let bytes = self.volume.read().map_err(|f| self.failure(f))?;
        let record = bytes.as_deref().map(Record::parse).transpose();
        let record = record.map_err(|damage| self.damaged(&damage))?;
        match &record {
            Some(record) if record.name != claim.name => Err(StoreFailure::Unusable {
                store: self.volume.record().display().to_string(),
                why: format!("it is the lease {:?}, not {:?}", record.name, claim.name),
                remedy: "give each lease a file of its own".to_owned(),
            }),
            _ => Ok((bytes, record)),
        }
    }

    fn replace(
        &self,
        expected: Option<&[u8]>,
        record: &Record,
        claim: &Claim,
    ) -> Result<bool, StoreFailure> {
        let replaced = self
            .volume
            .replace(expected, &record.to_text(), claim.owner.boot());
        let replaced = replaced.map_err(|f| self.failure(f))?;
        if replaced != Replaced::Busy {
            self.busy.store(0, Ordering::Relaxed);
        } else if self.busy.fetch_add(1, Ordering::Relaxed) >= TRIES {
            self.busy.store(TRIES, Ordering::Relaxed);
            return Err(self.locked());
        }
        Ok(replaced == Replaced::Done)
    }

    fn missing(&self, remaining: Duration) -> StoreFailure {
        StoreFailure::Unreachable {
            store: self.volume.record().display().to_string(),
            why: format!(
                "the file was removed; it is written again in {:.1} s, when whoever held the \
                 lease has let it go",
                remaining.as_secs_f64()
            ),
        }
    }

    fn locked(&self) -> StoreFailure {
        let lock = self.volume.lock().display();
        StoreFailure::Unusable {
            store: self.volume.record().display().to_string(),
            why: format!("another process holds {lock} and does not go on: it is halted"),
            remedy: format!("let it go on or end it; `fuser {lock}` names it"),
        }
    }

    fn damaged(&self, damage: &Damage) -> StoreFailure {
        StoreFailure::Unusable {
            store: self.volume.record().display().to_string(),
            why: format!("the file is damaged: {damage}"),
            remedy: "remove the file (not its .lock), and the lease is given again after \
                     lease_ttl"
                .to_owned(),
        }
    }

    fn failure(&self, failure: Failure) -> StoreFailure {
        let Failure { step, path, error } = failure;
        let store = self.volume.record().display().to_string();
        let why = format!("cannot {step} {}: {error}", path.display());
        let folder = self.volume.folder().display();
        let remedy = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                format!("create the folder {folder}, or mount the volume")
            }
            io::ErrorKind::PermissionDenied => {
                format!("let the bridge's user read and write in {folder}")
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("mount the volume of {folder} so that it can be written")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!("free some space on the volume of {folder}")
            }
            io::ErrorKind::IsADirectory => "name a file".to_owned(),
            io::ErrorKind::Unsupported => "use a file system that knows flock".to_owned(),
            _ => return StoreFailure::Unreachable { store, why },
        };
        StoreFailure::Unusable { store, why, remedy }
    }
}

/// The token of the tenure after that of a record which has stood `unchanged` for so long.
fn successor(record: &Record, claim: &Claim, unchanged: Duration) -> Result<Token, AcquireError> {
    let remaining = record.ttl.saturating_sub(unchanged);
    if record.held && record.owner != claim.owner && !remaining.is_zero() {
        return Err(AcquireError::Held(Holder {
            owner: record.owner.clone(),
            token: record.token,
            remaining,
        }));
    }
    Ok(record.token.saturating_add(1))
}
