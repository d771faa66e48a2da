//! Acknowledgements leave in order, and only on the connection that they belong to.

use std::time::Duration;

use bridge_core::{QoS, Source};
use bridge_testkit::{
    AckKind, Behaviour, ConnAck, Cut, Mosquitto, Packet, Proxy, Publish, RawClient, ScriptedBroker,
    wait_until,
};
use bridge_transport::{Reader, ReaderTuning, SessionConfig};

use crate::common::{
    DEADLINE, clock, config, gone, kept_for, message, next, publish, reader, receive, subscribed,
    subscription, take, within, writer,
};

/// A broker that resumes, and sends these after each SUBACK.
fn sending(messages: impl Into<Vec<Publish>>) -> Behaviour {
    Behaviour::new()
        .connacks(|connection| ConnAck::with_session(connection > 0))
        .after_subscribe(messages)
}

/// The acknowledgements that a broker has received, with the number of their connection.
fn acks(broker: &ScriptedBroker) -> Vec<(usize, AckKind, u16)> {
    let packets = broker.packets();
    let acks = packets
        .into_iter()
        .filter_map(|(connection, packet)| match packet {
            Packet::Ack(ack) => Some((connection, ack.kind, ack.id)),
            _ => None,
        });
    acks.collect()
}

fn numbered(count: u16, qos: u8) -> Vec<Publish> {
    (1..=count)
        .map(|id| Publish::new("t", id.to_string()).qos(qos).id(id))
        .collect()
}

#[tokio::test]
async fn settled_out_of_order_they_leave_in_order() {
    let broker = ScriptedBroker::behaving(sending(numbered(20, 1))).await;
    let reader = reader(config(broker.port(), "r"), "t");
    let mut deliveries = receive(&reader, 20).await;
    // The last first, and the very first at the end.
    while let Some(delivery) = deliveries.pop() {
        delivery.acknowledge.settled();
    }
    wait_until("all are acknowledged", DEADLINE, || {
        acks(&broker).len() == 20
    })
    .await;
    let ids: Vec<u16> = acks(&broker).into_iter().map(|(_, _, id)| id).collect();
    assert_eq!(ids, (1..=20).collect::<Vec<u16>>());
}

#[tokio::test]
async fn case_36_one_that_comes_after_a_reconnect_harms_neither_connection_nor_message() {
    let broker = ScriptedBroker::behaving(sending(numbered(3, 1))).await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(config(proxy.port(), "r"), "t");
    let old = receive(&reader, 3).await;
    proxy.cut(Cut::Reset);
    let new = receive(&reader, 3).await;
    for delivery in old {
        delivery.acknowledge.settled();
    }
    assert_eq!(
        acks(&broker),
        [],
        "these belong to a connection that is gone"
    );
    for delivery in new {
        delivery.acknowledge.settled();
    }
    wait_until("the new ones are acknowledged", DEADLINE, || {
        acks(&broker).len() == 3
    })
    .await;
    let expected: Vec<_> = (1..=3).map(|id| (1, AckKind::PubAck, id)).collect();
    assert_eq!(acks(&broker), expected);
    let stats = reader.stats();
    assert_eq!((stats.late_acknowledgements, stats.connects), (3, 2));
}

