//! A file that takes space while there is some, so that a full disk can still be told what is
//! done: it is given up for settles and moves, and taken again before the next message.

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Access, Disk};

#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    bytes: u64,
    held: bool,
}

impl Reserve {
    /// Takes the space; on a full disk that is for later.
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf, bytes: u64) -> Self {
        let mut reserve = Self {
            disk,
            path,
            bytes,
            held: false,
        };
        let there = reserve
            .disk
            .open(&reserve.path, Access::Read)
            .and_then(|file| file.len());
        reserve.held = there.is_ok_and(|len| len == bytes);
        reserve.take();
        reserve
    }

    /// Whether the space is set aside, taking it if it is not.
    pub(crate) fn take(&mut self) -> bool {
        if self.is_held() {
            return true;
        }
        // A file of another length is of other options, or was not finished.
        let _ = self.disk.remove(&self.path);
        let taken = self
            .disk
            .create(&self.path)
            .and_then(|file| file.allocate(self.bytes));
        self.held = taken.is_ok();
        if !self.held {
            let _ = self.disk.remove(&self.path);
        }
        self.held
    }

    /// Whether the space is set aside.
    pub(crate) const fn is_held(&self) -> bool {
        self.held || self.bytes == 0
    }

    /// Gives the space back to the file system.
    pub(crate) fn release(&mut self) {
        self.held = false;
        let _ = self.disk.remove(&self.path);
    }
}
