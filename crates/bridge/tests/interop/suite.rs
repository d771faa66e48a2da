//! What is looked at, with every broker in the same way.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_core::{Answer, Link, PayloadFormat, Properties, QoS, Sink, Source};
use bridge_testkit::{ClientOptions, wait_until};
use bridge_transport::Protocol;

use crate::session::{DEADLINE, Place, deliver, message, publish, take, within};

/// What brokers do differently, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The QoS that a message of QoS 0, 1 and 2 arrives with; `None` when the broker ends the
    /// connection in place of taking it.
    pub(crate) qos: [Option<u8>; 3],
    /// The retained value of a topic comes to who subscribes to that topic later, and none after
    /// it was cleared.
    pub(crate) retained: bool,
    /// So it does to who subscribes with a wildcard.
    pub(crate) retained_by_wildcard: bool,
    /// The flag is kept on a message that is passed on as it is published.
    pub(crate) retain_as_published: bool,
    /// What comes of topics that are unusual and allowed.
    pub(crate) topics: BTreeMap<&'static str, Arrival>,
    pub(crate) properties: Carried,
    /// Another client with our client id makes the broker say 0x8E; else it ends without a word.
    pub(crate) takeover_is_said: bool,
    /// How many messages may be open at a time, if the broker says it.
    pub(crate) window: u16,
}

/// What has come of a message's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    /// All have arrived, and with them user properties that the broker has added.
    With(Vec<String>),
    /// None.
    Nothing,
}

/// What has come of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has come as it was sent.
    Same,
    /// It has come under another topic.
    Renamed(String),
    /// The broker has accepted it, and it has not come.
    Lost,
    /// The broker has ended the connection.
    Closed,
}

impl Seen {
    /// A row of the book's table.
    pub(crate) fn row(&self, broker: &str, protocol: Protocol) -> String {
        let word = |yes: bool| if yes { "yes" } else { "no" };
        let qos = self.qos.map(|qos| match qos {
            Some(qos) => qos.to_string(),
            None => "closed".to_owned(),
        });
        let unusual: Vec<String> = self
            .topics
            .iter()
            .filter_map(|(topic, arrival)| match arrival {
                Arrival::Same => None,
                Arrival::Renamed(name) => Some(format!("`{topic}` becomes `{name}`")),
                Arrival::Lost => Some(format!("`{topic}` is lost")),
                Arrival::Closed => Some(format!("`{topic}` closes")),
            })
            .collect();
        let topics = if unusual.is_empty() {
            "as sent".to_owned()
        } else {
            unusual.join(", ")
        };
        let properties = match &self.properties {
            Carried::Nothing => "none".to_owned(),
            Carried::With(added) if added.is_empty() => "all".to_owned(),
            Carried::With(added) => format!("all, and `{}`", added.join("`, `")),
        };
        format!(
            "| {broker} | {protocol} | {} | {} | {} | {} | {properties} | {topics} | {} | {} |",
            qos.join(", "),
            word(self.retained),
            word(self.retained_by_wildcard),
            word(self.retain_as_published),
            word(self.takeover_is_said),
            self.window,
        )
    }
}

/// Topics that the standard allows and brokers may not expect.
const TOPICS: [&str; 8] = [
    "a/b/c", "/a", "a/", "a//b", "a b", "a.b", "grün/µ", "a/b.c/d",
];

/// Everything at once: what has to be the same with every broker is insisted on, what may differ
/// is handed back.
pub(crate) async fn look_at(place: Place) -> Seen {
    many_cross_in_order(place).await;
    large_ones_cross(place).await;
    what_came_while_away_is_there(place).await;
    what_was_not_acknowledged_comes_again(place).await;
    wildcards_match(place).await;
    Seen {
        qos: qos(place).await,
        retained: retained(place, "retained/exact/1").await,
        retained_by_wildcard: retained(place, "retained/wild/#").await,
        retain_as_published: retain_as_published(place).await,
        topics: topics(place).await,
        properties: properties(place).await,
        takeover_is_said: takeover(place).await,
        window: window(place).await,
    }
}