#[tokio::test]
async fn a_qos_2_message_is_released_on_the_next_connection() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.expect_connect().await;
        let connack = ConnAck::with_session(connection.number() > 0);
        connection.send_packet(&Packet::ConnAck(connack)).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        if connection.number() == 0 {
            for id in [1, 2] {
                let publish = Publish::new("t", id.to_string()).qos(2).id(id);
                connection.publish(publish).await;
            }
            assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 1);
            assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 2);
            // It is as if the second had been lost with the connection.
        } else {
            connection.ack(AckKind::PubRel, 1, 0).await;
            let mut again = Publish::new("t", "2").qos(2).id(2);
            again.dup = true;
            connection.publish(again).await;
            let answer = connection.expect_ack(AckKind::PubComp).await;
            assert_eq!((answer.id, answer.code), (1, 0));
            assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 2);
            connection.ack(AckKind::PubRel, 2, 0x92).await;
            let answer = connection.expect_ack(AckKind::PubComp).await;
            assert_eq!(answer.id, 2);
            connection
                .publish(Publish::new("t", "3").qos(2).id(2))
                .await;
            assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 2);
            connection.until_closed().await;
        }
    })
    .await;
    let reader = reader(config(broker.port(), "r"), "t");
    for expected in ["1", "2", "3"] {
        assert_eq!(take(&reader).await.payload, expected, "each once");
    }
    wait_until("all is acknowledged", DEADLINE, || acks(&broker).len() == 6).await;
    reader.close().await;
}

#[tokio::test]
async fn what_is_left_with_the_broker_comes_again_and_the_rest_does_not() {
    let broker = Mosquitto::start().await;
    let tuning = ReaderTuning {
        leave_pacing: Duration::from_millis(300),
        ..ReaderTuning::default()
    };
    let reader = Reader::start_tuned(
        config(broker.port(), "r"),
        vec![subscription("t", QoS::AtLeastOnce)],
        clock(),
        tuning,
    );
    subscribed(&reader).await;
    let writer = writer(config(broker.port(), "w"));
    for n in 0..4_u8 {
        publish(&writer, message("t", vec![n], QoS::AtLeastOnce)).await;
    }
    let mut deliveries = receive(&reader, 4).await.into_iter();
    deliveries.next().unwrap().acknowledge.settled();
    deliveries.next().unwrap().acknowledge.leave();
    deliveries.next().unwrap().acknowledge.settled();
    drop(deliveries.next().unwrap());
    let mut again = receive(&reader, 2).await;
    again.sort_by_key(|delivery| delivery.message.payload.clone());
    for (delivery, expected) in again.into_iter().zip([1_u8, 3]) {
        assert_eq!(delivery.message.payload, vec![expected]);
        assert!(delivery.redelivered);
        delivery.acknowledge.settled();
    }
    assert_eq!(reader.stats().connects, 2);
    assert_eq!(reader.stats().connection_losses, 0);
    reader.close().await;

    gone(&broker, "r", 2).await;
    assert_eq!(kept_for(&broker, "r").await, [], "all were acknowledged");
}

