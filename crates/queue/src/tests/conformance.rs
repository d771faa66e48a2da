//! The conformance suite, on a disk that can be full.

use bridge_core::Store;
use bridge_testkit::store_conformance::StoreUnderTest;

use super::*;

struct OnSimDisk {
    disk: SimDisk,
    journal: Option<Journal>,
}

fn on_sim_disk() -> OnSimDisk {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    OnSimDisk {
        disk,
        journal: Some(journal),
    }
}

impl StoreUnderTest for OnSimDisk {
    fn store(&self) -> &dyn Store {
        self.journal.as_ref().unwrap()
    }

    fn reopen(&mut self) -> bool {
        self.journal = None;
        let (journal, report) = open(&self.disk);
        assert_eq!(report.damage, []);
        self.journal = Some(journal);
        true
    }

    fn set_failing(&mut self, failing: bool) -> bool {
        self.disk.set_capacity(failing.then_some(0));
        true
    }
}

bridge_testkit::store_conformance_tests!(on_sim_disk());