async fn many_cross_in_order(place: Place) {
    const COUNT: u32 = 300;
    let reader = place.reader("many-in", &["many"]).await;
    let writer = place.writer("many-out").await;
    let sending = async {
        let mut answers = tokio::task::JoinSet::new();
        for n in 0..COUNT {
            let message = message("many", n.to_be_bytes(), QoS::AtLeastOnce);
            let admitted = within("it is admitted", writer.publish(message)).await;
            let Ok(admitted) = admitted else {
                panic!("not admitted: {:?}; {:?}", admitted.err(), writer.stats());
            };
            answers.spawn(admitted);
        }
        for answer in answers.join_all().await {
            assert!(matches!(answer, Answer::Answered { .. }), "{answer:?}");
        }
    };
    let receiving = async {
        for n in 0..COUNT {
            assert_eq!(take(&reader).await.payload, n.to_be_bytes().as_slice());
        }
    };
    tokio::join!(sending, receiving);
    assert_eq!(writer.stats().connects, 1);
    assert_eq!(reader.stats().connects, 1);
    reader.close().await;
    writer.close().await;
}

async fn large_ones_cross(place: Place) {
    let reader = place.reader("large-in", &["large"]).await;
    let writer = place.writer("large-out").await;
    for size in [65_536, 1_500_000] {
        let payload: Vec<u8> = (0..size).map(|n: u32| n.to_be_bytes()[3]).collect();
        deliver(&writer, message("large", payload.clone(), QoS::AtLeastOnce)).await;
        assert_eq!(take(&reader).await.payload, payload, "{size} bytes");
    }
    reader.close().await;
    writer.close().await;
}

async fn what_came_while_away_is_there(place: Place) {
    let reader = place.reader("away-in", &["away"]).await;
    reader.close().await;
    let writer = place.writer("away-out").await;
    for n in 0..50_u8 {
        deliver(&writer, message("away", vec![n], QoS::AtLeastOnce)).await;
    }
    let reader = place.reader("away-in", &["away"]).await;
    for n in 0..50_u8 {
        assert_eq!(take(&reader).await.payload, vec![n]);
    }
    assert_eq!(reader.stats().sessions_lost, 0);
    reader.close().await;
    writer.close().await;
}

async fn what_was_not_acknowledged_comes_again(place: Place) {
    let reader = place.reader("again-in", &["again"]).await;
    let writer = place.writer("again-out").await;
    for n in 0..3_u8 {
        deliver(&writer, message("again", vec![n], QoS::AtLeastOnce)).await;
    }
    assert_eq!(take(&reader).await.payload, vec![0]);
    let held = within("the second comes", reader.next()).await.unwrap();
    assert_eq!(held.message.payload, vec![1]);
    reader.close().await;
    drop(held);
    let reader = place.reader("again-in", &["again"]).await;
    for n in 1..3_u8 {
        assert_eq!(take(&reader).await.payload, vec![n], "and not the first");
    }
    reader.close().await;
    writer.close().await;
}

async fn wildcards_match(place: Place) {
    let reader = place.reader("wild-in", &["wild/+/x", "wilder/#"]).await;
    let writer = place.writer("wild-out").await;
    for (topic, matches) in [
        ("wild/1/x", true),
        ("wild/1/y", false),
        ("wild/1/2/x", false),
        ("wilder", true),
        ("wilder/1/2", true),
        ("wildest/1", false),
        ("wild/end/x", true),
    ] {
        deliver(&writer, message(topic, "x", QoS::AtLeastOnce)).await;
        if matches {
            assert_eq!(take(&reader).await.topic.as_str(), topic);
        }
    }
    reader.close().await;
    writer.close().await;
}

