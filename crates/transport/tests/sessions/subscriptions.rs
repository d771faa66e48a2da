//! Subscriptions that are refused, and messages that no broker should send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_core::{Backoff, QoS, ReasonCode, Source, SourceState};
use bridge_testkit::{AckKind, Behaviour, Packet, Property, Publish, ScriptedBroker, wait_until};
use bridge_transport::{Reader, ReaderTuning};

use crate::common::{DEADLINE, clock, config, reader, subscribed, subscription, take};

#[tokio::test]
async fn a_refused_filter_is_asked_for_again_while_the_other_runs() {
    let allowed = Arc::new(AtomicBool::new(false));
    let behaviour = Behaviour::new()
        .suback({
            let allowed = Arc::clone(&allowed);
            move |filter| match filter {
                "closed/#" if !allowed.load(Ordering::SeqCst) => 0x87,
                // A code that the client library does not know.
                "odd/#" if !allowed.load(Ordering::SeqCst) => 0xE5,
                _ => 1,
            }
        })
        .after_subscribe([Publish::new("open/1", "x").qos(0)]);
    let broker = ScriptedBroker::behaving(behaviour).await;
    let short = Duration::from_millis(50);
    let tuning = ReaderTuning {
        resubscribe: Backoff::try_new(short, short).unwrap(),
        ..ReaderTuning::default()
    };
    let reader = Reader::start_tuned(
        config(broker.port(), "r"),
        ["open/#", "closed/#", "odd/#"]
            .map(|filter| subscription(filter, QoS::AtLeastOnce))
            .to_vec(),
        clock(),
        tuning,
    );
    assert_eq!(take(&reader).await.payload, "x");
    wait_until("the refusals are known", DEADLINE, || {
        reader.stats().refused_subscriptions == 2
    })
    .await;
    assert_eq!(reader.state(), SourceState::Connected);
    let refused = reader.refused_subscriptions();
    assert_eq!(refused[0].subscription.filter.as_str(), "closed/#");
    assert_eq!(refused[0].code, ReasonCode::NOT_AUTHORIZED);
    assert!(refused[1].code.is_refusal());

    allowed.store(true, Ordering::SeqCst);
    subscribed(&reader).await;
    assert_eq!(reader.refused_subscriptions(), []);
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_ends_with_its_suback_leaves_no_reader_subscribed() {
    for _ in 0..20 {
        let broker = ScriptedBroker::start(|mut connection| async move {
            if connection.number() > 0 {
                // Whoever comes again is not answered.
                return connection.until_closed().await;
            }
            connection.accept(&[]).await;
            let subscribe = connection.expect_subscribe().await;
            connection.suback(subscribe.id, &[1]).await;
            connection.close();
        })
        .await;
        let reader = reader(config(broker.port(), "r"), "t");
        wait_until("it comes again", DEADLINE, || broker.connections() == 2).await;
        assert_eq!(reader.state(), SourceState::Down);
    }
}

#[tokio::test]
async fn a_subscription_asks_for_the_retain_flag_as_published() {
    let broker = ScriptedBroker::accepting().await;
    let reader = reader(config(broker.port(), "r"), "a/#");
    subscribed(&reader).await;
    let options = broker
        .packets()
        .into_iter()
        .find_map(|(_, packet)| match packet {
            Packet::Subscribe(subscribe) => subscribe.filters.first().cloned(),
            _ => None,
        });
    // QoS 2, retain as published (bit 3), retained messages with new subscriptions only (bit 4).
    assert_eq!(options, Some(("a/#".to_owned(), 0b01_1010)));
}

#[tokio::test]
async fn more_filters_than_one_packet_asks_for_are_all_granted() {
    let broker = ScriptedBroker::accepting().await;
    let filters: Vec<_> = (0..20)
        .map(|n| subscription(&format!("f/{n}"), QoS::AtLeastOnce))
        .collect();
    let reader = Reader::start(config(broker.port(), "r"), filters, clock());
    subscribed(&reader).await;
    let asked: usize = broker
        .packets()
        .iter()
        .map(|(_, packet)| match packet {
            Packet::Subscribe(subscribe) => subscribe.filters.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(asked, 20);
}

/// A PUBLISH whose topic is these bytes.
fn with_topic(topic: &[u8], qos: u8, id: u16) -> Vec<u8> {
    let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
    body.extend_from_slice(topic);
    if qos > 0 {
        body.extend(id.to_be_bytes());
    }
    body.push(0);
    body.extend_from_slice(b"payload");
    let mut packet = vec![0x30 | (qos << 1), u8::try_from(body.len()).unwrap()];
    packet.append(&mut body);
    packet
}

#[tokio::test]
async fn an_invalid_topic_is_acknowledged_in_its_turn_counted_and_set_aside() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        let mut bytes = Packet::Publish(Publish::new("t", "before").qos(1).id(1)).encode();
        bytes.extend(with_topic(b"a\0b", 1, 2));
        bytes.extend(with_topic(b"a/#", 0, 0));
        bytes.extend(with_topic(&[0xC3, 0x28], 2, 3));
        bytes.extend(with_topic(b"", 1, 4));
        bytes.extend(Packet::Publish(Publish::new("t", "after").qos(1).id(5)).encode());
        connection.send(&bytes).await;
        assert_eq!(connection.expect_ack(AckKind::PubAck).await.id, 1);
        assert_eq!(connection.expect_ack(AckKind::PubAck).await.id, 2);
        assert_eq!(connection.expect_ack(AckKind::PubRec).await.id, 3);
        assert_eq!(connection.expect_ack(AckKind::PubAck).await.id, 4);
        connection.ack(AckKind::PubRel, 3, 0).await;
        assert_eq!(connection.expect_ack(AckKind::PubAck).await.id, 5);
        assert_eq!(connection.expect_ack(AckKind::PubComp).await.id, 3);
        connection.until_closed().await;
    })
    .await;
    let reader = reader(config(broker.port(), "r"), "t");
    assert_eq!(take(&reader).await.payload, "before");
    assert_eq!(take(&reader).await.payload, "after");
    wait_until("all is acknowledged", DEADLINE, || {
        let acks = broker.packets();
        acks.iter()
            .filter(|(_, packet)| matches!(packet, Packet::Ack(_)))
            .count()
            == 6
    })
    .await;
    assert_eq!(reader.stats().invalid_topics, 4);
    assert_eq!(broker.connections(), 1);
    reader.close().await;
}

