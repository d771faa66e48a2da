//! What a session does about a broker that comes and goes, or gives only half.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{Backoff, Link, QoS, Sink, Source, SourceState};
use bridge_testkit::{
    Behaviour, Disconnect, Mosquitto, Publish, RawClient, ScriptedBroker, wait_until,
};
use bridge_transport::{Reader, SessionConfig};

use crate::common::{
    DEADLINE, clock, code, config, message, publish, subscribed, subscription, take, up, within,
    writer,
};
use crate::logs::Lines;

/// With the delays that the configuration has by default.
fn patient(mut config: SessionConfig) -> SessionConfig {
    let second = Duration::from_secs(1);
    config.backoff = Backoff::try_new(second, second * 60).unwrap();
    config
}

#[tokio::test]
async fn a_connection_is_counted_by_the_time_at_which_it_can_be_used_and_as_long_as_it_can() {
    let broker = ScriptedBroker::accepting().await;
    let writer = Arc::new(writer(config(broker.port(), "w")));
    let waiting = Arc::clone(&writer);
    // A task of its own is the first to hear of it.
    let heard = tokio::spawn(async move {
        let link = waiting.changed(Link::Down).await;
        (link, waiting.stats())
    });
    let (link, stats) = within("a connection", heard).await.unwrap();
    assert_eq!((stats.connected, stats.connects), (true, 1));
    broker.close_all();
    within("its end", writer.changed(link)).await;
    wait_until("that it has ended", DEADLINE, || !writer.stats().connected).await;
}

#[tokio::test]
async fn case_19_a_source_without_memory_is_subscribed_to_again_and_ready_only_then() {
    let lines = Lines::listen();
    let mut broker = Mosquitto::builder().persistence(false).start().await;
    let reader = crate::common::reader(config(broker.port(), "r"), "t");
    subscribed(&reader).await;
    broker.kill().await;
    wait_until("the reader notices", DEADLINE, || {
        reader.state() == SourceState::Down
    })
    .await;
    broker.restart().await;
    subscribed(&reader).await;
    // Ready means that the broker has granted it: what is published now comes.
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    source.publish(Publish::new("t", "x").qos(1)).await.unwrap();
    assert_eq!(take(&reader).await.payload, "x");
    let stats = reader.stats();
    assert_eq!(
        (stats.sessions_lost, stats.connection_losses, stats.connects),
        (1, 1, 2)
    );
    let lost = lines
        .names()
        .into_iter()
        .filter(|name| name == "session_lost");
    assert_eq!(lost.count(), 1);
}

#[tokio::test]
async fn case_19_a_reader_is_not_ready_before_the_suback_has_come() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let subscribe = connection.expect_subscribe().await;
        // Something comes in between, and only then the answer.
        let early = Publish::new("t", "early").qos(1).id(1);
        connection.publish(early).await;
        connection.expect_ack(bridge_testkit::AckKind::PubAck).await;
        connection.suback(subscribe.id, &[1]).await;
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    let reader = crate::common::reader(config(broker.port(), "r"), "t");
    let early = crate::common::next(&reader).await;
    assert_eq!(reader.state(), SourceState::Connected);
    early.acknowledge.settled();
    subscribed(&reader).await;
}

#[tokio::test]
async fn case_20_a_refused_filter_is_named_while_the_other_runs() {
    let behaviour = Behaviour::new()
        .suback(|filter| if filter == "closed/#" { 0x87 } else { 1 })
        .after_subscribe([Publish::new("open/1", "x").qos(1).id(7)]);
    let broker = ScriptedBroker::behaving(behaviour).await;
    let filters = ["open/#", "closed/#"].map(|f| subscription(f, QoS::AtLeastOnce));
    let reader = Reader::start(config(broker.port(), "r"), filters.to_vec(), clock());
    assert_eq!(take(&reader).await.payload, "x");
    wait_until("it is known", DEADLINE, || !reader.refused().is_empty()).await;
    let refused: Vec<_> = reader.refused().iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["closed/#"]);
    assert_eq!(reader.state(), SourceState::Connected);
    within("close", reader.close()).await;
}

#[tokio::test]
async fn case_21_a_broker_that_throws_out_at_once_is_not_hammered_and_other_sessions_go_on() {
    let taken_over = Disconnect {
        code: 0x8E,
        ..Disconnect::default()
    };
    let rude = Behaviour::new().leave_after(Duration::from_millis(50), taken_over);
    let rude = ScriptedBroker::behaving(rude).await;
    let kind = ScriptedBroker::accepting().await;
    let thrown_out = writer(patient(config(rude.port(), "w")));
    let other = writer(patient(config(kind.port(), "o")));
    up(&other, 0).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        let answer = publish(&other, message("t", "x", QoS::AtLeastOnce)).await;
        assert!(!code(&answer).is_refusal());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // At once, then after a half to one second, one to two, two to four.
    let connects = rude.connections();
    assert!((3..=4).contains(&connects), "{connects} connects");
    assert!(thrown_out.stats().takeovers >= 3);
    let stats = other.stats();
    assert_eq!((stats.connects, stats.connection_losses), (1, 0));
    assert_eq!(kind.connections(), 1);
}

#[tokio::test]
async fn case_22_a_broker_that_refuses_tcp_is_one_line_and_found_when_it_is_there() {
    let lines = Lines::listen();
    let mut broker = Mosquitto::start().await;
    broker.kill().await;
    let writer = writer(config(broker.port(), "w"));
    wait_until("many attempts fail", DEADLINE, || {
        writer.stats().connect_failures >= 10
    })
    .await;
    broker.restart().await;
    up(&writer, 0).await;
    within("close", writer.close()).await;
    assert_eq!(
        lines.names(),
        [
            "session_connect_failed",
            "session_connected",
            "session_closed"
        ]
    );
}
