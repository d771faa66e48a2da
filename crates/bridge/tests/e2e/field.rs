//! One refused message at the head, and thousands behind it.

use bridge_testkit::{
    BridgeConfig, Collector, Installation, Mosquitto, Proxy, Publish, Tally, numbered,
};

use crate::judged::{Judged, refusing};
use crate::setup::{BRIDGE, PATIENCE, asked, publish, until, until_drained, until_queued};

/// How many messages stood behind the one that was refused, where this was seen.
const BEHIND: u64 = 8_404;

fn behind_a_refused_one() -> impl Iterator<Item = Publish> {
    let rest = (0..BEHIND).map(|number| numbered("audit", number, 64));
    std::iter::once(Publish::new("denied", "x")).chain(rest)
}

#[tokio::test]
async fn i02_behind_what_an_acl_denies_8404_messages_arrive_in_the_same_pass() {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::builder()
        .acl("topic read #\ntopic write audit/#\ntopic write testkit/#\n")
        .start()
        .await;
    let collector = Collector::start(destination.port(), "audit/#").await;
    let mut line = Proxy::start(destination.port()).await;
    line.refuse().await;
    let config = BridgeConfig::between(source.url(), line.url());
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    publish(source.port(), behind_a_refused_one()).await;
    until_queued(&bridge, BEHIND + 1).await;

    line.accept().await;
    let ledger = until(&bridge, "what is behind it arrives", |ledger| {
        ledger.queued == 0
    })
    .await;
    assert_eq!((ledger.delivered, ledger.deferred), (BEHIND, 1), "{ledger}");
    assert_eq!(ledger.dead_letters, 0, "{ledger}");
    collector.until(BEHIND, PATIENCE).await;
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));

    // In one pass: on the one connection, with the denied message offered once.
    let log = destination.log();
    assert_eq!(log.matches(" as bridge-cloud ").count(), 1);
    assert_eq!(log.matches("Denied PUBLISH from bridge-cloud ").count(), 1);
    let status = asked(&installation, "queue status DATA").await;
    assert_eq!(status["bindings"][0]["deferred"]["entries"], 1, "{status}");
    let metrics = bridge.metrics().await;
    assert_eq!(metrics.whole("bridge_queue_blocked", &[]), Some(0));
    assert_eq!(
        metrics.whole("bridge_queue_replayed_total", &[]),
        Some(BEHIND)
    );
}

#[tokio::test]
async fn i02_behind_what_is_refused_for_good_8404_messages_arrive_in_the_same_pass() {
    let mut judged = Judged::start(refusing("denied", 0x90), |config| config).await;
    judged.lose_the_line().await;
    publish(judged.source.port(), behind_a_refused_one()).await;
    until_queued(&judged.bridge, BEHIND + 1).await;
    let connects = judged.destination.connections();
    judged.line.accept().await;
    let ledger = until_drained(&judged.bridge, BEHIND + 1).await;
    assert_eq!(
        (ledger.delivered, ledger.dead_letters),
        (BEHIND, 1),
        "{ledger}"
    );
    assert_eq!(judged.dead_lettered("topic_name_invalid").await, Some(1));
    assert_eq!(judged.destination.connections(), connects + 1);
    let mut arrived = judged.destination.publishes().into_iter();
    assert_eq!(arrived.next().unwrap().publish.topic, "denied");
    let mut tally = Tally::default();
    arrived.for_each(|received| tally.record(&received.publish));
    assert_eq!(tally.missing(BEHIND), [0_u64; 0]);
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));
}
