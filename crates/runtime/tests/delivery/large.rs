//! Dead letters in large numbers: what a page and a job cost. Not run by default; the figures of
//! the book come from `cargo test --release -p bridge-runtime --test delivery large -- --ignored
//! --nocapture`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bridge_core::{
    DeadLetterInfo, Destination, Message, MessageId, Placement, Reason, ReasonCode, Store,
    StoredMessage, Timestamp, Topic,
};
use bridge_runtime::{DeadLetterFilter, DeliveryMode, JobKind, JobState, Total};

use crate::fixture::{Fixture, Setup, key, name, wait_until};

/// Puts `count` dead letters of 256 bytes into each of `bindings` bindings: of four reasons in
/// turn, one a second.
async fn fill(fixture: &Fixture, bindings: usize, count: u64) {
    let destination = |binding: usize, number: u64| {
        let at = Timestamp::from_millis(number * 1_000);
        let code = 0x97 + u8::try_from(number % 4).unwrap();
        let info = DeadLetterInfo {
            reason: Reason::Broker(ReasonCode::new(code)),
            reason_string: None,
            first_refusal: at,
            last_refusal: at,
            attempts: 1,
        };
        Destination {
            binding: key(&format!("b{binding}")),
            placement: Placement::DeadLetter(info),
        }
    };
    for binding in 0..bindings {
        for begin in (0..count).step_by(10_000) {
            let puts = (begin..count.min(begin + 10_000)).map(|number| {
                let topic = Topic::parse(&format!("old/{}", number % 1_000)).unwrap();
                let mut payload = b"0".repeat(256);
                payload[255] = b'0' + u8::try_from(number % 10).unwrap();
                let stored = StoredMessage {
                    id: MessageId::new(Timestamp::from_millis(number), rand::random()),
                    cause: None,
                    session: name("source"),
                    received: Timestamp::from_millis(number),
                    message: Message::new(topic, payload),
                };
                let to = vec![destination(binding, number)];
                fixture.store.put(Arc::new(stored), to)
            });
            for put in puts.collect::<Vec<_>>() {
                put.await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a while to make a million entries"]
async fn a_page_of_a_million_dead_letters_takes_less_than_50_ms() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    fill(&fixture, 2, 500_000).await;
    let control = fixture.runtime.control();
    let none = DeadLetterFilter::default;
    let filters = [
        ("none", none()),
        (
            "binding",
            DeadLetterFilter {
                binding: Some(name("b0")),
                ..none()
            },
        ),
        (
            "topic",
            DeadLetterFilter {
                topic: Some("old/7".parse().unwrap()),
                ..none()
            },
        ),
        (
            "reason that none has",
            DeadLetterFilter {
                reason: Some(Reason::Expired),
                ..none()
            },
        ),
        (
            "reason that a quarter has",
            DeadLetterFilter {
                reason: Some(Reason::Broker(ReasonCode::new(0x99))),
                ..none()
            },
        ),
        (
            "the older half",
            DeadLetterFilter {
                until: Some(Timestamp::from_millis(250_000_000)),
                ..none()
            },
        ),
        (
            "binding, reason and an hour",
            DeadLetterFilter {
                binding: Some(name("b0")),
                reason: Some(Reason::Broker(ReasonCode::new(0x99))),
                since: Some(Timestamp::from_millis(100_000_000)),
                until: Some(Timestamp::from_millis(103_600_000)),
                ..none()
            },
        ),
        (
            "topic and an hour",
            DeadLetterFilter {
                topic: Some("old/7".parse().unwrap()),
                since: Some(Timestamp::from_millis(100_000_000)),
                until: Some(Timestamp::from_millis(103_600_000)),
                ..none()
            },
        ),
    ];
    let mut worst = Duration::ZERO;
    for (what, filter) in filters {
        let (mut times, mut cursor, mut entries) = (Vec::new(), None, 0);
        let mut total = Total::AtLeast(0);
        for _ in 0..50 {
            let began = Instant::now();
            let page = control.list(&filter, 100, cursor.as_ref()).await.unwrap();
            times.push(began.elapsed());
            entries += page.entries.len();
            total = page.total;
            cursor = page.next;
        }
        times.sort();
        println!(
            "{what}: 50 pages, {entries} entries, median {:?}, longest {:?}, {total:?}",
            times[25], times[49]
        );
        assert!(
            total.is_exact() || filter.topic.is_some(),
            "{what}: {total:?}"
        );
        worst = worst.max(times[47]);
    }
    assert!(worst < Duration::from_millis(50), "{worst:?}");
}

/// The latencies of messages that arrive every 2 ms until `end` says so.
async fn latencies(fixture: &Fixture, mut end: impl FnMut(usize) -> bool) -> Vec<Duration> {
    let seen: Arc<Mutex<Vec<(u64, Instant)>>> = Arc::default();
    let note = seen.clone();
    fixture.sink().policy(move |message| {
        if message.topic.as_str() == "live" {
            let number = std::str::from_utf8(&message.payload)
                .unwrap()
                .parse()
                .unwrap();
            note.lock().unwrap().push((number, Instant::now()));
        }
        crate::fixture::Reply::Accept
    });
    let mut sent = Vec::new();
    while !end(sent.len()) {
        let at = Instant::now();
        sent.push((fixture.source.arrive("live"), at));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    wait_until("all there", || seen.lock().unwrap().len() >= sent.len()).await;
    let seen = seen.lock().unwrap();
    let mut times: Vec<Duration> = sent
        .iter()
        .map(|(number, at)| {
            let came = seen.iter().find(|(seen, _)| seen == number).unwrap();
            came.1.saturating_duration_since(*at)
        })
        .collect();
    times.sort();
    times
}

fn say(what: &str, times: &[Duration]) {
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!(
        "{what}: {} live messages, p50 {:?}, p99 {:?}, longest {:?}",
        times.len(),
        at(50),
        at(99),
        at(100)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a while to redrive 100,000 entries"]
async fn a_job_of_100_000_redrives_leaves_live_traffic_its_latency() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fill(&fixture, 1, 100_000).await;
    fixture.go_live().await;
    let before = latencies(&fixture, |sent| sent >= 1_000).await;
    say("without a job", &before);
    let control = fixture.runtime.control();
    let began = Instant::now();
    let job = control
        .start_job(JobKind::Redrive, DeadLetterFilter::default())
        .unwrap();
    let during = latencies(&fixture, |_| {
        control.job(job.id).unwrap().unwrap().state != JobState::Running
    })
    .await;
    say("with a job", &during);
    let job = control.job(job.id).unwrap().unwrap();
    println!("{} redriven in {:?}", job.done, began.elapsed());
    assert_eq!((job.state, job.done), (JobState::Done, 100_000));
    fixture.waits(0, (0, 0, 0)).await;
    let p99 = during[during.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(250), "{p99:?}");
}
