//! Subscriptions of an earlier configuration that a broker still holds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_core::{Backoff, QoS, Source};
use bridge_testkit::{
    AckKind, Behaviour, ConnAck, Mosquitto, Packet, Publish, RawClient, ScriptedBroker, SubAck,
    wait_until,
};
use bridge_transport::{Reader, ReaderTuning, SessionConfig};

use crate::common::{DEADLINE, clock, config, gone, subscribed, subscription, take, within};
use crate::logs::Lines;

fn remembering(mut config: SessionConfig, folder: &Path) -> SessionConfig {
    config.filters_file = Some(folder.join("sessions").join("plant.filters"));
    config
}

fn reading(config: SessionConfig, filters: &[&str]) -> Reader {
    let filters = filters.iter();
    let subscriptions = filters.map(|filter| subscription(filter, QoS::AtLeastOnce));
    let short = Duration::from_millis(20);
    let tuning = ReaderTuning {
        resubscribe: Backoff::try_new(short, short).unwrap(),
        ..ReaderTuning::default()
    };
    Reader::start_tuned(config, subscriptions.collect(), clock(), tuning)
}

#[tokio::test]
async fn case_07_a_filter_that_is_configured_no_more_ends_at_the_broker() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Mosquitto::start().await;
    let settings = remembering(config(broker.port(), "r"), folder.path());
    let first = reading(settings.clone(), &["kept", "dropped/#"]);
    subscribed(&first).await;
    within("close", first.close()).await;
    gone(&broker, "r", 1).await;

    let second = reading(settings.clone(), &["kept", "new"]);
    subscribed(&second).await;
    assert_eq!(second.stats().leftover_subscriptions, 1);
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    for topic in ["dropped/1", "kept", "dropped/2", "new"] {
        source
            .publish(Publish::new(topic, topic).qos(1))
            .await
            .unwrap();
    }
    for expected in ["kept", "new"] {
        assert_eq!(take(&second).await.payload, expected);
    }
    within("close", second.close()).await;
    gone(&broker, "r", 2).await;

    // It is over for good, and the session with all else in it goes on.
    let third = reading(settings, &["kept", "new"]);
    subscribed(&third).await;
    assert_eq!(third.stats().leftover_subscriptions, 0);
    assert_eq!(third.stats().sessions_lost, 0);
}

#[tokio::test]
async fn without_a_file_a_session_that_is_not_known_is_told() {
    let lines = Lines::listen();
    let broker = Mosquitto::start().await;
    let first = reading(config(broker.port(), "r"), &["dropped"]);
    subscribed(&first).await;
    within("close", first.close()).await;
    gone(&broker, "r", 1).await;
    let second = reading(config(broker.port(), "r"), &["kept"]);
    subscribed(&second).await;
    assert!(lines.names().contains(&"session_unknown".to_owned()));
}

#[tokio::test]
async fn what_the_broker_does_not_end_is_asked_for_again_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let grants = Arc::new(AtomicBool::new(false));
    let broker = ScriptedBroker::start({
        let grants = Arc::clone(&grants);
        move |mut connection| {
            let grants = Arc::clone(&grants);
            async move {
                connection.expect_connect().await;
                let connack = ConnAck::with_session(connection.number() > 0);
                connection.send_packet(&Packet::ConnAck(connack)).await;
                while let Some(packet) = connection.read_packet().await {
                    match packet {
                        Packet::Unsubscribe(asked) => {
                            let code = if grants.load(Ordering::SeqCst) {
                                0
                            } else {
                                0x87
                            };
                            let unsuback = SubAck {
                                id: asked.id,
                                codes: vec![code; asked.filters.len()],
                                ..SubAck::default()
                            };
                            connection.send_packet(&Packet::UnsubAck(unsuback)).await;
                        }
                        Packet::Subscribe(asked) => {
                            connection
                                .suback(asked.id, &vec![1; asked.filters.len()])
                                .await;
                        }
                        Packet::Disconnect(_) => return,
                        _ => {}
                    }
                }
            }
        }
    })
    .await;
    let settings = remembering(config(broker.port(), "r"), folder.path());
    let asked = |filter: &str| {
        let packets = broker.packets().into_iter();
        packets
            .filter(|(_, packet)| match packet {
                Packet::Unsubscribe(asked) => asked.filters == [filter],
                _ => false,
            })
            .count()
    };
    let first = reading(settings.clone(), &["kept", "dropped"]);
    subscribed(&first).await;
    within("close", first.close()).await;
    for times in [2, 4] {
        let next = reading(settings.clone(), &["kept"]);
        // The other filter runs all the while.
        subscribed(&next).await;
        wait_until("it is asked for again", DEADLINE, || {
            asked("dropped") >= times
        })
        .await;
        assert_eq!(next.stats().leftover_subscriptions, 0);
        within("close", next.close()).await;
    }
    grants.store(true, Ordering::SeqCst);
    let last = reading(settings.clone(), &["kept"]);
    wait_until("it is ended", DEADLINE, || {
        last.stats().leftover_subscriptions == 1
    })
    .await;
    within("close", last.close()).await;
    let before = asked("dropped");
    let after = reading(settings, &["kept"]);
    subscribed(&after).await;
    within("close", after.close()).await;
    assert_eq!(asked("dropped"), before);
}

#[tokio::test]
async fn a_session_that_the_broker_has_lost_leaves_nothing_over() {
    let folder = tempfile::tempdir().unwrap();
    let broker = ScriptedBroker::accepting().await;
    let settings = remembering(config(broker.port(), "r"), folder.path());
    for (lost, filters) in [(0, &["kept", "dropped"][..]), (1, &["kept"])] {
        let reader = reading(settings.clone(), filters);
        subscribed(&reader).await;
        // That there was one is known across a restart.
        assert_eq!(reader.stats().sessions_lost, lost);
        within("close", reader.close()).await;
    }
    let packets = broker.packets().into_iter();
    let unsubscribed = packets.filter(|(_, packet)| matches!(packet, Packet::Unsubscribe(_)));
    assert_eq!(unsubscribed.count(), 0);
}

#[tokio::test]
async fn what_is_still_under_way_of_an_ended_subscription_is_acknowledged_in_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.expect_connect().await;
        let connack = ConnAck::with_session(connection.number() > 0);
        connection.send_packet(&Packet::ConnAck(connack)).await;
        if connection.number() > 0 {
            // Sent before the UNSUBSCRIBE has come.
            let old = Publish::new("dropped", "old").qos(1).id(1);
            connection.publish(old).await;
            connection.expect_packet().await;
            let unsuback = SubAck {
                id: 1,
                codes: vec![0],
                ..SubAck::default()
            };
            connection.send_packet(&Packet::UnsubAck(unsuback)).await;
        }
        let subscribe = connection.expect_subscribe().await;
        connection
            .suback(subscribe.id, &vec![1; subscribe.filters.len()])
            .await;
        if connection.number() > 0 {
            assert_eq!(connection.expect_ack(AckKind::PubAck).await.id, 1);
        }
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    let settings = remembering(config(broker.port(), "r"), folder.path());
    let first = reading(settings.clone(), &["kept", "dropped"]);
    subscribed(&first).await;
    within("close", first.close()).await;
    let second = reading(settings, &["kept"]);
    subscribed(&second).await;
    // The runtime finds no route for it and settles it.
    assert_eq!(take(&second).await.topic.as_str(), "dropped");
    within("close", second.close()).await;
}
