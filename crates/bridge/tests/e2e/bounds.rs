//! A destination that is away for long, and a queue with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bridge_testkit::{
    Behaviour, BridgeConfig, BridgeProcess, Collector, Installation, Mosquitto, Proxy,
    ScriptedBroker, Tally, numbered, wait_for, wait_until,
};
use tokio::sync::watch;

use crate::setup::{
    BRIDGE, PATIENCE, Withholding, ledger, publish, until, until_drained, until_live,
};

const BOUND: u64 = 100;
const SENT: u64 = 1_000;

/// What the destination gets of 1,000 messages for which there was room for 100: the numbers that
/// are missing.
async fn after_a_long_outage(policy: &str) -> Vec<u64> {
    let source = Mosquitto::start().await;
    let mut destination = Mosquitto::builder().persistence(true).start().await;
    let collector = Collector::start(destination.port(), "t/#").await;
    destination.stop().await;
    let line = Proxy::start(destination.port()).await;
    let config = BridgeConfig::between(source.url(), line.url()).binding(format!(
        "queue: {{ max_entries: {BOUND}, on_full: {policy} }}"
    ));
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;

    publish(source.port(), (0..SENT).map(|n| numbered("t", n, 64))).await;
    let dropped = until(&bridge, "all have come", |ledger| {
        assert!(ledger.queued <= BOUND, "{ledger}");
        ledger.received == SENT
    })
    .await;
    assert_eq!((dropped.queued, dropped.dropped), (BOUND, SENT - BOUND));
    let by_policy = bridge.metrics().await;
    assert_eq!(
        by_policy.whole("bridge_dropped_total", &[("policy", policy)]),
        Some(SENT - BOUND)
    );

    // Attempts to connect come and go; the queue stays as it is.
    for _ in 0..5 {
        let attempts = line.connections();
        wait_until("another attempt to connect", PATIENCE, || {
            line.connections() > attempts
        })
        .await;
        assert_eq!(ledger(&bridge).await, dropped);
    }

    destination.restart().await;
    let after = until_drained(&bridge, SENT).await;
    assert_eq!(after.delivered, BOUND, "{after}");
    collector.until(BOUND, PATIENCE).await;
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));
    assert_eq!(tally.distinct(), BOUND);
    tally.missing(SENT)
}

#[tokio::test]
async fn case_06_a_bounded_queue_keeps_the_newest_through_a_long_outage() {
    let missing = after_a_long_outage("drop_oldest").await;
    assert_eq!(missing, (0..SENT - BOUND).collect::<Vec<_>>());
}

#[tokio::test]
async fn case_06_a_bounded_queue_keeps_the_first_through_a_long_outage() {
    let missing = after_a_long_outage("drop_newest").await;
    assert_eq!(missing, (BOUND..SENT).collect::<Vec<_>>());
}

#[tokio::test]
async fn case_06_back_pressure_leaves_the_rest_with_the_source_and_loses_nothing() {
    let source = Mosquitto::start().await;
    let mut destination = Mosquitto::builder().persistence(true).start().await;
    let collector = Collector::start(destination.port(), "t/#").await;
    destination.stop().await;
    let config = BridgeConfig::between(source.url(), destination.url())
        .binding(format!("queue: {{ max_entries: {BOUND} }}"));
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    publish(source.port(), (0..SENT).map(|n| numbered("t", n, 64))).await;
    // The source's window is open: what is not queued is held, and what is not held is not sent.
    let full = wait_for("the source's window is full", PATIENCE, async || {
        let ledger = ledger(&bridge).await;
        assert!(ledger.queued <= BOUND, "{ledger}");
        (ledger.queued == BOUND && ledger.in_progress > 0).then_some(ledger)
    })
    .await;
    assert!(full.received < SENT, "{full}");
    destination.restart().await;
    collector.until(SENT, Duration::from_secs(60)).await;
    let after = until_drained(&bridge, SENT).await;
    assert_eq!((after.delivered, after.dropped), (SENT, 0), "{after}");
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));
}

/// The most memory that a process has had, in MiB.
fn peak_memory(bridge: &BridgeProcess) -> u64 {
    let path = format!("/proc/{}/status", bridge.pid().unwrap());
    let status = std::fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn a_source_that_sends_more_than_it_may_is_held_back_and_all_crosses() {
    const MESSAGES: u16 = 300;
    const MIB: usize = 1 << 20;
    let sent = Arc::new(AtomicU16::new(0));
    let sending = Arc::clone(&sent);
    let begin = watch::Sender::new(false);
    let may_begin = begin.subscribe();
    let source = ScriptedBroker::start(move |mut connection| {
        let sending = Arc::clone(&sending);
        let mut may_begin = may_begin.clone();
        async move {
            connection.accept(&[]).await;
            let subscribe = connection.expect_subscribe().await;
            connection.suback(subscribe.id, &[1]).await;
            may_begin.wait_for(|may| *may).await.unwrap();
            for id in 1..=MESSAGES {
                let message = numbered("t", u64::from(id - 1), MIB).id(id);
                connection.publish(message).await;
                sending.store(id, Ordering::SeqCst);
            }
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let destination = Withholding::start().await;
    let config = BridgeConfig::between(source.url(), destination.broker.url())
        .plant("receive_maximum: 10")
        .cloud("answer_timeout: 10m")
        .cloud("write_timeout: 10m");
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    // What came before that would be queued and acknowledged, as much as the source has.
    until_live(&bridge, "all/out", 1).await;
    begin.send_replace(true);
    let (mut before, mut looks) = (0, 0);
    wait_until("the source cannot send any more", PATIENCE, || {
        let now = sent.load(Ordering::SeqCst);
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
        now > 10 && looks > 100
    })
    .await;
    assert!(
        sent.load(Ordering::SeqCst) < MESSAGES,
        "nothing held it back"
    );
    destination.release().await;
    until_drained(&bridge, u64::from(MESSAGES)).await;
    let mut tally = Tally::default();
    for received in destination.broker.publishes() {
        tally.record(&received.publish);
    }
    assert_eq!(tally.missing(u64::from(MESSAGES)), [0_u64; 0]);
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));
    let peak = peak_memory(&bridge);
    assert!(peak < 220, "{peak} MiB for {MESSAGES} messages of 1 MiB");
}
