//! Topics on their way.

use bridge_testkit::{Mosquitto, Publish};

use crate::setup::{Line, PATIENCE, publish};

#[tokio::test]
async fn case_04_retained_queued_and_live_messages_are_mapped_alike() {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::builder().persistence(true).start().await;
    publish(
        source.port(),
        [Publish::new("status/retained", "1").retained()],
    )
    .await;
    let mut line = Line::between(source, destination, |config| {
        config.binding("add_prefix: plants/7/")
    })
    .await;
    line.drained(1).await;
    line.publish([Publish::new("status/live", "2").retained()])
        .await;
    line.drained(2).await;
    line.destination.stop().await;
    line.publish([Publish::new("status/queued", "3").retained()])
        .await;
    line.queued(1).await;
    line.destination.restart().await;
    line.drained(3).await;

    let mut late = line.subscriber().await;
    let retained = late.collect(3, PATIENCE).await.unwrap();
    let mut topics: Vec<_> = retained.into_iter().map(|message| message.topic).collect();
    topics.sort();
    let expected = ["live", "queued", "retained"].map(|kind| format!("plants/7/status/{kind}"));
    assert_eq!(topics, expected);
}

#[tokio::test]
async fn case_05_every_message_of_a_topic_is_mapped_not_only_the_first() {
    let line = Line::start(|config| {
        config
            .topics(&["sensors/+/#", "other/#"])
            .binding("topic: \"plants/{topic[1]}/{session}/{route}/{topic[2..]}\"")
    })
    .await;
    let mut subscriber = line.subscriber().await;
    let sent = (0..30).map(|n| Publish::new(format!("sensors/{}/t/°C", n % 3), n.to_string()));
    line.publish(sent).await;
    let arrived = subscriber.collect(30, PATIENCE).await.unwrap();
    for (n, message) in arrived.iter().enumerate() {
        let expected = format!("plants/{}/plant/all/t/°C", n % 3);
        assert_eq!(
            (message.topic.as_str(), message.text()),
            (expected.as_str(), n.to_string().as_str())
        );
    }
}

#[tokio::test]
async fn a_prefix_is_taken_off() {
    let line = Line::start(|config| {
        config
            .topics(&["plants/7/#"])
            .binding("strip_prefix: plants/7/")
    })
    .await;
    let mut subscriber = line.subscriber().await;
    line.publish([
        Publish::new("plants/7/plants/7/t", "1"),
        Publish::new("plants/8/t", "not ours"),
        Publish::new("plants/7/t", "2"),
    ])
    .await;
    let arrived = subscriber.collect(2, PATIENCE).await.unwrap();
    let topics: Vec<_> = arrived.iter().map(|m| m.topic.as_str()).collect();
    assert_eq!(topics, ["plants/7/t", "t"]);
}
