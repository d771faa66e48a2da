//! A journal on a real disk: what was acknowledged is there again after it is opened again.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail loudly"
)]

use std::path::Path;
use std::sync::Arc;

use bridge_core::{
    BindingKey, Cause, DeadLetterInfo, DeferInfo, Destination, Message, MessageId, Move, Moved,
    Name, Placement, ReadLimit, Reason, ReasonCode, Seated, Seq, Store, StoreError, StoredMessage,
    Timestamp, Topic, View,
};
use bridge_queue::{DamageKind, Journal, JournalOptions, OpenError, RecoveryReport};
use futures_executor::block_on;

const ALL: ReadLimit = ReadLimit {
    entries: 1_000_000,
    bytes: u64::MAX,
};

fn open(folder: &Path) -> (Journal, RecoveryReport) {
    Journal::open(folder, JournalOptions::default()).unwrap()
}

fn binding(text: &str) -> BindingKey {
    text.parse().unwrap()
}

fn message(number: u64) -> Arc<StoredMessage> {
    let mut random = [0; 10];
    random[..8].copy_from_slice(&number.to_le_bytes());
    Arc::new(StoredMessage {
        id: MessageId::new(Timestamp::from_millis(number), random),
        cause: None,
        session: Name::parse("plant").unwrap(),
        received: Timestamp::from_millis(number),
        message: Message::new(
            Topic::parse("sensors/1").unwrap(),
            format!("payload {number}"),
        ),
    })
}

fn queue(key: &BindingKey) -> Destination {
    Destination {
        binding: key.clone(),
        placement: Placement::Queue,
    }
}

fn put(journal: &Journal, number: u64, keys: &[&BindingKey]) -> Seq {
    let to = keys.iter().map(|key| queue(key)).collect();
    block_on(journal.put(message(number), to)).unwrap()
}

fn read(journal: &Journal, key: &BindingKey, view: View) -> Vec<Seated> {
    block_on(journal.read(key, view, None, ALL)).unwrap()
}

fn payloads(journal: &Journal, key: &BindingKey, view: View) -> Vec<String> {
    let text = |seated: Seated| {
        String::from_utf8(seated.message.unwrap().message.payload.to_vec()).unwrap()
    };
    read(journal, key, view).into_iter().map(text).collect()
}

fn given_up() -> DeadLetterInfo {
    DeadLetterInfo {
        reason: Reason::Broker(ReasonCode::new(0x99)),
        reason_string: Some("no".to_owned()),
        first_refusal: Timestamp::from_millis(1),
        last_refusal: Timestamp::from_millis(2),
        attempts: 3,
    }
}

fn refused() -> DeferInfo {
    DeferInfo {
        reason: Reason::Broker(ReasonCode::NOT_AUTHORIZED),
        first_refusal: Timestamp::from_millis(5),
        last_refusal: Timestamp::from_millis(6),
        attempts: 1,
        overtaken: false,
    }
}

#[test]
fn i07_what_was_acknowledged_is_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (binding("r/a"), binding("r/b"));
    let (journal, report) = open(folder.path());
    assert_eq!(report, RecoveryReport::default());
    let seqs: Vec<Seq> = (0..100).map(|n| put(&journal, n, &[&a, &b])).collect();
    journal.settle(&a, &seqs[..40]);
    journal.settle(&a, &seqs[50..51]);
    assert_eq!(journal.usage(&a).queue.entries, 59);
    drop(journal);

    let (journal, report) = open(folder.path());
    assert!(report.damage.is_empty(), "{report:?}");
    let expected: Vec<String> = (40..100)
        .filter(|n| *n != 50)
        .map(|n| format!("payload {n}"))
        .collect();
    assert_eq!(payloads(&journal, &a, View::Queue), expected);
    assert_eq!(payloads(&journal, &b, View::Queue).len(), 100);
    let usage = journal.usage(&a);
    assert_eq!(usage.queue.entries, 59);
    assert_eq!(usage.oldest, Some(Timestamp::from_millis(40)));
    let size: u64 = expected.iter().map(|text| text.len() as u64 + 9).sum();
    assert_eq!(usage.queue.bytes, size);
    assert_eq!(journal.bindings().len(), 2);
    assert!(put(&journal, 100, &[&a]) > seqs[99], "numbers only go up");
}

