//! What a broker says of itself in its CONNACK is kept to, and told.

use std::time::Duration;

use bridge_core::{LocalRefusal, NotAdmitted, QoS, ReasonCode, Sink, Source, SourceState};
use bridge_testkit::{
    Behaviour, ConnAck, Cut, Disconnect, Packet, Property, Proxy, ScriptedBroker, wait_until,
};
use bridge_transport::{QosUnavailable, Reader, RetainUnavailable};

use crate::common::{
    DEADLINE, admit, clock, code, config, message, publish, reader, subscribed, subscription, up,
    within, writer,
};
use crate::logs::Lines;

#[tokio::test]
async fn case_15_a_retained_message_loses_its_flag_by_policy_and_is_counted() {
    let lines = Lines::listen();
    let broker =
        ScriptedBroker::behaving(Behaviour::new().connack([Property::RetainAvailable(0)])).await;
    let mut settings = config(broker.port(), "w");
    settings.retain_unavailable = RetainUnavailable::Strip;
    let writer = writer(settings);
    for _ in 0..3 {
        let mut retained = message("t", "x", QoS::AtLeastOnce);
        retained.retain = true;
        let answer = publish(&writer, retained).await;
        assert_eq!(code(&answer), ReasonCode::SUCCESS);
    }
    publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    let flags = broker.publishes().into_iter().map(|p| p.publish.retain);
    assert_eq!(flags.collect::<Vec<_>>(), [false; 4]);
    let stats = writer.stats();
    assert_eq!((stats.retain_stripped, stats.qos_downgraded), (3, 0));
    assert_eq!(lines.names(), ["session_connected", "message_adapted"]);
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn case_15_by_default_it_is_refused_here_and_never_a_reconnect_loop() {
    let broker =
        ScriptedBroker::behaving(Behaviour::new().connack([Property::RetainAvailable(0)])).await;
    let writer = writer(config(broker.port(), "w"));
    up(&writer, 0).await;
    for _ in 0..20 {
        let mut retained = message("t", "x", QoS::AtLeastOnce);
        retained.retain = true;
        match writer.publish(retained).await {
            Err(NotAdmitted::Refused(LocalRefusal::RetainUnavailable)) => {}
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was admitted"),
        }
        publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    }
    assert_eq!((broker.connections(), broker.publish_count()), (1, 20));
}

#[tokio::test]
async fn a_qos_that_the_broker_does_not_take_is_lowered_by_policy_and_counted() {
    for maximum in [0, 1] {
        let broker =
            ScriptedBroker::behaving(Behaviour::new().connack([Property::MaximumQos(maximum)]))
                .await;
        let mut settings = config(broker.port(), "w");
        settings.qos_unavailable = QosUnavailable::Downgrade;
        let writer = writer(settings);
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let answer = publish(&writer, message("t", "x", qos)).await;
            assert_eq!(code(&answer), ReasonCode::SUCCESS);
        }
        wait_until("all are received", DEADLINE, || broker.publish_count() == 3).await;
        let sent = broker.publishes().into_iter().map(|p| p.publish.qos);
        let expected = [0, 1.min(maximum), maximum];
        assert_eq!(sent.collect::<Vec<_>>(), expected);
        assert_eq!(writer.stats().qos_downgraded, 2 - u64::from(maximum));
    }
}

