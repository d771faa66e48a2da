//! A real broker whose ACL denies a topic, and then does not.

use bridge_testkit::{Mosquitto, Publish};

use crate::setup::{Line, PATIENCE, of_session, until};

#[tokio::test]
async fn i10_what_an_acl_denies_is_recovered_first_on_the_same_connection_once_it_is_granted() {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::builder()
        .acl("topic read #\ntopic write open/#\n")
        .start()
        .await;
    let line = Line::between(source, destination, |config| {
        config
            .route("delivery: outbox")
            .binding("deferred: { retry_interval: 1s }")
    })
    .await;
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
    assert!(line.destination.log().contains("Denied PUBLISH"));
    let connections = line
        .destination
        .log()
        .matches("New client connected")
        .count();

    line.destination
        .reload("topic read #\ntopic write #\n")
        .await;
    let ledger = line.drained(20).await;
    assert_eq!((ledger.delivered, ledger.dead_letters), (20, 0), "{ledger}");
    line.publish(publish(20..30)).await;
    let recovered = (0..10).map(|n| 2 * n);
    for n in recovered.chain(20..30) {
        let message = subscriber.recv(PATIENCE).await.unwrap();
        assert_eq!(message.text(), n.to_string());
    }
    line.drained(30).await;
    let connects = "bridge_mqtt_session_connects_total";
    assert_eq!(of_session(&line.bridge, connects, "cloud").await, 1);
    let after = line
        .destination
        .log()
        .matches("New client connected")
        .count();
    assert_eq!(after, connections, "no one had to connect again");
}
