//! Restarts, kills and outages while messages are deferred.

use std::time::{Duration, Instant};

use bridge_testkit::{BridgeConfig, Publish, wait_for, wait_until};
use serde_json::Value;

use crate::judged::{Grant, Judged, refusing};
use crate::setup::{PATIENCE, asked, ledger, of_session, publish, until, until_drained};

fn deferring(config: BridgeConfig, window: &str) -> BridgeConfig {
    config.binding(format!(
        "deferred: {{ window: {window}, retry_interval: 1s }}"
    ))
}

/// What the folder says of the only binding.
async fn binding(judged: &Judged) -> Value {
    asked(&judged.installation, "queue status DATA").await["bindings"][0].clone()
}

fn entries(binding: &Value) -> [u64; 3] {
    ["queue", "deferred", "dead_letters"].map(|view| binding[view]["entries"].as_u64().unwrap())
}

fn offers_of(judged: &Judged, topic: &str) -> usize {
    judged.arrived().iter().filter(|t| *t == topic).count()
}

/// Waits until `denied` is offered once more than so far.
async fn offered_once_more(judged: &Judged) {
    let so_far = offers_of(judged, "denied");
    wait_until("it is offered again", PATIENCE, || {
        offers_of(judged, "denied") > so_far
    })
    .await;
}

#[tokio::test]
async fn i10_a_window_goes_on_from_its_stored_instant_through_restart_kill_and_outage() {
    let mut judged =
        Judged::start(refusing("denied", 0x87), |config| deferring(config, "10m")).await;
    judged
        .publish_to_the_queue(&["denied", "a", "denied", "b"])
        .await;
    judged.line.accept().await;
    until(&judged.bridge, "the others pass", |ledger| {
        (ledger.queued, ledger.deferred, ledger.delivered) == (0, 2, 2)
    })
    .await;
    let first = binding(&judged).await["deferred"]["first_refusal"].clone();
    assert!(first.is_string(), "{first}");

    for killed in [false, true] {
        if killed {
            judged.bridge.kill().await;
        } else {
            judged.bridge.sigterm();
            assert!(judged.bridge.wait().await.success());
        }
        let waits = binding(&judged).await;
        assert_eq!(entries(&waits), [0, 2, 0], "each is in one place: {waits}");
        assert_eq!(waits["deferred"]["first_refusal"], first, "{waits}");
        judged.bridge.relaunch();
        judged.bridge.ready().await;
        offered_once_more(&judged).await;
        let waits = until(&judged.bridge, "it stays", |ledger| ledger.deferred == 2).await;
        assert_eq!(waits.carried_over, 2, "{waits}");
    }
    judged.lose_the_line().await;
    judged.line.accept().await;
    offered_once_more(&judged).await;
    judged.bridge.sigterm();
    assert!(judged.bridge.wait().await.success());
    let waits = binding(&judged).await;
    assert_eq!(waits["deferred"]["first_refusal"], first, "{waits}");

    // Its window is made so short that it is over already: the next refusal gives it up.
    let shorter = BridgeConfig::between(judged.source.url(), judged.line.url());
    judged.installation.reconfigure(&deferring(shorter, "1s"));
    judged.bridge.relaunch();
    judged.bridge.ready().await;
    let ledger = until(&judged.bridge, "they are given up", |ledger| {
        ledger.dead_letters == 2
    })
    .await;
    assert_eq!((ledger.queued, ledger.deferred), (0, 0), "{ledger}");
    let letters = asked(&judged.installation, "dead-letters list DATA").await;
    let oldest = &letters["dead_letters"].as_array().unwrap()[1];
    assert_eq!(oldest["first_refusal"], first, "{letters}");
    assert!(oldest["last_refusal"].as_str() > first.as_str());
    assert!(oldest["attempts"].as_u64().unwrap() >= 5, "{letters}");
}