#[tokio::test]
async fn a_message_sent_twice_on_one_connection_is_acknowledged_once() {
    let mut twice = numbered(1, 1);
    twice.extend(numbered(2, 1));
    let broker = ScriptedBroker::behaving(sending(twice)).await;
    let reader = reader(config(broker.port(), "r"), "t");
    for delivery in receive(&reader, 2).await {
        delivery.acknowledge.settled();
    }
    wait_until("both are acknowledged", DEADLINE, || {
        acks(&broker).len() == 2
    })
    .await;
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn what_the_bridge_does_not_acknowledge_holds_the_broker_back() {
    let broker = Mosquitto::start().await;
    let mut settings = config(broker.port(), "r");
    settings.receive_maximum = 5.try_into().unwrap();
    let reader = reader(settings, "t");
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    for n in 0..50_u8 {
        source
            .publish(Publish::new("t", vec![n]).qos(1))
            .await
            .unwrap();
    }
    let held = receive(&reader, 5).await;
    let more = tokio::time::timeout(Duration::from_millis(200), reader.next()).await;
    assert!(more.is_err(), "more than the Receive Maximum");
    for delivery in held {
        delivery.acknowledge.settled();
    }
    for n in 5..50_u8 {
        assert_eq!(within("next", take(&reader)).await.payload, vec![n]);
    }
}

#[tokio::test]
async fn what_was_left_on_a_connection_that_is_lost_ends_no_other() {
    let broker = ScriptedBroker::behaving(sending(numbered(2, 1))).await;
    let proxy = Proxy::start(broker.port()).await;
    let tuning = ReaderTuning {
        leave_pacing: Duration::from_millis(150),
        ..ReaderTuning::default()
    };
    let reader = Reader::start_tuned(
        config(proxy.port(), "r"),
        vec![subscription("t", QoS::AtLeastOnce)],
        clock(),
        tuning,
    );
    drop(receive(&reader, 2).await);
    proxy.cut(Cut::Reset);
    for delivery in receive(&reader, 2).await {
        delivery.acknowledge.settled();
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(reader.stats().connects, 2);
}

#[tokio::test]
async fn a_flood_that_nobody_takes_neither_ends_the_connection_nor_grows_without_bound() {
    let broker = Mosquitto::start().await;
    let mut settings = config(broker.port(), "r");
    settings.keep_alive = Duration::from_secs(5);
    let reader = reader(settings, "t");
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    let flood = (0..10_000).map(|n: u32| Publish::new("t", n.to_string()).qos(0));
    assert!(source.publish_all(flood, 1000).await.lost.is_none());
    wait_until("some are dropped", DEADLINE, || {
        reader.stats().dropped_qos0 > 1000
    })
    .await;
    // Past one and a half keep-alives the broker would have given us up.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(reader.stats().connects, 1);
    for n in 0..4096 {
        assert_eq!(take(&reader).await.payload, n.to_string());
    }
}

#[tokio::test]
async fn i07_a_restarted_process_gets_what_it_did_not_acknowledge_and_what_came_meanwhile() {
    comes_to_the_restarted_process(config).await;
}

/// With sessions of that kind.
pub(crate) async fn comes_to_the_restarted_process(session: fn(u16, &str) -> SessionConfig) {
    for qos_of_taken in [1, 2] {
        let broker = Mosquitto::start().await;
        let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
        let first = reader(session(broker.port(), "r"), "t");
        subscribed(&first).await;
        for (n, qos) in [("settled", 1), ("taken", qos_of_taken), ("waiting", 1)] {
            source.publish(Publish::new("t", n).qos(qos)).await.unwrap();
        }
        assert_eq!(take(&first).await.payload, "settled");
        let taken = next(&first).await;
        first.close().await;
        gone(&broker, "r", 1).await;
        taken.acknowledge.settled();
        drop(first);
        source
            .publish(Publish::new("t", "meanwhile").qos(2))
            .await
            .unwrap();

        let second = reader(session(broker.port(), "r"), "t");
        for expected in ["taken", "waiting", "meanwhile"] {
            assert_eq!(take(&second).await.payload, expected);
        }
        assert_eq!(second.stats().sessions_lost, 0);
    }
}

/// The broker remembers messages of QoS 2 that this process has never heard of.
#[tokio::test]
async fn a_new_process_ends_the_exchanges_of_qos_2_that_the_old_one_began() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.expect_connect().await;
        let connack = ConnAck::with_session(true);
        connection.send_packet(&Packet::ConnAck(connack)).await;
        // What was received and not released, before anything else (§4.4).
        connection.ack(AckKind::PubRel, 7, 0).await;
        let answer = connection.expect_ack(AckKind::PubComp).await;
        assert_eq!(answer.id, 7);
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        let mut again = Publish::new("t", "again").qos(2).id(8);
        again.dup = true;
        connection.publish(again).await;
        assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 8);
        connection.ack(AckKind::PubRel, 8, 0).await;
        assert_eq!(connection.expect_ack(AckKind::PubComp).await.id, 8);
        connection.until_closed().await;
    })
    .await;
    let reader = reader(config(broker.port(), "r"), "t");
    let delivery = next(&reader).await;
    assert!(delivery.redelivered);
    assert_eq!(delivery.message.payload, "again");
    delivery.acknowledge.settled();
    wait_until("both exchanges have ended", DEADLINE, || {
        acks(&broker).len() == 3
    })
    .await;
    assert_eq!(broker.connections(), 1);
    reader.close().await;
}
