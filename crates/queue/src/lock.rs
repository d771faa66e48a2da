//! One process per data folder: the second one is told who the first is.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::OpenError;
use crate::disk::{FILE_MODE, open_plain};

/// Who looks whether a folder is held holds it for an instant: so often a start tries, with a pause
/// in between. Times and no time, so that a machine that stands still meanwhile costs none of them.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

const UNNAMED: &str = "a process that has not said which";

/// Who works in a data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// No one.
    Nobody,
    /// The process that says this of itself.
    Process(String),
    /// That cannot be told, for this reason.
    Unknown(String),
}

/// Held for as long as the journal is open; the system gives it back when the process dies.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
    /// The folder itself, so that a lock file that someone deletes lets no second process in.
    _folder: Option<File>,
}

impl FolderLock {
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io {
            action: "lock",
            place: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(FILE_MODE);
        let mut file = open_plain(&mut options, path).map_err(failed)?;
        // Some network file systems lock no folders: then the lock file has to do.
        let folder = path.parent().and_then(|folder| File::open(folder).ok());
        let of_folder = folder.as_ref().map(lock);
        match [lock(&file), of_folder.unwrap_or(Ok(()))] {
            [Err(rustix::io::Errno::WOULDBLOCK), _] | [_, Err(rustix::io::Errno::WOULDBLOCK)] => {
                return Err(OpenError::Locked {
                    place: path.to_owned(),
                    holder: name_in(&mut file),
                });
            }
            [Err(errno), _] => return Err(failed(errno.into())),
            [Ok(()), _] => {}
        }
        let host = hostname::get().map_or_else(
            |_| "an unnamed host".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        let holder = format!("process {} on {host}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(holder.as_bytes()))
            .map_err(failed)?;
        Ok(Self {
            _file: file,
            _folder: folder,
        })
    }
}

/// Whether the journal of the lock file at `path` is there, and ours: every file is its maker's
/// alone to read.
pub(crate) fn usable(path: &Path, folder: &Path) -> Result<(), OpenError> {
    let file = std::fs::symlink_metadata(path).map_err(|source| match source.kind() {
        // The folder itself may be missing: that is said of it.
        std::io::ErrorKind::NotFound if folder.is_dir() => OpenError::NotThere {
            place: folder.to_owned(),
        },
        _ => OpenError::Io {
            action: "look into",
            place: folder.to_owned(),
            source,
        },
    })?;
    let own = rustix::process::geteuid().as_raw();
    if file.uid() == own {
        return Ok(());
    }
    Err(OpenError::OfAnother {
        place: path.to_owned(),
        owner: file.uid(),
        own,
    })
}

fn lock(file: &File) -> rustix::io::Result<()> {
    let attempt = || flock(file, FlockOperation::NonBlockingLockExclusive);
    for _ in 1..TRIES {
        match attempt() {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::park_timeout(PAUSE),
            result => return result,
        }
    }
    attempt()
}

/// What the holder has written of itself.
fn name_in(file: &mut File) -> String {
    let mut name = String::new();
    // Who it is, is only a help: that it is held stands without it.
    let known = Read::by_ref(file).take(512).read_to_string(&mut name);
    let name = name.trim();
    if known.is_ok() && !name.is_empty() {
        name.to_owned()
    } else {
        UNNAMED.to_owned()
    }
}

/// Who holds the folder of the lock file at `path`. Asks for a shared lock, which can be had also
/// where nothing can be written, and gives it back at once.
pub(crate) fn holder(path: &Path) -> Holder {
    let look = |file: &File| flock(file, FlockOperation::NonBlockingLockShared);
    let mut file = match open_plain(OpenOptions::new().read(true), path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Holder::Unknown(error.to_string()),
    };
    // Where folders cannot be locked the lock file has to do.
    let folder = path.parent().and_then(|folder| File::open(folder).ok());
    let of_folder = folder.as_ref().map_or(Ok(()), look);
    match [file.as_ref().map_or(Ok(()), look), of_folder] {
        [Err(rustix::io::Errno::WOULDBLOCK), _] | [_, Err(rustix::io::Errno::WOULDBLOCK)] => {
            let name = file.as_mut().map(name_in);
            Holder::Process(name.unwrap_or_else(|| UNNAMED.to_owned()))
        }
        [Err(errno), _] => Holder::Unknown(errno.to_string()),
        [Ok(()), _] => Holder::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_told_who_holds_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = FolderLock::take(&path).unwrap();
        let second = FolderLock::take(&path).unwrap_err().to_string();
        let holder = format!("process {} on", std::process::id());
        assert!(second.contains(&holder), "{second}");
        drop(first);
        FolderLock::take(&path).unwrap();
    }

    #[test]
    fn a_journal_that_is_not_there_or_is_anothers_is_not_usable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let usable = |folder: &Path| super::usable(&folder.join("lock"), folder);
        let nowhere = usable(&folder.path().join("nowhere"));
        assert!(matches!(nowhere, Err(OpenError::Io { .. })), "{nowhere:?}");
        let empty = usable(folder.path());
        assert!(
            matches!(empty, Err(OpenError::NotThere { .. })),
            "{empty:?}"
        );
        drop(FolderLock::take(&path).unwrap());
        usable(folder.path()).unwrap();
        // Root can give a file away, and for everyone else those of root are another's.
        let others = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
            usable(folder.path())
        } else {
            super::usable(Path::new("/etc/passwd"), Path::new("/etc"))
        };
        assert!(
            matches!(others, Err(OpenError::OfAnother { .. })),
            "{others:?}"
        );
    }

    #[test]
    fn looking_who_holds_a_folder_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert_eq!(holder(&path), Holder::Nobody);
        assert!(!path.exists());
        let first = FolderLock::take(&path).unwrap();
        let Holder::Process(name) = holder(&path) else {
            panic!("it is held");
        };
        assert!(name.contains(&std::process::id().to_string()), "{name}");
        drop(first);
        assert_eq!(
            holder(&path),
            Holder::Nobody,
            "a name that is left says nothing"
        );
    }

    #[test]
    fn a_start_waits_out_someone_who_only_looks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        drop(FolderLock::take(&path).unwrap());
        let looking = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while looking.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(!matches!(holder(&path), Holder::Unknown(_)));
                }
            });
            for _ in 0..200 {
                drop(FolderLock::take(&path).unwrap());
            }
            looking.store(false, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn a_lock_file_that_is_deleted_lets_no_second_process_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _first = FolderLock::take(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(holder(&path), Holder::Process(_)));
        let second = FolderLock::take(&path);
        assert!(
            matches!(second, Err(OpenError::Locked { .. })),
            "{second:?}"
        );
    }
}