#[tokio::test]
async fn i10_a_bridge_that_cannot_reach_its_broker_for_longer_than_the_window_discards_nothing() {
    // Long enough to lose the line in, on a busy machine too.
    const WINDOW: Duration = Duration::from_secs(4);
    let grant = Grant::default();
    let behaviour = grant.withholding(0x87, |message| message.topic == "denied");
    let mut judged = Judged::start(behaviour, |config| deferring(config, "4s")).await;
    judged
        .publish_to_the_queue(&["denied", "a", "denied", "denied"])
        .await;
    judged.line.accept().await;
    let began = wait_for("they are deferred", PATIENCE, async || {
        let ledger = ledger(&judged.bridge).await;
        (ledger.deferred == 3).then(Instant::now)
    })
    .await;
    judged.lose_the_line().await;
    let deferred = until(&judged.bridge, "a quiet moment", |_| true).await;
    assert_eq!(deferred.deferred + deferred.dead_letters, 3, "{deferred}");
    // A slow machine may have offered one more before the line was lost; what is left stays.
    let name = "bridge_mqtt_session_connect_failures_total";
    wait_for("the window passes in vain", PATIENCE, async || {
        let failures = of_session(&judged.bridge, name, "cloud").await;
        let over = began.elapsed() > WINDOW + Duration::from_secs(1);
        (over && failures > 3).then_some(())
    })
    .await;
    let after = ledger(&judged.bridge).await;
    assert_eq!(after, deferred, "nothing is discarded");
    grant.give();
    judged.line.accept().await;
    let after = until_drained(&judged.bridge, 4).await;
    assert_eq!(after.delivered, 1 + deferred.deferred, "{after}");
    assert_eq!(after.dead_letters, deferred.dead_letters, "{after}");
}

#[tokio::test]
async fn i09_kills_in_the_middle_of_deferral_leave_every_message_in_one_place() {
    const MESSAGES: u64 = 300;
    const ROUNDS: u64 = 3;
    const DENIED: u64 = MESSAGES * ROUNDS / 3;
    let grant = Grant::default();
    let behaviour = grant.withholding(0x87, |message| message.topic.starts_with("denied/"));
    let mut judged = Judged::start(behaviour, |config| deferring(config, "10m")).await;
    let message = |number: u64| {
        let kind = if number.is_multiple_of(3) {
            "denied"
        } else {
            "open"
        };
        Publish::new(format!("{kind}/{}", number % 12), number.to_string())
    };
    for round in 0..ROUNDS {
        judged.lose_the_line().await;
        let numbers = MESSAGES * round..MESSAGES * (round + 1);
        publish(judged.source.port(), numbers.map(message)).await;
        until(&judged.bridge, "they are queued", |ledger| {
            ledger.received == MESSAGES
        })
        .await;
        // The source is told after that; what it would not know of at a kill comes again.
        let heard = MESSAGES * (round + 1);
        wait_until("the source knows", PATIENCE, || {
            let log = judged.source.log();
            log.matches("Received PUBACK from bridge-plant ").count() as u64 >= heard
        })
        .await;
        let deferred = judged.destination.publish_count();
        judged.line.accept().await;
        // In the middle: some are deferred, some are not.
        wait_until("it is under way", PATIENCE, || {
            judged.destination.publish_count() > deferred + 40
        })
        .await;
        judged.bridge.kill().await;
        let verified = asked(&judged.installation, "journal verify DATA").await;
        assert_eq!(verified["whole"], true, "{verified}");
        let waits = binding(&judged).await;
        let [queued, deferred, dead] = entries(&waits);
        let all = MESSAGES * (round + 1);
        assert!(queued + deferred <= all, "none is in two places: {waits}");
        assert!(deferred > 0 || queued > 0, "{waits}");
        assert_eq!(dead, 0, "{waits}");
        judged.bridge.relaunch();
        judged.bridge.ready().await;
        let carried = ledger(&judged.bridge).await.carried_over;
        assert_eq!(carried, queued + deferred, "{waits}");
    }
    grant.give();
    let after = until_drained(&judged.bridge, 0).await;
    assert_eq!(after.delivered, after.carried_over, "{after}");
    let arrived = judged.destination.publishes();
    let mut numbers: Vec<u64> = arrived
        .iter()
        .map(|received| received.publish.text().parse().unwrap())
        .collect();
    // The latest offers of what was denied are those that were accepted.
    let denied = numbers.iter().filter(|number| **number % 3 == 0);
    let denied: Vec<u64> = denied.copied().collect();
    let offered = denied.len() - usize::try_from(DENIED).unwrap();
    let mut recovered = denied[offered..].to_vec();
    for topic in 0..12 {
        let of_topic: Vec<_> = recovered.iter().filter(|n| *n % 12 == topic).collect();
        assert!(of_topic.is_sorted(), "denied/{topic}: {of_topic:?}");
    }
    recovered.sort_unstable();
    let expected: Vec<u64> = (0..MESSAGES * ROUNDS).filter(|n| n % 3 == 0).collect();
    assert_eq!(recovered, expected, "each is accepted once");
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..MESSAGES * ROUNDS).collect::<Vec<_>>());
}
