//! Space comes back: dead segments go, mostly dead ones are copied forward.

use std::time::Instant;

use bridge_core::{GivenUp, Move, ReadFrom};

use super::*;

fn settle_all_but(journal: &Journal, seqs: &[(u64, Seq)], kept: impl Fn(u64) -> bool) {
    for (number, seq) in seqs {
        if !kept(*number) {
            journal.settle(&key(0), &[*seq]);
        }
    }
    block_on(journal.flush()).unwrap();
}

fn burst(journal: &Journal, numbers: std::ops::Range<u64>) -> Vec<(u64, Seq)> {
    let pending: Vec<_> = numbers
        .map(|number| (number, journal.put(message(number), vec![queue(0)])))
        .collect();
    let done = pending.into_iter();
    done.map(|(number, pending)| (number, block_on(pending).unwrap()))
        .collect()
}

/// Waits for the writer to have tidied up, which it does between batches.
fn until_small(journal: &Journal, segments: u64) {
    for _ in 0..2_000 {
        if journal.stats().segments <= segments {
            return;
        }
        block_on(journal.flush()).unwrap();
    }
    panic!("still {:?}", journal.stats());
}

#[test]
fn a_drained_backlog_leaves_one_segment() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let seqs = burst(&journal, 0..2_000);
    assert!(journal.stats().segments > 10);
    settle_all_but(&journal, &seqs, |_| false);
    until_small(&journal, 1);
    let stats = journal.stats();
    assert!(stats.copied_bytes < stats.written_bytes / 10, "{stats:?}");
    drop(journal);
    assert_eq!(segments(&disk).len(), 1);
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    assert_eq!(journal.bindings(), []);
}

#[test]
fn a_few_that_stay_do_not_pin_the_disk() {
    let disk = SimDisk::default();
    let (mut journal, _) = open(&disk);
    let dead = |number: u64| number.is_multiple_of(50);
    let late = |number: u64| number % 50 == 1;
    for round in 0..8_u64 {
        let seqs = burst(&journal, round * 500..(round + 1) * 500);
        for (number, seq) in &seqs {
            let (binding, seq) = (key(0), *seq);
            let change = if dead(*number) {
                let info = given_up();
                Move::DeadLetter { binding, seq, info }
            } else if late(*number) {
                let info = refused();
                Move::Defer { binding, seq, info }
            } else {
                continue;
            };
            block_on(journal.apply(change)).unwrap();
        }
        settle_all_but(&journal, &seqs, |number| dead(number) || late(number));
        if round == 4 {
            drop(journal);
            journal = open(&disk).0;
        }
    }
    until_small(&journal, 10);
    let stats = journal.stats();
    assert!(stats.copied_bytes > 0);
    assert!(
        stats.copied_bytes < stats.written_bytes / 2,
        "{stats:?}: more copied than written"
    );
    let check = |journal: &Journal| {
        let expected = |keep: fn(u64) -> bool| (0..4_000).filter(|n| keep(*n)).collect::<Vec<_>>();
        assert_eq!(numbers(journal, 0, View::DeadLetters), expected(dead));
        assert_eq!(numbers(journal, 0, View::Deferred), expected(late));
        assert_eq!(numbers(journal, 0, View::Queue), [0; 0]);
        let whole = read(journal, 0, View::DeadLetters)
            .into_iter()
            .all(|seated| seated.dead_letter == Some(given_up()));
        assert!(whole, "each knows why it was given up on");
    };
    check(&journal);
    drop(journal);
    let (journal, report) = open(&disk);
    assert_eq!(report.damage, []);
    check(&journal);
}

