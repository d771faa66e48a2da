//! Dead letters in an operator's hands: listed, redriven, deleted.

use std::time::Duration;

use bridge_core::{BindingKey, QoS, Reason, ReasonCode, Seq, View};
use bridge_runtime::{
    ControlError, DeadLetterFilter, DeadLetterId, DeleteOutcome, DeliveryMode, OnFull,
    RedriveOptions, RedriveOutcome, RedriveVerdict, Selection, Total,
};

use crate::fixture::{Fixture, Reply, Setup, name};

const WAIT: RedriveOptions = RedriveOptions {
    dry_run: false,
    wait: Some(Duration::from_secs(20)),
};
const NOW: RedriveOptions = RedriveOptions {
    dry_run: false,
    wait: None,
};

fn all() -> Selection {
    Selection::Matching {
        filter: DeadLetterFilter::default(),
        limit: 10_000,
    }
}

/// A route whose binding `n` refuses everything, and `count` dead letters there: refused from the
/// queue, they have the numbers with which they came.
async fn with_dead_letters(setup: Setup, n: usize, count: usize) -> Fixture {
    let fixture = setup.start();
    fixture.sinks[n].policy(|_| Reply::Refuse(0x99));
    fixture.source.arrive_many(count, "t");
    fixture.acknowledges(count).await;
    fixture.go_live().await;
    fixture.waits(n, (0, 0, count as u64)).await;
    fixture
}

fn mended(fixture: &Fixture, n: usize) {
    fixture.sinks[n].policy(|_| Reply::Accept);
}