#[tokio::test]
async fn a_large_message_that_waited_is_refused_by_the_smaller_maximum_of_the_next_connection() {
    let broker = ScriptedBroker::behaving(Behaviour::new().connacks(|connection| ConnAck {
        properties: vec![
            Property::MaximumPacketSize(if connection == 0 { 10_000 } else { 500 }),
            Property::ReceiveMaximum(1),
        ],
        ..ConnAck::default()
    }))
    .await;
    let proxy = Proxy::start(broker.port()).await;
    let writer = writer(config(proxy.port(), "w"));
    let large = || message("t", vec![0; 5_000], QoS::AtLeastOnce);
    let answer = publish(&writer, large()).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    // One is on its way and holds the whole window, the other waits behind it.
    proxy.stall();
    let first = admit(&writer, large()).await;
    let waiting = writer.publish(large());
    proxy.cut(Cut::Reset);
    proxy.resume();
    assert!(matches!(waiting.await, Err(NotAdmitted::LinkDown)));
    within("told", first).await;
    up(&writer, 1).await;
    assert!(matches!(
        writer.publish(large()).await,
        Err(NotAdmitted::Refused(LocalRefusal::PacketTooLarge {
            maximum: 500,
            ..
        }))
    ));
    let answer = publish(&writer, message("t", "small", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!(broker.connections(), 2);
}

#[tokio::test]
async fn the_keep_alive_that_the_broker_wants_counts_and_is_told() {
    let lines = Lines::listen();
    let broker =
        ScriptedBroker::behaving(Behaviour::new().connack([Property::ServerKeepAlive(1)])).await;
    let mut settings = config(broker.port(), "w");
    settings.keep_alive = Duration::from_secs(600);
    let writer = writer(settings);
    up(&writer, 0).await;
    wait_until("it pings as the broker wants", DEADLINE, || {
        let packets = broker.packets();
        packets.iter().any(|(_, packet)| *packet == Packet::PingReq)
    })
    .await;
    assert_eq!(lines.names(), ["session_connected", "session_terms"]);
}

#[tokio::test]
async fn a_client_id_of_the_brokers_making_is_known_and_asked_for_again() {
    let broker = ScriptedBroker::behaving(Behaviour::new().connacks(|connection| {
        ConnAck {
            properties: (connection == 0)
                .then(|| Property::AssignedClientId("auto-17".to_owned()))
                .into_iter()
                .collect(),
            ..ConnAck::default()
        }
    }))
    .await;
    let proxy = Proxy::start(broker.port()).await;
    let writer = writer(config(proxy.port(), ""));
    up(&writer, 0).await;
    wait_until("the id is known", DEADLINE, || {
        writer.client_id() == "auto-17"
    })
    .await;
    proxy.cut(Cut::Finish);
    up(&writer, 1).await;
    let ids = broker.connects().into_iter().map(|c| c.client_id);
    assert_eq!(ids.collect::<Vec<_>>(), ["", "auto-17"]);
}

#[tokio::test]
async fn a_server_that_is_pointed_to_is_told_and_not_followed() {
    let lines = Lines::listen();
    let other = ScriptedBroker::accepting().await;
    let reference = format!("127.0.0.1:{}", other.port());
    let broker = ScriptedBroker::start({
        let reference = reference.clone();
        move |mut connection| {
            let properties = vec![
                Property::ServerReference(reference.clone()),
                Property::ReasonString("moving house".to_owned()),
            ];
            async move {
                connection.expect_connect().await;
                match connection.number() {
                    0 => {
                        connection.connack(&[]).await;
                        let disconnect = Disconnect {
                            code: 0x9C,
                            properties,
                        };
                        connection
                            .send_packet(&Packet::Disconnect(disconnect))
                            .await;
                    }
                    1..4 => {
                        let connack = ConnAck {
                            code: 0x9D,
                            properties,
                            ..ConnAck::default()
                        };
                        connection.send_packet(&Packet::ConnAck(connack)).await;
                    }
                    _ => {
                        connection.connack(&[]).await;
                        connection.until_closed().await;
                    }
                }
            }
        }
    })
    .await;
    let writer = writer(config(broker.port(), "w"));
    up(&writer, 1).await;
    assert_eq!(other.connections(), 0);
    assert_eq!(
        lines.names(),
        [
            "session_connected",
            "session_redirected",
            "session_connection_lost",
            "session_redirected",
            "session_connect_failed",
            "session_connected"
        ]
    );
    let text = lines.text();
    assert!(text.contains(&reference), "{text}");
    assert!(text.contains("server_moved (\"moving house\")"), "{text}");
}

#[tokio::test]
async fn a_filter_that_the_broker_does_not_serve_is_refused_and_not_sent() {
    let broker = ScriptedBroker::behaving(
        Behaviour::new().connack([Property::WildcardAvailable(0), Property::SharedAvailable(0)]),
    )
    .await;
    let filters = ["a/#", "$share/g/b", "c"].map(|f| subscription(f, QoS::AtLeastOnce));
    let reader = Reader::start(config(broker.port(), "r"), filters.to_vec(), clock());
    wait_until("it is known", DEADLINE, || {
        reader.stats().refused_subscriptions == 2
    })
    .await;
    let refused = reader.refused_subscriptions().into_iter();
    let refused: Vec<_> = refused
        .map(|r| (r.subscription.filter.as_str().to_owned(), r.code.get()))
        .collect();
    assert_eq!(
        refused,
        [("a/#".to_owned(), 0xA2), ("$share/g/b".to_owned(), 0x9E)]
    );
    assert_eq!(reader.state(), SourceState::Connected);
    assert_eq!(asked_for(&broker), [("c".to_owned(), 0b01_1001)]);
}

#[tokio::test]
async fn a_filter_that_is_granted_at_a_lower_qos_is_told_and_counted() {
    let broker = ScriptedBroker::behaving(Behaviour::new().suback(|filter| match filter {
        "low" => 0,
        _ => 2,
    }))
    .await;
    let filters = ["low", "high"].map(|f| subscription(f, QoS::ExactlyOnce));
    let reader = Reader::start(config(broker.port(), "r"), filters.to_vec(), clock());
    subscribed(&reader).await;
    let [downgraded] = &reader.downgraded_subscriptions()[..] else {
        panic!("one is: {:?}", reader.downgraded_subscriptions());
    };
    assert_eq!(downgraded.subscription.filter.as_str(), "low");
    assert_eq!(downgraded.granted, QoS::AtMostOnce);
    assert_eq!(reader.stats().downgraded_subscriptions, 1);
}

#[tokio::test]
async fn no_local_is_asked_for_where_it_may_be() {
    let broker = ScriptedBroker::accepting().await;
    let filters = ["a", "$share/g/a"].map(|filter| {
        let mut subscription = subscription(filter, QoS::AtLeastOnce);
        subscription.no_local = true;
        subscription
    });
    let reader = Reader::start(config(broker.port(), "r"), filters.to_vec(), clock());
    subscribed(&reader).await;
    assert_eq!(
        asked_for(&broker),
        [
            ("a".to_owned(), 0b01_1101),
            ("$share/g/a".to_owned(), 0b01_1001)
        ]
    );
    within("close", reader.close()).await;
}

#[tokio::test]
async fn a_broker_that_keeps_the_session_for_less_is_told() {
    let lines = Lines::listen();
    let broker =
        ScriptedBroker::behaving(Behaviour::new().connack([Property::SessionExpiry(60)])).await;
    let reader = reader(config(broker.port(), "r"), "t");
    subscribed(&reader).await;
    assert_eq!(lines.names(), ["session_connected", "session_terms"]);
}

/// The filters that were asked for, with their options.
fn asked_for(broker: &ScriptedBroker) -> Vec<(String, u8)> {
    let packets = broker.packets().into_iter();
    packets
        .filter_map(|(_, packet)| match packet {
            Packet::Subscribe(subscribe) => Some(subscribe.filters),
            _ => None,
        })
        .flatten()
        .collect()
}