/// A deferred message lies in the first segment and its refusal in the second, of which nothing
/// else is needed. It is settled while the disk is busy, so that only the memory knows: then the
/// second segment is dead. If it went before the disk was told, the message would be back in the
/// queue after a power cut, as if it had never been refused.
#[test]
fn i09_a_segment_goes_only_after_the_disk_knows_why_it_may() {
    let disk = SimDisk::default();
    let options = JournalOptions {
        // No settle is written for its own sake.
        settle_delay: Duration::from_secs(3_600),
        settle_count: usize::MAX,
        ..small()
    };
    let journal = Journal::open_on(Arc::new(disk.clone()), &folder(), options, None);
    let (journal, _) = journal.unwrap();
    let fill = |from: u64, segments_then: usize| {
        let mut seqs = Vec::new();
        while segments(&disk).len() < segments_then {
            let number = from + seqs.len() as u64;
            seqs.push(put(&journal, number));
        }
        seqs
    };
    let stays = put(&journal, 0);
    let deferred = put(&journal, 1);
    // What begins a new segment is its first message.
    let first_of_second = fill(10, 2).pop().unwrap();
    let moved = journal.apply(Move::Defer {
        binding: key(0),
        seq: deferred,
        info: refused(),
    });
    block_on(moved).unwrap();
    let mut done = fill(1_000, 3);
    // The last of them is in the third segment.
    done.pop();
    done.push(first_of_second);
    journal.settle(&key(0), &done);
    block_on(journal.flush()).unwrap();
    let second = segments(&disk).into_keys().nth(1).unwrap();

    disk.close_gate();
    let pending = journal.put(message(5_000), vec![queue(0)]);
    disk.until_one_waits();
    journal.settle(&key(0), &[deferred]);
    disk.open_gate();
    block_on(pending).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while segments(&disk).contains_key(&second) {
        assert!(std::time::Instant::now() < end, "it is not unlinked");
        std::thread::yield_now();
    }
    for seed in 0..20 {
        let disk = disk.after_power_cut(seed);
        let (journal, report) = open(&disk);
        assert!(report.is_clean(), "{report:?}");
        let queue = numbers(&journal, 0, View::Queue);
        assert!(queue.contains(&0) && queue.contains(&5_000), "{stays:?}");
        assert!(!queue.contains(&1), "seed {seed}: back in the queue");
    }
}

#[test]
fn what_could_not_be_tidied_is_tried_again_with_nothing_written_meanwhile() {
    let disk = SimDisk::default();
    let options = JournalOptions {
        slack_bytes: 0,
        ..small()
    };
    let (journal, _) = Journal::open_on(Arc::new(disk.clone()), &folder(), options, None).unwrap();
    let seqs = burst(&journal, 0..200);
    let (first, _) = segments(&disk).into_iter().next().unwrap();
    disk.make_unreadable(Some(first.clone()));
    settle_all_but(&journal, &seqs, |number| number == 0);
    until_small(&journal, 2);
    assert!(segments(&disk).contains_key(&first));
    disk.make_unreadable(None);
    let end = Instant::now() + Duration::from_secs(20);
    while segments(&disk).contains_key(&first) {
        assert!(Instant::now() < end, "it is not tried again");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(numbers(&journal, 0, View::Queue), [0]);
}

/// Whoever reads goes on until a page is empty: it may not be while something is left.
#[test]
fn a_page_is_empty_only_when_nothing_is_left_whatever_goes_meanwhile() {
    let reads = [
        (ReadFrom::After(None), 0),
        (ReadFrom::Before(None), 1),
        (ReadFrom::After(None), 0),
    ];
    for (number, (from, gone)) in reads.into_iter().enumerate() {
        let disk = SimDisk::default();
        let options = JournalOptions {
            // Nothing is copied away from where this test looks for it.
            slack_bytes: 1 << 20,
            ..small()
        };
        let journal = Journal::open_on(Arc::new(disk.clone()), &folder(), options, None);
        let journal = Arc::new(journal.unwrap().0);
        // One dead letter in each of two segments, and a third one is written to.
        let mut dead = Vec::new();
        let mut done = Vec::new();
        let mut of_one = BTreeMap::new();
        for segment in 0..2 {
            let to = Destination {
                binding: key(0),
                placement: Placement::DeadLetter(given_up()),
            };
            dead.push(block_on(journal.put(message(segment), vec![to])).unwrap());
            let there = segments(&disk).into_keys();
            of_one.insert(segment, there.last().unwrap());
            let before = journal.stats().segments;
            while journal.stats().segments == before {
                done.push(put(&journal, 100));
            }
        }
        journal.settle(&key(0), &done);
        block_on(journal.flush()).unwrap();
        let path = of_one[&gone].clone();
        let deleted = {
            let (journal, disk, path) = (Arc::downgrade(&journal), disk.clone(), path.clone());
            let (binding, seq) = (key(0), dead[gone as usize]);
            move || {
                let journal = journal.upgrade().unwrap();
                block_on(journal.apply(Move::Delete { binding, seq })).unwrap();
                let gone = || !segments(&disk).contains_key(&path);
                assert!((0..2_000).any(|_| block_on(journal.flush()).is_ok() && gone()));
            }
        };
        disk.meanwhile(&path, deleted);
        let limit = ReadLimit { entries: 1, ..ALL };
        let page = if number == 2 {
            block_on(journal.read(&key(0), View::DeadLetters, None, limit))
        } else {
            block_on(journal.read_dead_letters(&key(0), GivenUp::ALL, from, limit))
        };
        let left = dead[1 - gone as usize];
        let found: Vec<Seq> = page.unwrap().iter().map(|seated| seated.seq).collect();
        assert_eq!(found, [left], "{from:?}");
    }
}
