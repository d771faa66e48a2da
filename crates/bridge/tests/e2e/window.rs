//! What a destination allows: how much may be open, what may be retained; and a long backlog.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bridge_testkit::{
    Ack, AckKind, Behaviour, BridgeConfig, Collector, ConnAck, Installation, Ledger, Mosquitto,
    Packet, Property, Proxy, Publish, RawClient, ReceivedPublish, Reply, ScriptedBroker, numbered,
    wait_for, wait_until,
};

use crate::judged::Judged;
use crate::setup::{
    BRIDGE, PATIENCE, ledger, publish, until, until_drained, until_live, until_queued,
};

#[tokio::test]
async fn case_17_never_more_is_open_than_allowed_in_the_first_burst_of_a_backlog_too() {
    const BACKLOG: usize = 50;
    const ALLOWED: [u16; 2] = [5, 2];
    // What is unanswered on the second connection, until all is answered at once. The first there
    // is answered: what has seen the end of a connection goes alone until it is.
    let withheld: Arc<Mutex<Option<Vec<u16>>>> = Arc::new(Mutex::new(Some(Vec::new())));
    let sharing = Arc::clone(&withheld);
    let second = AtomicUsize::new(0);
    let behaviour = Behaviour::new()
        .connacks(|number| ConnAck {
            properties: vec![Property::ReceiveMaximum(ALLOWED[number.min(1)])],
            ..ConnAck::default()
        })
        .reply(move |received: &ReceivedPublish| {
            let mut withheld = sharing.lock().unwrap();
            let Some(ids) = withheld.as_mut() else {
                return Reply::Accept;
            };
            if received.connection > 0 {
                if second.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Reply::Accept;
                }
                ids.push(received.publish.id);
            }
            Reply::Silence
        });
    let source = Mosquitto::start().await;
    let destination = ScriptedBroker::behaving(behaviour).await;
    let mut line = Proxy::start(destination.port()).await;
    line.refuse().await;
    let config = BridgeConfig::between(source.url(), line.url()).cloud("keep_alive: 3s");
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    publish(
        source.port(),
        (0..BACKLOG).map(|n| Publish::new("t", n.to_string())),
    )
    .await;
    until_queued(&bridge, BACKLOG as u64).await;
    line.accept().await;
    for (connection, allowed) in ALLOWED.into_iter().enumerate() {
        // A ping after the burst: the client had nothing to send that it may.
        let burst = wait_for("a ping behind the burst", PATIENCE, async || {
            let packets = destination.packets();
            let own = packets.iter().filter(|(number, _)| *number == connection);
            let (mut sent, answered) = (0, connection);
            for (_, packet) in own {
                match packet {
                    Packet::Publish(_) => sent += 1,
                    Packet::PingReq if sent > answered => return Some(sent - answered),
                    _ => {}
                }
            }
            None
        })
        .await;
        assert_eq!(burst, usize::from(allowed), "connection {connection}");
        if connection == 0 {
            destination.close_all();
        }
    }
    let open = withheld.lock().unwrap().take().unwrap();
    for id in open {
        let accepted = Packet::Ack(Ack::new(AckKind::PubAck, id, 0));
        destination.send_packet_to_all(&accepted).await;
    }
    let ledger = until_drained(&bridge, BACKLOG as u64).await;
    assert_eq!(ledger.delivered, BACKLOG as u64, "{ledger}");
    assert_eq!(destination.connections(), 2);
    let arrived = destination.publishes().into_iter();
    let on_the_second = arrived.filter(|received| received.connection == 1);
    let numbers: Vec<_> = on_the_second
        .map(|received| received.publish.text().to_owned())
        .collect();
    let all: Vec<_> = (0..BACKLOG).map(|n| n.to_string()).collect();
    assert_eq!(numbers, all, "all again, in order");
}