#[tokio::test]
async fn aliases_are_resolved_and_what_belongs_to_the_connection_stays_there() {
    let broker = ScriptedBroker::behaving(
        Behaviour::new().after_subscribe([
            Publish::new("long/topic", "1")
                .qos(0)
                .with(Property::TopicAlias(3))
                .with(Property::SubscriptionId(9))
                .with(Property::user("b", "1"))
                .with(Property::ContentType("text/plain".to_owned()))
                .with(Property::user("a", "2")),
            Publish::new("", "2").qos(0).with(Property::TopicAlias(3)),
        ]),
    )
    .await;
    let reader = reader(config(broker.port(), "r"), "long/#");
    let (first, second) = (take(&reader).await, take(&reader).await);
    assert_eq!(first.topic, second.topic);
    assert_eq!(second.payload, "2");
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let own = pairs.iter();
        own.map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    assert_eq!(
        first.properties.user_properties,
        pairs(&[("b", "1"), ("a", "2")])
    );
    assert_eq!(first.properties.content_type.as_deref(), Some("text/plain"));
    assert_eq!(second.properties, bridge_core::Properties::default());
}

#[tokio::test]
async fn a_packet_larger_than_declared_ends_the_connection_and_is_not_read() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let subscribe = connection.expect_subscribe().await;
        connection.suback(subscribe.id, &[2]).await;
        if connection.number() == 0 {
            // The header alone: its length is enough.
            connection.send(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]).await;
            connection.until_closed().await;
        } else {
            connection
                .publish(Publish::new("t", "x").qos(1).id(1))
                .await;
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let reader = reader(config(broker.port(), "r"), "t");
    assert_eq!(take(&reader).await.payload, "x");
    assert_eq!(reader.stats().connection_losses, 1);
}
