//! What a broker sends again on a session that it resumes, while we have it still or have
//! settled it meanwhile (MQTT 5 §4.4).

use std::collections::HashMap;
use std::time::Duration;

use bridge_core::{Delivery, QoS, Source, SourceState};
use bridge_testkit::{
    AckKind, Behaviour, ConnAck, Cut, Mosquitto, Packet, Proxy, Publish, RawClient, ScriptedBroker,
    wait_until,
};
use bridge_transport::Reader;

use crate::common::{
    DEADLINE, clock, config, next, reader, receive, subscribed, subscription, take,
};

/// Whether a broker has the session still at the connection of that number.
type Resumes = fn(usize) -> bool;

/// A broker that sends the nth list after the SUBACK of the nth connection, and goes on with its
/// session on those connections.
async fn sending(lists: Vec<Vec<Publish>>, resumes: Resumes) -> ScriptedBroker {
    ScriptedBroker::start(move |mut connection| {
        let messages = lists.get(connection.number()).cloned();
        let behaviour = Behaviour::new()
            .connacks(move |number| ConnAck::with_session(number > 0 && resumes(number)))
            .after_subscribe(messages.unwrap_or_default());
        async move { connection.behave(&behaviour).await }
    })
    .await
}

fn publish(id: u16, content: &str, qos: u8) -> Publish {
    Publish::new("t", content.to_owned()).qos(qos).id(id)
}

fn again(id: u16, content: &str, qos: u8) -> Publish {
    let mut publish = publish(id, content, qos);
    publish.dup = true;
    publish
}

/// The acknowledgements that a broker has received, with the number of their connection.
fn acks(broker: &ScriptedBroker) -> Vec<(usize, u16)> {
    let packets = broker.packets();
    let acks = packets
        .into_iter()
        .filter_map(|(connection, packet)| match packet {
            Packet::Ack(ack) if matches!(ack.kind, AckKind::PubAck | AckKind::PubRec) => {
                Some((connection, ack.id))
            }
            _ => None,
        });
    acks.collect()
}

async fn acknowledged(broker: &ScriptedBroker, expected: &[(usize, u16)]) {
    wait_until("they are acknowledged", DEADLINE, || {
        acks(broker).len() >= expected.len()
    })
    .await;
    assert_eq!(acks(broker), expected);
}

/// Cuts the line and waits until the reader has noticed.
async fn cut(proxy: &Proxy, reader: &Reader) {
    let losses = reader.stats().connection_losses;
    proxy.cut(Cut::Reset);
    wait_until("the loss is noticed", DEADLINE, || {
        reader.stats().connection_losses > losses
    })
    .await;
}

async fn recognised(reader: &Reader, count: u64) {
    wait_until("redeliveries are recognised", DEADLINE, || {
        reader.stats().redeliveries_recognised == count
    })
    .await;
}

fn payload(delivery: &Delivery) -> &[u8] {
    &delivery.message.payload
}

#[tokio::test]
async fn what_is_held_is_not_handed_out_again_and_acknowledged_on_the_new_connection() {
    for qos in [1, 2] {
        let first = vec![publish(1, "a", qos), publish(2, "b", qos)];
        let second = vec![again(1, "a", qos), again(2, "b", qos), publish(3, "c", qos)];
        let broker = sending(vec![first, second], |_| true).await;
        let proxy = Proxy::start(broker.port()).await;
        let reader = reader(config(proxy.port(), "r"), "t");
        let mut held = receive(&reader, 2).await;
        cut(&proxy, &reader).await;
        recognised(&reader, 2).await;
        let third = next(&reader).await;
        assert_eq!(payload(&third), b"c");
        third.acknowledge.settled();
        held.pop().unwrap().acknowledge.settled();
        assert_eq!(acks(&broker), [], "the first has not settled");
        held.pop().unwrap().acknowledge.settled();
        acknowledged(&broker, &[(1, 1), (1, 2), (1, 3)]).await;
        let stats = reader.stats();
        assert_eq!((stats.late_acknowledgements, stats.redelivered), (0, 2));
        reader.close().await;
    }
}

#[tokio::test]
async fn what_waits_in_line_keeps_its_place_and_is_handed_out_once() {
    let first = vec![publish(1, "a", 1), publish(2, "b", 1)];
    let second = vec![again(1, "a", 1), again(2, "b", 1), publish(3, "c", 1)];
    let broker = sending(vec![first, second], |_| true).await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(config(proxy.port(), "r"), "t");
    wait_until("both have come", DEADLINE, || reader.stats().received == 2).await;
    cut(&proxy, &reader).await;
    recognised(&reader, 2).await;
    for expected in ["a", "b", "c"] {
        assert_eq!(take(&reader).await.payload, expected);
    }
    acknowledged(&broker, &[(1, 1), (1, 2), (1, 3)]).await;
}

