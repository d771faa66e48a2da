//! Retained values on their way.

use bridge_testkit::Publish;

use crate::setup::{Line, PATIENCE, publish};

/// What is published behind the retained values.
const BEHIND: &str = "behind";

/// The retained values that a late subscriber at the destination gets.
async fn retained_at_the_destination(line: &Line) -> Vec<(String, String)> {
    let mut late = line.subscriber().await;
    // They are sent when it subscribes, and what is published after that comes behind them.
    publish(line.destination.port(), [Publish::new(BEHIND, "")]).await;
    let mut values = Vec::new();
    loop {
        let message = late.recv(PATIENCE).await.unwrap();
        if message.topic == BEHIND {
            break;
        }
        assert!(message.retain, "{message:?}");
        values.push((message.topic.clone(), message.text().to_owned()));
    }
    values.sort();
    values
}

fn value(topic: &str, value: &str) -> (String, String) {
    (topic.to_owned(), value.to_owned())
}

#[tokio::test]
async fn case_01_a_value_cleared_while_the_destination_is_away_is_cleared_there_too() {
    let mut line = Line::start(|config| config).await;
    line.publish([
        Publish::new("status/pump", "on").retained(),
        Publish::new("status/valve", "open").retained(),
    ])
    .await;
    line.drained(2).await;
    assert_eq!(
        retained_at_the_destination(&line).await,
        [value("status/pump", "on"), value("status/valve", "open")]
    );
    line.destination.stop().await;
    line.publish([
        Publish::new("status/pump", "").retained(),
        Publish::new("status/valve", "shut").retained(),
    ])
    .await;
    line.queued(2).await;
    line.destination.restart().await;
    line.drained(4).await;
    assert_eq!(
        retained_at_the_destination(&line).await,
        [value("status/valve", "shut")]
    );
}

#[tokio::test]
async fn a_value_cleared_while_the_destination_is_there_is_cleared_there_too() {
    let line = Line::start(|config| config).await;
    line.publish([
        Publish::new("status/pump", "on").retained(),
        Publish::new("status/pump", "").retained(),
        Publish::new("status/valve", "open").retained(),
    ])
    .await;
    line.drained(3).await;
    assert_eq!(
        retained_at_the_destination(&line).await,
        [value("status/valve", "open")]
    );
}

#[tokio::test]
async fn case_16_a_late_subscriber_gets_what_was_retained() {
    let line = Line::start(|config| config).await;
    let mut early = line.subscriber().await;
    line.publish([
        Publish::new("status/pump", "on").retained(),
        Publish::new("event/pump", "started"),
    ])
    .await;
    let seen = early.collect(2, PATIENCE).await.unwrap();
    let flags: Vec<_> = seen.iter().map(|m| (m.topic.as_str(), m.retain)).collect();
    assert_eq!(flags, [("status/pump", true), ("event/pump", false)]);
    assert_eq!(
        retained_at_the_destination(&line).await,
        [value("status/pump", "on")]
    );
}

#[tokio::test]
async fn a_binding_may_retain_always_or_never() {
    for (policy, topic, kept) in [
        ("always", "event/pump", vec![value("event/pump", "x")]),
        ("never", "status/pump", vec![]),
    ] {
        let line = Line::start(|config| config.binding(format!("retain: {policy}"))).await;
        let mut message = Publish::new(topic, "x");
        message.retain = policy == "never";
        line.publish([message]).await;
        line.drained(1).await;
        let values = retained_at_the_destination(&line).await;
        assert_eq!(values, kept, "{policy}");
    }
}
