//! What a session says of itself: birth, will and farewell.

use std::time::Duration;

use bridge_core::{QoS, ReasonCode, Sink, Source, Topic};
use bridge_testkit::{
    Behaviour, ConnAck, Cut, Mosquitto, Packet, Property, Proxy, Publish, RawClient,
    ScriptedBroker, wait_until,
};
use bridge_transport::{Protocol, Reader, ReaderTuning, SessionConfig, StatusTopic};

use crate::common::{
    DEADLINE, admit, clock, code, config, message, publish, reader, subscribed, subscription, take,
    up, within, writer,
};

const TOPIC: &str = "status/plant-7";

fn with_status(mut config: SessionConfig) -> SessionConfig {
    config.status = Some(StatusTopic {
        topic: Topic::parse(TOPIC).unwrap(),
        online: "online".to_owned(),
        offline: "offline".to_owned(),
    });
    config
}

/// What a scripted broker has received, in short.
fn story(broker: &ScriptedBroker) -> Vec<String> {
    let packets = broker.packets().into_iter();
    let told = packets.filter_map(|(_, packet)| match packet {
        Packet::Connect(connect) => connect.will.map(|will| {
            let payload = String::from_utf8(will.payload.to_vec()).unwrap();
            format!("will {payload} qos {} retain {}", will.qos, will.retain)
        }),
        Packet::Publish(publish) => {
            let payload = String::from_utf8(publish.payload.to_vec()).unwrap();
            let (qos, retain) = (publish.qos, publish.retain);
            Some(format!(
                "{} {payload} qos {qos} retain {retain}",
                publish.topic
            ))
        }
        Packet::Subscribe(_) => Some("subscribe".to_owned()),
        Packet::Disconnect(disconnect) => Some(format!("disconnect {}", disconnect.code)),
        _ => None,
    });
    told.collect()
}

/// Waits until a scripted broker has heard all that a session had to say.
async fn goodbye_has_come(broker: &ScriptedBroker) {
    wait_until("the goodbye has come", DEADLINE, || {
        broker.open_connections() == 0
    })
    .await;
}

/// The retained value of the status topic as a new subscriber sees it.
async fn retained(broker: &Mosquitto) -> String {
    let mut client = RawClient::connect(broker.port(), "").await.unwrap();
    client.subscribe(&[(TOPIC, 1)]).await.unwrap();
    let message = client.recv(Duration::from_secs(5)).await;
    message.map_or_else(
        |_| "nothing".to_owned(),
        |message| String::from_utf8(message.payload.to_vec()).unwrap(),
    )
}