/// A retained message, live and from the queue, for a destination that retains nothing.
async fn where_nothing_is_retained(policy: &str) -> Judged {
    let behaviour = Behaviour::new().connack([Property::RetainAvailable(0)]);
    let mut judged = Judged::start(behaviour, |config| {
        config.cloud(format!("on_retain_unavailable: {policy}"))
    })
    .await;
    let messages = || ["before", "behind"].map(|topic| Publish::new(topic, "x"));
    let [before, behind] = messages();
    let retained = Publish::new("retained", "x").retained();
    publish(judged.source.port(), [before, retained.clone(), behind]).await;
    until_drained(&judged.bridge, 3).await;
    judged.lose_the_line().await;
    let [before, behind] = messages();
    publish(judged.source.port(), [before, retained, behind]).await;
    until_queued(&judged.bridge, 3).await;
    judged.line.accept().await;
    until_drained(&judged.bridge, 6).await;
    assert_eq!(judged.destination.connections(), 2, "one for each outage");
    judged
}

#[tokio::test]
async fn case_15_a_retained_message_goes_without_its_flag_and_is_counted_where_that_is_wanted() {
    let judged = where_nothing_is_retained("strip").await;
    let expected = ["before", "retained", "behind"].repeat(2);
    assert_eq!(judged.arrived(), expected);
    let arrived = judged.destination.publishes();
    assert!(arrived.iter().all(|received| !received.publish.retain));
    let metrics = judged.bridge.metrics().await;
    let stripped = metrics.whole("bridge_mqtt_session_retain_stripped_total", &[]);
    assert_eq!(stripped, Some(2));
    assert_eq!(ledger(&judged.bridge).await.delivered, 6);
}

#[tokio::test]
async fn case_15_a_retained_message_is_a_dead_letter_where_nothing_else_is_wanted() {
    let judged = where_nothing_is_retained("refuse").await;
    assert_eq!(judged.arrived(), ["before", "behind"].repeat(2));
    assert_eq!(judged.dead_lettered("retain_unavailable").await, Some(2));
}

#[tokio::test]
async fn case_26_a_long_backlog_drains_by_the_window_while_live_traffic_joins_its_tail() {
    const BACKLOG: u64 = 20_000;
    let source = Mosquitto::start().await;
    let destination = Mosquitto::start().await;
    let collector = Collector::start(destination.port(), "t/#").await;
    let mut line = Proxy::start(destination.port()).await;
    line.refuse().await;
    let config = BridgeConfig::between(source.url(), line.url());
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    publish(source.port(), (0..BACKLOG).map(|n| numbered("t", n, 64))).await;
    until_queued(&bridge, BACKLOG).await;

    line.accept().await;
    let began = Instant::now();
    let mut feed = RawClient::connect(source.port(), "live").await.unwrap();
    // One message at a time, as long as the backlog drains.
    let (mut next, mut longest) = (BACKLOG, Duration::ZERO);
    while ledger(&bridge).await.queued > 0 {
        // One round trip of the window after the other: a timer of 30 s, or one message a wake-up,
        // would take hours.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(300), "{took:?}");
        let sent = Instant::now();
        assert_eq!(feed.publish(numbered("t", next, 64)).await.unwrap(), 0);
        longest = longest.max(sent.elapsed());
        next += 1;
    }
    collector.until(next, PATIENCE).await;
    assert!(next > BACKLOG + 5, "no live traffic");
    assert!(
        longest < Duration::from_secs(15),
        "the source waited {longest:?}"
    );

    // What comes now goes straight through.
    until(&bridge, "all is delivered", Ledger::is_drained).await;
    until_live(&bridge, "all/out", 1).await;
    let metrics = bridge.metrics().await;
    let published = [("outcome", "published")];
    let before = metrics.whole("bridge_publish_total", &published).unwrap();
    for number in next..next + 20 {
        let sent = Instant::now();
        assert_eq!(feed.publish(numbered("t", number, 64)).await.unwrap(), 0);
        wait_until("it arrives", PATIENCE, || collector.distinct() > number).await;
        let latency = sent.elapsed();
        assert!(latency < Duration::from_secs(15), "{latency:?}");
    }
    until_drained(&bridge, next + 20).await;
    let metrics = bridge.metrics().await;
    let straight = metrics.whole("bridge_publish_total", &published).unwrap() - before;
    assert!(straight >= 19, "{straight} of 20 live");
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!((tally.duplicates(), tally.out_of_order()), (0, 0));
    assert_eq!(tally.missing(next + 20), [0_u64; 0]);
}
