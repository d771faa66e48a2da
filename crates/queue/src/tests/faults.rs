//! Full disks, failing syncs, unreadable files.

use bridge_core::{Move, Moved};

use super::*;
use crate::sim::{Cut, Replay};

/// Puts until the disk is full. Returns the messages that were stored.
fn fill(disk: &SimDisk, journal: &Journal, room: u64) -> Vec<(u64, Seq)> {
    disk.set_capacity(Some(disk.used() + room));
    let mut stored = Vec::new();
    for number in 0.. {
        match try_put(journal, number) {
            Ok(seq) => stored.push((number, seq)),
            Err(StoreError::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    stored
}

#[test]
fn i14_a_full_disk_is_back_pressure_and_drains() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    put(&journal, 1_000_000);
    let stored = fill(&disk, &journal, 100_000);
    assert!(stored.len() > 200, "{} messages", stored.len());
    assert!(journal.stats().full);
    assert_eq!(
        try_put(&journal, 9),
        Err(StoreError::Behind),
        "what comes behind a failure may not overtake it"
    );
    journal.resume(&key(0));
    assert!(matches!(try_put(&journal, 9), Err(StoreError::Full { .. })));
    journal.resume(&key(0));

    // What is done can be said, and a message can be given up on.
    let (_, first) = stored[0];
    let dead = block_on(journal.apply(Move::DeadLetter {
        binding: key(0),
        seq: first,
        info: given_up(),
    }));
    assert_eq!(dead, Ok(Moved::Done { seq: first }));
    let done: Vec<Seq> = stored[1..].iter().map(|(_, seq)| *seq).collect();
    journal.settle(&key(0), &done);
    block_on(journal.flush()).unwrap();
    let deleted = block_on(journal.apply(Move::Delete {
        binding: key(0),
        seq: first,
    }));
    assert_eq!(deleted, Ok(Moved::Done { seq: first }));
    // And then there is space again.
    put(&journal, 77);
    assert!(!journal.stats().full);
    drop(journal);
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    assert_eq!(numbers(&journal, 0, View::Queue), [1_000_000, 77]);
}

/// Nothing is alive in the segment that is written to, and there is no other: unless it goes, there
/// is no space until somebody else gives some back.
#[test]
fn i14_a_disk_that_one_segment_fills_drains_too() {
    let disk = SimDisk::default();
    disk.record();
    let options = JournalOptions {
        segment_bytes: 1 << 20,
        ..small()
    };
    let journal = Journal::open_on(Arc::new(disk.clone()), &folder(), options, None);
    let (journal, _) = journal.unwrap();
    let stored = fill(&disk, &journal, 100_000);
    assert_eq!(journal.stats().segments, 1);
    let done: Vec<Seq> = stored.iter().map(|(_, seq)| *seq).collect();
    journal.settle(&key(0), &done);
    block_on(journal.flush()).unwrap();
    let settled = disk.recorded();
    journal.resume(&key(0));
    put(&journal, 77);
    assert!(!journal.stats().full);
    drop(journal);
    assert_eq!(segments(&disk).len(), 1);
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    assert_eq!(numbers(&journal, 0, View::Queue), [77]);
    drop(journal);

    // Wherever the power goes meanwhile, what was settled does not come back.
    let mut replay = Replay::default();
    let operations = disk.recording();
    assert!(operations.len() > settled);
    for (number, operation) in operations.iter().enumerate() {
        replay.perform(operation);
        if number + 1 < settled {
            continue;
        }
        for cut in [Cut::Nothing, Cut::Everything, Cut::Torn(number as u64)] {
            let (journal, report) = open(&replay.after(cut));
            let what = format!("operation {number}, {cut:?}");
            assert_eq!(report.lost_records(), 0, "{what}");
            let queue = numbers(&journal, 0, View::Queue);
            assert!(queue.is_empty() || queue == [77], "{what}: {queue:?}");
        }
    }
}

#[test]
fn what_was_half_written_on_a_full_disk_is_cut_back() {
    for room in [20_000, 20_050, 20_100, 33_333] {
        let disk = SimDisk::default();
        let (journal, _) = open(&disk);
        let stored = fill(&disk, &journal, room);
        disk.set_capacity(None);
        journal.resume(&key(0));
        put(&journal, 5_000);
        drop(journal);
        let (journal, report) = open(&disk);
        assert_eq!(report.damage, [], "room for {room}");
        let mut expected: Vec<u64> = stored.iter().map(|(number, _)| *number).collect();
        expected.push(5_000);
        assert_eq!(numbers(&journal, 0, View::Queue), expected);
    }
}

#[test]
fn a_journal_opens_on_a_full_disk() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let stored = fill(&disk, &journal, 50_000);
    drop(journal);
    disk.set_capacity(Some(0));
    let (journal, _) = open(&disk);
    assert_eq!(numbers(&journal, 0, View::Queue).len(), stored.len());
}

#[test]
fn a_failed_sync_seals_the_segment_and_what_it_was_for_has_no_effect() {
    for (syncs, cuts) in [(1, 0), (2, 0), (3, 0)] {
        let disk = SimDisk::default();
        let (journal, _) = open(&disk);
        let first = put(&journal, 1);
        let before = segments(&disk).len();
        disk.fail_syncs(syncs);
        disk.fail_cuts(cuts);
        let failed = try_put(&journal, 2).unwrap_err();
        assert!(
            matches!(failed, StoreError::Io { action: "sync", .. }),
            "{failed}"
        );
        for number in 3..=u64::from(syncs) + 1 {
            journal.resume(&key(0));
            try_put(&journal, number).unwrap_err();
        }
        journal.resume(&key(0));
        put(&journal, 10);
        assert_eq!(segments(&disk).len(), before + 1);
        assert_eq!(journal.stats().sealed_segments, 1);
        assert_eq!(numbers(&journal, 0, View::Queue), [1, 10]);
        let dead = Move::DeadLetter {
            binding: key(0),
            seq: first,
            info: given_up(),
        };
        block_on(journal.apply(dead)).unwrap();
        drop(journal);
        let (journal, report) = open(&disk);
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(numbers(&journal, 0, View::Queue), [10]);
        assert_eq!(numbers(&journal, 0, View::DeadLetters), [1]);
    }
}

#[test]
fn a_segment_that_cannot_be_cut_back_is_sealed_too() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    put(&journal, 1);
    disk.set_capacity(Some(disk.used() + 50));
    disk.fail_cuts(1);
    try_put(&journal, 2).unwrap_err();
    disk.set_capacity(None);
    journal.resume(&key(0));
    put(&journal, 3);
    drop(journal);
    let (journal, report) = open(&disk);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(numbers(&journal, 0, View::Queue), [1, 3]);
}

