use std::sync::Arc;
use std::time::Duration;

use bridge_core::{ManualClock, Timestamp, View};
use bridge_runtime::{DeliveryMode, OnExpired, RetainPolicy};
use futures_util::FutureExt;

use crate::fixture::{Fixture, Reply, Setup, key, wait_until};

/// No message waits for its turn for so long that it is queued.
fn stopped_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)))
}

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_is_delivered_in_order_and_acknowledged() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    fixture.source.arrive_many(2_000, "t");
    fixture.acknowledges(2_000).await;
    assert_eq!(fixture.sink().accepted(), numbers(0..2_000));
    assert_eq!(
        fixture.metric("publish_total", 0, Some(("outcome", "published"))),
        2_000
    );
    assert_eq!(fixture.store.puts(), 0);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i07_nothing_is_acknowledged_before_it_has_settled() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .clock(&stopped_clock())
        .start();
    fixture.go_live().await;
    fixture.sinks[1].policy(|_| Reply::Hold);
    fixture.source.arrive_many(10, "t");
    wait_until("both sinks have them", || {
        fixture.sinks[0].accepted().len() == 10 && fixture.sinks[1].held() == 10
    })
    .await;
    assert!(fixture.source.acknowledged().is_empty());
    fixture.sinks[1].release();
    fixture.acknowledges(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i04_a_refusal_on_the_live_path_is_a_dead_letter_at_once() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture
        .sink()
        .policy(|message| match message.topic.as_str() {
            "denied" => Reply::Refuse(0x87),
            "invalid" => Reply::Refuse(0x90),
            "unknown" => Reply::Refuse(0xE5),
            _ => Reply::Accept,
        });
    fixture.go_live().await;
    for topic in ["a", "denied", "b", "invalid", "c", "unknown", "d"] {
        fixture.source.arrive(topic);
    }
    fixture.acknowledges(7).await;
    assert_eq!(fixture.sink().accepted(), [0, 2, 4, 6]);
    assert_eq!(fixture.binding(0).usage.dead_letters.entries, 3);
    assert_eq!(fixture.depth(0), 0);
    for reason in ["not_authorized", "topic_name_invalid", "unknown_0xe5"] {
        let count = fixture.metric("queue_dead_lettered_total", 0, Some(("reason", reason)));
        assert_eq!(count, 1, "{reason}");
    }
    assert_eq!(
        fixture.metric("publish_total", 0, Some(("outcome", "refused"))),
        3
    );
    let limit = bridge_core::ReadLimit {
        entries: 10,
        bytes: 1 << 20,
    };
    let kept =
        bridge_core::Store::read(&*fixture.store, &key("b0"), View::DeadLetters, None, limit);
    let kept = kept.await.unwrap();
    let info = kept[0].dead_letter.as_ref().unwrap();
    assert_eq!(info.reason_string.as_deref(), Some("because"));
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_for_now_on_the_live_path_is_queued_and_offered_again() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    let mut busy = 3;
    fixture.sink().policy(move |message| {
        if message.topic.as_str() == "busy" && busy > 0 {
            busy -= 1;
            return Reply::Refuse(0x97);
        }
        Reply::Accept
    });
    fixture.go_live().await;
    fixture.source.arrive("a");
    fixture.source.arrive("busy");
    fixture.source.arrive("b");
    fixture.acknowledges(3).await;
    wait_until("all delivered", || fixture.sink().accepted().len() == 3).await;
    assert_eq!(fixture.binding(0).usage.dead_letters.entries, 0);
    fixture.is_in(0, "live").await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_25_each_binding_of_a_fan_out_has_its_own_pace() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(4)
        .clock(&stopped_clock())
        .start();
    for sink in &fixture.sinks[..2] {
        sink.connect();
    }
    fixture.is_in(0, "live").await;
    fixture.is_in(1, "live").await;
    fixture.sinks[1].policy(|_| Reply::Hold);
    fixture.source.arrive_many(20, "t");
    wait_until("the healthy one has all", || {
        fixture.sinks[0].accepted().len() == 20
    })
    .await;
    wait_until("the slow one has all", || fixture.sinks[1].held() == 20).await;
    // Both dead ones hold them, from one record a message (I09).
    wait_until("stored", || {
        fixture.depth(2) == 20 && fixture.depth(3) == 20
    })
    .await;
    assert_eq!(fixture.store.puts(), 20);
    assert!(fixture.source.acknowledged().is_empty());
    fixture.sinks[1].release();
    fixture.acknowledges(20).await;
    fixture.sinks[2].connect();
    wait_until("the one that came back has all", || {
        fixture.sinks[2].accepted() == numbers(0..20)
    })
    .await;
    assert_eq!(fixture.depth(3), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_came_expired_is_dropped_or_kept_by_policy() {
    for (policy, dropped, dead) in [(OnExpired::Drop, 1, 0), (OnExpired::DeadLetter, 0, 1)] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward)
            .adjust(move |spec| spec.on_expired = policy)
            .start();
        fixture.go_live().await;
        fixture
            .source
            .arrive_with("t", |message| message.properties.message_expiry = Some(0));
        fixture.source.arrive("t");
        fixture.acknowledges(2).await;
        assert_eq!(fixture.sink().accepted(), [1]);
        assert_eq!(
            fixture.metric("dropped_total", 0, Some(("policy", "expired"))),
            dropped
        );
        assert_eq!(fixture.binding(0).usage.dead_letters.entries, dead);
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_14_equal_payloads_are_never_taken_for_a_loop() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| spec.retain = RetainPolicy::Never)
        .start();
    fixture.go_live().await;
    for _ in 0..12 {
        fixture.source.arrive_with("t", |message| {
            message.payload = "0123456789".into();
            message.retain = true;
        });
    }
    fixture.acknowledges(12).await;
    let messages = fixture.sink().messages();
    assert_eq!(messages.len(), 12);
    assert!(
        messages
            .iter()
            .all(|m| &*m.payload == b"0123456789" && !m.retain)
    );
}

#[tokio::test]
async fn a_stop_stores_what_is_recalled_before_what_came_after_it() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    fixture.sink().policy(|message| match &*message.payload {
        b"0" => Reply::Hold,
        _ => Reply::Refuse(0x97),
    });
    fixture.source.arrive_many(2, "t");
    fixture.is_in(0, "recalling").await;
    fixture.source.arrive_many(2, "t");
    wait_until("they wait", || fixture.binding(0).open == 4).await;

    let Fixture {
        runtime,
        sinks,
        store,
        data,
        ..
    } = fixture;
    let mut stop = Box::pin(runtime.shutdown(Duration::from_secs(30)));
    for _ in 0..100 {
        assert!((&mut stop).now_or_never().is_none(), "0 is unanswered");
        tokio::task::yield_now().await;
    }
    sinks[0].release();
    assert_eq!(stop.await.unwrap().unsettled, 0);
    drop(store);

    let next = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    next.go_live().await;
    assert_eq!(next.sink().accepted(), [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_says_goodbye_also_when_the_store_fails() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    fixture.store.fail(true);
    let stopped = fixture.runtime.shutdown(Duration::from_secs(30)).await;
    assert!(stopped.is_err(), "{stopped:?}");
    let closed = &fixture.sinks[0].closed;
    assert!(closed.load(std::sync::atomic::Ordering::SeqCst));
}
