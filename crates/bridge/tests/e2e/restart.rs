//! The bridge's own restarts.

use bridge_testkit::{Collector, Publish, ScriptedBroker, numbered, wait_until};

use crate::setup::{BRIDGE, Line, PATIENCE, ledger};

/// What waits when the bridge ends is delivered by its next process.
async fn what_waits_survives(killed: bool) {
    let mut line = Line::start(|config| config).await;
    let collector = Collector::start(line.destination.port(), "t/#").await;
    line.publish((0..10).map(|n| numbered("t", n, 256))).await;
    collector.until(10, PATIENCE).await;
    line.drained(10).await;
    line.destination.stop().await;
    line.publish((10..300).map(|n| numbered("t", n, 256))).await;
    line.queued(290).await;
    if killed {
        line.bridge.kill().await;
    } else {
        line.bridge.sigterm();
        assert!(line.bridge.wait().await.success());
    }
    line.bridge.relaunch();
    line.bridge.ready().await;
    let carried = ledger(&line.bridge).await;
    assert_eq!((carried.carried_over, carried.queued), (290, 290));
    assert!(carried.balances(), "{carried}");

    line.publish((300..400).map(|n| numbered("t", n, 256)))
        .await;
    line.queued(390).await;
    line.destination.restart().await;
    collector.until(400, PATIENCE).await;
    let after = line.drained(100).await;
    assert!(after.balances(), "{after}");
    assert_eq!(after.delivered, 390, "{after}");
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!(tally.missing(400), []);
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));
}

#[tokio::test]
async fn case_03_a_bridge_restarted_while_the_destination_is_away_delivers_all_that_waited() {
    what_waits_survives(false).await;
}

#[tokio::test]
async fn case_03_a_bridge_killed_while_the_destination_is_away_delivers_all_that_waited() {
    what_waits_survives(true).await;
}

#[tokio::test]
async fn i24_the_ledger_balances_across_restarts_with_every_kind_of_end() {
    let refusing = bridge_testkit::Behaviour::new().reply(|received| {
        if received.publish.topic.starts_with("denied/") {
            bridge_testkit::Reply::Code(0x87)
        } else {
            bridge_testkit::Reply::Accept
        }
    });
    let source = bridge_testkit::Mosquitto::start().await;
    let destination = ScriptedBroker::behaving(refusing).await;
    let config = bridge_testkit::BridgeConfig::between(source.url(), destination.url());
    let installation = bridge_testkit::Installation::new(&config);
    let mut bridge = installation.bridge(BRIDGE).start().await;
    for round in 1..=3_u64 {
        let topics = ["fine/1", "denied/1", "fine/2", "denied/2", "fine/3"];
        let messages = topics.map(|topic| Publish::new(topic, round.to_string()));
        crate::setup::publish(source.port(), messages).await;
        let settled = crate::setup::until_drained(&bridge, 5).await;
        assert!(settled.balances(), "{settled}");
        assert_eq!(settled.carried_over, 2 * (round - 1), "{settled}");
        assert_eq!(
            (settled.delivered, settled.dead_letters),
            (3, 2 * round),
            "{settled}"
        );
        if round == 2 {
            bridge.kill().await;
        } else {
            bridge.sigterm();
            assert!(bridge.wait().await.success());
        }
        bridge.relaunch();
        bridge.ready().await;
        let carried = ledger(&bridge).await;
        assert!(carried.balances(), "{carried}");
    }
    wait_until("all are sent once", PATIENCE, || {
        destination.publish_count() >= 15
    })
    .await;
    assert_eq!(
        destination.publish_count(),
        15,
        "a dead letter is not sent again"
    );
}