async fn qos(place: Place) -> [Option<u8>; 3] {
    let reader = place.reader("qos-in", &["qos"]).await;
    let writer = place.writer("qos-out").await;
    let mut seen = [None; 3];
    for (seen, qos) in seen
        .iter_mut()
        .zip([QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
    {
        let answer = publish(&writer, message("qos", "x", qos)).await;
        if matches!(answer, Answer::Answered { .. }) {
            *seen = Some(take(&reader).await.qos as u8);
        }
    }
    reader.close().await;
    writer.close().await;
    seen
}

/// Whether the retained value of a topic comes to who subscribes with `filter`, and goes again.
async fn retained(place: Place, filter: &str) -> bool {
    let topic = filter.replace('#', "1");
    let writer = place.writer("retained-out").await;
    let retain = async |payload: &str| {
        let mut message = message(&topic, payload, QoS::AtLeastOnce);
        message.retain = true;
        deliver(&writer, message).await;
    };
    // What comes after it shows that it is not merely late.
    let first_of = async |client_id: &str| {
        let client_id = format!("{client_id}-{}", filter.len());
        let reader = place.reader(&client_id, &[filter]).await;
        deliver(&writer, message(&topic, "end", QoS::AtLeastOnce)).await;
        let first = take(&reader).await;
        if first.payload != "end" {
            assert_eq!(take(&reader).await.payload, "end", "one value for a topic");
        }
        reader.close().await;
        first
    };
    retain("old").await;
    retain("new").await;
    let kept = first_of("retained-kept").await;
    retain("").await;
    let cleared = first_of("retained-cleared").await;
    assert_eq!(cleared.payload, "end", "the value was cleared");
    writer.close().await;
    assert_eq!(kept.retain, kept.payload == "new", "{kept:?}");
    kept.retain
}

async fn retain_as_published(place: Place) -> bool {
    let reader = place.reader("live-in", &["live"]).await;
    let writer = place.writer("live-out").await;
    let mut sent = message("live", "x", QoS::AtLeastOnce);
    sent.retain = true;
    deliver(&writer, sent).await;
    let kept = take(&reader).await.retain;
    reader.close().await;
    writer.close().await;
    kept
}

async fn topics(place: Place) -> BTreeMap<&'static str, Arrival> {
    let mut seen = BTreeMap::new();
    // With QoS 1 to everything: a subscription of its own for each would hide a new name.
    let reader = place.reader("topics-in", &["#"]).await;
    let writer = place.writer("topics-out").await;
    for (n, topic) in TOPICS.into_iter().enumerate() {
        let payload = format!("topic {n}");
        let answer = publish(&writer, message(topic, payload.clone(), QoS::AtLeastOnce)).await;
        let arrival = if matches!(answer, Answer::Answered { .. }) {
            // What comes after it shows that it is not merely late.
            let end = format!("end {n}");
            deliver(&writer, message("end", end.clone(), QoS::AtLeastOnce)).await;
            let mut arrival = Arrival::Lost;
            loop {
                let message = take(&reader).await;
                if message.payload == end {
                    break arrival;
                }
                if message.payload == payload {
                    let name = message.topic.as_str();
                    arrival = if name == topic {
                        Arrival::Same
                    } else {
                        Arrival::Renamed(name.to_owned())
                    };
                }
            }
        } else {
            Arrival::Closed
        };
        seen.insert(topic, arrival);
    }
    reader.close().await;
    writer.close().await;
    seen
}

async fn properties(place: Place) -> Carried {
    let reader = place.reader("properties-in", &["properties"]).await;
    let writer = place.writer("properties-out").await;
    let mut sent = message("properties", "x", QoS::AtLeastOnce);
    sent.properties.payload_format = Some(PayloadFormat::Utf8);
    sent.properties.content_type = Some("text/plain".to_owned());
    sent.properties.response_topic = Some("properties/answer".to_owned());
    sent.properties.correlation_data = Some(vec![0, 255].into());
    sent.properties.message_expiry = Some(60);
    sent.properties.user_properties = vec![
        ("b".to_owned(), "1".to_owned()),
        ("a".to_owned(), "2".to_owned()),
        ("b".to_owned(), "3".to_owned()),
    ];
    deliver(&writer, sent.clone()).await;
    let mut arrived = take(&reader).await.properties;
    reader.close().await;
    writer.close().await;
    let added = arrived.user_properties.split_off(
        arrived
            .user_properties
            .len()
            .min(sent.properties.user_properties.len()),
    );
    if arrived == sent.properties {
        Carried::With(added.into_iter().map(|(name, _)| name).collect())
    } else {
        assert_eq!(arrived, Properties::default(), "some and not others");
        Carried::Nothing
    }
}

/// Another client takes our client id, and goes.
async fn takeover(place: Place) -> bool {
    let writer = place.writer("taken").await;
    let protocol = match place.protocol {
        Protocol::V5 => bridge_testkit::Protocol::V5,
        Protocol::V311 => bridge_testkit::Protocol::V311,
    };
    let other = ClientOptions::new("taken").protocol(protocol);
    let other = other.connect(place.port).await.expect("the other gets in");
    wait_until("we are thrown out", DEADLINE, || {
        writer.stats().connection_losses > 0
    })
    .await;
    // We come back and throw out the other, which stays away.
    drop(other);
    deliver(&writer, message("taken", "x", QoS::AtLeastOnce)).await;
    let said = writer.stats().takeovers > 0;
    writer.close().await;
    said
}

async fn window(place: Place) -> u16 {
    let writer = place.writer("window").await;
    let Link::Up { limits, .. } = writer.link() else {
        panic!("the link is up");
    };
    tokio::time::timeout(Duration::from_secs(10), writer.close())
        .await
        .expect("it closes");
    limits.window
}
