//! Batches that are drafted while the one before them is being made durable.

use bridge_core::{Move, Pending};

use super::*;
use crate::sim::Random;

/// At most two records share an fsync, so that a few puts are several batches.
fn open_in_twos(disk: &SimDisk) -> (Journal, RecoveryReport) {
    let options = JournalOptions {
        batch_records: 2,
        ..small()
    };
    Journal::open_on(Arc::new(disk.clone()), &folder(), options, None).unwrap()
}

fn ask(journal: &Journal, number: u64, binding: usize) -> Pending<Seq> {
    journal.put(message(number), vec![queue(binding)])
}

fn is_answered(pending: &mut Pending<Seq>) -> bool {
    use std::task::{Context, Poll, Waker};
    let mut context = Context::from_waker(Waker::noop());
    matches!(pending.as_mut().poll(&mut context), Poll::Ready(Ok(_)))
}

/// Has message 1 at the disk alone, and hands over what is put meanwhile once that is through.
fn with_one_at_the_disk<T>(disk: &SimDisk, journal: &Journal, meanwhile: impl FnOnce() -> T) -> T {
    put(journal, 0);
    disk.close_gate();
    let first = ask(journal, 1, 0);
    disk.until_one_waits();
    let asked = meanwhile();
    disk.let_one_through();
    block_on(first).unwrap();
    disk.until_one_waits();
    asked
}

#[test]
fn batches_behind_the_one_at_the_disk_follow_it_in_order() {
    let disk = SimDisk::default();
    let (journal, _) = open_in_twos(&disk);
    let asked: Vec<_> = with_one_at_the_disk(&disk, &journal, || {
        (2..30).map(|number| ask(&journal, number, 0)).collect()
    });
    disk.open_gate();
    let seqs: Vec<Seq> = asked
        .into_iter()
        .map(|pending| block_on(pending).unwrap())
        .collect();
    assert!(seqs.is_sorted());
    let expected: Vec<u64> = (0..30).collect();
    assert_eq!(numbers(&journal, 0, View::Queue), expected);
    drop(journal);
    let (journal, report) = open(&disk);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(numbers(&journal, 0, View::Queue), expected);
}

#[test]
fn i07_nothing_is_acknowledged_before_its_own_batch_is_durable() {
    let disk = SimDisk::default();
    let (journal, _) = open_in_twos(&disk);
    let asked: Vec<_> = with_one_at_the_disk(&disk, &journal, || {
        (2..10).map(|number| ask(&journal, number, 0)).collect()
    });
    let mut asked: Vec<_> = asked.into_iter().map(Some).collect();
    for durable in 0..4 {
        // The disk holds the batch `durable`, which was not synced.
        for pending in asked.iter_mut().skip(2 * durable) {
            let answered = is_answered(pending.as_mut().unwrap());
            assert!(!answered, "answered with batch {durable} at the disk");
        }
        let cut = disk.after_power_cut(durable as u64);
        let (after, report) = open(&cut);
        assert!(report.is_clean(), "{report:?}");
        let there = numbers(&after, 0, View::Queue);
        assert!(there.len() >= 2 + 2 * durable, "{there:?}");
        assert!(there.iter().copied().eq(0..there.len() as u64), "{there:?}");
        disk.let_one_through();
        for pending in asked.iter_mut().skip(2 * durable).take(2) {
            block_on(pending.take().unwrap()).unwrap();
        }
        if durable < 3 {
            disk.until_one_waits();
        }
    }
    disk.open_gate();
}

#[test]
fn a_batch_that_the_writer_makes_durable_itself_becomes_visible_after_those_before_it() {
    let options = JournalOptions {
        batch_records: 2,
        ..small()
    };
    let disk = Arc::new(SimDisk::default());
    let (journal, mut writer) = Journal::with_idle_writer(disk, &folder(), options);
    writer.reserve.take().unwrap();
    drop(writer.draft().unwrap());
    let mut first: Vec<_> = (0..2).map(|number| ask(&journal, number, 0)).collect();
    // Something that does not go through the pipe: the other thread has the batch meanwhile.
    let (binding, seq) = (key(0), Seq::new(99));
    drop(journal.apply(Move::Delete { binding, seq }));
    let requests = std::mem::take(&mut journal.shared().lock().requests);
    writer.work.extend(requests);
    writer.feed();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while writer.pipe.lock().is_flying() {
        assert!(std::time::Instant::now() < end, "never durable");
        std::thread::yield_now();
    }
    // It is durable, and the writer has not looked yet. Now one comes that it writes itself.
    writer.work.clear();
    let mut second = ask(&journal, 2, 0);
    let requests = std::mem::take(&mut journal.shared().lock().requests);
    writer.work.extend(requests);
    writer.feed();
    assert!(is_answered(&mut second));
    assert!(
        first.iter_mut().all(is_answered),
        "the later one is visible alone"
    );
}

