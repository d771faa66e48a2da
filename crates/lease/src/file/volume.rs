//! The files of a lease: reading a record, and replacing it by another as one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use super::record::LARGEST;

/// For the bridge's own user; its group may look.
const MODE: u32 = 0o640;

/// Where the record of a lease is, and what belongs to it.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    record: PathBuf,
    lock: PathBuf,
}

/// What became of an attempt to replace a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    Done,
    /// Another process is at it in this moment.
    Busy,
    /// It was not as expected any more.
    Changed,
}

/// Which step failed at which file.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: &'static str,
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
}

fn failing(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure { step, path, error }
}

impl Volume {
    pub(super) fn new(record: PathBuf) -> Self {
        let lock = beside(&record, ".lock");
        Self { record, lock }
    }

    pub(super) fn record(&self) -> &Path {
        &self.record
    }

    pub(super) fn lock(&self) -> &Path {
        &self.lock
    }

    pub(super) fn folder(&self) -> &Path {
        match self.record.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// The record's bytes, and a few more when it is too long; `None` when there is none.
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, Failure> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX).saturating_add(1);
        match File::open(&self.record).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            // Without the folder nobody can say that there is no record.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder().is_dir() => {
                Ok(None)
            }
            Err(error) => Err(failing("read", &self.record)(error)),
        }
    }

    /// Makes the lock file; says whether there was none, as it is where no lease ever was.
    pub(super) fn make_lock(&self) -> Result<bool, Failure> {
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&self.lock);
        match created {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failing("create", &self.lock)(error)),
        }
    }

    /// Replaces the record by `text` if it is still as `expected`, so that after a crash at any
    /// moment it is the one or the other.
    ///
    /// What takes long is done without the lock: a process that is stopped while it holds it
    /// keeps all others from the lease until it is killed, so that it is held for as short a time
    /// as can be.
    pub(super) fn replace(
        &self,
        expected: Option<&[u8]>,
        text: &str,
        who: Uuid,
    ) -> Result<Replaced, Failure> {
        let fresh = beside(&self.record, &format!(".{who}.new"));
        let replaced = write_whole(&fresh, text)
            .and_then(|()| self.swap(expected, &fresh))
            .inspect_err(|_| drop(fs::remove_file(&fresh)))?;
        if replaced != Replaced::Done {
            return match fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(failing("remove", &fresh)(error))
                }
                Ok(()) | Err(_) => Ok(replaced),
            };
        }
        let folder = self.folder();
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(failing("sync", folder))?;
        Ok(Replaced::Done)
    }

    fn swap(&self, expected: Option<&[u8]>, fresh: &Path) -> Result<Replaced, Failure> {
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(&self.lock)
            .map_err(failing("open", &self.lock))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Replaced::Busy),
            Err(error) => return Err(failing("lock", &self.lock)(error.into())),
        }
        if self.read()?.as_deref() != expected {
            return Ok(Replaced::Changed);
        }
        match fs::rename(fresh, &self.record) {
            Ok(()) => Ok(Replaced::Done),
            // Swept away by another, whose tenure has just begun.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Replaced::Changed),
            Err(error) => Err(failing("replace", &self.record)(error)),
        }
    }

    /// Removes what processes that were killed while they wrote have left.
    pub(super) fn sweep(&self) {
        let Some(name) = self.record.file_name().and_then(|name| name.to_str()) else {
            return;
        };
        // What cannot be removed costs a few bytes, and is tried again with the next tenure.
        for entry in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            let left = entry.file_name();
            let left = left.to_str().and_then(|left| left.strip_prefix(name));
            let boot = left.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".new"));
            if boot.is_some_and(|boot| Uuid::try_parse(boot).is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .open(path);
    let mut file = file.map_err(failing("create", path))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failing("write", path))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
