//! The end in order of a session that the broker does not keep.

use std::num::NonZeroU16;
use std::time::Duration;

use bridge_core::{QoS, Remainder, Source};
use bridge_testkit::{
    BrokerConnection, Mosquitto, Packet, Publish, RawClient, ScriptedBroker, SubAck, Unsubscribe,
    wait_until,
};
use bridge_transport::{Protocol, Reader, SessionConfig, SessionKind};

use crate::common::{
    DEADLINE, clock, config, next, reader, receive, subscribed, subscription, take, within,
};

const SHARED: &str = "$share/g/t";

/// A session that the broker does not keep.
fn ephemeral(port: u16) -> SessionConfig {
    SessionConfig {
        kind: SessionKind::Ephemeral,
        ..config(port, "r")
    }
}

/// Takes and settles all that comes, until nothing does any more.
async fn take_the_rest(reader: &Reader) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(delivery) = within("it comes to an end", reader.next()).await {
        texts.push(String::from_utf8(delivery.message.payload.to_vec()).unwrap());
        delivery.acknowledge.settled();
    }
    texts
}

fn numbered(id: u16) -> Publish {
    Publish::new("t", id.to_string()).id(id)
}

async fn unsuback(connection: &BrokerConnection, unsubscribe: &Unsubscribe, code: u8) {
    let answer = SubAck {
        id: unsubscribe.id,
        properties: Vec::new(),
        codes: vec![code; unsubscribe.filters.len()],
    };
    connection.send_packet(&Packet::UnsubAck(answer)).await;
}

/// Grants one subscription and sends by it.
async fn granted(connection: &mut BrokerConnection, messages: &[u16]) {
    connection.accept(&[]).await;
    let subscribe = connection.expect_subscribe().await;
    connection.suback(subscribe.id, &[1]).await;
    for id in messages {
        connection.publish(numbered(*id)).await;
    }
}

/// What a client said after it had subscribed, in words.
fn said(broker: &ScriptedBroker) -> Vec<String> {
    let packets = broker.packets().into_iter();
    let said = packets.filter_map(|(_, packet)| match packet {
        Packet::Unsubscribe(unsubscribe) => {
            Some(format!("no more {}", unsubscribe.filters.join(" ")))
        }
        Packet::Ack(ack) => Some(format!("{:?} {}", ack.kind, ack.id)),
        Packet::Disconnect(_) => Some("goodbye".to_owned()),
        _ => None,
    });
    said.collect()
}

async fn goodbye(broker: &ScriptedBroker) {
    wait_until("the broker hears goodbye", DEADLINE, || {
        said(broker).last().is_some_and(|last| last == "goodbye")
    })
    .await;
}

#[tokio::test]
async fn case_35_a_session_that_is_not_kept_unsubscribes_settles_and_says_goodbye() {
    // The fourth is on its way when it is unsubscribed, and two wait until there is room for them.
    let broker = ScriptedBroker::start(|mut connection| async move {
        granted(&mut connection, &[1, 2, 3]).await;
        let mut acknowledged = 0;
        let mut asked = 0;
        while let Some(packet) = connection.read_packet().await {
            match packet {
                Packet::Unsubscribe(unsubscribe) => {
                    if asked == 0 {
                        connection.publish(numbered(4)).await;
                    }
                    asked += 1;
                    unsuback(&connection, &unsubscribe, 0).await;
                }
                Packet::Ack(_) => {
                    acknowledged += 1;
                    match acknowledged {
                        4 => connection.publish(numbered(5)).await,
                        5 => connection.publish(numbered(6)).await,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    })
    .await;
    let reader = reader(ephemeral(broker.port()), SHARED);
    let held = receive(&reader, 3).await;
    assert_eq!(reader.wind_down(), Remainder::Lost);
    assert_eq!(take(&reader).await.payload, "4".as_bytes());
    let before = said(&broker);
    assert_eq!(before, [format!("no more {SHARED}")], "before all else");
    for delivery in held {
        delivery.acknowledge.settled();
    }
    assert_eq!(take_the_rest(&reader).await, ["5", "6"]);
    within("it closes", reader.close()).await;
    goodbye(&broker).await;
    let mut said = said(&broker);
    let asked = said.len();
    said.dedup();
    said.retain(|said| !said.starts_with("no more"));
    let in_order = [1, 2, 3, 4, 5, 6].map(|id| format!("PubAck {id}"));
    assert_eq!(said[..6], in_order, "each, in order");
    assert_eq!(said[6..], ["goodbye"]);
    assert!(asked < 20, "asked again and again: {asked}");
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn a_session_that_the_broker_keeps_is_not_unsubscribed() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        granted(&mut connection, &[1, 2]).await;
        connection.until_closed().await;
    })
    .await;
    let reader = reader(config(broker.port(), "r"), "t");
    let held = receive(&reader, 1).await;
    assert_eq!(reader.wind_down(), Remainder::Kept);
    within("it closes", reader.close()).await;
    assert!(reader.next().await.is_none(), "the broker keeps it");
    drop(held);
    goodbye(&broker).await;
    assert_eq!(said(&broker), ["goodbye"]);
}

#[tokio::test]
async fn a_broker_that_never_answers_the_unsubscribe_is_left_after_its_time() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        granted(&mut connection, &[1, 2, 3]).await;
        connection.until_closed().await;
    })
    .await;
    let mut settings = ephemeral(broker.port());
    settings.answer_timeout = Duration::from_secs(2);
    let reader = reader(settings, "t");
    subscribed(&reader).await;
    reader.wind_down();
    assert_eq!(take_the_rest(&reader).await, ["1", "2", "3"]);
    within("it closes", reader.close()).await;
    goodbye(&broker).await;
    let expected = ["no more t", "PubAck 1", "PubAck 2", "PubAck 3", "goodbye"];
    let mut said = said(&broker);
    // What was settled before the question is acknowledged before it.
    said.sort_by_key(|said| expected.iter().position(|expected| expected == said));
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_broker_that_goes_on_sending_is_listened_to_until_the_session_is_closed() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        granted(&mut connection, &[1]).await;
        while let Some(packet) = connection.read_packet().await {
            match packet {
                Packet::Ack(ack) => connection.publish(numbered(ack.id + 1)).await,
                Packet::Unsubscribe(asked) => unsuback(&connection, &asked, 0x87).await,
                _ => {}
            }
        }
    })
    .await;
    let reader = reader(ephemeral(broker.port()), "t");
    subscribed(&reader).await;
    reader.wind_down();
    for number in 1..=200 {
        assert_eq!(take(&reader).await.payload, number.to_string().as_bytes());
    }
    let last = next(&reader).await;
    within("it closes", reader.close()).await;
    last.acknowledge.settled();
    assert!(
        take_the_rest(&reader).await.is_empty(),
        "nothing was read ahead"
    );
    goodbye(&broker).await;
}

