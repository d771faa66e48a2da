//! Ending in good order.

use std::collections::HashSet;
use std::time::Duration;

use bridge_testkit::{
    BridgeConfig, BridgeProcess, Installation, Mosquitto, Packet, Publish, ScriptedBroker,
    wait_for, wait_until,
};
use tokio::time::Instant;

use crate::setup::{
    BRIDGE, PATIENCE, Withholding, ledger, publish, until, until_drained, until_live,
};

/// The numbers of the connections on which DISCONNECT came.
fn farewells(broker: &ScriptedBroker) -> Vec<usize> {
    let packets = broker.packets().into_iter();
    packets
        .filter_map(|(connection, packet)| match packet {
            Packet::Disconnect(disconnect) if disconnect.code == 0 => Some(connection),
            _ => None,
        })
        .collect()
}

async fn ends_in_good_order(signal: impl Fn(&BridgeProcess)) {
    let source = ScriptedBroker::accepting().await;
    let destination = ScriptedBroker::accepting().await;
    let config = BridgeConfig::between(source.url(), destination.url()).top("drain_timeout: 10s");
    let installation = Installation::new(&config);
    let process = installation.bridge(BRIDGE).ready_path("/readyz?level=full");
    let mut bridge = process.start().await;
    let asked = Instant::now();
    signal(&bridge);
    let status = bridge.wait().await;
    assert_eq!(status.code(), Some(0), "{}", bridge.output());
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    for broker in [&source, &destination] {
        wait_until("both say goodbye", PATIENCE, || farewells(broker) == [0]).await;
        assert_eq!(broker.connections(), 1);
    }
}

#[tokio::test]
async fn sigterm_ends_the_service_in_good_order() {
    ends_in_good_order(BridgeProcess::sigterm).await;
}

#[tokio::test]
async fn sigint_ends_the_service_in_good_order() {
    ends_in_good_order(BridgeProcess::sigint).await;
}

#[tokio::test]
async fn one_wish_that_arrives_as_two_signals_ends_the_service_in_good_order() {
    ends_in_good_order(|bridge| {
        // It finds both, however long this takes.
        bridge.pause();
        bridge.sigterm();
        bridge.sigint();
        bridge.resume();
    })
    .await;
}

#[tokio::test]
async fn a_service_that_never_got_a_connection_ends_as_well() {
    let (nobody, nothing) = (
        bridge_testkit::PortLease::take(),
        bridge_testkit::PortLease::take(),
    );
    let url = |port: u16| format!("mqtt://127.0.0.1:{port}");
    let config = BridgeConfig::between(url(nobody.port()), url(nothing.port()));
    let installation = Installation::new(&config);
    let mut bridge = installation
        .bridge(BRIDGE)
        .ready_path("/livez")
        .start()
        .await;
    bridge.sigterm();
    assert_eq!(bridge.wait().await.code(), Some(0), "{}", bridge.output());
}

/// Messages under way when the service is asked to end.
const UNDER_WAY: u64 = 436;

struct Busy {
    source: Mosquitto,
    destination: Withholding,
    _installation: Installation,
    bridge: BridgeProcess,
}

impl Busy {
    /// A bridge with 436 messages under way, 256 of them sent and not answered.
    async fn start(drain_timeout: &str) -> Self {
        let source = Mosquitto::builder()
            .max_inflight_messages(1_000)
            .start()
            .await;
        let destination = Withholding::start().await;
        let config = BridgeConfig::between(source.url(), destination.broker.url())
            .top(format!("drain_timeout: {drain_timeout}"))
            .plant("receive_maximum: 1000")
            .cloud("max_in_flight: 256");
        let installation = Installation::new(&config);
        let bridge = installation.bridge(BRIDGE).start().await;
        until_live(&bridge, "all/out", 1).await;
        publish(source.port(), (0..UNDER_WAY).map(message)).await;
        wait_for("all are under way", PATIENCE, async || {
            let ledger = ledger(&bridge).await;
            let sent = destination.broker.publish_count();
            (ledger.in_progress == UNDER_WAY && sent == 256).then_some(())
        })
        .await;
        Self {
            source,
            destination,
            _installation: installation,
            bridge,
        }
    }

    fn arrived(&self) -> Vec<String> {
        let arrived = self.destination.broker.publishes().into_iter();
        arrived
            .map(|received| received.publish.text().to_owned())
            .collect()
    }
}

fn message(number: u64) -> Publish {
    Publish::new("t", number.to_string())
}

#[tokio::test]
async fn case_35_what_is_under_way_settles_before_the_end_and_the_rest_stays_at_the_source() {
    let mut busy = Busy::start("20s").await;
    busy.bridge.sigterm();
    wait_for("readiness falls", PATIENCE, async || {
        let answer = busy.bridge.get("/readyz?level=live").await.unwrap();
        (answer.status == 503).then_some(())
    })
    .await;
    // Intake has stopped: this stays where it is.
    publish(busy.source.port(), (UNDER_WAY..UNDER_WAY + 10).map(message)).await;
    assert_eq!(ledger(&busy.bridge).await.received, UNDER_WAY);
    busy.destination.release().await;
    let status = busy.bridge.wait().await;
    assert_eq!(status.code(), Some(0), "{}", busy.bridge.output());
    let numbers = |to: u64| (0..to).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(busy.arrived(), numbers(UNDER_WAY), "once and in order");
    wait_until("it says goodbye", PATIENCE, || {
        farewells(&busy.destination.broker) == [0]
    })
    .await;

    busy.bridge.relaunch();
    busy.bridge.ready().await;
    let after = until_drained(&busy.bridge, 10).await;
    assert_eq!((after.carried_over, after.received), (0, 10), "{after}");
    assert_eq!(
        busy.arrived(),
        numbers(UNDER_WAY + 10),
        "nothing was lost or doubled"
    );
}

#[tokio::test]
async fn case_35_what_does_not_settle_in_time_stays_at_the_source() {
    let mut busy = Busy::start("1s").await;
    let asked = Instant::now();
    busy.bridge.sigterm();
    let status = busy.bridge.wait().await;
    assert_eq!(status.code(), Some(0), "{}", busy.bridge.output());
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    busy.destination.release().await;
    busy.bridge.relaunch();
    busy.bridge.ready().await;
    wait_until("all arrive", PATIENCE, || {
        busy.arrived().iter().collect::<HashSet<_>>().len() as u64 == UNDER_WAY
    })
    .await;
    until(&busy.bridge, "all is settled", |ledger| {
        ledger.is_drained() && ledger.received + ledger.carried_over == UNDER_WAY
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let mut busy = Busy::start("20s").await;
    busy.bridge.sigterm();
    wait_for("it is stopping", PATIENCE, async || {
        let answer = busy.bridge.get("/readyz?level=live").await.unwrap();
        (answer.status == 503).then_some(())
    })
    .await;
    let asked = Instant::now();
    // What comes right behind the first is taken for its echo.
    let status = wait_for("it has ended", PATIENCE, async || {
        let ended = busy.bridge.try_wait();
        if ended.is_none() {
            busy.bridge.sigint();
        }
        ended
    })
    .await;
    assert_eq!(status.code(), Some(1), "{}", busy.bridge.output());
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
}
