//! MQTT 3.1.1 behind the same face: what stays true, and what is lost.

use std::num::NonZeroU16;
use std::time::Duration;

use bridge_core::{
    Link, Message, PayloadFormat, Properties, QoS, ReasonCode, Sink, Source, SourceState,
};
use bridge_testkit::{
    Ack, AckKind, Behaviour, ConnAck, Mosquitto, Packet, Property, Publish, RawClient, Reply,
    ScriptedBroker, wait_until,
};
use bridge_transport::{Protocol, Reader, SessionConfig};
use futures_util::future::join_all;

use crate::common::{
    DEADLINE, admit, clock, code, config, gone, message, next, publish, reader, subscribed,
    subscription, take, up, within, writer,
};
use crate::resuming::{leaves_nothing_behind, restarts_and_loses_nothing};
use crate::row_07_acknowledgements::comes_to_the_restarted_process;

const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn config_311(port: u16, client_id: &str) -> SessionConfig {
    SessionConfig {
        protocol: Protocol::V311,
        ..config(port, client_id)
    }
}

fn with_properties(qos: QoS) -> Message {
    let mut message = message("t", format!("{qos:?}"), qos);
    message.properties = Properties {
        payload_format: Some(PayloadFormat::Utf8),
        message_expiry: Some(60),
        content_type: Some("text/plain".to_owned()),
        user_properties: vec![("a".to_owned(), "b".repeat(300))],
        ..Properties::default()
    };
    message
}

#[tokio::test]
async fn messages_of_every_qos_reach_mosquitto_without_their_properties() {
    let broker = Mosquitto::start().await;
    let mut sink = RawClient::connect(broker.port(), "sink").await.unwrap();
    sink.subscribe(&[("t", 2)]).await.unwrap();
    let writer = writer(config_311(broker.port(), "w"));
    for qos in ALL {
        let answer = publish(&writer, with_properties(qos)).await;
        assert_eq!(code(&answer), ReasonCode::SUCCESS);
        let plain = publish(&writer, message("t", "plain", qos)).await;
        assert_eq!(code(&plain), ReasonCode::SUCCESS);
    }
    for qos in ALL {
        for payload in [format!("{qos:?}"), "plain".to_owned()] {
            let received = sink.recv(DEADLINE).await.unwrap();
            assert_eq!(received.payload, payload.as_bytes());
            assert_eq!(received.qos, qos as u8);
            assert_eq!(received.properties, []);
        }
    }
    let stats = writer.stats();
    assert_eq!((stats.properties_lost, stats.answered), (3, 6));
    writer.close().await;
    gone(&broker, "w", 1).await;
    assert!(broker.log().contains("(p2, c1, k"), "{}", broker.log());
}

#[tokio::test]
async fn messages_of_every_qos_come_from_mosquitto() {
    let broker = Mosquitto::start().await;
    let reader = reader(config_311(broker.port(), "r"), "#");
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    for size in [0, 1, 124, 125, 16_378, 16_379, 100_000] {
        for qos in ALL {
            let sent = Publish::new("t", vec![7; size])
                .qos(qos as u8)
                .with(Property::user("a", "b"));
            source.publish(sent).await.unwrap();
            let received = take(&reader).await;
            assert_eq!(received.payload, vec![7; size]);
            assert_eq!((received.qos, received.retain), (qos, false));
            assert_eq!(received.properties, Properties::default());
        }
    }
    assert_eq!(reader.stats().received, 21);
    reader.close().await;
    gone(&broker, "r", 1).await;
    assert!(broker.log().contains("(p2, c0, k"), "{}", broker.log());
}

#[tokio::test]
async fn i07_a_restarted_process_gets_what_it_did_not_acknowledge_and_what_came_meanwhile() {
    comes_to_the_restarted_process(config_311).await;
}

#[tokio::test]
async fn a_broker_that_restarts_with_its_memory_loses_nothing() {
    restarts_and_loses_nothing(config_311).await;
}

#[tokio::test]
async fn case_07_filters_that_are_configured_no_more_end_at_the_broker() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Mosquitto::start().await;
    let mut settings = config_311(broker.port(), "r");
    settings.filters_file = Some(folder.path().join("plant.filters"));
    let reading = |filters: &[&str]| {
        let filters = filters.iter().map(|f| subscription(f, QoS::AtLeastOnce));
        Reader::start(settings.clone(), filters.collect(), clock())
    };
    let first = reading(&["kept", "dropped/#", "dropped"]);
    subscribed(&first).await;
    first.close().await;
    gone(&broker, "r", 1).await;
    let second = reading(&["kept"]);
    subscribed(&second).await;
    assert_eq!(second.stats().leftover_subscriptions, 2);
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    for topic in ["dropped/1", "dropped", "kept"] {
        source.publish(Publish::new(topic, topic)).await.unwrap();
    }
    assert_eq!(take(&second).await.payload, "kept");
}

