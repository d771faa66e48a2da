//! A file that takes space while there is some, so that a full disk can still be told what is
//! done: it is given up for settles and moves, and taken again before the next message.

use std::io;
use std::path::{Path, PathBuf};
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
    /// Takes the space; where that fails it is for later, and told then.
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
        let _ = reserve.take();
        reserve
    }

    /// Has the space set aside, taking it if it is not.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        if self.is_held() {
            return Ok(());
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
        taken
    }

    /// Whether the space is set aside.
    pub(crate) const fn is_held(&self) -> bool {
        self.held || self.bytes == 0
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the space back to the file system.
    pub(crate) fn release(&mut self) {
        self.held = false;
        let _ = self.disk.remove(&self.path);
    }
}