#[test]
fn an_entry_that_cannot_be_read_blocks_nothing_else() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let mut total = 0;
    while segments(&disk).len() < 3 {
        put(&journal, total);
        total += 1;
    }
    drop(journal);
    let (journal, _) = open(&disk);
    let second = segments(&disk).into_keys().nth(1).unwrap();
    disk.make_unreadable(Some(second.clone()));
    let page = read(&journal, 0, View::Queue);
    assert_eq!(page.len() as u64, total);
    let bad = page.iter().filter(|seated| seated.message.is_err());
    let bad: Vec<_> = bad.collect();
    assert!(!bad.is_empty() && (bad.len() as u64) < total);
    for seated in bad {
        let Err(StoreError::Io { place, .. }) = &seated.message else {
            panic!("{:?}", seated.message);
        };
        assert_eq!(Path::new(place), second);
    }
    disk.make_unreadable(None);
    assert_eq!(numbers(&journal, 0, View::Queue).len() as u64, total);
}

#[test]
fn a_segment_that_could_not_be_created_is_created_later() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    disk.fail_syncs(1);
    disk.fail_removes(1);
    try_put(&journal, 1).unwrap_err();
    assert_eq!(segments(&disk).len(), 1, "half a segment is left");
    journal.resume(&key(0));
    put(&journal, 2);
    drop(journal);
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    assert_eq!(numbers(&journal, 0, View::Queue), [2]);
}

#[test]
fn a_dead_segment_that_cannot_be_removed_goes_at_the_next_opening() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let mut seqs = Vec::new();
    while segments(&disk).len() < 3 {
        seqs.push(put(&journal, seqs.len() as u64));
    }
    disk.fail_removes(u32::MAX);
    journal.settle(&key(0), &seqs);
    block_on(journal.flush()).unwrap();
    drop(journal);
    assert!(segments(&disk).len() >= 3);
    disk.fail_removes(0);
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    assert_eq!(
        numbers(&journal, 0, View::Queue),
        [0; 0],
        "nothing comes back"
    );
    drop(journal);
    assert_eq!(segments(&disk).len(), 1);
}