async fn becomes(broker: &Mosquitto, expected: &str) {
    within(expected, async {
        while retained(broker).await != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_birth_goes_before_everything_and_the_farewell_before_the_goodbye() {
    for window in [1, 100] {
        let broker = ScriptedBroker::accepting().await;
        let mut settings = with_status(config(broker.port(), "w"));
        settings.max_in_flight = window.try_into().unwrap();
        let writer = writer(settings);
        for _ in 0..3 {
            let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
            assert_eq!(code(&answer), ReasonCode::SUCCESS);
        }
        within("close", writer.close()).await;
        goodbye_has_come(&broker).await;
        assert_eq!(
            story(&broker),
            [
                "will offline qos 1 retain true",
                "status/plant-7 online qos 1 retain true",
                "t x qos 1 retain false",
                "t x qos 1 retain false",
                "t x qos 1 retain false",
                "status/plant-7 offline qos 1 retain true",
                "disconnect 0",
            ]
        );
        // What the session says of itself is none of the messages that it carries.
        assert_eq!((writer.stats().admitted, writer.stats().answered), (3, 3));
    }
}

#[tokio::test]
async fn the_will_waits_a_moment_and_the_session_with_it() {
    let broker = ScriptedBroker::accepting().await;
    let writer = writer(with_status(config(broker.port(), "w")));
    up(&writer, 0).await;
    let connect = broker.connects().remove(0);
    assert!(connect.clean_start);
    assert!(connect.properties.contains(&Property::SessionExpiry(5)));
    let will = connect.will.unwrap();
    assert!(will.properties.contains(&Property::WillDelay(5)));
}

#[tokio::test]
async fn case_08_after_quick_reconnects_the_status_is_online() {
    let broker = Mosquitto::start().await;
    for protocol in [Protocol::V5, Protocol::V311] {
        let proxy = Proxy::start(broker.port()).await;
        let mut settings = with_status(config(proxy.port(), "w"));
        settings.protocol = protocol;
        let first = writer(settings.clone());
        for cut in 0..10 {
            let epoch = up(&first, cut).await;
            assert_eq!(epoch, cut + 1);
            // In the middle of the birth, or after it.
            if cut % 2 == 0 {
                publish(&first, message("t", "x", QoS::AtLeastOnce)).await;
            }
            proxy.cut(if cut % 3 == 0 {
                Cut::Finish
            } else {
                Cut::Reset
            });
        }
        up(&first, 10).await;
        publish(&first, message("t", "x", QoS::AtLeastOnce)).await;
        // Longer than a will waits.
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(retained(&broker).await, "online", "{protocol}");
        within("close", first.close()).await;
        becomes(&broker, "offline").await;

        // Gone without a goodbye: the broker says so.
        let second = writer(settings);
        up(&second, 0).await;
        publish(&second, message("t", "x", QoS::AtLeastOnce)).await;
        assert_eq!(retained(&broker).await, "online", "{protocol}");
        drop(second);
        proxy.cut(Cut::Reset);
        becomes(&broker, "offline").await;
    }
}

#[tokio::test]
async fn case_08_a_client_that_takes_over_its_own_half_open_connection_is_online() {
    let broker = Mosquitto::start().await;
    let proxy = Proxy::start(broker.port()).await;
    let first = writer(with_status(config(proxy.port(), "w")));
    up(&first, 0).await;
    becomes(&broker, "online").await;
    // The broker does not notice that the first connection is gone.
    proxy.stall();
    drop(first);
    let second = writer(with_status(config(broker.port(), "w")));
    up(&second, 0).await;
    publish(&second, message("t", "x", QoS::AtLeastOnce)).await;
    assert_eq!(retained(&broker).await, "online");
    proxy.cut(Cut::Reset);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(retained(&broker).await, "online");
}

#[tokio::test]
async fn case_08_an_old_will_that_comes_late_does_not_have_the_last_word() {
    let broker = Mosquitto::start().await;
    let writer = writer(with_status(config(broker.port(), "w")));
    up(&writer, 0).await;
    becomes(&broker, "online").await;
    // As a broker does that publishes the will of the connection before only now.
    let mut late = RawClient::connect(broker.port(), "late").await.unwrap();
    let will = Publish::new(TOPIC, "offline").qos(1).retained();
    late.publish(will).await.unwrap();
    assert_eq!(retained(&broker).await, "offline");
    becomes(&broker, "online").await;
}

#[tokio::test]
async fn a_session_that_is_only_read_from_says_it_on_its_reading_connection() {
    let broker = ScriptedBroker::accepting().await;
    let reader = reader(with_status(config(broker.port(), "r")), "t");
    subscribed(&reader).await;
    within("close", reader.close()).await;
    goodbye_has_come(&broker).await;
    assert_eq!(
        story(&broker),
        [
            "will offline qos 1 retain true",
            "status/plant-7 online qos 1 retain true",
            "subscribe",
            "status/plant-7 offline qos 1 retain true",
            "disconnect 0",
        ]
    );
}

#[tokio::test]
async fn a_reader_that_only_comes_again_leaves_its_will_with_the_broker() {
    let behaviour = Behaviour::new()
        .connacks(|_| ConnAck::with_session(true))
        .after_subscribe([Publish::new("t", "x").qos(1).id(1)]);
    for (protocol, expected) in [
        (Protocol::V5, &["disconnect 4"][..]),
        (
            Protocol::V311,
            &["status/plant-7 offline qos 1 retain true", "disconnect 0"],
        ),
    ] {
        let broker = ScriptedBroker::behaving(behaviour.clone()).await;
        let mut settings = with_status(config(broker.port(), "r"));
        settings.protocol = protocol;
        let reader = Reader::start_tuned(
            settings,
            vec![subscription("t", QoS::AtLeastOnce)],
            clock(),
            ReaderTuning {
                leave_pacing: Duration::from_millis(100),
                ..ReaderTuning::default()
            },
        );
        crate::common::next(&reader).await.acknowledge.leave();
        assert_eq!(take(&reader).await.payload, "x", "it comes again");
        let story = story(&broker);
        let expected = [&["subscribe"][..], expected, &["will offline"]].concat();
        let told = story.windows(expected.len()).any(|window| {
            let mut pairs = window.iter().zip(&expected);
            pairs.all(|(told, expected)| told.starts_with(expected))
        });
        assert!(told, "{expected:?} in {story:?}");
    }
}

#[tokio::test]
async fn a_broker_that_lets_nobody_in_with_such_a_will_gets_another() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        let connect = connection.expect_connect().await;
        let will = connect.will.unwrap();
        let code = if will.retain {
            0x9A
        } else if will.qos > 0 {
            0x9B
        } else {
            0x00
        };
        let connack = ConnAck {
            code,
            properties: vec![Property::RetainAvailable(0), Property::MaximumQos(0)],
            ..ConnAck::default()
        };
        connection.send_packet(&Packet::ConnAck(connack)).await;
        if code == 0 {
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let writer = writer(with_status(config(broker.port(), "w")));
    let admitted = admit(&writer, message("t", "x", QoS::AtMostOnce)).await;
    within("written", admitted).await;
    within("close", writer.close()).await;
    goodbye_has_come(&broker).await;
    assert_eq!(
        story(&broker),
        [
            "will offline qos 1 retain true",
            "will offline qos 1 retain false",
            "will offline qos 0 retain false",
            "status/plant-7 online qos 0 retain false",
            "t x qos 0 retain false",
            "status/plant-7 offline qos 0 retain false",
            "disconnect 0",
        ]
    );
}

#[tokio::test]
async fn without_what_is_local_a_session_does_not_take_its_own_status() {
    let broker = Mosquitto::start().await;
    for (no_local, expected) in [(false, TOPIC), (true, "other")] {
        let mut all = subscription("#", QoS::AtLeastOnce);
        all.no_local = no_local;
        let settings = with_status(config(broker.port(), "r"));
        let reader = Reader::start(settings, vec![all], clock());
        subscribed(&reader).await;
        let mut other = RawClient::connect(broker.port(), "other").await.unwrap();
        other
            .publish(Publish::new("other", "x").qos(1))
            .await
            .unwrap();
        assert_eq!(
            take(&reader).await.topic.as_str(),
            expected,
            "no_local: {no_local}"
        );
        within("close", reader.close()).await;
    }
}
