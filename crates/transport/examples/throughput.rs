//! How fast a session publishes and reads, beside a client on a raw socket and the same broker.
//!
//! `cargo run --release -p bridge-transport --example throughput`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement: it prints, and fails loudly"
)]

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{
    Link, Message, Name, QoS, Sink, Source, SourceState, Subscription, SystemClock, Topic,
    TopicFilter,
};
use bridge_testkit::{Mosquitto, Publish, RawClient};
use bridge_transport::{Address, Brokers, Endpoint, Reader, SessionConfig, Writer, WriterIdentity};

const COUNT: usize = 100_000;
const PAYLOAD: usize = 256;

#[tokio::main]
async fn main() {
    let broker = Mosquitto::builder()
        .max_queued_messages(1_000_000)
        .max_inflight_messages(1000)
        .start()
        .await;
    println!("{COUNT} messages of {PAYLOAD} B, QoS 1, messages/s");
    println!("window      raw   session  ratio");
    for window in [20, 100, 256] {
        let raw = write_raw(broker.port(), window).await;
        let session = write(broker.port(), window).await;
        println!(
            "{window:>6} {:>8.0} {:>9.0} {:>6.2}",
            rate(raw),
            rate(session),
            raw.as_secs_f64() / session.as_secs_f64()
        );
    }
    println!("receive maximum 1000:");
    let raw = read_raw(broker.port()).await;
    let session = read(broker.port()).await;
    println!(
        "  read {:>8.0} {:>9.0} {:>6.2}",
        rate(raw),
        rate(session),
        raw.as_secs_f64() / session.as_secs_f64()
    );
}

fn rate(took: Duration) -> f64 {
    f64::from(u32::try_from(COUNT).unwrap()) / took.as_secs_f64()
}

fn config(port: u16, client_id: &str, window: u16) -> SessionConfig {
    let address = Address {
        host: "127.0.0.1".to_owned(),
        port,
    };
    SessionConfig {
        answer_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(30),
        max_in_flight: NonZeroU16::new(window).unwrap(),
        receive_maximum: NonZeroU16::new(1000).unwrap(),
        ..SessionConfig::new(
            Name::parse("bench").unwrap(),
            Brokers::one(Endpoint::tcp(address)),
            client_id,
        )
    }
}

async fn write_raw(port: u16, window: usize) -> Duration {
    let mut client = RawClient::connect(port, "raw").await.unwrap();
    let message = Publish::new("bench/none", vec![7; PAYLOAD]);
    let messages = std::iter::repeat_n(message, COUNT);
    let report = client.publish_all(messages, window).await;
    report.expect_all_accepted();
    report.elapsed
}

async fn write(port: u16, window: usize) -> Duration {
    let config = config(port, "session", u16::try_from(window).unwrap());
    let clock = Arc::new(SystemClock::new());
    let writer = Writer::start(config, WriterIdentity::ClientId, clock);
    while !writer.changed(Link::Down).await.is_up() {}
    let began = Instant::now();
    let message = Message::new(Topic::parse("bench/none").unwrap(), vec![7; PAYLOAD]);
    let mut answers = VecDeque::new();
    for _ in 0..COUNT {
        if answers.len() == window
            && let Some(answer) = answers.pop_front()
        {
            answer.await;
        }
        answers.push_back(writer.publish(message.clone()).await.unwrap());
    }
    for answer in answers {
        answer.await;
    }
    let took = began.elapsed();
    assert_eq!(writer.stats().answered, COUNT as u64);
    writer.close().await;
    took
}

/// Fills a subscribed session that nobody reads from.
async fn fill(port: u16) {
    let mut source = RawClient::connect(port, "source").await.unwrap();
    let message = Publish::new("bench/read", vec![7; PAYLOAD]);
    let messages = std::iter::repeat_n(message, COUNT);
    source
        .publish_all(messages, 500)
        .await
        .expect_all_accepted();
}

async fn read_raw(port: u16) -> Duration {
    let options = || {
        bridge_testkit::ClientOptions::new("raw-reader")
            .resumed(Duration::from_secs(600))
            .with(bridge_testkit::Property::ReceiveMaximum(1000))
    };
    let mut client = options().connect(port).await.unwrap();
    client.subscribe(&[("bench/read", 1)]).await.unwrap();
    client.disconnect().await.unwrap();
    fill(port).await;
    let began = Instant::now();
    let mut client = options().connect(port).await.unwrap();
    let within = Duration::from_secs(60);
    client.collect(COUNT, within).await.unwrap();
    let took = began.elapsed();
    client.unsubscribe(&["bench/read"]).await.unwrap();
    took
}

async fn read(port: u16) -> Duration {
    let subscription = Subscription {
        filter: TopicFilter::parse("bench/read").unwrap(),
        qos: QoS::AtLeastOnce,
        no_local: false,
    };
    let start = || {
        Reader::start(
            config(port, "reader", 100),
            vec![subscription.clone()],
            Arc::new(SystemClock::new()),
        )
    };
    let reader = start();
    let mut state = reader.state();
    while state != SourceState::Subscribed {
        state = reader.state_changed(state).await;
    }
    reader.close().await;
    fill(port).await;
    let began = Instant::now();
    let reader = start();
    for _ in 0..COUNT {
        reader.next().await.unwrap().acknowledge.settled();
    }
    let took = began.elapsed();
    reader.close().await;
    took
}
