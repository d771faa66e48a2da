//! Dead letters in large numbers: what a page and a job cost. Not run by default; the figures of
//! the book come from `cargo xtask bench dead-letters`.

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
            // The oldest has one of its own.
            reason: match number {
                0 => Reason::TopicInvalid,
                _ => Reason::Broker(ReasonCode::new(code)),
            },
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

/// From what lies in the middle of one of two bindings.
const MIDDLE: &str = "none, from the middle";

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
        (MIDDLE, none()),
        (
            "reason that the oldest alone have",
            DeadLetterFilter {
                reason: Some(Reason::TopicInvalid),
                ..none()
            },
        ),
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
        let (mut times, mut entries) = (Vec::new(), 0);
        let mut cursor = (what == MIDDLE).then(|| "route~b1~750000~0".parse().unwrap());
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
        let began = Instant::now();
        let all = control.total(&filter, Duration::from_secs(20)).await;
        let all = all.unwrap();
        println!("{what}: {all:?} after {:?}", began.elapsed());
        assert!(all.is_exact(), "{what}: {all:?}");
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

/// So many percent took no longer.
fn at(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn say(what: &str, times: &[Duration]) {
    let [p50, p90, p99, longest] = [50, 90, 99, 100].map(|percent| at(times, percent));
    let count = times.len();
    println!(
        "{what}: {count} live messages, p50 {p50:?}, p90 {p90:?}, p99 {p99:?}, longest {longest:?}"
    );
}

/// What a job of `kind` with 100,000 dead letters costs the live messages beside it.
async fn beside_a_job(kind: JobKind) {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fill(&fixture, 1, 100_000).await;
    fixture.go_live().await;
    let before = latencies(&fixture, |sent| sent >= 1_000).await;
    say("without a job", &before);
    let control = fixture.runtime.control();
    let began = Instant::now();
    let job = control
        .start_job(kind, DeadLetterFilter::default())
        .unwrap();
    let during = latencies(&fixture, |_| {
        control.job(job.id).unwrap().unwrap().state != JobState::Running
    })
    .await;
    say(&format!("with a {}", kind.as_str()), &during);
    let ratio = |percent| at(&during, percent).as_secs_f64() / at(&before, percent).as_secs_f64();
    println!(
        "with a {} / without: p50 {:.2}, p90 {:.2}, p99 {:.2}",
        kind.as_str(),
        ratio(50),
        ratio(90),
        ratio(99)
    );
    let job = control.job(job.id).unwrap().unwrap();
    let took = began.elapsed();
    let rate = Duration::from_secs(job.done).as_secs_f64() / took.as_secs_f64();
    println!("{} done in {took:?}, {rate:.0} a second", job.done);
    assert_eq!((job.state, job.done), (JobState::Done, 100_000));
    fixture.waits(0, (0, 0, 0)).await;
    let p99 = at(&during, 99);
    assert!(p99 < Duration::from_millis(250), "{p99:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a while to redrive 100,000 entries"]
async fn a_job_of_100_000_redrives_leaves_live_traffic_its_latency() {
    beside_a_job(JobKind::Redrive).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a while to delete 100,000 entries"]
async fn a_job_of_100_000_deletes_leaves_live_traffic_its_latency() {
    beside_a_job(JobKind::Delete).await;
}
