//! A disk that is really full: a small file system in memory, mounted for one process.
//!
//! That takes a mount namespace of its own, by root or by a user who may have one. Where neither is
//! allowed this test says so and does nothing; `src/tests/faults.rs` shows the same on a simulated
//! disk, always.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail loudly"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{
    BindingKey, Destination, Message, MessageId, Name, Placement, ReadLimit, Seq, Store as _,
    StoreError, StoredMessage, Timestamp, Topic, View,
};
use bridge_queue::{Journal, JournalOptions};
use futures_executor::block_on;

const FOLDER: &str = "BRIDGE_QUEUE_FULL_DISK_TEST_FOLDER";
const THIS: &str = "i14_a_disk_that_is_really_full_is_back_pressure_and_drains";
const DONE: &str = "the full disk was drained";

fn key() -> BindingKey {
    "route/binding".parse().unwrap()
}

fn options() -> JournalOptions {
    JournalOptions {
        segment_bytes: 256 << 10,
        slack_bytes: 256 << 10,
        reserve_bytes: 256 << 10,
        ..JournalOptions::default()
    }
}

fn try_put(journal: &Journal, number: u64) -> Result<Seq, StoreError> {
    let stored = StoredMessage {
        id: MessageId::new(Timestamp::from_millis(number), [0; 10]),
        cause: None,
        session: Name::parse("plant").unwrap(),
        received: Timestamp::from_millis(number),
        message: Message::new(Topic::parse("t").unwrap(), vec![7; 1000]),
    };
    let to = Destination {
        binding: key(),
        placement: Placement::Queue,
    };
    block_on(journal.put(Arc::new(stored), vec![to]))
}

/// Puts until the disk is full.
fn fill(journal: &Journal) -> Vec<Seq> {
    let mut stored = Vec::new();
    loop {
        match try_put(journal, stored.len() as u64) {
            Ok(seq) => stored.push(seq),
            Err(StoreError::Full { .. }) => return stored,
            Err(error) => panic!("not full, but: {error}"),
        }
    }
}

fn waiting(journal: &Journal) -> Vec<Seq> {
    let limit = ReadLimit {
        entries: usize::MAX,
        bytes: u64::MAX,
    };
    let page = block_on(journal.read(&key(), View::Queue, None, limit)).unwrap();
    let whole = |seated: &bridge_core::Seated| seated.message.is_ok();
    assert!(page.iter().all(whole), "something cannot be read");
    page.into_iter().map(|seated| seated.seq).collect()
}

fn open(folder: &Path) -> Journal {
    let (journal, report) = Journal::open(folder, options()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.lost_records(), 0);
    journal
}

/// What the process in the namespace does, in a folder on a file system of 4 MiB.
fn work(folder: &Path) {
    let journal = open(&folder.join("data"));
    let stored = fill(&journal);
    assert!(stored.len() > 1_000, "only {} messages", stored.len());
    assert!(journal.stats().full);
    assert_eq!(try_put(&journal, 0), Err(StoreError::Behind), "its turn");
    // Nothing that was acknowledged is gone, and a start in this state succeeds.
    drop(journal);
    let journal = open(&folder.join("data"));
    assert_eq!(waiting(&journal), stored);
    // It drains, and then takes messages again.
    let (half, rest) = stored.split_at(stored.len() / 2);
    journal.settle(&key(), half);
    block_on(journal.flush()).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let again = loop {
        journal.resume(&key());
        let again = fill(&journal);
        if again.len() > 100 {
            break again;
        }
        assert!(Instant::now() < end, "no space came back by draining");
    };
    journal.resume(&key());
    // Something else fills the disk while ours is drained: space that returns is noticed.
    let mut other = std::fs::File::create(folder.join("other")).unwrap();
    journal.settle(&key(), rest);
    block_on(journal.flush()).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let mut taken = 0;
    let filled = loop {
        match other.write(&[0; 4096]) {
            Ok(written) => taken += written as u64,
            // What is drained comes back in the background, so perhaps only now.
            Err(error) if taken < 2 * options().reserve_bytes && Instant::now() < end => {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                std::thread::yield_now();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    assert!(taken >= 2 * options().reserve_bytes, "only {taken} bytes");
    fill(&journal);
    journal.resume(&key());
    assert!(matches!(try_put(&journal, 1), Err(StoreError::Full { .. })));
    drop(other);
    std::fs::remove_file(folder.join("other")).unwrap();
    journal.resume(&key());
    let last = try_put(&journal, 2).unwrap();
    assert!(!journal.stats().full);
    let all = waiting(&journal);
    assert_eq!(all.last(), Some(&last));
    assert!(again.iter().all(|seq| all.contains(seq)));
    drop(journal);
    assert_eq!(waiting(&open(&folder.join("data"))), all);
    println!("{DONE}");
}

#[test]
fn i14_a_disk_that_is_really_full_is_back_pressure_and_drains() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$0\" || exit 77; exec \"$@\"";
    let attempts: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-root-user"]];
    for namespace in attempts {
        // Its end takes the mount with it.
        let output = Command::new("unshare")
            .args(namespace)
            .args(["sh", "-c", mount])
            .arg(folder.path())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", THIS])
            .env(FOLDER, folder.path())
            .stdin(Stdio::null())
            .output();
        let Ok(output) = output else { break };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            assert!(said.contains(DONE), "it did nothing: {said}");
            return;
        }
        // Anything but a refusal to mount is a failure.
        let began = said.contains("running 1 test");
        assert!(!began, "{said}\n{complained}");
    }
    // Not a silent pass: seen with `--nocapture`, and in the log of a failing run.
    let mut out = std::io::stderr();
    writeln!(
        out,
        "NOT SHOWN on a real disk: no file system may be mounted here; only the simulated one was full"
    )
    .unwrap();
}
