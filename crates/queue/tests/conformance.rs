//! The conformance suite of stores, on a real disk.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use bridge_core::Store;
use bridge_queue::{Journal, JournalOptions};
use bridge_testkit::store_conformance::StoreUnderTest;
use tempfile::TempDir;

struct OnDisk {
    journal: Option<Journal>,
    folder: TempDir,
}

fn on_disk() -> OnDisk {
    let folder = tempfile::tempdir().unwrap();
    OnDisk {
        journal: Some(open(&folder)),
        folder,
    }
}

fn open(folder: &TempDir) -> Journal {
    Journal::open(folder.path(), JournalOptions::default())
        .unwrap()
        .0
}

impl StoreUnderTest for OnDisk {
    fn store(&self) -> &dyn Store {
        self.journal.as_ref().unwrap()
    }

    fn reopen(&mut self) -> bool {
        self.journal = None;
        self.journal = Some(open(&self.folder));
        true
    }
}

bridge_testkit::store_conformance_tests!(on_disk());