#[tokio::test]
async fn what_settles_between_two_connections_is_acknowledged_when_it_comes_again() {
    for qos in [1, 2] {
        let first = vec![publish(1, "a", qos), publish(2, "b", qos)];
        // Only the first comes again; of the second this connection does not know.
        let second = vec![again(1, "a", qos)];
        let broker = sending(vec![first, second], |_| true).await;
        let mut proxy = Proxy::start(broker.port()).await;
        let reader = reader(config(proxy.port(), "r"), "t");
        let held = receive(&reader, 2).await;
        proxy.refuse().await;
        proxy.cut(Cut::Reset);
        wait_until("the loss is noticed", DEADLINE, || {
            reader.state() == SourceState::Down
        })
        .await;
        for delivery in held {
            delivery.acknowledge.settled();
        }
        proxy.accept().await;
        recognised(&reader, 1).await;
        acknowledged(&broker, &[(1, 1)]).await;
        assert_eq!(reader.stats().late_acknowledgements, 2);
        reader.close().await;
        assert_eq!(acks(&broker), [(1, 1)], "nobody asked for the second");
    }
}

#[tokio::test]
async fn what_was_left_comes_again_in_order_with_what_waits_behind_it() {
    let messages = |make: fn(u16, &str, u8) -> Publish| {
        vec![make(1, "a", 1), make(2, "b", 1), make(3, "c", 1)]
    };
    let broker = sending(vec![messages(publish), messages(again)], |_| true).await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(config(proxy.port(), "r"), "t");
    let left = next(&reader).await;
    wait_until("all have come", DEADLINE, || reader.stats().received == 3).await;
    left.acknowledge.leave();
    cut(&proxy, &reader).await;
    wait_until("all have come again", DEADLINE, || {
        reader.stats().redelivered == 3
    })
    .await;
    for expected in ["a", "b", "c"] {
        let delivery = next(&reader).await;
        assert_eq!(payload(&delivery), expected.as_bytes());
        assert!(delivery.redelivered);
        delivery.acknowledge.settled();
    }
    acknowledged(&broker, &[(1, 1), (1, 2), (1, 3)]).await;
    assert_eq!(reader.stats().redeliveries_recognised, 0);
}

#[tokio::test]
async fn another_message_under_the_same_packet_id_is_handed_out() {
    // Other content; not said to be a repetition; of a session that is not the one before.
    let cases: [(Publish, Resumes); 3] = [
        (again(1, "b", 1), |_| true),
        (publish(1, "a", 1), |_| true),
        (again(1, "a", 1), |_| false),
    ];
    for (second, resumes) in cases {
        let lists = vec![vec![publish(1, "a", 1)], vec![second.clone()]];
        let broker = sending(lists, resumes).await;
        let proxy = Proxy::start(broker.port()).await;
        let reader = reader(config(proxy.port(), "r"), "t");
        let old = next(&reader).await;
        cut(&proxy, &reader).await;
        let new = next(&reader).await;
        assert_eq!(payload(&new), second.payload);
        old.acknowledge.settled();
        assert_eq!(reader.stats().late_acknowledgements, 1);
        assert_eq!(acks(&broker), [], "the old one is not the new one");
        new.acknowledge.settled();
        acknowledged(&broker, &[(1, 1)]).await;
        reader.close().await;
    }
}

/// Another client that had the session meanwhile has released the id, and was sent another message
/// under it.
#[tokio::test]
async fn a_message_of_qos_2_under_an_id_that_another_client_seems_to_have_had_is_handed_out() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        let number = connection.number();
        connection.expect_connect().await;
        let connack = ConnAck::with_session(number > 0);
        connection.send_packet(&Packet::ConnAck(connack)).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        match number {
            2 => {
                connection.publish(publish(1, "a", 2)).await;
                // Gone before its PUBREL.
                connection.expect_ack(AckKind::PubRec).await;
            }
            3 => {
                connection.publish(again(1, "b", 2)).await;
                connection.behave(&Behaviour::new()).await;
            }
            _ => connection.behave(&Behaviour::new()).await,
        }
    })
    .await;
    let reader = reader(config(broker.port(), "r"), "t");
    for _ in 0..2 {
        subscribed(&reader).await;
        broker.close_all();
        let ended = || reader.state() == SourceState::Down;
        wait_until("the connection ends", DEADLINE, ended).await;
    }
    assert_eq!(take(&reader).await.payload, "a");
    let other = next(&reader).await;
    assert_eq!(payload(&other), b"b");
    assert_eq!(acks(&broker), [(2, 1)], "it has not settled");
    assert_eq!(reader.stats().suspected_collisions, 1);
    assert_eq!(reader.stats().redeliveries_recognised, 0);
}

