//! The scripted broker, by the raw client.

use std::io;
use std::time::Duration;

use bridge_testkit::{
    AckKind, Behaviour, ClientOptions, ConnAck, Disconnect, Packet, Property, Protocol, Publish,
    RawClient, Reply, ScriptedBroker, wait_until,
};

const SOON: Duration = Duration::from_secs(10);

/// PUBACK with a reason code that the standard does not know.
fn refusal(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    vec![0x40, 3, high, low, 0xE5]
}

#[tokio::test]
async fn it_accepts_and_records_what_comes_in_order() {
    let broker = ScriptedBroker::accepting().await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    assert_eq!(
        client.subscribe(&[("a", 1), ("b", 2)]).await.unwrap(),
        [1, 2]
    );
    assert_eq!(client.unsubscribe(&["a"]).await.unwrap(), [0]);
    client.ping().await.unwrap();
    let messages = (0..300).map(|n: u32| Publish::new("t", n.to_string()).qos((n % 3) as u8));
    client.publish_all(messages, 50).await.expect_all_accepted();
    wait_until("all arrive", SOON, || broker.publish_count() == 300).await;
    for (n, received) in broker.publishes().iter().enumerate() {
        assert_eq!((received.nth, received.connection), (n, 0));
        assert_eq!(received.publish.text(), n.to_string());
    }
    assert_eq!(broker.connects()[0].client_id, "c");
    client.disconnect().await.unwrap();
    wait_until("it is closed", SOON, || broker.open_connections() == 0).await;
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn single_messages_are_answered_as_the_test_says() {
    let behaviour = Behaviour::new().reply(|received| match received.publish.text() {
        "refused" => Reply::Code(0x87),
        "by hand" => Reply::Bytes(refusal(received.publish.id)),
        "taken over" => Reply::Disconnect(0x8E),
        _ => Reply::Accept,
    });
    let broker = ScriptedBroker::behaving(behaviour).await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    for (text, qos, code) in [
        ("fine", 1, 0),
        ("refused", 1, 0x87),
        ("refused", 2, 0x87),
        ("by hand", 1, 0xE5),
        ("fine", 2, 0),
    ] {
        let message = Publish::new("t", text).qos(qos);
        assert_eq!(client.publish(message).await.unwrap(), code);
    }
    let error = client.publish(Publish::new("t", "taken over")).await;
    assert!(error.unwrap_err().to_string().contains("0x8e"));
    assert_eq!(client.disconnected().unwrap().code, 0x8E);
}

#[tokio::test]
async fn a_script_speaks_packet_by_packet() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        let connect = connection.accept(&[Property::ReceiveMaximum(2)]).await;
        assert_eq!(connect.client_id, "c");
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[0x87]).await;
        connection.publish(Publish::new("t", "x").id(9)).await;
        let ack = connection.expect_ack(AckKind::PubAck).await;
        assert_eq!((ack.id, ack.code), (9, 0));
        let publish = connection.expect_publish().await;
        connection.pubrec(publish.id, 0).await;
        let release = connection.expect_ack(AckKind::PubRel).await;
        connection.pubcomp(release.id, 0x92).await;
        connection.reset();
    })
    .await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    assert_eq!(client.receive_maximum(), 2);
    assert_eq!(client.subscribe(&[("t", 1)]).await.unwrap(), [0x87]);
    assert_eq!(client.recv(SOON).await.unwrap().text(), "x");
    let publish = Publish::new("t", "y").qos(2);
    assert_eq!(client.publish(publish).await.unwrap(), 0x92);
    let error = client.ping().await.unwrap_err();
    assert!(matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    ));
}