async fn ids(fixture: &Fixture) -> Vec<DeadLetterId> {
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let entries = control.list(&filter, 10_000, None).await.unwrap().entries;
    entries.into_iter().map(|entry| entry.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i22_a_redrive_reaches_the_binding_that_refused_and_no_other() {
    let setup = Setup::new(DeliveryMode::StoreAndForward).bindings(3);
    let fixture = with_dead_letters(setup, 1, 3).await;
    mended(&fixture, 1);
    let control = fixture.runtime.control();
    let results = control.redrive(all(), WAIT).await.unwrap();
    assert_eq!(results.len(), 3);
    for result in &results {
        let RedriveOutcome::Moved { verdict, .. } = &result.outcome else {
            panic!("{result:?}");
        };
        assert_eq!(*verdict, Some(RedriveVerdict::Delivered));
    }
    for n in 0..3 {
        assert_eq!(fixture.sinks[n].accepted(), [0, 1, 2], "binding {n}");
        fixture.ledger_balances(n).await;
    }
    let moved = Some(("outcome", "moved"));
    assert_eq!(fixture.metric("redrive_total", 1, moved), 3);
    assert_eq!(fixture.metric("redrive_total", 0, moved), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_is_live_and_idle_delivers_a_redrive_at_once_in_every_mode() {
    let held = DeliveryMode::DirectHold {
        send_retry_budget: Duration::from_secs(60),
    };
    for mode in [DeliveryMode::StoreAndForward, DeliveryMode::Outbox, held] {
        let fixture = Setup::new(mode).start();
        fixture.sink().policy(|_| Reply::Refuse(0x99));
        fixture.sink().connect();
        fixture.source.arrive("t");
        fixture.waits(0, (0, 0, 1)).await;
        fixture.acknowledges(1).await;
        fixture.source.arrive("t");
        fixture.waits(0, (0, 0, 2)).await;
        fixture.acknowledges(2).await;
        mended(&fixture, 0);
        let control = fixture.runtime.control();
        // Far less than the timer that wakes a worker in any case.
        let options = RedriveOptions {
            wait: Some(Duration::from_secs(20)),
            ..NOW
        };
        for result in control.redrive(all(), options).await.unwrap() {
            let RedriveOutcome::Moved { verdict, .. } = &result.outcome else {
                panic!("{result:?}");
            };
            assert_eq!(*verdict, Some(RedriveVerdict::Delivered), "{mode:?}");
        }
        fixture.source.arrive("t");
        fixture.acknowledges(3).await;
        fixture.waits(0, (0, 0, 0)).await;
        assert_eq!(fixture.sink().accepted(), [0, 1, 2]);
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i21_two_redrives_at_once_move_each_entry_once_and_both_say_so() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 1_000).await;
    mended(&fixture, 0);
    let ids = ids(&fixture).await;
    assert_eq!(ids.len(), 1_000);
    let redrive = || {
        let control = fixture.runtime.control();
        let ids = Selection::Ids(ids.clone());
        tokio::spawn(async move { control.redrive(ids, WAIT).await.unwrap() })
    };
    let both = [redrive(), redrive()];
    let mut moved = 0;
    let [one, other] = both;
    for (a, b) in one.await.unwrap().into_iter().zip(other.await.unwrap()) {
        assert_eq!(a.id, b.id);
        let (winner, loser) = match (&a.outcome, &b.outcome) {
            (RedriveOutcome::Moved { .. }, _) => (a.outcome, b.outcome),
            _ => (b.outcome, a.outcome),
        };
        let RedriveOutcome::Moved {
            message_id,
            verdict,
            ..
        } = winner
        else {
            panic!("neither moved it: {winner:?} and {loser:?}");
        };
        assert_eq!(verdict, Some(RedriveVerdict::Delivered));
        assert_eq!(loser, RedriveOutcome::AlreadyRedriven { message_id });
        moved += 1;
    }
    assert_eq!(moved, 1_000);
    assert_eq!(fixture.sink().accepted(), (0..1_000).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_37_a_redrive_that_is_refused_again_says_so() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 1).await;
    let control = fixture.runtime.control();
    let mut before = ids(&fixture).await.remove(0);
    for redrives in 1..=3 {
        let old = control.get(&before).await.unwrap().unwrap();
        let ids = Selection::Ids(vec![before.clone()]);
        let result = control.redrive(ids, WAIT).await.unwrap().remove(0);
        let RedriveOutcome::Moved {
            message_id,
            seq,
            verdict:
                Some(RedriveVerdict::Refused {
                    reason,
                    dead_letter,
                }),
        } = result.outcome
        else {
            panic!("{result:?}");
        };
        assert_eq!(reason, Reason::Broker(ReasonCode::new(0x99)));
        assert_eq!(dead_letter.seq, seq);
        let new = control.get(&dead_letter).await.unwrap().unwrap();
        let cause = new.stored.cause.unwrap();
        assert_eq!(new.stored.id, message_id);
        assert_eq!((cause.id, cause.redrives), (old.stored.id, redrives));
        assert_eq!(control.get(&before).await.unwrap(), None);
        before = dead_letter;
    }
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_says_deferred_where_the_message_has_a_second_chance() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 2).await;
    fixture.sink().policy(|_| Reply::Refuse(0x87));
    let control = fixture.runtime.control();
    let results = control.redrive(all(), WAIT).await.unwrap();
    for result in results {
        let RedriveOutcome::Moved { verdict, .. } = &result.outcome else {
            panic!("{result:?}");
        };
        assert_eq!(*verdict, Some(RedriveVerdict::Deferred));
    }
    fixture.waits(0, (0, 2, 0)).await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_says_queued_while_the_link_is_down() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 1).await;
    mended(&fixture, 0);
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    let control = fixture.runtime.control();
    let options = RedriveOptions {
        wait: Some(Duration::from_millis(50)),
        ..NOW
    };
    let result = control.redrive(all(), options).await.unwrap().remove(0);
    let RedriveOutcome::Moved { verdict, .. } = &result.outcome else {
        panic!("{result:?}");
    };
    assert_eq!(*verdict, Some(RedriveVerdict::Queued));
    assert_eq!(fixture.waiting(0), (1, 0, 0));
    fixture.sink().connect();
    fixture.waits(0, (0, 0, 0)).await;
    assert_eq!(fixture.sink().accepted(), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i23_a_caller_that_hangs_up_changes_nothing() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 500).await;
    mended(&fixture, 0);
    let control = fixture.runtime.control();
    let call = control.redrive(all(), NOW);
    // Polled once, which begins it, and dropped.
    assert!(tokio::time::timeout(Duration::ZERO, call).await.is_err());
    fixture.waits(0, (0, 0, 0)).await;
    fixture.ledger_balances(0).await;
    assert_eq!(fixture.sink().accepted(), (0..500).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i22_what_a_removed_binding_left_is_listed_kept_and_can_be_deleted() {
    let setup = Setup::new(DeliveryMode::StoreAndForward).bindings(2);
    let fixture = with_dead_letters(setup, 1, 3).await;
    let (_, data, _) = fixture.stop().await;
    let fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let page = control.list(&filter, 10, None).await.unwrap();
    assert_eq!((page.entries.len(), page.total), (3, Total::Exact(3)));
    assert!(page.entries.iter().all(|entry| !entry.configured));
    for options in [NOW, WAIT] {
        let results = control.redrive(all(), options).await.unwrap();
        let refused =
            |r: &bridge_runtime::RedriveResult| r.outcome == RedriveOutcome::BindingNotFound;
        assert!(results.len() == 3 && results.iter().all(refused));
    }
    let nothing = DeadLetterId {
        binding: BindingKey::new(name("strange"), name("b1")),
        seq: Seq::new(1),
    };
    let result = control
        .redrive(Selection::Ids(vec![nothing]), NOW)
        .await
        .unwrap();
    assert_eq!(result[0].outcome, RedriveOutcome::NotFound);
    let mut results = control.delete(all()).await.unwrap();
    assert!(results.iter().all(|r| r.outcome == DeleteOutcome::Deleted));
    let ids = Selection::Ids(vec![results.remove(0).id]);
    let again = control.delete(ids).await.unwrap();
    assert_eq!(again[0].outcome, DeleteOutcome::NotFound);
    assert_eq!(
        control.list(&filter, 10, None).await.unwrap().total,
        Total::Exact(0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_a_redrive_finds_a_full_queue_and_stays() {
    let setup = Setup::new(DeliveryMode::StoreAndForward).queue(2, OnFull::DropOldest);
    let fixture = setup.start();
    fixture.sink().policy(|_| Reply::Refuse(0x99));
    fixture.go_live().await;
    for count in 1..=5 {
        fixture.source.arrive("t");
        fixture.acknowledges(count).await;
    }
    fixture.waits(0, (0, 0, 5)).await;
    mended(&fixture, 0);
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    let control = fixture.runtime.control();
    let dry = RedriveOptions {
        dry_run: true,
        wait: None,
    };
    let words = |results: Vec<bridge_runtime::RedriveResult>| -> Vec<_> {
        results.iter().map(|r| r.outcome.as_str()).collect()
    };
    let would = control.redrive(all(), dry).await.unwrap();
    assert_eq!(words(would), ["would_move"; 5]);
    assert_eq!(fixture.waiting(0), (0, 0, 5));
    let results = control.redrive(all(), NOW).await.unwrap();
    let full = "queue_full";
    assert_eq!(words(results), ["moved", "moved", full, full, full]);
    assert_eq!(fixture.waiting(0), (2, 0, 3));
    fixture.sink().connect();
    fixture.waits(0, (0, 0, 3)).await;
    assert_eq!(fixture.sink().accepted(), [0, 1], "the oldest went first");
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_on_a_redrive_keeps_the_entry() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 2).await;
    mended(&fixture, 0);
    fixture.store.fail(true);
    let control = fixture.runtime.control();
    let results = control.redrive(all(), WAIT).await.unwrap();
    assert!(results.iter().all(|r| r.outcome.as_str() == "store_failed"));
    let results = control.delete(all()).await.unwrap();
    assert!(results.iter().all(|r| r.outcome.as_str() == "store_failed"));
    assert_eq!(fixture.waiting(0), (0, 0, 2));
    fixture.store.fail(false);
    let results = control.redrive(all(), WAIT).await.unwrap();
    assert!(results.iter().all(|r| r.outcome.is_success()));
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i24_the_ledger_balances_with_deletes() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 10).await;
    let control = fixture.runtime.control();
    let some = Selection::Matching {
        filter: DeadLetterFilter::default(),
        limit: 4,
    };
    control.delete(some).await.unwrap();
    assert_eq!(fixture.metric("dead_letters_deleted_total", 0, None), 4);
    fixture.ledger_balances(0).await;
    let (_, data, _) = fixture.stop().await;
    let fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    assert_eq!(fixture.metric("carried_over", 0, None), 6);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i21_what_was_redriven_is_redriven_after_a_restart() {
    let setup = Setup::new(DeliveryMode::StoreAndForward);
    let fixture = with_dead_letters(setup, 0, 3).await;
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    let control = fixture.runtime.control();
    let before = ids(&fixture).await;
    let one = Selection::Ids(vec![before[1].clone()]);
    control.redrive(one.clone(), NOW).await.unwrap();
    let (_, data, _) = fixture.stop().await;
    let stopped = control.redrive(one.clone(), NOW).await;
    assert_eq!(stopped, Err(ControlError::Stopping));
    let fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    assert_eq!(fixture.waiting(0), (1, 0, 2));
    assert_eq!(ids(&fixture).await, [before[0].clone(), before[2].clone()]);
    // What it had become is known no more: the memory of that is the process's.
    let again = fixture.runtime.control().redrive(one, NOW).await.unwrap();
    assert_eq!(again[0].outcome, RedriveOutcome::NotFound);
    fixture.go_live().await;
    fixture.waits(0, (0, 0, 2)).await;
    assert_eq!(fixture.sink().accepted(), [1]);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_goes_on_where_it_was_whatever_comes_and_goes() {
    let setup = Setup::new(DeliveryMode::StoreAndForward).bindings(2);
    let fixture = setup.start();
    for sink in &fixture.sinks {
        sink.policy(|_| Reply::Refuse(0x99));
    }
    // One record for both: their entries have the same number.
    fixture.source.arrive_many(10, "t");
    fixture.acknowledges(10).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 0, 10)).await;
    fixture.waits(1, (0, 0, 10)).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter::default();
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = control.list(&filter, 3, cursor.as_ref()).await.unwrap();
        assert!(page.total.is_exact() && page.entries.len() <= 3);
        seen.extend(page.entries.into_iter().map(|entry| entry.id));
        // One that was seen goes, and a new one comes.
        let gone = Selection::Ids(vec![seen[seen.len() - 3].clone()]);
        assert!(control.delete(gone).await.unwrap()[0].outcome.is_success());
        let came = fixture.source.arrive("t") + 1;
        fixture.acknowledges(usize::try_from(came).unwrap()).await;
        let Some(next) = page.next else { break };
        let text = next.to_string();
        assert_eq!(text.parse(), Ok(next));
        cursor = Some(text.parse().unwrap());
    }
    assert_eq!(seen.len(), 20, "{seen:?}");
    let mut expected = seen.clone();
    expected.sort_by(|a, b| b.seq.cmp(&a.seq).then_with(|| a.binding.cmp(&b.binding)));
    expected.dedup();
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_takes_what_its_filter_says() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    for sink in &fixture.sinks {
        sink.policy(|message| match message.topic.as_str() {
            "good" => Reply::Accept,
            topic if topic.starts_with("a/") => Reply::Refuse(0x99),
            _ => Reply::Refuse(0x80),
        });
    }
    fixture.go_live().await;
    for topic in ["a/1", "b/1", "a/2", "good", "b/2"] {
        fixture
            .source
            .arrive_with(topic, |message| message.qos = QoS::ExactlyOnce);
    }
    fixture.acknowledges(5).await;
    let control = fixture.runtime.control();
    let of = async |filter: DeadLetterFilter| {
        let mut topics = Vec::new();
        let (mut cursor, mut total) = (None, None);
        loop {
            let page = control.list(&filter, 3, cursor.as_ref()).await.unwrap();
            assert!(total.is_none_or(|total| total == page.total));
            total = Some(page.total);
            let found = page.entries.into_iter();
            topics.extend(found.map(|entry| entry.topic.as_str().to_owned()));
            cursor = page.next;
            if cursor.is_none() {
                assert_eq!(total, Some(Total::Exact(topics.len() as u64)));
                return topics;
            }
        }
    };
    let none = DeadLetterFilter::default;
    assert_eq!(of(none()).await.len(), 8);
    let binding = Some(name("b1"));
    let found = of(DeadLetterFilter { binding, ..none() }).await;
    assert_eq!(found, ["b/2", "a/2", "b/1", "a/1"]);
    let topic = Some("a/+".parse().unwrap());
    let mut found = of(DeadLetterFilter { topic, ..none() }).await;
    found.sort();
    assert_eq!(found, ["a/1", "a/1", "a/2", "a/2"]);
    let reason = Some("unspecified_error".parse().unwrap());
    let mut found = of(DeadLetterFilter { reason, ..none() }).await;
    found.sort();
    assert_eq!(found, ["b/1", "b/1", "b/2", "b/2"]);
    let dead = fixture.view(0, View::DeadLetters).await;
    let id = dead[2].message.as_ref().unwrap().id;
    let message_id = Some(id);
    let found = of(DeadLetterFilter {
        message_id,
        ..none()
    })
    .await;
    assert_eq!(found, ["a/2", "a/2"]);
    let instant = dead[2].dead_letter.as_ref().unwrap().last_refusal;
    let at = |since, until| DeadLetterFilter {
        since,
        until,
        ..none()
    };
    let (before, since) = (
        of(at(None, Some(instant))).await,
        of(at(Some(instant), None)).await,
    );
    assert_eq!(before.len() + since.len(), 8);
    assert!(since.contains(&"a/2".to_owned()));
    let route = Some(name("other"));
    assert!(of(DeadLetterFilter { route, ..none() }).await.is_empty());
}