#[test]
fn a_message_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let mut stored = (*message(7)).clone();
    stored.cause = Some(Cause {
        id: stored.id,
        redrives: 1,
    });
    stored.message.retain = true;
    stored.message.payload = vec![0, 255, 10].into();
    stored.message.properties.message_expiry = Some(9);
    stored.message.properties.user_properties = vec![("k".into(), "v".into()); 2];
    let stored = Arc::new(stored);
    let (journal, _) = open(folder.path());
    block_on(journal.put(stored.clone(), vec![queue(&key)])).unwrap();
    assert_eq!(
        read(&journal, &key, View::Queue)[0].message,
        Ok(stored.clone())
    );
    drop(journal);
    let (journal, _) = open(folder.path());
    assert_eq!(read(&journal, &key, View::Queue)[0].message, Ok(stored));
}

#[test]
fn i09_every_move_survives_and_leaves_a_message_in_one_place() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    let seqs: Vec<Seq> = (0..5).map(|n| put(&journal, n, &[&key])).collect();
    let apply = |journal: &Journal, change| block_on(journal.apply(change)).unwrap();
    let defer = |seq| Move::Defer {
        binding: binding("r/a"),
        seq,
        info: refused(),
    };
    let dead = |seq| Move::DeadLetter {
        binding: binding("r/a"),
        seq,
        info: given_up(),
    };
    let id = MessageId::new(Timestamp::from_millis(99), [7; 10]);
    let redrive = |seq| Move::Redrive {
        binding: binding("r/a"),
        seq,
        id,
    };
    assert_eq!(
        apply(&journal, defer(seqs[0])),
        Moved::Done { seq: seqs[0] }
    );
    assert_eq!(apply(&journal, dead(seqs[1])), Moved::Done { seq: seqs[1] });
    assert_eq!(apply(&journal, dead(seqs[0])), Moved::Done { seq: seqs[0] });
    assert_eq!(apply(&journal, defer(seqs[0])), Moved::NotThere);
    assert_eq!(
        apply(&journal, defer(seqs[2])),
        Moved::Done { seq: seqs[2] }
    );
    let Moved::Done { seq: redriven } = apply(&journal, redrive(seqs[1])) else {
        panic!("not redriven");
    };
    assert!(redriven > seqs[4]);
    assert_eq!(apply(&journal, redrive(seqs[1])), Moved::NotThere);
    let check = |journal: &Journal| {
        assert_eq!(
            payloads(journal, &key, View::Queue),
            ["payload 3", "payload 4", "payload 1"]
        );
        let last = read(journal, &key, View::Queue).pop().unwrap();
        assert_eq!(last.seq, redriven);
        let last = last.message.unwrap();
        let cause = Cause {
            id: message(1).id,
            redrives: 1,
        };
        assert_eq!((last.id, last.cause), (id, Some(cause)));
        let deferred = read(journal, &key, View::Deferred);
        assert_eq!(deferred[0].deferred, Some(refused()));
        assert_eq!(deferred.len(), 1);
        let dead = read(journal, &key, View::DeadLetters);
        assert_eq!(dead[0].dead_letter, Some(given_up()));
        assert_eq!((dead.len(), dead[0].seq), (1, seqs[0]));
    };
    check(&journal);
    drop(journal);
    let (journal, _) = open(folder.path());
    check(&journal);
    let delete = Move::Delete {
        binding: key.clone(),
        seq: seqs[0],
    };
    assert_eq!(apply(&journal, delete), Moved::Done { seq: seqs[0] });
    journal.settle(&key, &[seqs[2], redriven]);
    drop(journal);
    let (journal, _) = open(folder.path());
    assert_eq!(
        payloads(&journal, &key, View::Queue),
        ["payload 3", "payload 4"]
    );
    assert_eq!(journal.usage(&key).deferred.entries, 0);
    assert_eq!(journal.usage(&key).dead_letters.entries, 0);
}

#[test]
fn i21_of_two_redrives_at_once_exactly_one_moves_the_entry() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    let dead = Destination {
        binding: key.clone(),
        placement: Placement::DeadLetter(given_up()),
    };
    let seq = block_on(journal.put(message(1), vec![dead])).unwrap();
    let redrive = |random| {
        journal.apply(Move::Redrive {
            binding: key.clone(),
            seq,
            id: MessageId::new(Timestamp::from_millis(99), [random; 10]),
        })
    };
    let both = [redrive(1), redrive(2)].map(|pending| block_on(pending).unwrap());
    let done = both.iter().filter(|moved| **moved != Moved::NotThere);
    assert_eq!(done.count(), 1, "{both:?}");
    assert_eq!(journal.usage(&key).queue.entries, 1);
    assert_eq!(journal.usage(&key).dead_letters.entries, 0);
}