#[tokio::test]
async fn packets_in_one_segment_are_all_seen() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.expect_connect().await;
        let mut bytes = Packet::ConnAck(ConnAck::default()).encode();
        for id in 1..=3 {
            Publish::new("t", id.to_string()).id(id).put(&mut bytes);
        }
        connection.send(&bytes).await;
        connection.until_closed().await;
    })
    .await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    assert_eq!(client.collect(3, SOON).await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_test_can_speak_beside_the_script() {
    let broker = ScriptedBroker::accepting().await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    let message = Packet::Publish(Publish::new("t", "from beside").qos(0));
    broker.send_packet_to_all(&message).await;
    assert_eq!(client.recv(SOON).await.unwrap().text(), "from beside");
    broker.reset_all();
    let error = client.ping().await.unwrap_err();
    assert!(matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    ));
}

#[tokio::test]
#[should_panic(expected = "scripts failed")]
async fn an_expectation_of_a_script_that_does_not_hold_fails_the_test() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        connection.expect_publish().await;
    })
    .await;
    let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
    client.subscribe(&[("t", 1)]).await.unwrap_err();
    wait_until("the script ends", SOON, || broker.open_connections() == 0).await;
}

#[tokio::test]
async fn a_client_of_mqtt_3_1_1_is_spoken_to_in_its_own_words() {
    let behaviour = Behaviour::new()
        .connack([Property::ReceiveMaximum(2)])
        .reply(|received| match received.publish.text() {
            "refused" => Reply::Code(0x87),
            "taken over" => Reply::Disconnect(0x8E),
            _ => Reply::Accept,
        })
        .suback(|filter| if filter == "bad" { 0x80 } else { 1 })
        .after_subscribe([Publish::new("t", "x").qos(2).id(9)]);
    let broker = ScriptedBroker::behaving(behaviour).await;
    let options = ClientOptions::new("c").protocol(Protocol::V311);
    let mut client = options.connect(broker.port()).await.unwrap();
    assert_eq!(client.connack(), &ConnAck::default());
    let codes = client.subscribe(&[("bad", 1), ("t", 2)]).await.unwrap();
    assert_eq!(codes, [0x80, 1]);
    let received = client.recv(SOON).await.unwrap();
    assert_eq!((received.text(), received.qos), ("x", 2));
    assert!(client.unsubscribe(&["t"]).await.unwrap().is_empty());
    for (text, qos) in [("fine", 1), ("fine", 2), ("refused", 1), ("refused", 2)] {
        let message = Publish::new("t", text).qos(qos);
        assert_eq!(client.publish(message).await.unwrap(), 0);
    }
    client.ping().await.unwrap();
    let error = client.publish(Publish::new("t", "taken over")).await;
    assert!(error.unwrap_err().to_string().contains("no DISCONNECT"));
    assert_eq!(broker.connects()[0].protocol, Protocol::V311);
    let released = Packet::Ack(bridge_testkit::Ack::new(AckKind::PubComp, 9, 0));
    assert!(broker.packets().contains(&(0, released)));
}

#[tokio::test]
async fn who_comes_with_the_identifier_of_another_takes_it_over() {
    for (protocol, said) in [
        (Protocol::V5, "DISCONNECT 0x8e"),
        (Protocol::V311, "no DISCONNECT"),
    ] {
        let broker = ScriptedBroker::behaving(Behaviour::new().takeover()).await;
        let connect = async |id: &str| {
            let options = ClientOptions::new(id).protocol(protocol);
            options.connect(broker.port()).await.unwrap()
        };
        let mut first = connect("c").await;
        let mut other = connect("d").await;
        let mut second = connect("c").await;
        let error = first.recv(SOON).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        other.ping().await.unwrap();
        second.ping().await.unwrap();
    }
}

#[tokio::test]
async fn it_takes_leave_again_and_again_when_it_is_to() {
    let leave = Disconnect {
        code: 0x8E,
        properties: vec![Property::ReasonString("why".to_owned())],
    };
    let behaviour = Behaviour::new().leave_after(Duration::from_millis(50), leave.clone());
    let broker = ScriptedBroker::behaving(behaviour).await;
    for _ in 0..2 {
        let mut client = RawClient::connect(broker.port(), "c").await.unwrap();
        client.until_closed(SOON).await.unwrap();
        assert_eq!(client.disconnected(), Some(&leave));
    }
}
