//! A real broker whose ACL denies a topic, and then does not.

use bridge_testkit::{Mosquitto, Publish};

use crate::setup::{Line, PATIENCE, RETAIN_AS_PUBLISHED, asked, of_session, until, until_live};

const DENYING: &str = "topic read #\ntopic write open/#\n";
const GRANTING: &str = "topic read #\ntopic write #\n";

/// A bridge to a broker that grants `open/#` and nothing else.
async fn denying(lines: &[&str]) -> Line {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::builder().acl(DENYING).start().await;
    Line::between(source, destination, |config| {
        let config = config.binding("deferred: { retry_interval: 1s }");
        lines
            .iter()
            .fold(config, |config, line| config.route(*line))
    })
    .await
}

/// By the broker's own log, the bridge has connected once.
async fn connected_once(line: &Line) {
    let log = line.destination.log();
    assert_eq!(log.matches(" as bridge-cloud ").count(), 1, "{log}");
    let connects = of_session(&line.bridge, "bridge_mqtt_session_connects_total", "cloud");
    assert_eq!(connects.await, 1);
}

#[tokio::test]
async fn i10_what_an_acl_denies_is_recovered_first_on_the_same_connection_once_it_is_granted() {
    let line = denying(&["delivery: outbox"]).await;
    let mut subscriber = line.subscriber().await;
    let publish = |range: std::ops::Range<u32>| {
        range.map(|n| {
            let topic = if n % 2 == 0 { "denied/1" } else { "open/1" };
            Publish::new(topic, n.to_string())
        })
    };
    line.publish(publish(0..20)).await;
    until(&line.bridge, "the open ones pass", |ledger| {
        (ledger.delivered, ledger.deferred) == (10, 10)
    })
    .await;
    for n in 0..10 {
        let message = subscriber.recv(PATIENCE).await.unwrap();
        assert_eq!(message.text(), (2 * n + 1).to_string());
    }
    assert!(
        line.destination
            .log()
            .contains("Denied PUBLISH from bridge-cloud ")
    );
    let log = line.bridge.output();
    let known = log.lines().filter(|line| line.contains("deferred"));
    let known: Vec<_> = known.filter(|l| l.contains("not_authorized")).collect();
    assert_eq!(known.len(), 1, "{log}");
    assert!(known[0].contains("denied/1"), "{}", known[0]);
    connected_once(&line).await;

    line.destination.reload(GRANTING).await;
    let ledger = line.drained(20).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (20, 0), "{ledger}");
    line.publish(publish(20..30)).await;
    let recovered = (0..10).map(|n| 2 * n);
    for n in recovered.chain(20..30) {
        let message = subscriber.recv(PATIENCE).await.unwrap();
        assert_eq!(message.text(), n.to_string());
    }
    line.drained(30).await;
    connected_once(&line).await;
    let metrics = line.bridge.metrics().await;
    for name in [
        "bridge_queue_deferred_total",
        "bridge_queue_deferred_recovered_total",
    ] {
        assert_eq!(metrics.whole(name, &[]), Some(10), "{name}");
    }
}

#[tokio::test]
async fn i01_live_an_acl_costs_the_denied_message_and_neither_the_connection_nor_the_next() {
    let line = denying(&[]).await;
    until_live(&line.bridge, "all/out", 1).await;
    let mut subscriber = line.subscriber().await;
    line.publish(["open/1", "denied/1", "open/2"].map(|topic| Publish::new(topic, "before")))
        .await;
    let ledger = line.drained(3).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (2, 1), "{ledger}");
    for topic in ["open/1", "open/2"] {
        assert_eq!(subscriber.recv(PATIENCE).await.unwrap().topic, topic);
    }
    let letters = asked(&line.installation, "dead-letters list DATA").await;
    let letter = &letters["dead_letters"][0];
    assert_eq!(letter["topic"], "denied/1", "{letters}");
    assert_eq!(letter["reason"], "not_authorized", "{letters}");
    assert_eq!(letter["reason_code"], 0x87, "{letters}");

    line.destination.reload(GRANTING).await;
    line.publish([Publish::new("denied/1", "after")]).await;
    let message = subscriber.recv(PATIENCE).await.unwrap();
    assert_eq!(
        (message.topic.as_str(), message.text()),
        ("denied/1", "after")
    );
    let ledger = line.drained(4).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (3, 1), "{ledger}");
    connected_once(&line).await;
}

#[tokio::test]
async fn i08_after_a_recovery_the_broker_retains_the_newest_value_of_each_topic() {
    let line = denying(&["delivery: outbox"]).await;
    let retained = |range: std::ops::Range<u32>| {
        range.map(|n| Publish::new(format!("denied/{}", n % 2), n.to_string()).retained())
    };
    line.publish(retained(0..10)).await;
    until(&line.bridge, "all are deferred", |ledger| {
        ledger.deferred == 10
    })
    .await;
    line.destination.reload(GRANTING).await;
    line.publish(retained(10..14)).await;
    let ledger = line.drained(14).await;
    assert_eq!(ledger.delivered, 14, "{ledger}");
    let mut late = bridge_testkit::RawClient::connect(line.destination.port(), "late")
        .await
        .unwrap();
    late.subscribe(&[("denied/+", 1 | RETAIN_AS_PUBLISHED)])
        .await
        .unwrap();
    let mut values = Vec::new();
    for message in late.collect(2, PATIENCE).await.unwrap() {
        assert!(message.retain);
        values.push((message.topic.clone(), message.text().to_owned()));
    }
    values.sort();
    let expected = [("denied/0", "12"), ("denied/1", "13")];
    assert_eq!(values, expected.map(|(t, v)| (t.to_owned(), v.to_owned())));
    connected_once(&line).await;
}