/// What was received and not released is known by its packet id alone (MQTT 5 §4.3.3), which is
/// another message's at another broker.
#[tokio::test]
async fn a_message_of_qos_2_under_an_id_that_another_broker_has_not_released_is_handed_out() {
    let first = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        connection.publish(publish(1, "a", 2)).await;
        // Gone before its PUBREL.
        connection.expect_ack(AckKind::PubRec).await;
    })
    .await;
    // It has a session of ours as well, from another time.
    let resuming = Behaviour::new().connacks(|_| ConnAck {
        session_present: true,
        ..ConnAck::default()
    });
    let second = resuming.after_subscribe(vec![again(1, "b", 2)]);
    let second = ScriptedBroker::behaving(second).await;
    let mut settings = config(first.port(), "r");
    settings.brokers.rest = vec![config(second.port(), "r").brokers.first];
    let reader = reader(settings, "t");
    assert_eq!(take(&reader).await.payload, "a");
    let other = next(&reader).await;
    assert_eq!(payload(&other), b"b");
    assert_eq!(acks(&second), [], "it has not settled");
    other.acknowledge.settled();
    acknowledged(&second, &[(0, 1)]).await;
    assert_eq!(reader.stats().redeliveries_recognised, 0);
}

#[tokio::test]
async fn two_connections_lost_in_a_row_double_nothing() {
    let first = vec![publish(1, "a", 1), publish(2, "b", 1), publish(3, "c", 1)];
    let second = vec![again(1, "a", 1)];
    let third = vec![again(1, "a", 1), again(2, "b", 1), again(3, "c", 1)];
    let broker = sending(vec![first, second, third], |_| true).await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(config(proxy.port(), "r"), "t");
    let held = receive(&reader, 3).await;
    cut(&proxy, &reader).await;
    recognised(&reader, 1).await;
    cut(&proxy, &reader).await;
    recognised(&reader, 4).await;
    for delivery in held {
        delivery.acknowledge.settled();
    }
    acknowledged(&broker, &[(2, 1), (2, 2), (2, 3)]).await;
}

/// Mosquitto sends far more than our Receive Maximum under a flood, and all of it again.
#[tokio::test]
async fn a_source_that_restarts_under_load_loses_nothing_and_doubles_next_to_nothing() {
    const COUNT: u32 = 20_000;
    let mut broker = Mosquitto::builder().persistence(true).start().await;
    let reader = Reader::start(
        config(broker.port(), "r"),
        vec![subscription("t/#", QoS::AtLeastOnce)],
        clock(),
    );
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    let flood = (0..COUNT).map(|n| Publish::new(format!("t/{}", n % 16), n.to_string()).qos(1));
    assert!(source.publish_all(flood, 1000).await.lost.is_none());

    let mut seen = HashMap::new();
    let mut held: Vec<Delivery> = Vec::new();
    let mut restarts = 0;
    loop {
        // What comes twice is acknowledged before what it has come again in front of, and is behind
        // that in our hands: who holds a part back for ever would wait for ever.
        let delivery = tokio::select! {
            biased;
            delivery = next(&reader) => delivery,
            () = tokio::time::sleep(Duration::from_millis(100)), if !held.is_empty() => {
                for delivery in held.drain(..) {
                    delivery.acknowledge.settled();
                }
                continue;
            }
        };
        if payload(&delivery) == b"last" {
            delivery.acknowledge.settled();
            break;
        }
        let number = std::str::from_utf8(payload(&delivery)).unwrap();
        let number: u32 = number.parse().unwrap();
        *seen.entry(number).or_insert(0_u32) += 1;
        held.push(delivery);
        // Settled late, so that a good many are in hand at each moment.
        if held.len() == 80 {
            for delivery in held.drain(..40) {
                delivery.acknowledge.settled();
            }
        }
        if restarts < 2 && seen.len() >= COUNT as usize / 3 * (restarts + 1) {
            restarts += 1;
            broker.restart().await;
        }
        if seen.len() == COUNT as usize && !held.is_empty() {
            for delivery in held.drain(..) {
                delivery.acknowledge.settled();
            }
            subscribed(&reader).await;
            let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
            let last = Publish::new("t/0", "last").qos(1);
            source.publish(last).await.unwrap();
        }
    }
    let twice: u32 = seen.values().map(|times| times - 1).sum();
    let stats = reader.stats();
    println!("{twice} came twice, {stats:?}");
    assert_eq!((seen.len(), stats.sessions_lost), (COUNT as usize, 0));
    assert!(stats.connects > 1, "{stats:?}");
    assert!(stats.redeliveries_recognised >= 40, "{stats:?}");
    assert!(twice <= COUNT / 100, "{twice} came twice, {stats:?}");
}

#[tokio::test]
async fn what_was_given_late_is_never_acknowledged_before_it_has_come_again() {
    let broker = sending(vec![vec![publish(1, "a", 1)], Vec::new()], |_| true).await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(config(proxy.port(), "r"), "t");
    let held = next(&reader).await;
    cut(&proxy, &reader).await;
    subscribed(&reader).await;
    held.acknowledge.settled();
    let late = || reader.stats().late_acknowledgements == 1;
    assert!(late());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(acks(&broker), [], "this connection has not seen it");
}
