//! Answers of a destination, each about one message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_testkit::{Behaviour, Property, Publish, ReceivedPublish, Reply, wait_for, wait_until};

use crate::judged::{Judged, refusing};
use crate::setup::{
    PATIENCE, asked, of_session, publish, until, until_drained, until_live, until_queued,
};

#[tokio::test]
async fn i02_a_refused_message_in_the_queue_costs_one_message_and_no_connection() {
    for (code, reason) in [(0x99, "payload_format_invalid"), (0xE5, "unknown_0xe5")] {
        let mut judged = Judged::start(refusing("bad", code), |config| config).await;
        judged.publish_to_the_queue(&["a", "bad", "b", "c"]).await;
        let connects = judged.destination.connections();
        judged.line.accept().await;
        let ledger = until_drained(&judged.bridge, 4).await;
        assert_eq!((ledger.delivered, ledger.dead_letters), (3, 1), "{ledger}");
        assert_eq!(judged.arrived(), ["a", "bad", "b", "c"], "{reason}");
        assert_eq!(judged.dead_lettered(reason).await, Some(1));
        assert_eq!(judged.destination.connections(), connects + 1, "{reason}");
    }
}

#[tokio::test]
async fn i10_what_is_not_authorized_in_the_queue_is_deferred_and_recovered_in_order() {
    let granted = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&granted);
    let policy = Behaviour::new().reply(move |received: &ReceivedPublish| {
        if received.publish.topic == "denied" && !asked.load(Ordering::SeqCst) {
            Reply::Code(0x87)
        } else {
            Reply::Accept
        }
    });
    let mut judged = Judged::start(policy, |config| {
        config.binding("deferred: { retry_interval: 1s }")
    })
    .await;
    judged
        .publish_to_the_queue(&["a", "denied", "b", "denied", "c"])
        .await;
    let connects = judged.destination.connections();
    judged.line.accept().await;
    let deferred = until(&judged.bridge, "the others pass", |ledger| {
        ledger.queued == 0 && ledger.deferred == 2
    })
    .await;
    assert_eq!(deferred.delivered, 3, "{deferred}");
    judged.publish(&["denied", "d"]).await;
    until(&judged.bridge, "what comes later lines up", |ledger| {
        ledger.deferred == 3 && ledger.delivered == 4
    })
    .await;
    granted.store(true, Ordering::SeqCst);
    let ledger = until_drained(&judged.bridge, 7).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (7, 0), "{ledger}");
    let recovered = judged.arrived();
    assert_eq!(recovered[recovered.len() - 3..], ["denied"; 3]);
    let metrics = judged.bridge.metrics().await;
    for name in [
        "bridge_queue_deferred_total",
        "bridge_queue_deferred_recovered_total",
    ] {
        assert_eq!(metrics.whole(name, &[]), Some(3), "{name}");
    }
    assert_eq!(judged.destination.connections(), connects + 1);
}

#[tokio::test]
async fn i10_what_stays_denied_for_longer_than_its_window_is_a_dead_letter() {
    let mut judged = Judged::start(refusing("denied", 0x87), |config| {
        config.binding("deferred: { window: 2s, retry_interval: 1s }")
    })
    .await;
    judged.publish_to_the_queue(&["denied", "a"]).await;
    judged.line.accept().await;
    let ledger = until_drained(&judged.bridge, 2).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (1, 1), "{ledger}");
    assert_eq!(judged.dead_lettered("not_authorized").await, Some(1));
    let letters = asked(&judged.installation, "dead-letters list DATA").await;
    let letter = &letters["dead_letters"][0];
    assert!(letter["attempts"].as_u64() >= Some(2), "{letter}");
    let at = |field: &str| -> jiff::Timestamp { letter[field].as_str().unwrap().parse().unwrap() };
    let tried = at("last_refusal").duration_since(at("first_refusal"));
    assert!(tried.as_millis() >= 2_000, "{letter}");
}

#[tokio::test]
async fn i04_a_refusal_on_the_live_path_is_dead_lettered_where_it_happens() {
    let judged = Judged::start(refusing("bad", 0x87), |config| config).await;
    until_live(&judged.bridge, "all/out", 1).await;
    judged.publish(&["a", "bad", "b"]).await;
    let ledger = until_drained(&judged.bridge, 3).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (2, 1), "{ledger}");
    assert_eq!(judged.dead_lettered("not_authorized").await, Some(1));
    let metrics = judged.bridge.metrics().await;
    let outcome = |outcome| metrics.whole("bridge_publish_total", &[("outcome", outcome)]);
    assert_eq!(outcome("refused"), Some(1));
    assert_eq!(outcome("published"), Some(2));
    assert_eq!(judged.destination.connections(), 1);
}