#[tokio::test]
async fn a_session_that_winds_down_does_not_come_again() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        granted(&mut connection, &[1, 2]).await;
        while let Some(packet) = connection.read_packet().await {
            if matches!(packet, Packet::Unsubscribe(_)) {
                return;
            }
        }
    })
    .await;
    let lost = reader(ephemeral(broker.port()), "t");
    let held = receive(&lost, 1).await;
    lost.wind_down();
    assert_eq!(take_the_rest(&lost).await, ["2"], "what has come is there");
    assert_eq!(broker.connections(), 1);
    drop(held);

    let nowhere = reader(ephemeral(1), "t");
    nowhere.wind_down();
    assert!(take_the_rest(&nowhere).await.is_empty(), "nor begins to");
}

#[tokio::test]
async fn what_is_left_with_the_broker_is_not_waited_for() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        granted(&mut connection, &[1, 2]).await;
        while let Some(packet) = connection.read_packet().await {
            if let Packet::Unsubscribe(asked) = packet {
                unsuback(&connection, &asked, 0).await;
            }
        }
    })
    .await;
    let reader = reader(ephemeral(broker.port()), "t");
    let mut held = receive(&reader, 2).await;
    reader.wind_down();
    held.remove(0).acknowledge.leave();
    drop(held);
    assert!(take_the_rest(&reader).await.is_empty());
    within("it closes", reader.close()).await;
    goodbye(&broker).await;
    assert!(!said(&broker).iter().any(|said| said.starts_with("PubAck")));
}

/// What a real broker does with what waits in its queue for one that has unsubscribed: it sends
/// it, as room comes to be.
async fn all_that_was_queued_comes(filter: &str, qos: u8, adjust: impl FnOnce(&mut SessionConfig)) {
    const COUNT: usize = 300;
    let broker = Mosquitto::start().await;
    let mut settings = ephemeral(broker.port());
    settings.receive_maximum = NonZeroU16::new(5).unwrap();
    adjust(&mut settings);
    let wanted = vec![subscription(filter, QoS::from_u8(qos).unwrap())];
    let reader = Reader::start(settings, wanted, clock());
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    let message = |number: usize| Publish::new("t", number.to_string()).qos(qos);
    let report = source.publish_all((0..COUNT).map(message), 50).await;
    report.expect_all_accepted();
    let first = next(&reader).await;
    reader.wind_down();
    wait_until("it has unsubscribed", DEADLINE, || {
        broker.log().contains("Received UNSUBSCRIBE from r")
    })
    .await;
    let late = source.publish_all([message(COUNT)], 1).await;
    late.expect_all_accepted();
    first.acknowledge.settled();
    let expected: Vec<_> = (1..COUNT).map(|number| number.to_string()).collect();
    assert_eq!(take_the_rest(&reader).await, expected);
    within("it closes", reader.close()).await;
}

#[tokio::test]
async fn what_a_broker_had_queued_when_it_was_unsubscribed_comes_before_the_end() {
    all_that_was_queued_comes("t", 1, |_| {}).await;
}

#[tokio::test]
async fn so_does_what_a_shared_subscription_had_been_given() {
    all_that_was_queued_comes(SHARED, 1, |_| {}).await;
}

#[tokio::test]
async fn so_does_it_in_the_two_steps_of_qos_2() {
    all_that_was_queued_comes(SHARED, 2, |_| {}).await;
}

#[tokio::test]
async fn so_does_it_on_mqtt_311() {
    all_that_was_queued_comes("t", 1, |settings| settings.protocol = Protocol::V311).await;
}
