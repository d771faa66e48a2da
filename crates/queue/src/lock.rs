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
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
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
            Err(errno) => return Err(failed(errno.into())),
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
        Ok(Self { _file: file })
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
}