#[test]
fn a_batch_that_begins_a_segment_takes_as_much_as_any_other() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    while journal.stats().bytes < small().segment_bytes {
        put(&journal, 0);
    }
    drop(journal);
    let (journal, writer) = Journal::with_idle_writer(Arc::new(disk), &folder(), small());
    let asked: Vec<_> = (0..4).map(|number| ask(&journal, number, 0)).collect();
    journal.close();
    writer.run();
    assert!(asked.into_iter().all(|pending| block_on(pending).is_ok()));
    let stats = journal.stats();
    assert_eq!(stats.segments, 2);
    assert_eq!(stats.syncs, 2, "one for the segment, one for all four");
}

#[test]
fn what_was_drafted_behind_a_failed_batch_is_not_written_behind_it() {
    for failure in ["sync", "write", "write and cut"] {
        let disk = SimDisk::default();
        let (journal, _) = open_in_twos(&disk);
        let (held, free) = with_one_at_the_disk(&disk, &journal, || {
            let held: Vec<_> = (2..8).map(|number| ask(&journal, number, 0)).collect();
            let free: Vec<_> = (8..12).map(|number| ask(&journal, number, 1)).collect();
            (held, free)
        });
        // 2 and 3 are written; they fail now, or 4 and 5 do, with more drafted behind them.
        match failure {
            "sync" => disk.fail_syncs(1),
            cut => {
                disk.set_capacity(Some(disk.used() + 300));
                disk.fail_cuts(u32::from(cut != "write"));
            }
        }
        disk.let_one_through();
        let answers: Vec<_> = held.into_iter().map(block_on).collect();
        disk.set_capacity(None);
        disk.open_gate();
        let stored = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
        assert_eq!(stored, if failure == "sync" { 0 } else { 2 }, "{answers:?}");
        let failed = &answers[stored as usize..];
        assert!(
            matches!(
                failed[0],
                Err(StoreError::Io { .. } | StoreError::Full { .. })
            ),
            "{failure}: {failed:?}"
        );
        assert_eq!(
            failed[failed.len() - 1],
            Err(StoreError::Behind),
            "{failure}"
        );
        let others: Vec<_> = free.into_iter().map(block_on).collect();
        let others = others.iter().filter(|answer| answer.is_ok()).count();
        journal.resume(&key(0));
        put(&journal, 50);
        let expected: Vec<u64> = (0..2 + stored).chain([50]).collect();
        assert_eq!(numbers(&journal, 0, View::Queue), expected, "{failure}");
        drop(journal);
        let (journal, report) = open(&disk);
        assert!(report.is_clean(), "{failure}: {report:?}");
        assert_eq!(numbers(&journal, 0, View::Queue), expected, "{failure}");
        assert_eq!(numbers(&journal, 1, View::Queue).len(), others, "{failure}");
    }
}

#[test]
fn i07_a_power_cut_with_batches_in_the_pipe_loses_nothing_that_was_acknowledged() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let disk = SimDisk::default();
        disk.be_slow();
        let (journal, _) = open_in_twos(&disk);
        let mut acknowledged = vec![put(&journal, 0)];
        disk.power_off_at(disk.operations() + 1 + random.below(40));
        let mut next = 1;
        for _ in 0..4 {
            let count = 1 + random.below(20);
            let asked: Vec<_> = (next..next + count)
                .map(|number| ask(&journal, number, 0))
                .collect();
            next += count;
            acknowledged.extend(
                asked
                    .into_iter()
                    .filter_map(|pending| block_on(pending).ok()),
            );
        }
        let (journal, report) = open(&disk.after_power_cut(seed));
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        let there = read(&journal, 0, View::Queue);
        let there: Vec<Seq> = there.iter().map(|seated| seated.seq).collect();
        for seq in &acknowledged {
            assert!(there.contains(seq), "seed {seed}: {seq} was acknowledged");
        }
        let found = numbers(&journal, 0, View::Queue);
        assert!(found.is_sorted(), "seed {seed}: {found:?}");
    }
}
