//! The bridge's own restarts.

use bridge_testkit::{
    Behaviour, BridgeConfig, BridgeProcess, Collector, Installation, Ledger, Mosquitto, Publish,
    Reply, ScriptedBroker, numbered, wait_until,
};

use crate::setup::{BRIDGE, Line, PATIENCE, ledger, publish, until_drained, until_live};

/// Waits until the source has heard of so many messages that they are settled: those it would not
/// have heard of at a kill come again.
pub(crate) async fn until_acknowledged(source: &Mosquitto, client_id: &str, messages: usize) {
    let heard = format!("Received PUBACK from {client_id} ");
    wait_until("the source knows", PATIENCE, || {
        source.log().matches(&heard).count() >= messages
    })
    .await;
}

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
        until_acknowledged(&line.source, "bridge-plant", 300).await;
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
    assert_eq!(after.delivered, 390, "{after}");
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!(tally.missing(400), [0_u64; 0]);
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
    let refusing = Behaviour::new().reply(|received| {
        if received.publish.topic.starts_with("denied/") {
            Reply::Code(0x87)
        } else {
            Reply::Accept
        }
    });
    let source = Mosquitto::start().await;
    let destination = ScriptedBroker::behaving(refusing).await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = Installation::new(&config);
    let mut bridge = installation.bridge(BRIDGE).start().await;
    for round in 1..=3_u64 {
        let topics = ["fine/1", "denied/1", "fine/2", "denied/2", "fine/3"];
        let messages = topics.map(|topic| Publish::new(topic, round.to_string()));
        until_live(&bridge, "all/out", usize::try_from(round).unwrap()).await;
        publish(source.port(), messages).await;
        let settled = until_drained(&bridge, 5).await;
        assert_eq!(settled.carried_over, 2 * (round - 1), "{settled}");
        assert_eq!(
            (settled.delivered, settled.dead_letters),
            (3, 2 * round),
            "{settled}"
        );
        if round == 2 {
            until_acknowledged(&source, "bridge-plant", 10).await;
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

#[tokio::test]
async fn i09_each_binding_of_a_fan_out_delivers_all_of_its_own_across_a_kill() {
    let source = Mosquitto::start().await;
    let up = Mosquitto::builder().persistence(true).start().await;
    let mut away = Mosquitto::builder().persistence(true).start().await;
    let collectors = [
        Collector::start(up.port(), "t/#").await,
        Collector::start(away.port(), "t/#").await,
    ];
    away.stop().await;
    let installation = Installation::with(|port| {
        format!(
            "bridge: {{ id: test }}\n\
             data_dir: data\n\
             monitor: {{ listen: \"127.0.0.1:{port}\" }}\n\
             sessions:\n\
             \x20 plant: {{ url: \"{}\", client_id: plant }}\n\
             \x20 up: {{ url: \"{}\", client_id: up }}\n\
             \x20 away: {{ url: \"{}\", client_id: away, reconnect: {{ min: 20ms, max: 200ms }} }}\n\
             routes:\n\
             \x20 all:\n\
             \x20   from: {{ session: plant, topics: [\"#\"] }}\n\
             \x20   bindings: {{ up: {{ session: up }}, away: {{ session: away }} }}\n",
            source.url(),
            up.url(),
            away.url(),
        )
    });
    let mut bridge = installation.bridge(BRIDGE).start().await;
    let until = async |bridge: &BridgeProcess, binding, condition: &dyn Fn(&Ledger) -> bool| {
        Ledger::until(bridge, ("all", binding), "its ledger", PATIENCE, condition).await
    };
    // What is queued for this one as well may come again after the kill.
    until_live(&bridge, "all/up", 1).await;
    publish(source.port(), (0..500).map(|n| numbered("t", n, 256))).await;
    collectors[0].until(500, PATIENCE).await;
    until(&bridge, "up", &|ledger| {
        ledger.delivered == 500 && ledger.is_drained()
    })
    .await;
    until(&bridge, "away", &|ledger| ledger.queued == 500).await;
    until_acknowledged(&source, "plant", 500).await;
    bridge.kill().await;
    bridge.relaunch();
    bridge.ready().await;
    until(&bridge, "away", &|ledger| ledger.carried_over == 500).await;
    publish(source.port(), (500..600).map(|n| numbered("t", n, 256))).await;
    away.restart().await;
    for (collector, binding) in collectors.iter().zip(["up", "away"]) {
        collector.until(600, PATIENCE).await;
        until(&bridge, binding, &|ledger| {
            ledger.is_drained() && ledger.received >= 100
        })
        .await;
        collector.barrier().await;
        let tally = collector.tally();
        assert_eq!(tally.missing(600), [0_u64; 0], "{binding}");
        assert_eq!(
            (tally.duplicates(), tally.out_of_order()),
            (0, 0),
            "{binding}"
        );
    }
}

#[tokio::test]
async fn a_second_bridge_on_the_same_data_is_refused_and_harms_nothing() {
    let line = Line::start(|config| config).await;
    let other = BridgeConfig::between(line.source.url(), line.destination.url())
        .top("# another port for the monitor, the same data");
    let other = Installation::with(|port| {
        let data = line.installation.data_dir();
        let yaml = other.to_yaml(port);
        yaml.replace("data_dir: data", &format!("data_dir: {}", data.display()))
    });
    let mut second = other.bridge(BRIDGE).spawn();
    let status = second.wait().await;
    assert_eq!(status.code(), Some(1), "{}", second.output());
    let pid = line.bridge.pid().unwrap().to_string();
    assert!(
        second.stderr().contains(&pid),
        "who holds it is not in: {}",
        second.stderr()
    );
    let mut subscriber = line.subscriber().await;
    line.publish([Publish::new("t", "x")]).await;
    assert_eq!(subscriber.recv(PATIENCE).await.unwrap().topic, "t");
}

#[tokio::test]
async fn a_monitor_port_in_use_stops_the_start_before_anything_connects() {
    let line = Line::start(|config| config).await;
    let taken = line.bridge.monitor_port();
    let source = ScriptedBroker::accepting().await;
    let config = BridgeConfig::between(source.url(), line.destination.url());
    let installation = Installation::with(|_| config.to_yaml(taken));
    let mut second = installation.bridge(BRIDGE).spawn();
    assert_eq!(second.wait().await.code(), Some(1), "{}", second.output());
    let printed = second.stderr();
    assert!(printed.contains("monitor.listen"), "{printed}");
    assert_eq!(source.connections(), 0);
}
