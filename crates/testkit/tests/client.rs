//! The raw client against the real broker.

use std::time::Duration;

use bridge_testkit::{ClientOptions, Mosquitto, Property, Publish, RawClient};
use bytes::Bytes;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn messages_of_every_qos_cross_with_all_their_properties() {
    let broker = Mosquitto::start().await;
    let mut reader = RawClient::connect(broker.port(), "r").await.unwrap();
    assert_eq!(reader.subscribe(&[("t/#", 2)]).await.unwrap(), [2]);
    let mut writer = RawClient::connect(broker.port(), "w").await.unwrap();
    for qos in 0..=2 {
        let sent = Publish::new("t/ünïcode", Bytes::from_static(&[0, 1, 0xFF]))
            .qos(qos)
            .with(Property::PayloadFormat(0))
            .with(Property::ContentType("application/octet-stream".into()))
            .with(Property::ResponseTopic("answer/here".into()))
            .with(Property::CorrelationData(Bytes::from_static(b"\0c")))
            .with(Property::user("b", "2"))
            .with(Property::user("a", "1"))
            .with(Property::user("b", ""));
        assert_eq!(writer.publish(sent.clone()).await.unwrap(), 0);
        let mut received = reader.recv(SOON).await.unwrap();
        received.id = 0;
        let user = |message: &Publish| {
            let properties = message.properties.iter();
            let users = properties.filter(|property| matches!(property, Property::User(_)));
            users.cloned().collect::<Vec<_>>()
        };
        assert_eq!(user(&received), user(&sent));
        for property in &sent.properties {
            assert!(received.properties.contains(property), "{property:?}");
        }
        assert_eq!(
            (received.topic, received.payload, received.qos),
            (sent.topic, sent.payload, qos)
        );
    }
}

#[tokio::test]
async fn pipelined_messages_arrive_once_and_in_order_past_the_last_packet_identifier() {
    let broker = Mosquitto::builder()
        .max_inflight_messages(500)
        .start()
        .await;
    let port = broker.port();
    let reader = tokio::spawn(async move {
        let mut reader = RawClient::connect(port, "r").await.unwrap();
        reader.subscribe(&[("t", 1)]).await.unwrap();
        // It says that it is there by a retained message: the writer waits for that.
        reader
            .publish(Publish::new("there", "").retained())
            .await
            .unwrap();
        reader
            .publish(Publish::new("there", "yes").retained())
            .await
            .unwrap();
        reader.collect(70_000, SOON).await.unwrap()
    });
    let mut writer = RawClient::connect(port, "w").await.unwrap();
    writer.subscribe(&[("there", 1)]).await.unwrap();
    while writer.recv(SOON).await.unwrap().payload.is_empty() {}
    let messages = (0..70_000).map(|n| Publish::new("t", n.to_string()));
    writer
        .publish_all(messages, 500)
        .await
        .expect_all_accepted();
    for (n, message) in reader.await.unwrap().iter().enumerate() {
        assert_eq!(message.text(), n.to_string());
    }
}

#[tokio::test]
async fn qos_2_is_pipelined_too() {
    let broker = Mosquitto::start().await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    client.subscribe(&[("t", 2)]).await.unwrap();
    let messages = (0..1_000).map(|n| Publish::new("t", n.to_string()).qos(2));
    client.publish_all(messages, 20).await.expect_all_accepted();
    let received = client.collect(1_000, SOON).await.unwrap();
    assert_eq!(received.last().unwrap().text(), "999");
    client.recv(Duration::from_millis(50)).await.unwrap_err();
}

#[tokio::test]
async fn what_was_not_acknowledged_by_hand_comes_again() {
    let broker = Mosquitto::start().await;
    let options = ClientOptions::new("r")
        .resumed(Duration::from_secs(60))
        .manual_acks();
    let mut reader = options.clone().connect(broker.port()).await.unwrap();
    reader.subscribe(&[("t", 1)]).await.unwrap();
    let mut writer = RawClient::connect(broker.port(), "w").await.unwrap();
    for text in ["1", "2"] {
        writer.publish(Publish::new("t", text)).await.unwrap();
    }
    let first = reader.recv(SOON).await.unwrap();
    reader.ack(&first, 0).await.unwrap();
    assert_eq!(reader.recv(SOON).await.unwrap().text(), "2");
    // An answer to a ping says that the broker has read the PUBACK before it.
    reader.ping().await.unwrap();
    reader.reset();

    let mut reader = options.connect(broker.port()).await.unwrap();
    let again = reader.recv(SOON).await.unwrap();
    assert_eq!((again.text(), again.dup), ("2", true));
    reader.ack(&again, 0).await.unwrap();
    reader.recv(Duration::from_millis(50)).await.unwrap_err();
}

#[tokio::test]
async fn a_lost_connection_is_in_the_report() {
    let mut broker = Mosquitto::start().await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    broker.kill().await;
    let report = client.publish_all([Publish::new("t", "x")], 1).await;
    assert_eq!((report.accepted(), report.unanswered()), (0, 1));
    report.lost.unwrap();
}
