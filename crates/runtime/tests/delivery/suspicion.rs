//! A destination that refuses by closing the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_core::{ManualClock, Reason, Sink, Timestamp, View};
use bridge_runtime::DeliveryMode;

use crate::fixture::{Fixture, Reply, Setup, name, wait_until};

/// Ends the connection on every message of the topic `bad`, while the switch is on.
pub(crate) fn close_on_bad(fixture: &Fixture) -> Arc<AtomicBool> {
    let closing = Arc::new(AtomicBool::new(true));
    let asked = closing.clone();
    fixture.sink().policy(move |message| {
        if message.topic.as_str() == "bad" && asked.load(Ordering::SeqCst) {
            Reply::Cut
        } else {
            Reply::Accept
        }
    });
    closing
}

/// Waits, and connects again whenever the connection has ended.
pub(crate) async fn reconnecting_until(
    fixture: &Fixture,
    what: &str,
    condition: impl Fn() -> bool,
) {
    wait_until(what, || {
        if !fixture.sink().link().is_up() && fixture.binding(0).state == "link_down" {
            fixture.sink().connect();
        }
        condition()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_a_message_that_costs_the_connection_is_found_out_and_the_rest_flows() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(10, "good");
    fixture.source.arrive("bad");
    fixture.source.arrive_many(500, "good");
    fixture.acknowledges(511).await;
    close_on_bad(&fixture);
    reconnecting_until(&fixture, "the rest flows", || {
        fixture.waiting(0) == (0, 1, 0)
    })
    .await;
    let accepted = fixture.sink().accepted();
    let offers = fixture.sink().offers();
    let tried = offers.iter().filter(|n| **n == 10).count();
    assert_eq!(tried, 4, "once among others, and three times alone");
    let mut sorted = accepted.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let expected: Vec<u64> = (0..511).filter(|n| *n != 10).collect();
    assert_eq!(sorted, expected);
    // What showed that the connection is not at fault went before its turn, nothing else did.
    let late = accepted.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(late <= 2, "{accepted:?}");
    let deferred = fixture.view(0, View::Deferred).await;
    let info = deferred[0].deferred.as_ref().unwrap();
    assert_eq!(info.reason, Reason::SuspectedRefusal);
    fixture.ledger_balances(0).await;

    // It is not offered on a reconnect, which may be its own doing, and live traffic goes on.
    let connections = fixture.sink().connections();
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.sink().connect();
    fixture.is_in(0, "live").await;
    fixture.source.arrive("bad");
    fixture.source.arrive("good");
    fixture.acknowledges(513).await;
    wait_until("it lines up", || fixture.waiting(0) == (0, 2, 0)).await;
    assert_eq!(fixture.sink().connections(), connections + 1);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_a_long_run_of_messages_that_cost_the_connection_holds_up_nothing() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(2_000, "bad");
    fixture.source.arrive_many(100, "good");
    fixture.acknowledges(2_100).await;
    close_on_bad(&fixture);
    reconnecting_until(&fixture, "the rest flows", || {
        fixture.waiting(0) == (0, 2_000, 0)
    })
    .await;
    let accepted = fixture.sink().accepted();
    assert_eq!(accepted, (2_000..2_100).collect::<Vec<_>>());
    assert!(
        fixture.sink().connections() < 10,
        "one was found out for all"
    );
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_what_kills_live_is_found_out_as_well() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    close_on_bad(&fixture);
    fixture.go_live().await;
    for n in 0..50 {
        fixture.source.arrive(if n == 20 { "bad" } else { "good" });
    }
    reconnecting_until(&fixture, "the rest flows", || {
        fixture.waiting(0) == (0, 1, 0) && fixture.sink().accepted().len() >= 49
    })
    .await;
    fixture.acknowledges(50).await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_13_a_plain_outage_with_the_same_head_condemns_nobody() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive("head");
    fixture.source.arrive_many(20, "other");
    fixture.acknowledges(21).await;
    // Every connection ends on the first message, whichever it is.
    fixture.sink().policy(|_| Reply::Cut);
    reconnecting_until(&fixture, "many connections", || {
        fixture.sink().connections() >= 60
    })
    .await;
    assert_eq!(fixture.waiting(0), (21, 0, 0));
    assert!(fixture.binding(0).blocked);
    fixture.sink().policy(|_| Reply::Accept);
    reconnecting_until(&fixture, "all", || fixture.depth(0) == 0).await;
    assert_eq!(fixture.metric("queue_dead_lettered_total", 0, None), 0);
    assert_eq!(fixture.metric("queue_deferred_total", 0, None), 0);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_beside_a_binding_that_kills_the_connection_nobody_else_is_condemned() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .adjust(|spec| {
            let innocent = spec.name == name("b1");
            spec.sink = name("b0");
            if innocent {
                let topic = bridge_core::TopicTemplate::parse("innocent/{topic}").unwrap();
                spec.topic = topic;
            }
        })
        .start();
    close_on_bad(&fixture);
    for n in 0..60 {
        fixture
            .source
            .arrive(if n % 20 == 5 { "bad" } else { "good" });
    }
    fixture.acknowledges(60).await;
    wait_until("both are down", || fixture.depth(1) == 60).await;
    reconnecting_until(&fixture, "both flow", || {
        fixture.waiting(0) == (0, 3, 0) && fixture.waiting(1) == (0, 0, 0)
    })
    .await;
    let offers = fixture.sink().offers().len();
    assert!(offers < 60 + 57 + 400, "{offers}");
    fixture.ledger_balances(0).await;
    fixture.ledger_balances(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_on_the_live_path_alone_a_suspected_refusal_is_a_dead_letter() {
    let fixture = Setup::new(DeliveryMode::DirectHold {
        send_retry_budget: Duration::from_secs(60),
    })
    .start();
    close_on_bad(&fixture);
    fixture.go_live().await;
    for topic in ["good", "bad", "good", "good", "good"] {
        fixture.source.arrive(topic);
    }
    reconnecting_until(&fixture, "found out", || fixture.waiting(0) == (0, 0, 1)).await;
    reconnecting_until(&fixture, "the rest", || {
        fixture.source.acknowledged().len() == 5
    })
    .await;
    let reason = Some(("reason", "suspected_refusal"));
    assert_eq!(fixture.metric("queue_dead_lettered_total", 0, reason), 1);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_a_suspected_message_is_tried_once_an_interval_until_its_window_is_over() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)));
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .clock(&clock)
        .start();
    let closing = close_on_bad(&fixture);
    fixture.source.arrive_many(5, "good");
    fixture.source.arrive("bad");
    fixture.source.arrive("bad");
    fixture.source.arrive_many(5, "good");
    fixture.acknowledges(12).await;
    reconnecting_until(&fixture, "found out", || fixture.waiting(0) == (0, 2, 0)).await;
    reconnecting_until(&fixture, "live", || fixture.binding(0).state == "live").await;
    let tries = || {
        let offers = fixture.sink().offers();
        offers.into_iter().filter(|n| *n == 5).count()
    };
    let before = tries();
    // Others are accepted before each trial: else it would say nothing.
    let after = async |passed: Duration| {
        let number = fixture.source.arrive("good");
        reconnecting_until(&fixture, "others are accepted", || {
            fixture.sink().accepted().contains(&number)
        })
        .await;
        clock.advance(passed);
        fixture.source.arrive("good");
    };
    for round in 1..=3 {
        after(Duration::from_secs(120)).await;
        reconnecting_until(&fixture, "tried", || tries() == before + round).await;
        reconnecting_until(&fixture, "live", || fixture.binding(0).state == "live").await;
    }
    assert_eq!(fixture.waiting(0).1, 2);
    after(Duration::from_secs(900)).await;
    reconnecting_until(&fixture, "given up", || fixture.waiting(0).2 == 1).await;
    let dead = fixture.view(0, View::DeadLetters).await;
    let info = dead[0].dead_letter.as_ref().unwrap();
    assert_eq!(info.reason, Reason::SuspectedRefusal);
    assert_eq!(info.attempts, 1 + 3 + 1);
    // The other one of its topic gets through when the broker takes it.
    closing.store(false, Ordering::SeqCst);
    reconnecting_until(&fixture, "live", || fixture.binding(0).state == "live").await;
    after(Duration::from_secs(120)).await;
    reconnecting_until(&fixture, "recovered", || fixture.waiting(0) == (0, 0, 1)).await;
    assert_eq!(fixture.metric("queue_deferred_recovered_total", 0, None), 1);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_what_is_far_behind_a_long_run_of_closing_messages_is_found_too() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(9_500, "bad");
    fixture.source.arrive_many(10, "good");
    fixture.acknowledges(9_510).await;
    close_on_bad(&fixture);
    reconnecting_until(&fixture, "the rest flows", || {
        fixture.waiting(0) == (0, 9_500, 0)
    })
    .await;
    let accepted = fixture.sink().accepted();
    assert_eq!(accepted, (9_500..9_510).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_no_message_goes_before_one_under_suspicion_of_the_same_topic_at_the_destination() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| spec.topic = bridge_core::TopicTemplate::parse("one").unwrap())
        .start();
    let closing = Arc::new(AtomicBool::new(true));
    let asked = closing.clone();
    fixture.sink().policy(move |message| {
        if &*message.payload == b"2" && asked.load(Ordering::SeqCst) {
            Reply::Cut
        } else {
            Reply::Accept
        }
    });
    for n in 0..30 {
        fixture
            .source
            .arrive(if n % 2 == 0 { "even" } else { "odd" });
    }
    fixture.acknowledges(30).await;
    reconnecting_until(&fixture, "many connections", || {
        fixture.sink().connections() >= 10
    })
    .await;
    assert_eq!(fixture.sink().accepted(), [0, 1]);
    assert!(fixture.binding(0).blocked);
    closing.store(false, Ordering::SeqCst);
    reconnecting_until(&fixture, "all", || fixture.depth(0) == 0).await;
    assert_eq!(fixture.sink().accepted(), (0..30).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_a_session_that_steps_down_says_nothing_about_the_message_it_left_unanswered() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(10, "good");
    fixture.source.arrive("bad");
    fixture.source.arrive_many(100, "good");
    fixture.acknowledges(111).await;
    let mut left = 8;
    fixture.sink().policy(move |message| {
        if message.topic.as_str() == "bad" && left > 0 {
            left -= 1;
            Reply::StepDown
        } else {
            Reply::Accept
        }
    });
    reconnecting_until(&fixture, "all is delivered", || {
        fixture.waiting(0) == (0, 0, 0)
    })
    .await;
    let accepted = fixture.sink().accepted();
    assert!(
        accepted.is_sorted(),
        "nothing goes before its turn: {accepted:?}"
    );
    assert_eq!(fixture.sink().connections(), 9);
    fixture.ledger_balances(0).await;
}
