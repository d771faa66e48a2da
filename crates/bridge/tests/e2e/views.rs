//! How idle, held and blocked bindings read in every view.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bridge_testkit::{Behaviour, PortLease, ReceivedPublish, Reply, wait_for};

use crate::admin::{Admin, TOKEN};
use crate::judged::{Grant, Judged};
use crate::setup::{PATIENCE, asked, until_drained};

/// What an operator sees of the only binding.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    connected: u64,
    depth: u64,
    deferred: u64,
    blocked: u64,
    ready: Vec<String>,
}

async fn seen(judged: &Judged) -> Seen {
    let answer = judged.bridge.get("/readyz?level=full").await.unwrap();
    assert_eq!(answer.status == 200, answer.body == "ready\n", "{answer:?}");
    let metrics = judged.bridge.metrics().await;
    let whole = |name: &str| metrics.whole(name, &[]).unwrap();
    let cloud = [("session", "cloud")];
    Seen {
        connected: metrics
            .whole("bridge_mqtt_session_connected", &cloud)
            .unwrap(),
        depth: whole("bridge_queue_depth"),
        deferred: whole("bridge_queue_deferred"),
        blocked: whole("bridge_queue_blocked"),
        ready: answer.body.lines().map(str::to_owned).collect(),
    }
}

async fn until_seen(judged: &Judged, what: &str, expected: Seen) {
    let mut latest = None;
    let found = tokio::time::timeout(
        PATIENCE,
        wait_for(what, PATIENCE * 2, async || {
            let now = seen(judged).await;
            let found = now == expected;
            latest = Some(now);
            found.then_some(())
        }),
    )
    .await;
    assert!(found.is_ok(), "{what}: {latest:?} is not {expected:?}");
}

fn state(connected: u64, depth: u64, deferred: u64, blocked: u64, ready: &[&str]) -> Seen {
    Seen {
        connected,
        depth,
        deferred,
        blocked,
        ready: ready.iter().map(|line| (*line).to_owned()).collect(),
    }
}

const AWAY: &str = "session cloud: destination not connected";

#[tokio::test]
async fn i12_idle_held_and_blocked_differ_in_every_view() {
    let quota = Grant::default();
    let admin = PortLease::take();
    let listen = format!("127.0.0.1:{}", admin.port());
    let withholding = quota.withholding(0x97, |_| true);
    let mut judged = Judged::start(withholding, |config| {
        config.top(format!("admin: {{ listen: \"{listen}\", token: {TOKEN} }}"))
    })
    .await;
    until_seen(&judged, "idle", state(1, 0, 0, 0, &["ready"])).await;
    judged.lose_the_line().await;
    until_seen(&judged, "away", state(0, 0, 0, 0, &[AWAY])).await;
    judged.publish(&["a", "b"]).await;
    let held = ["binding all/out: blocked, 2 queued"];
    let away = [AWAY, held[0]];
    until_seen(&judged, "held", state(0, 2, 0, 1, &away)).await;
    judged.line.accept().await;
    until_seen(&judged, "blocked", state(1, 2, 0, 1, &held)).await;
    let admin = Admin(admin.port());
    wait_for("why is told", PATIENCE, async || {
        let binding = &admin.get("/bindings").await["items"][0];
        let why = binding["why"].as_str()?;
        let named = why.contains("not taken: quota_exceeded (0x97), ");
        (named && binding["head"]["reason"] == "quota_exceeded").then_some(())
    })
    .await;
    let status = asked(&judged.installation, "queue status DATA").await;
    assert_eq!(status["bindings"][0]["queue"]["entries"], 2, "{status}");
    quota.give();
    until_drained(&judged.bridge, 2).await;
    until_seen(&judged, "idle again", state(1, 0, 0, 0, &["ready"])).await;
    // That something is delivered may be written a little later.
    wait_for("nothing waits in the folder", PATIENCE, async || {
        let status = asked(&judged.installation, "queue status DATA").await;
        status["bindings"]
            .as_array()
            .unwrap()
            .is_empty()
            .then_some(())
    })
    .await;
    assert_eq!(judged.destination.connections(), 2, "one for each outage");
}

#[tokio::test]
async fn i12_blocked_is_one_exactly_while_the_latest_attempt_on_the_head_has_failed() {
    // The first is refused for now twice, then not answered until the line is cut, then accepted.
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&asked_for);
    let behaviour = Behaviour::new().reply(move |received: &ReceivedPublish| {
        if received.publish.topic != "head" {
            return Reply::Accept;
        }
        match counting.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Reply::Code(0x97),
            2 => Reply::Silence,
            3 => Reply::Code(0x91),
            _ => Reply::Accept,
        }
    });
    let mut judged = Judged::start(behaviour, |config| config.cloud("max_in_flight: 1")).await;
    judged.publish_to_the_queue(&["head", "next"]).await;
    judged.line.accept().await;
    let held = ["binding all/out: blocked, 2 queued"];
    wait_for(
        "it is refused twice and offered again",
        PATIENCE,
        async || {
            let times = asked_for.load(Ordering::SeqCst);
            if times > 0 {
                let now = seen(&judged).await;
                assert_eq!(now, state(1, 2, 0, 1, &held), "after {times} offers");
            }
            (times == 3).then_some(())
        },
    )
    .await;
    judged.line.cut(bridge_testkit::Cut::Reset);
    until_drained(&judged.bridge, 2).await;
    until_seen(&judged, "idle", state(1, 0, 0, 0, &["ready"])).await;
    assert_eq!(asked_for.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn i12_what_is_deferred_or_given_up_does_not_block() {
    let grant = Grant::default();
    let behaviour = grant.withholding(0x87, |message| message.topic == "denied");
    let mut judged = Judged::start(behaviour, |config| config).await;
    judged.publish_to_the_queue(&["denied", "a"]).await;
    judged.line.accept().await;
    until_seen(&judged, "deferred", state(1, 0, 1, 0, &["ready"])).await;
    judged.publish(&["denied", "b"]).await;
    until_seen(&judged, "lined up", state(1, 0, 2, 0, &["ready"])).await;
}