#[tokio::test]
async fn i12_a_refusal_for_now_blocks_says_so_and_loses_nothing() {
    let over_quota = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&over_quota);
    let quota = Behaviour::new().reply(move |_: &ReceivedPublish| {
        if asked.load(Ordering::SeqCst) {
            Reply::Code(0x97)
        } else {
            Reply::Accept
        }
    });
    let judged = Judged::start(quota, |config| config).await;
    judged.publish(&["a", "b", "c"]).await;
    wait_for("the queue is blocked", PATIENCE, async || {
        let metrics = judged.bridge.metrics().await;
        let blocked = metrics.whole("bridge_queue_blocked", &[])?;
        let depth = metrics.whole("bridge_queue_depth", &[])?;
        (blocked == 1 && depth == 3).then_some(())
    })
    .await;
    let answer = judged.bridge.get("/readyz?level=full").await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("blocked"), "{}", answer.body);
    assert_eq!(judged.bridge.get("/readyz").await.unwrap().status, 200);
    over_quota.store(false, Ordering::SeqCst);
    let ledger = until_drained(&judged.bridge, 3).await;
    assert_eq!(ledger.delivered, 3, "{ledger}");
    let metrics = judged.bridge.metrics().await;
    assert_eq!(metrics.whole("bridge_queue_blocked", &[]), Some(0));
    assert_eq!(
        judged.arrived()[judged.arrived().len() - 3..],
        ["a", "b", "c"]
    );
    assert_eq!(
        judged.destination.connections(),
        1,
        "a refusal is no lost connection"
    );
}

#[tokio::test]
async fn i05_what_this_broker_can_never_take_is_decided_without_asking_it() {
    let narrow = Behaviour::new().connack([
        Property::RetainAvailable(0),
        Property::MaximumPacketSize(1_000),
    ]);
    let judged = Judged::start(narrow, |config| config).await;
    let messages = [
        Publish::new("retained", "x").retained(),
        Publish::new("large", vec![7; 2_000]),
        Publish::new("fine", "x"),
    ];
    publish(judged.source.port(), messages).await;
    let ledger = until_drained(&judged.bridge, 3).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (1, 2), "{ledger}");
    assert_eq!(judged.arrived(), ["fine"]);
    assert_eq!(judged.dead_lettered("retain_unavailable").await, Some(1));
    assert_eq!(judged.dead_lettered("packet_too_large").await, Some(1));
    assert_eq!(judged.destination.connections(), 1);
}

#[tokio::test]
async fn case_02_a_destination_that_pings_and_never_answers_a_message_is_noticed() {
    let deaf = Behaviour::new().reply(|received: &ReceivedPublish| {
        if received.connection == 0 {
            Reply::Silence
        } else {
            Reply::Accept
        }
    });
    let judged = Judged::start(deaf, |config| {
        config
            // It is to be over once: the next connection answers sooner than that.
            .cloud("answer_timeout: 4s")
            .cloud("max_in_flight: 1")
    })
    .await;
    judged.publish(&["a", "b", "c"]).await;
    until_drained(&judged.bridge, 3).await;
    assert_eq!(judged.arrived(), ["a", "a", "b", "c"]);
    let metrics = judged.bridge.metrics().await;
    assert_eq!(
        metrics.whole("bridge_publish_unanswered_total", &[]),
        Some(1)
    );
    let timeouts = of_session(
        &judged.bridge,
        "bridge_mqtt_session_answer_timeouts_total",
        "cloud",
    );
    assert_eq!(timeouts.await, 1);
}

#[tokio::test]
async fn case_27_an_expiry_counts_down_in_the_queue_and_what_is_expired_is_counted() {
    let mut judged = Judged::start(Behaviour::new(), |config| config).await;
    judged.publish_to_the_queue(&[]).await;
    let messages = [4, 60].map(|s| Publish::new("t", "x").with(Property::MessageExpiry(s)));
    publish(judged.source.port(), messages).await;
    until_queued(&judged.bridge, 2).await;
    wait_for("both have waited for five seconds", PATIENCE, async || {
        let metrics = judged.bridge.metrics().await;
        let age = metrics.whole("bridge_queue_oldest_age_seconds", &[])?;
        (age >= 5).then_some(())
    })
    .await;
    judged.line.accept().await;
    let after = until_drained(&judged.bridge, 2).await;
    assert_eq!((after.delivered, after.dropped), (1, 1), "{after}");
    let metrics = judged.bridge.metrics().await;
    let expired = metrics.whole("bridge_dropped_total", &[("policy", "expired")]);
    assert_eq!(expired, Some(1));
    wait_until("it arrives", PATIENCE, || {
        judged.destination.publish_count() == 1
    })
    .await;
    let arrived = judged.destination.publishes();
    let left = arrived[0]
        .publish
        .properties
        .iter()
        .find_map(|property| match property {
            Property::MessageExpiry(seconds) => Some(*seconds),
            _ => None,
        });
    assert!(
        (20..=55).contains(&left.unwrap()),
        "{left:?} of 60 s after 5 s"
    );
}

#[tokio::test]
async fn direct_hold_leaves_with_the_source_what_the_destination_does_not_take_in_time() {
    let mut judged = Judged::start(Behaviour::new(), |config| {
        config
            .route("delivery: direct_hold")
            .route("send_retry_budget: 4s")
    })
    .await;
    judged.publish(&["before"]).await;
    until_drained(&judged.bridge, 1).await;
    judged.publish_to_the_queue(&[]).await;
    judged.publish(&["during"]).await;
    let left = until(&judged.bridge, "it is left with the source", |ledger| {
        ledger.left == 1
    })
    .await;
    assert_eq!(left.queued, 0, "nothing is ever queued");
    judged.line.accept().await;
    // The source sends it again when it is connected to anew.
    judged.bridge.sigterm();
    assert!(judged.bridge.wait().await.success());
    judged.bridge.relaunch();
    judged.bridge.ready().await;
    wait_until("it is delivered", PATIENCE, || {
        judged.destination.publish_count() == 2
    })
    .await;
    assert_eq!(judged.arrived(), ["before", "during"]);
}