#[test]
fn a_settle_behind_a_move_takes_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    let (first, second) = (put(&journal, 1, &[&key]), put(&journal, 2, &[&key]));
    let dead = journal.apply(Move::DeadLetter {
        binding: key.clone(),
        seq: first,
        info: given_up(),
    });
    let deferred = journal.apply(Move::Defer {
        binding: key.clone(),
        seq: second,
        info: refused(),
    });
    journal.settle(&key, &[first, second]);
    block_on(dead).unwrap();
    block_on(deferred).unwrap();
    block_on(journal.flush()).unwrap();
    let check = |journal: &Journal| {
        let usage = journal.usage(&key);
        let entries = [usage.queue, usage.deferred, usage.dead_letters].map(|q| q.entries);
        assert_eq!(entries, [0, 0, 1], "a dead letter is not settled");
    };
    check(&journal);
    drop(journal);
    check(&open(folder.path()).0);
}

#[test]
fn i14_a_torn_tail_is_cut_set_aside_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    put(&journal, 1, &[&key]);
    put(&journal, 2, &[&key]);
    drop(journal);
    let segment = std::fs::read_dir(folder.path().join("journal"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() - 3]).unwrap();
    // Without it the journal was not closed, so that its end may have been under way.
    std::fs::remove_file(folder.path().join("head")).unwrap();

    let (journal, report) = open(folder.path());
    assert_eq!(payloads(&journal, &key, View::Queue), ["payload 1"]);
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].kind, DamageKind::TornTail);
    let kept = std::fs::read(report.damage[0].quarantine.as_ref().unwrap()).unwrap();
    assert!(bytes[..bytes.len() - 3].ends_with(&kept));
    put(&journal, 3, &[&key]);
    drop(journal);
    let (journal, report) = open(folder.path());
    assert_eq!(report.damage, []);
    assert_eq!(
        payloads(&journal, &key, View::Queue),
        ["payload 1", "payload 3"]
    );
}

#[test]
fn a_second_opening_is_told_who_holds_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = open(folder.path());
    let error = Journal::open(folder.path(), JournalOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    journal.close();
    open(folder.path());
}

#[test]
fn usage_counts_what_is_admitted_and_reading_shows_what_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    let pending = journal.put(message(1), vec![queue(&key)]);
    assert_eq!(journal.usage(&key).queue.entries, 1);
    assert_eq!(journal.usage(&key).oldest, Some(Timestamp::from_millis(1)));
    block_on(pending).unwrap();
    assert_eq!(journal.usage(&key).queue.entries, 1);
    assert_eq!(read(&journal, &key, View::Queue).len(), 1);
}

#[test]
fn a_page_is_bounded_and_goes_on_where_the_last_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    let seqs: Vec<Seq> = (0..10).map(|n| put(&journal, n, &[&key])).collect();
    let page = |after, entries, bytes| {
        let limit = ReadLimit { entries, bytes };
        let page = block_on(journal.read(&key, View::Queue, after, limit)).unwrap();
        page.into_iter()
            .map(|seated| seated.seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(page(None, 3, u64::MAX), &seqs[..3]);
    assert_eq!(page(Some(seqs[2]), 100, 40), &seqs[3..5]);
    assert_eq!(page(Some(seqs[4]), 0, 0), &seqs[5..6], "at least one");
    assert_eq!(page(Some(seqs[9]), 100, u64::MAX), []);
}

#[test]
fn a_message_that_is_too_large_is_refused_and_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let options = JournalOptions {
        max_message_bytes: 20,
        ..JournalOptions::default()
    };
    let (journal, _) = Journal::open(folder.path(), options).unwrap();
    let mut large = (*message(1)).clone();
    large.message.payload = vec![0; 100].into();
    let refused = block_on(journal.put(Arc::new(large), vec![queue(&key)]));
    let expected = StoreError::TooLarge {
        size: 109,
        maximum: 20,
    };
    assert_eq!(refused, Err(expected));
    put(&journal, 2, &[&key]);
}

#[test]
fn a_closed_journal_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let key = binding("r/a");
    let (journal, _) = open(folder.path());
    let last = journal.put(message(1), vec![queue(&key)]);
    journal.close();
    block_on(last).unwrap();
    assert_eq!(
        block_on(journal.put(message(2), vec![queue(&key)])),
        Err(StoreError::Closed)
    );
    assert_eq!(block_on(journal.flush()), Err(StoreError::Closed));
}
