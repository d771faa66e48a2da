//! Dead letters, their bounds, and the one place that counts attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_core::{Reason, ReasonCode, Seated, Store, View};
use bridge_runtime::{DeadLetterFilter, DeliveryMode, OnDeadLettersFull, Selection};

use crate::fixture::{Fixture, NOT_WAITED, Reply, Setup, key, wait_until};

fn refuse_bad(fixture: &Fixture) {
    fixture
        .sink()
        .policy(|message| match message.topic.as_str() {
            "bad" => Reply::Refuse(0x99),
            _ => Reply::Accept,
        });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_has_the_whole_message_and_all_that_is_known_of_its_refusal() {
    for queued in [false, true] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
        refuse_bad(&fixture);
        if !queued {
            fixture.go_live().await;
        }
        fixture.source.arrive_with("bad", |message| {
            message.retain = true;
            message.properties.content_type = Some("text/plain".into());
        });
        fixture.acknowledges(1).await;
        fixture.sink().connect();
        fixture.waits(0, (0, 0, 1)).await;
        let dead = fixture.view(0, View::DeadLetters).await;
        let stored = dead[0].message.as_ref().unwrap();
        assert_eq!(stored.session.as_str(), "source");
        assert_eq!(
            (&*stored.message.payload, stored.message.retain),
            (&b"0"[..], true)
        );
        let content = stored.message.properties.content_type.as_deref();
        assert_eq!(content, Some("text/plain"));
        let info = dead[0].dead_letter.as_ref().unwrap();
        assert_eq!(info.reason, Reason::Broker(ReasonCode::new(0x99)));
        assert_eq!(info.reason_string.as_deref(), Some("because"));
        assert_eq!((info.attempts, info.first_refusal), (1, info.last_refusal));
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_full_dead_letters_keep_the_first_and_count_the_others() {
    for queued in [false, true] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward)
            .adjust(|spec| spec.dead_letters.max_entries = 3)
            .start();
        refuse_bad(&fixture);
        if !queued {
            fixture.go_live().await;
        }
        for _ in 0..10 {
            fixture.source.arrive("bad");
            fixture.source.arrive("good");
        }
        fixture.acknowledges(20).await;
        fixture.sink().connect();
        fixture.waits(0, (0, 0, 3)).await;
        fixture.is_in(0, "live").await;
        fixture.ledger_balances(0).await;
        let policy = Some(("policy", "discard_newest"));
        assert_eq!(fixture.metric("dead_letter_overflow_total", 0, policy), 7);
        let policy = Some(("policy", "dead_letters_full"));
        assert_eq!(fixture.metric("dropped_total", 0, policy), 7);
        let dead = fixture.view(0, View::DeadLetters).await;
        let kept: Vec<&[u8]> = dead
            .iter()
            .map(|entry| &*entry.message.as_ref().unwrap().message.payload)
            .collect();
        assert_eq!(kept, [b"0", b"2", b"4"]);
        assert_eq!(fixture.sink().accepted().len(), 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_dead_letters_that_must_all_be_kept_are_held_until_there_is_room() {
    for queued in [false, true] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward)
            .adjust(|spec| {
                spec.dead_letters.max_entries = 2;
                spec.dead_letters.on_full = OnDeadLettersFull::Hold;
            })
            .start();
        refuse_bad(&fixture);
        if queued {
            fixture.source.arrive_many(4, "bad");
            fixture.acknowledges(4).await;
            fixture.sink().connect();
        } else {
            fixture.go_live().await;
            fixture.source.arrive_many(4, "bad");
            fixture.acknowledges(2).await;
        }
        wait_until("held", || fixture.metric("dead_letters_held", 0, None) == 2).await;
        fixture.source.arrive("good");
        wait_until("others go on", || fixture.sink().accepted() == [4]).await;
        assert_eq!(fixture.waiting(0).2, 2);
        if !queued {
            wait_until("held is not settled", || {
                fixture.source.acknowledged() == [0, 1, 4]
            })
            .await;
        }
        // The operator makes room, and something happens at the binding.
        for entry in fixture.view(0, View::DeadLetters).await {
            let binding = key("b0");
            let seq = entry.seq;
            let delete = bridge_core::Move::Delete { binding, seq };
            fixture.store.apply(delete).await.unwrap();
        }
        fixture.source.arrive("good");
        fixture.waits(0, (0, 0, 2)).await;
        fixture.acknowledges(6).await;
        wait_until("none is held", || {
            fixture.metric("dead_letters_held", 0, None) == 0
        })
        .await;
        assert_eq!(fixture.metric("dropped_total", 0, None), 0);
        let (_, _, unsettled) = fixture.stop().await;
        assert_eq!(unsettled, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_no_more_of_a_queue_is_held_for_room_than_a_thousand_and_an_operator_makes_some() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| {
            spec.dead_letters.max_entries = 1;
            spec.dead_letters.on_full = OnDeadLettersFull::Hold;
        })
        .start();
    refuse_bad(&fixture);
    fixture.source.arrive_many(3_000, "bad");
    fixture.acknowledges(3_000).await;
    fixture.sink().connect();
    let held = || fixture.metric("dead_letters_held", 0, None);
    wait_until("held", || {
        let kept = fixture.waiting(0) == (2_999, 0, 1);
        kept && held() >= 1_024 && fixture.binding(0).open == held()
    })
    .await;
    // What was under way when it became too many is held as well.
    let most = 1_024 + 50;
    assert!(held() <= most, "{}", held());
    let control = fixture.runtime.control();
    for gone in 1..=100 {
        let all = Selection::Matching {
            filter: DeadLetterFilter::default(),
            limit: 1,
        };
        assert_eq!(control.delete(all).await.unwrap().len(), 1);
        // Nothing else happens at the binding.
        fixture.waits(0, (2_999 - gone, 0, 1)).await;
    }
    assert!(held() <= most, "{}", held());
    let (_, _, unsettled) = fixture.stop().await;
    assert_eq!(unsettled, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_room_among_the_dead_letters() {
    for queued in [false, true] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward)
            .adjust(|spec| {
                spec.dead_letters.max_entries = 1;
                spec.dead_letters.on_full = OnDeadLettersFull::Hold;
            })
            .start();
        refuse_bad(&fixture);
        if !queued {
            fixture.go_live().await;
        }
        fixture.source.arrive_many(2, "bad");
        fixture.acknowledges(1).await;
        fixture.sink().connect();
        wait_until("held", || fixture.metric("dead_letters_held", 0, None) == 1).await;
        let begun = std::time::Instant::now();
        let (source, _, _) = fixture.stop().await;
        assert!(begun.elapsed() < NOT_WAITED);
        let expected: &[u64] = if queued { &[0, 1] } else { &[0] };
        assert_eq!(source.acknowledged(), expected);
    }
}

/// Fails on everything of the topic `hard` while the switch is on.
fn fail_hard(fixture: &Fixture) -> Arc<AtomicBool> {
    let failing = Arc::new(AtomicBool::new(true));
    let asked = failing.clone();
    fixture.sink().policy(move |message| {
        if message.topic.as_str() == "hard" && asked.load(Ordering::SeqCst) {
            Reply::Fail
        } else {
            Reply::Accept
        }
    });
    failing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i19_a_message_that_fails_without_a_verdict_is_given_up_on_after_max_attempts() {
    for mode in [DeliveryMode::StoreAndForward, DeliveryMode::Outbox] {
        let fixture = Setup::new(mode).start();
        fail_hard(&fixture);
        fixture.sink().connect();
        fixture.source.arrive("easy");
        fixture.source.arrive("hard");
        fixture.source.arrive("easy");
        wait_until("given up", || fixture.waiting(0).2 == 1).await;
        fixture.acknowledges(3).await;
        wait_until("the others", || fixture.sink().accepted() == [0, 2]).await;
        let offers = fixture.sink().offers();
        assert_eq!(offers.iter().filter(|n| **n == 1).count(), 5, "{mode:?}");
        let dead = fixture.view(0, View::DeadLetters).await;
        let info = dead[0].dead_letter.as_ref().unwrap();
        assert_eq!((info.reason, info.attempts), (Reason::RetriesExhausted, 5));
        let words = info.reason_string.as_deref();
        assert_eq!(words, Some("processor_failed: 503"));
        assert!(info.first_refusal < info.last_refusal);
        wait_until("no count outlives its message", || {
            fixture.metric("counted_attempts", 0, None) == 0
        })
        .await;
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i19_a_failure_that_passes_delivers_in_order_and_forgets_the_count() {
    let fixture = Setup::new(DeliveryMode::Outbox)
        .adjust(|spec| spec.max_attempts = u32::MAX.try_into().unwrap())
        .start();
    let failing = fail_hard(&fixture);
    fixture.sink().connect();
    for topic in ["easy", "hard", "easy"] {
        fixture.source.arrive(topic);
    }
    wait_until("tried again and again", || fixture.sink().offered() > 12).await;
    wait_until("counted", || {
        fixture.metric("counted_attempts", 0, None) == 1
    })
    .await;
    failing.store(false, Ordering::SeqCst);
    wait_until("all", || fixture.depth(0) == 0).await;
    let mut seen = std::collections::HashSet::new();
    let mut firsts = fixture.sink().accepted();
    firsts.retain(|n| seen.insert(*n));
    assert_eq!(firsts.iter().filter(|n| **n != 2).count(), 2);
    assert_eq!(fixture.waiting(0), (0, 0, 0));
    wait_until("forgotten", || {
        fixture.metric("counted_attempts", 0, None) == 0
    })
    .await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i19_a_failure_amid_a_second_chance_is_counted_and_forgotten_with_its_message() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| {
            spec.deferral.window = Duration::ZERO;
            spec.deferral.retry_interval = Duration::from_millis(5);
        })
        .start();
    fixture.source.arrive("denied");
    fixture.acknowledges(1).await;
    let mut offers = 0;
    fixture.sink().policy(move |_| {
        offers += 1;
        match offers {
            2 => Reply::Fail,
            _ => Reply::Refuse(0x87),
        }
    });
    fixture.sink().connect();
    fixture.waits(0, (0, 0, 1)).await;
    let dead = fixture.view(0, View::DeadLetters).await;
    let info = dead[0].dead_letter.as_ref().unwrap();
    let denied = Reason::Broker(ReasonCode::new(0x87));
    assert_eq!((info.reason, info.attempts), (denied, 3));
    assert_eq!(fixture.sink().offered(), 3);
    wait_until("no count outlives its message", || {
        fixture.metric("counted_attempts", 0, None) == 0
    })
    .await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_retries_that_are_exhausted_while_the_store_fails_leave_one_dead_letter() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fail_hard(&fixture);
    fixture.source.arrive("hard");
    fixture.acknowledges(1).await;
    fixture.store.fail(true);
    fixture.sink().connect();
    wait_until("it cannot be kept", || {
        fixture.metric("store_failures_total", 0, None) >= 10
    })
    .await;
    assert_eq!(
        fixture.sink().offered(),
        5,
        "held, and not offered any more"
    );
    assert_eq!(fixture.waiting(0), (1, 0, 0));
    fixture.store.fail(false);
    fixture.waits(0, (0, 0, 1)).await;
    assert_eq!(fixture.metric("counted_attempts", 0, None), 0);
    fixture.ledger_balances(0).await;
}

#[tokio::test]
async fn i19_a_subscription_is_marked_as_owned_before_its_first_message() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    assert_eq!(*fixture.source.owned.lock().unwrap(), ["#"]);
}

/// Of one thread, so that the worker hears at once of both what the store and what the destination
/// has answered; which it looks at first is chance, hence the rounds.
#[tokio::test]
async fn i20_what_is_refused_when_the_store_works_again_does_not_overtake_what_is_held() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    let dead = async || {
        let dead = fixture.view(0, View::DeadLetters).await.into_iter();
        let payload = |seated: Seated| seated.message.unwrap().message.payload.clone();
        dead.map(payload).collect::<Vec<_>>()
    };
    for round in 1..=30 {
        fixture.sink().policy(|_| Reply::Refuse(0x99));
        fixture.store.fail(true);
        fixture.source.arrive_many(3, "bad");
        wait_until("three are held", || {
            fixture.metric("dead_letters_held", 0, None) == 3
        })
        .await;
        fixture.sink().policy(|_| Reply::Hold);
        fixture.source.arrive("bad");
        wait_until("one is under way", || fixture.sink().held() == 1).await;
        let answer = fixture.store.hold_next();
        fixture.store.fail(false);
        let before = 4 * (round - 1);
        let patience = Duration::from_secs(30);
        bridge_testkit::wait_for("the first is stored", patience, async || {
            (dead().await.len() > before).then_some(())
        })
        .await;
        drop(answer);
        fixture.sink().refuse_held(0x99);
        fixture.acknowledges(4 * round).await;
        let expected: Vec<_> = (0..4 * round).map(|n| n.to_string()).collect();
        assert_eq!(dead().await, expected, "round {round}");
    }
    fixture.ledger_balances(0).await;
}
