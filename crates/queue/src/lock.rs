//! One process per data folder: the second one is told who the first is.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::OpenError;

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
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        // Some network file systems lock no folders: then the lock file has to do.
        let folder = path.parent().and_then(|folder| File::open(folder).ok());
        let of_folder = folder.as_ref().map(lock);
        match [lock(&file), of_folder.unwrap_or(Ok(()))] {
            [Err(rustix::io::Errno::WOULDBLOCK), _] | [_, Err(rustix::io::Errno::WOULDBLOCK)] => {
                let mut holder = String::new();
                // Who it is, is only a help: the error stands without it.
                let known = Read::by_ref(&mut file)
                    .take(512)
                    .read_to_string(&mut holder)
                    .is_ok();
                let holder = holder.trim();
                return Err(OpenError::Locked {
                    place: path.to_owned(),
                    holder: if known && !holder.is_empty() {
                        holder.to_owned()
                    } else {
                        "a process that has not said which".to_owned()
                    },
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

fn lock(file: &File) -> rustix::io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
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
    fn a_lock_file_that_is_deleted_lets_no_second_process_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _first = FolderLock::take(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = FolderLock::take(&path);
        assert!(
            matches!(second, Err(OpenError::Locked { .. })),
            "{second:?}"
        );
    }
}
