//! What a message says crosses unchanged.

use bridge_testkit::{
    Behaviour, BridgeConfig, Installation, Property, Publish, RawClient, ScriptedBroker, wait_until,
};

use crate::setup::{BRIDGE, Line, PATIENCE};

/// Sends messages across and hands back what arrives.
async fn cross(messages: &[Publish]) -> Vec<Publish> {
    let line = Line::start(|config| config).await;
    let mut subscriber = line.subscriber().await;
    line.publish(messages.iter().cloned()).await;
    let arrived = subscriber.collect(messages.len(), PATIENCE).await.unwrap();
    line.drained(messages.len() as u64).await;
    let more = subscriber.collect_until_quiet(std::time::Duration::from_millis(100));
    assert_eq!(more.await.unwrap(), [], "more than was sent");
    arrived
}

fn user_properties(message: &Publish) -> Vec<(String, String)> {
    let properties = message.properties.iter();
    properties
        .filter_map(|property| match property {
            Property::User(pair) => Some(pair.clone()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn every_property_of_mqtt_5_crosses() {
    let sent = Publish::new("sensors/1", "x")
        .with(Property::PayloadFormat(1))
        .with(Property::MessageExpiry(3_600))
        .with(Property::ContentType(
            "application/json; charset=utf-8".into(),
        ))
        .with(Property::ResponseTopic("answers/für/1".into()))
        .with(Property::CorrelationData(vec![0, 255, 0, 1, 128].into()))
        .with(Property::user("b", "2"))
        .with(Property::user("a", "1"))
        .with(Property::user("b", ""))
        .with(Property::user("ключ", "値"));
    let [arrived] = <[Publish; 1]>::try_from(cross(std::slice::from_ref(&sent)).await).unwrap();
    assert_eq!(
        user_properties(&arrived),
        user_properties(&sent),
        "user properties keep their order, and names may come again"
    );
    for property in &sent.properties {
        match property {
            // Counted in whole seconds by two brokers and the bridge.
            Property::MessageExpiry(_) => {
                let left = arrived
                    .properties
                    .iter()
                    .find_map(|property| match property {
                        Property::MessageExpiry(seconds) => Some(*seconds),
                        _ => None,
                    });
                assert!((3_570..=3_600).contains(&left.unwrap()), "{left:?}");
            }
            other => assert!(arrived.properties.contains(other), "{other:?} is missing"),
        }
    }
    assert_eq!(
        arrived.properties.len(),
        sent.properties.len(),
        "{arrived:?}"
    );
}

#[tokio::test]
async fn every_qos_and_every_payload_crosses() {
    let bytes: Vec<u8> = (0..=255).rev().cycle().take(5_000).collect();
    let large: Vec<u8> = (0..1 << 20)
        .map(|n: u32| (n >> 3).to_le_bytes()[0])
        .collect();
    let sent = [
        Publish::new("qos/0", "zero").qos(0),
        Publish::new("qos/1", "one").qos(1),
        Publish::new("qos/2", "two").qos(2),
        Publish::new("empty", ""),
        Publish::new("bytes", bytes),
        Publish::new("not/utf-8", vec![0xC3, 0x28, 0xFF, 0x00]),
        Publish::new("large", large),
        Publish::new("large/2", vec![7; 1 << 20]).qos(2),
    ];
    let arrived = cross(&sent).await;
    // A broker passes a QoS 2 message on when it is released: later ones may overtake it.
    for sent in &sent {
        let mut of_topic = arrived.iter().filter(|message| message.topic == sent.topic);
        let arrived = of_topic
            .next()
            .unwrap_or_else(|| panic!("no {}", sent.topic));
        assert_eq!(arrived.qos, sent.qos, "{}", sent.topic);
        assert!(arrived.payload == sent.payload, "{}", sent.topic);
        assert!(!arrived.retain);
    }
}

#[tokio::test]
async fn messages_of_qos_2_cross_once_and_in_order() {
    let sent: Vec<_> = (0..500)
        .map(|n| Publish::new("t", n.to_string()).qos(2))
        .collect();
    let arrived = cross(&sent).await;
    assert!(arrived.iter().all(|message| message.qos == 2));
    let payloads = |messages: &[Publish]| -> Vec<_> {
        messages
            .iter()
            .map(|message| message.payload.clone())
            .collect()
    };
    assert_eq!(payloads(&arrived), payloads(&sent));
}

#[tokio::test]
async fn long_and_unusual_topics_cross() {
    // 65,535 bytes is the most that a topic can have; Mosquitto takes 200 levels.
    let long = format!("long/{}", "ä/".repeat(190)) + &"ö".repeat(32_000);
    let sent = [
        Publish::new(long, "long"),
        Publish::new("température/🌡/東京", "unicode"),
        Publish::new("/leading", "empty first level"),
        Publish::new("trailing/", "empty last level"),
        Publish::new("//", "three empty levels"),
        Publish::new("with space/and more", "white"),
        Publish::new("brace/{topic}/${HOME}", "not a template"),
        Publish::new("a.b$c", "dots and dollars"),
    ];
    let arrived = cross(&sent).await;
    let topics = |messages: &[Publish]| -> Vec<_> {
        messages
            .iter()
            .map(|message| message.topic.clone())
            .collect()
    };
    assert_eq!(topics(&arrived), topics(&sent));
    let payloads = arrived.iter().zip(&sent);
    assert!(payloads.into_iter().all(|(a, s)| a.payload == s.payload));
}

#[tokio::test]
async fn case_14_the_same_message_again_and_again_is_as_many_messages() {
    let sent = vec![Publish::new("beat", "ten bytes!"); 12];
    assert_eq!(cross(&sent).await.len(), 12);
}

#[tokio::test]
async fn case_28_what_belongs_to_the_source_connection_is_never_forwarded() {
    let line = Line::start(|config| config).await;
    let mut subscriber = line.subscriber().await;
    let aliased = Publish::new("aliased/topic", "1").with(Property::TopicAlias(1));
    let by_alias = Publish::new("", "2").with(Property::TopicAlias(1));
    let mut publisher = RawClient::connect(line.source.port(), "aliasing")
        .await
        .unwrap();
    let report = publisher.publish_all([aliased, by_alias], 1).await;
    report.expect_all_accepted();
    for message in subscriber.collect(2, PATIENCE).await.unwrap() {
        assert_eq!(message.topic, "aliased/topic");
        assert_eq!(message.properties, []);
    }
}

#[tokio::test]
async fn case_28_alias_and_subscription_identifier_stay_behind_and_all_else_crosses_in_order() {
    let kept = [
        Property::PayloadFormat(1),
        Property::ContentType("text/plain".into()),
        Property::user("z", "1"),
        Property::user("a", "2"),
        Property::user("z", "3"),
    ];
    let mut named = Publish::new("a/b", "1").id(1);
    named.properties = kept.to_vec();
    let own = [
        Property::SubscriptionId(268_435_455),
        Property::TopicAlias(1),
    ];
    named.properties.splice(2..2, own);
    let mut aliased = Publish::new("", "2").id(2);
    aliased.properties = named.properties.clone();

    let source = Behaviour::new().after_subscribe([named, aliased]);
    let source = ScriptedBroker::behaving(source).await;
    let destination = ScriptedBroker::accepting().await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = Installation::new(&config);
    let _bridge = installation.bridge(BRIDGE).start().await;
    let alias_maximum = source.connects()[0].property(|property| match property {
        Property::TopicAliasMaximum(maximum) => Some(*maximum),
        _ => None,
    });
    assert!(
        alias_maximum > Some(0),
        "this broker may not use an alias: {alias_maximum:?}"
    );
    wait_until("both arrive", PATIENCE, || destination.publish_count() == 2).await;
    for (received, text) in destination.publishes().iter().zip(["1", "2"]) {
        let arrived = &received.publish;
        assert_eq!((arrived.topic.as_str(), arrived.text()), ("a/b", text));
        let pairs = [("z", "1"), ("a", "2"), ("z", "3")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(user_properties(arrived), pairs);
        assert_eq!(arrived.properties.len(), kept.len(), "{arrived:?}");
        for property in &kept {
            assert!(
                arrived.properties.contains(property),
                "{property:?} is missing"
            );
        }
    }
}