#[tokio::test]
async fn an_ephemeral_session_leaves_nothing_behind() {
    leaves_nothing_behind(config_311).await;
}

#[tokio::test]
async fn a_message_that_is_not_permitted_is_acknowledged_and_lost() {
    let broker = Mosquitto::builder()
        .acl("topic read #\ntopic write open/#\n")
        .start()
        .await;
    let mut sink = RawClient::connect(broker.port(), "sink").await.unwrap();
    sink.subscribe(&[("#", 2)]).await.unwrap();
    let writer = writer(config_311(broker.port(), "w"));
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let denied = publish(&writer, message("closed/1", "x", qos)).await;
        assert_eq!(code(&denied), ReasonCode::SUCCESS, "this is what is lost");
        publish(&writer, message("open/1", "x", qos)).await;
        assert_eq!(sink.recv(DEADLINE).await.unwrap().topic, "open/1");
    }
}

#[tokio::test]
async fn only_what_comes_with_a_new_subscription_has_the_retain_flag() {
    let broker = Mosquitto::start().await;
    let writer = writer(config_311(broker.port(), "w"));
    let mut retained = message("t", "kept", QoS::AtLeastOnce);
    retained.retain = true;
    publish(&writer, retained.clone()).await;
    let reader = reader(config_311(broker.port(), "r"), "t");
    let first = take(&reader).await;
    assert_eq!((first.retain, &first.payload[..]), (true, &b"kept"[..]));
    retained.payload = "live".into();
    publish(&writer, retained).await;
    let live = take(&reader).await;
    assert_eq!((live.retain, &live.payload[..]), (false, &b"live"[..]));
}

#[tokio::test]
async fn a_refused_filter_is_asked_for_again_and_the_others_run() {
    let broker = Mosquitto::builder()
        .acl("topic read open\ntopic write #\n")
        .start()
        .await;
    // Mosquitto grants what it will not send; the scripted broker refuses it.
    let scripted = ScriptedBroker::behaving(
        Behaviour::new()
            .suback(|filter| if filter == "open" { 1 } else { 0x80 })
            .after_subscribe([Publish::new("open", "x").id(1)]),
    )
    .await;
    for port in [broker.port(), scripted.port()] {
        let filters = ["open", "closed"].map(|f| subscription(f, QoS::AtLeastOnce));
        let reader = Reader::start(config_311(port, "r"), filters.to_vec(), clock());
        if port == scripted.port() {
            assert_eq!(take(&reader).await.payload, "x");
            wait_until("the refusal is known", DEADLINE, || {
                let refused = reader.refused_subscriptions();
                refused.len() == 1 && refused[0].code == ReasonCode::new(0x80)
            })
            .await;
            assert_eq!(reader.state(), SourceState::Connected);
        } else {
            subscribed(&reader).await;
        }
        reader.close().await;
    }
}

