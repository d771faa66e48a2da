//! Segments that are gone: missed when something of them was needed, and not when nothing was.

use super::*;
use crate::DamageKind;
use crate::disk::Layout;

/// A journal that was closed with four segments, none of which is dead, and how many messages
/// are in it.
fn four() -> (SimDisk, Vec<(PathBuf, Vec<u8>)>, u64) {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let mut total = 0;
    while segments(&disk).len() < 4 {
        put(&journal, total);
        total += 1;
    }
    put(&journal, total);
    drop(journal);
    (
        disk.clone(),
        segments(&disk).into_iter().collect(),
        total + 1,
    )
}

fn head(disk: &SimDisk) -> crate::head::Head {
    crate::head::Head::read(disk, &Layout::new(&folder())).unwrap()
}

/// Opens the folder twice: what is missing is new to the first opening only, and what comes next
/// has a number that nothing had before.
fn told_once(disk: &SimDisk) -> RecoveryReport {
    let (journal, report) = open(disk);
    drop(journal);
    let (journal, again) = open(disk);
    assert_eq!(again.lost_records(), 0, "told twice: {again:?}");
    assert_eq!(again.new_damage(), 0);
    let before = head(disk).next;
    let seq = put(&journal, 1_000_000);
    assert!(seq.get() >= before, "a number was used again");
    drop(journal);
    assert_eq!(open(disk).1.lost_records(), 0);
    report
}

#[test]
fn i14_the_newest_segment_is_missed_too() {
    let (disk, files, total) = four();
    let (newest, _) = files.last().unwrap();
    disk.take(newest);
    let next = head(&disk).next;
    let report = told_once(&disk);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let damage = &report.damage[0];
    assert_eq!(damage.kind, DamageKind::Missing);
    assert_eq!(&damage.segment, newest);
    let first = damage.first_lost.unwrap();
    assert_eq!(damage.lost_records, next - first);
    assert!(damage.uncertain);
    let (journal, _) = open(&disk);
    // The list that the segment began with is no message; one message was put since.
    let found = numbers(&journal, 0, View::Queue).len() as u64 - 1;
    assert_eq!(found + damage.lost_records - 1, total);
}

#[test]
fn i14_a_journal_of_which_nothing_is_left_is_missed() {
    let (disk, files, _) = four();
    for (path, _) in &files {
        disk.take(path);
    }
    let report = told_once(&disk);
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].kind, DamageKind::Missing);
    assert!(report.lost_records() >= 1);
    assert!(report.damage[0].to_string().contains("at least"));
}

#[test]
fn i14_segments_of_random_bytes_are_counted() {
    let (disk, files, total) = four();
    let mut random = crate::sim::Random::new(3);
    let mut noise = |len: usize| {
        (0..len)
            .map(|_| random.below(256) as u8)
            .collect::<Vec<u8>>()
    };
    // One in the middle: the list of a later one knows how much was in it.
    let (path, bytes) = &files[1];
    let one = disk.copy();
    one.put(path, noise(bytes.len()));
    let report = told_once(&one);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!(report.damage[0].kind, DamageKind::Header);
    assert!(!report.damage[0].uncertain);
    let found = numbers(&open(&one).0, 0, View::Queue).len() as u64 - 1;
    assert_eq!(found + report.lost_records() - 1, total);
    // The last one: the head knows.
    let (path, bytes) = &files[3];
    let last = disk.copy();
    last.put(path, noise(bytes.len()));
    let report = told_once(&last);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let found = numbers(&open(&last).0, 0, View::Queue).len() as u64 - 1;
    assert_eq!(found + report.lost_records() - 1, total);
    // All of them.
    for (path, bytes) in &files {
        disk.put(path, noise(bytes.len()));
    }
    let report = told_once(&disk);
    assert_eq!(report.damage.len(), 4, "{report:?}");
    assert!(report.lost_records() >= 4);
    assert!(report.damage.iter().all(|damage| damage.uncertain));
}

#[test]
fn a_segment_that_lost_only_its_header_shows_what_was_in_it() {
    let (disk, files, _) = four();
    let (path, bytes) = &files[1];
    let mut headless = bytes.clone();
    headless[..crate::segment::FRAMES_AT].fill(0);
    disk.put(path, headless);
    let report = told_once(&disk);
    let remains = &report.damage[0].remains;
    assert_eq!(remains[0].kind, "Segments");
    assert_eq!(remains[1].kind, "Put");
    assert_eq!(remains[1].bindings, [key(0).to_string()]);
}

#[test]
fn an_older_copy_of_the_journal_is_noticed() {
    let (disk, _, total) = four();
    let old = segments(&disk);
    let (journal, _) = open(&disk);
    while segments(&disk).len() < 6 {
        put(&journal, total);
    }
    drop(journal);
    for path in segments(&disk).keys() {
        disk.take(path);
    }
    for (path, bytes) in old {
        disk.put(&path, bytes);
    }
    let report = told_once(&disk);
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!(report.damage[0].kind, DamageKind::Missing);
}

#[test]
fn a_segment_of_which_nothing_was_needed_is_not_missed() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let mut seqs = Vec::new();
    while segments(&disk).len() < 6 {
        seqs.push(put(&journal, seqs.len() as u64));
    }
    let before = segments(&disk);
    journal.settle(&key(0), &seqs);
    block_on(journal.flush()).unwrap();
    drop(journal);
    let after = segments(&disk);
    assert!(after.len() < before.len(), "some were unlinked");
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    drop(journal);
    // Nor is one that a crash kept from being unlinked, and that someone then deletes.
    let gone: Vec<_> = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .collect();
    disk.put(gone[0], before[gone[0]].clone());
    assert_eq!(open(&disk).1.damage, []);
    assert!(!segments(&disk).contains_key(gone[0]));
}

#[test]
fn a_journal_without_a_head_opens_and_gets_one() {
    let (disk, files, total) = four();
    disk.take(&Layout::new(&folder()).head());
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    assert_eq!(numbers(&journal, 0, View::Queue).len() as u64, total);
    drop(journal);
    disk.take(&files[3].0);
    assert!(open(&disk).1.lost_records() >= 1);
}
