//! A destination that refuses by closing the connection, as MQTT 3.1.1 knows no other way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_testkit::{Behaviour, ReceivedPublish, Reply, wait_for, wait_until};

use crate::judged::Judged;
use crate::setup::{PATIENCE, asked, ledger, of_session, until, until_drained};

fn closing_on_bad() -> Behaviour {
    Behaviour::new().reply(|received: &ReceivedPublish| {
        if received.publish.topic == "bad" {
            Reply::Close
        } else {
            Reply::Accept
        }
    })
}

/// What has arrived other than `bad`, the first time.
fn others(judged: &Judged) -> Vec<String> {
    let mut others = Vec::new();
    for topic in judged.arrived() {
        if topic != "bad" && !others.contains(&topic) {
            others.push(topic);
        }
    }
    others
}

#[tokio::test]
async fn case_13_what_an_older_broker_closes_on_is_found_out_and_the_rest_flows() {
    let mut judged = Judged::start(closing_on_bad(), |config| {
        config
            .cloud("protocol: 3.1.1")
            .binding("deferred: { window: 1s, retry_interval: 1s }")
    })
    .await;
    let topics: Vec<String> = (0..40).map(|number| format!("t/{number}")).collect();
    let mut queued: Vec<&str> = topics.iter().map(String::as_str).collect();
    queued.insert(10, "bad");
    judged.publish_to_the_queue(&queued).await;
    judged.line.accept().await;
    until(&judged.bridge, "the rest flows", |ledger| {
        ledger.delivered == 40 && ledger.queued == 0
    })
    .await;
    assert_eq!(others(&judged), topics, "in order");
    // Its window ends: with traffic in between it is tried again, and then given up.
    let mut number = 0;
    wait_for("it is given up", PATIENCE, async || {
        judged.publish(&[&format!("later/{number}")]).await;
        number += 1;
        (ledger(&judged.bridge).await.dead_letters == 1).then_some(())
    })
    .await;
    let ledger = until_drained(&judged.bridge, 41 + number).await;
    assert_eq!(judged.dead_lettered("suspected_refusal").await, Some(1));
    assert_eq!(ledger.delivered, 40 + number, "{ledger}");
    let list = asked(&judged.installation, "dead-letters list DATA").await;
    let letter = &list["dead_letters"][0];
    assert_eq!(letter["topic"], "bad", "{list}");
    assert_eq!(letter["reason_code"], serde_json::Value::Null, "{list}");
    assert_eq!(letter["reason"], "suspected_refusal", "{list}");
}

#[tokio::test]
async fn i06_live_what_a_broker_of_either_version_closes_on_is_found_out_and_the_rest_flows() {
    for protocol in ["3.1.1", "5"] {
        let judged = Judged::start(closing_on_bad(), |config| {
            config.cloud(format!("protocol: \"{protocol}\""))
        })
        .await;
        judged
            .publish(&["a", "bad", "b", "c", "bad", "d", "e", "f"])
            .await;
        let ledger = until(&judged.bridge, "the rest flows", |ledger| {
            (ledger.delivered, ledger.deferred) == (6, 2)
        })
        .await;
        assert_eq!(ledger.dead_letters, 0, "{ledger}");
        let connections = judged.destination.connections();
        judged.publish(&["bad", "g"]).await;
        until(&judged.bridge, "what comes later lines up", |ledger| {
            (ledger.delivered, ledger.deferred) == (7, 3)
        })
        .await;
        assert_eq!(judged.destination.connections(), connections, "{protocol}");
    }
}

#[tokio::test]
async fn case_13_an_outage_with_the_same_head_condemns_nobody() {
    let away = Arc::new(AtomicBool::new(true));
    let asked_for = Arc::clone(&away);
    let behaviour = Behaviour::new().reply(move |_: &ReceivedPublish| {
        if asked_for.load(Ordering::SeqCst) {
            Reply::Close
        } else {
            Reply::Accept
        }
    });
    // A broker that lets us in and ends every connection at its first message, whichever that is.
    let mut judged = Judged::start(behaviour, |config| config.cloud("protocol: 3.1.1")).await;
    judged.publish_to_the_queue(&["bad", "a", "b"]).await;
    judged.line.accept().await;
    let so_far = judged.destination.connections();
    // Three times running would be a finding, if others were accepted in between. The pauses double.
    wait_until("it is tried again and again", PATIENCE, || {
        judged.destination.connections() > so_far + 5
    })
    .await;
    // And one that is not there at all.
    judged.lose_the_line().await;
    let name = "bridge_mqtt_session_connect_failures_total";
    let before = of_session(&judged.bridge, name, "cloud").await;
    wait_for("it is tried in vain", PATIENCE, async || {
        let failures = of_session(&judged.bridge, name, "cloud").await;
        (failures > before + 3).then_some(())
    })
    .await;
    let during = until(&judged.bridge, "a quiet moment", |_| true).await;
    assert_eq!((during.queued, during.deferred), (3, 0), "{during}");
    assert_eq!(during.dead_letters, 0, "{during}");
    away.store(false, Ordering::SeqCst);
    judged.line.accept().await;
    let after = until_drained(&judged.bridge, 3).await;
    assert_eq!((after.delivered, after.dead_letters), (3, 0), "{after}");
    let arrived = judged.arrived();
    assert_eq!(arrived[arrived.len() - 3..], ["bad", "a", "b"]);
    assert_eq!(judged.dead_lettered("suspected_refusal").await, None);
}
