//! How fast a session publishes and reads, beside a client on a raw socket and the same broker.
//!
//! `cargo run --release -p bridge-transport --example throughput`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
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

/// How often publishing is measured, in turns.
const ROUNDS: usize = 5;
/// `CLK_TCK` is 100 on every Linux: what `/proc/self/stat` counts in.
const TICK: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() {
    let broker = Mosquitto::builder()
        .max_queued_messages(1_000_000)
        .max_inflight_messages(1000)
        .start()
        .await;
    let port = broker.port();
    println!("{COUNT} messages of {PAYLOAD} B, QoS 1; medians of {ROUNDS} rounds");
    println!("              messages/s              CPU us/message");
    println!("window      raw  session ratio (least most)   raw  session");
    for window in [20, 100, 256] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push([write_raw(port, window).await, write(port, window).await]);
        }
        print(&window.to_string(), &rounds);
    }
    // Once: the session that reads stays subscribed, and would get the next round's as well.
    print("read", &[[read_raw(port).await, read(port).await]]);
}

fn print(what: &str, rounds: &[[Cost; 2]]) {
    let ratios = sorted(rounds, |[raw, session]| {
        raw.took.as_secs_f64() / session.took.as_secs_f64()
    });
    let of = |figure: fn(&Cost) -> f64, which: usize| {
        sorted(rounds, |round| figure(&round[which]))[rounds.len() / 2]
    };
    println!(
        "{what:>6} {:>8.0} {:>8.0} {:>5.2} ({:.2} {:.2}) {:>9.1} {:>8.1}",
        of(Cost::rate, 0),
        of(Cost::rate, 1),
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        of(Cost::cpu_per_message, 0),
        of(Cost::cpu_per_message, 1),
    );
}

fn sorted(rounds: &[[Cost; 2]], figure: impl Fn(&[Cost; 2]) -> f64) -> Vec<f64> {
    let mut figures: Vec<_> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// What crossing took; of this process, so without the broker.
struct Cost {
    took: Duration,
    cpu: Duration,
}

impl Cost {
    fn rate(&self) -> f64 {
        f64::from(u32::try_from(COUNT).unwrap()) / self.took.as_secs_f64()
    }

    fn cpu_per_message(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / f64::from(u32::try_from(COUNT).unwrap())
    }
}

struct Watch {
    began: Instant,
    cpu: Duration,
}

impl Watch {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu: cpu(),
        }
    }

    fn stop(&self) -> Cost {
        Cost {
            took: self.began.elapsed(),
            cpu: cpu().saturating_sub(self.cpu),
        }
    }
}

/// User and kernel time of this process so far, proc(5).
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    TICK * ticks.map(|field| field.parse::<u32>().unwrap()).sum()
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

async fn write_raw(port: u16, window: usize) -> Cost {
    let mut client = RawClient::connect(port, "raw").await.unwrap();
    let message = Publish::new("bench/none", vec![7; PAYLOAD]);
    let messages = std::iter::repeat_n(message, COUNT);
    let watch = Watch::start();
    let report = client.publish_all(messages, window).await;
    let cost = watch.stop();
    report.expect_all_accepted();
    cost
}

async fn write(port: u16, window: usize) -> Cost {
    let config = config(port, "session", u16::try_from(window).unwrap());
    let clock = Arc::new(SystemClock::new());
    let writer = Writer::start(config, WriterIdentity::ClientId, clock);
    while !writer.changed(Link::Down).await.is_up() {}
    let watch = Watch::start();
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
    let cost = watch.stop();
    assert_eq!(writer.stats().answered, COUNT as u64);
    writer.close().await;
    cost
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

async fn read_raw(port: u16) -> Cost {
    let options = || {
        bridge_testkit::ClientOptions::new("raw-reader")
            .resumed(Duration::from_secs(600))
            .with(bridge_testkit::Property::ReceiveMaximum(1000))
    };
    let mut client = options().connect(port).await.unwrap();
    client.subscribe(&[("bench/read", 1)]).await.unwrap();
    client.disconnect().await.unwrap();
    fill(port).await;
    let watch = Watch::start();
    let mut client = options().connect(port).await.unwrap();
    let within = Duration::from_secs(60);
    client.collect(COUNT, within).await.unwrap();
    let cost = watch.stop();
    client.unsubscribe(&["bench/read"]).await.unwrap();
    cost
}

async fn read(port: u16) -> Cost {
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
    let watch = Watch::start();
    let reader = start();
    for _ in 0..COUNT {
        reader.next().await.unwrap().acknowledge.settled();
    }
    let cost = watch.stop();
    reader.close().await;
    cost
}