#[tokio::test]
async fn the_window_is_the_configured_one_and_order_is_kept_in_it() {
    let broker = ScriptedBroker::accepting().await;
    let mut settings = config_311(broker.port(), "w");
    settings.max_in_flight = NonZeroU16::new(50).unwrap();
    let writer = writer(settings);
    up(&writer, 0).await;
    let Link::Up { limits, .. } = writer.link() else {
        panic!("the link is up");
    };
    assert_eq!((limits.window, limits.maximum_packet_size), (50, None));
    let mut answers = Vec::new();
    for n in 0..500_u16 {
        let qos = ALL[usize::from(n % 3)];
        let sent = message("t", n.to_be_bytes(), qos);
        answers.push(tokio::spawn(admit(&writer, sent).await));
    }
    for answer in within("all are answered", join_all(answers)).await {
        assert_eq!(code(&answer.unwrap()), ReasonCode::SUCCESS);
    }
    let received = broker.publishes();
    let payloads = received
        .iter()
        .map(|received| &received.publish.payload[..]);
    let expected: Vec<_> = (0..500_u16).map(u16::to_be_bytes).collect();
    assert!(payloads.eq(expected.iter().map(|n| &n[..])));
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn a_takeover_is_a_close_without_a_word() {
    let broker = ScriptedBroker::accepting().await;
    let writer = writer(config_311(broker.port(), "w"));
    let epoch = up(&writer, 0).await;
    broker.close_all();
    up(&writer, epoch).await;
    let stats = writer.stats();
    assert_eq!((stats.connection_losses, stats.takeovers), (1, 0));
}

#[tokio::test]
async fn what_was_unanswered_when_the_broker_closed_may_have_been_sent() {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|received| {
        if received.publish.topic == "bad" {
            Reply::Close
        } else {
            Reply::Accept
        }
    }))
    .await;
    let writer = writer(config_311(broker.port(), "w"));
    let answer = publish(&writer, message("bad", "x", QoS::AtLeastOnce)).await;
    assert_eq!(
        answer,
        bridge_core::Answer::Unanswered(bridge_core::Unanswered::MayHaveBeenSent)
    );
    up(&writer, 1).await;
    let answer = publish(&writer, message("good", "x", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
}

#[tokio::test]
async fn a_refused_connection_says_why_and_is_tried_again() {
    let broker = ScriptedBroker::behaving(Behaviour::new().connacks(|number| ConnAck {
        code: if number < 5 {
            1 + u8::try_from(number).unwrap()
        } else {
            0
        },
        ..ConnAck::default()
    }))
    .await;
    let writer = writer(config_311(broker.port(), "w"));
    up(&writer, 0).await;
    assert_eq!(writer.stats().connect_failures, 5);
}

#[tokio::test]
async fn what_is_too_large_is_acknowledged_counted_and_does_not_come_again() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        connection.publish(Publish::new("t", "before").id(1)).await;
        for (qos, id) in [(0, 0), (1, 2), (2, 3)] {
            let large = Publish::new("large", vec![b'x'; 1 << 20]).qos(qos).id(id);
            connection.publish(large).await;
        }
        let invalid = Publish::new("a/#", "x").id(4);
        connection.publish(invalid).await;
        connection.publish(Publish::new("t", "after").id(5)).await;
        for (kind, id) in [
            (AckKind::PubAck, 1),
            (AckKind::PubAck, 2),
            (AckKind::PubRec, 3),
            (AckKind::PubAck, 4),
            (AckKind::PubAck, 5),
        ] {
            assert_eq!(connection.expect_ack(kind).await.id, id);
        }
        connection.ack(AckKind::PubRel, 3, 0).await;
        assert_eq!(connection.expect_ack(AckKind::PubComp).await.id, 3);
        connection.until_closed().await;
    })
    .await;
    let mut settings = config_311(broker.port(), "r");
    settings.max_packet_size = 1000;
    let reader = reader(settings, "t");
    assert_eq!(take(&reader).await.payload, "before");
    assert_eq!(take(&reader).await.payload, "after");
    wait_until("all is acknowledged", DEADLINE, || {
        let acks = broker.packets();
        let acks = acks.iter().filter(|(_, p)| matches!(p, Packet::Ack(_)));
        acks.count() == 6
    })
    .await;
    let stats = reader.stats();
    assert_eq!((stats.too_large, stats.invalid_topics), (3, 1));
    assert_eq!(broker.connections(), 1);
    reader.close().await;
}

#[tokio::test]
async fn a_message_that_is_not_acknowledged_comes_again_after_a_reconnect() {
    let broker = ScriptedBroker::behaving(
        Behaviour::new()
            .connacks(|number| ConnAck::with_session(number > 0))
            .after_subscribe([Publish::new("t", "x").qos(2).id(7)]),
    )
    .await;
    let reader = reader(config_311(broker.port(), "r"), "t");
    let first = next(&reader).await;
    broker.reset_all();
    let again = next(&reader).await;
    assert_eq!(again.message.payload, "x");
    first.acknowledge.settled();
    again.acknowledge.settled();
    wait_until("it is completed", DEADLINE, || {
        let packets = broker.packets();
        let completed = |p: &Packet| matches!(p, Packet::Ack(ack) if ack.kind == AckKind::PubComp);
        packets.iter().any(|(_, packet)| completed(packet))
    })
    .await;
    assert_eq!(reader.stats().late_acknowledgements, 1);
    assert_eq!(broker.connections(), 2);
    within("close", reader.close()).await;
}

#[tokio::test]
async fn a_peer_that_reads_nothing_more_is_left_at_the_deadline() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        if connection.number() > 0 {
            return connection.behave(&Behaviour::new()).await;
        }
        // Reads nothing more, and holds the socket open.
        std::future::pending::<()>().await;
    })
    .await;
    let mut settings = config_311(broker.port(), "w");
    settings.write_timeout = Duration::from_millis(300);
    let writer = writer(settings);
    up(&writer, 0).await;
    let mut answers = Vec::new();
    for _ in 0..20 {
        let large = message("t", vec![0; 1 << 20], QoS::AtLeastOnce);
        answers.push(admit(&writer, large).await);
    }
    let unanswered = within("all end", join_all(answers)).await;
    assert!(
        unanswered
            .iter()
            .all(|answer| matches!(answer, bridge_core::Answer::Unanswered(_)))
    );
    up(&writer, 1).await;
}

#[tokio::test]
async fn a_broker_may_take_qos_2_as_qos_1() {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|received| {
        let ack = Ack::new(AckKind::PubAck, received.publish.id, 0);
        Reply::Packet(Box::new(Packet::Ack(ack)))
    }))
    .await;
    let writer = writer(config_311(broker.port(), "w"));
    for _ in 0..300 {
        let answer = publish(&writer, message("t", "x", QoS::ExactlyOnce)).await;
        assert_eq!(code(&answer), ReasonCode::SUCCESS);
    }
    assert_eq!((broker.connections(), broker.publish_count()), (1, 300));
}
