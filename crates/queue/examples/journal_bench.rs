//! The journal beside a bare append and fdatasync of the same bytes, interleaved, as ratios.
//!
//! `cargo run --release -p bridge-queue --example journal_bench -- [MESSAGES] [ROUNDS]`

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a measurement that fails loudly, with numbers far below 2^52"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{
    BindingKey, DeadLetterInfo, Destination, Message, MessageId, Move, Name, Pending, Placement,
    ReadLimit, Reason, Seq, Store, StoredMessage, Timestamp, Topic, View,
};
use bridge_queue::{Journal, JournalOptions};
use futures_executor::block_on;

const PAYLOAD: usize = 256;

fn key() -> BindingKey {
    "telemetry/cloud".parse().unwrap()
}

fn message(number: u64) -> Arc<StoredMessage> {
    Arc::new(StoredMessage {
        id: MessageId::new(Timestamp::from_millis(number), [7; 10]),
        cause: None,
        session: Name::parse("plant").unwrap(),
        received: Timestamp::from_millis(number),
        message: Message::new(
            Topic::parse("sensors/boiler/1/temperature").unwrap(),
            vec![0; PAYLOAD],
        ),
    })
}

fn ask(journal: &Journal, number: u64) -> Pending<Seq> {
    let to = vec![Destination {
        binding: key(),
        placement: Placement::Queue,
    }];
    journal.put(message(number), to)
}

fn open(folder: &Path) -> Journal {
    Journal::open(folder, JournalOptions::default()).unwrap().0
}

/// Puts `count` messages, `window` of them in flight.
fn append(journal: &Journal, count: u64, window: usize) -> Duration {
    let start = Instant::now();
    let mut open = VecDeque::with_capacity(window);
    for number in 0..count {
        if open.len() == window
            && let Some(oldest) = open.pop_front()
        {
            block_on::<Pending<Seq>>(oldest).unwrap();
        }
        open.push_back(ask(journal, number));
    }
    for pending in open {
        block_on(pending).unwrap();
    }
    start.elapsed()
}

/// Writes as many bytes in as many pieces, each made durable.
fn bare(folder: &Path, bytes: u64, pieces: u64) -> Duration {
    let mut file = File::create(folder.join("bare")).unwrap();
    let piece = vec![1; usize::try_from(bytes / pieces).unwrap()];
    let start = Instant::now();
    for _ in 0..pieces {
        file.write_all(&piece).unwrap();
        file.sync_data().unwrap();
    }
    start.elapsed()
}

fn drain(journal: &Journal) -> (u64, Duration) {
    let start = Instant::now();
    let limit = ReadLimit {
        entries: 256,
        bytes: 1 << 20,
    };
    let mut drained = 0;
    let mut after = None;
    loop {
        let page = block_on(journal.read(&key(), View::Queue, after, limit)).unwrap();
        let seqs: Vec<Seq> = page.iter().map(|seated| seated.seq).collect();
        let Some(last) = seqs.last() else {
            block_on(journal.flush()).unwrap();
            return (drained, start.elapsed());
        };
        after = Some(*last);
        drained += seqs.len() as u64;
        journal.settle(&key(), &seqs);
    }
}

fn percentile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * percent / 100;
    times.get(at).copied().unwrap_or_default()
}

/// How long one append takes, with 64 producers each of which waits for its own.
fn latencies(journal: &Journal, each: u64) -> Vec<Duration> {
    let produce = |_| {
        let time = |number| {
            let start = Instant::now();
            block_on(ask(journal, number)).unwrap();
            start.elapsed()
        };
        (0..each).map(time).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..64).map(|n| scope.spawn(move || produce(n))).collect();
        producers
            .into_iter()
            .flat_map(|producer| producer.join().unwrap())
            .collect()
    })
}

/// How long one append and fdatasync of 64 such messages takes.
fn bare_latencies(folder: &Path, count: u64) -> Vec<Duration> {
    let mut file = File::create(folder.join("bare")).unwrap();
    let piece = vec![1; 64 * (PAYLOAD + 100)];
    let time = |_| {
        let start = Instant::now();
        file.write_all(&piece).unwrap();
        file.sync_data().unwrap();
        start.elapsed()
    };
    (0..count).map(time).collect()
}

/// Written for each byte of message, at a depth of 1,000 and with one dead letter in 1,000 kept.
fn amplification(journal: &Journal, messages: u64) -> f64 {
    let mut waiting = VecDeque::new();
    for number in (0..messages).step_by(250) {
        let burst: Vec<_> = (0..250).map(|n| ask(journal, number + n)).collect();
        waiting.extend(burst.into_iter().map(|pending| block_on(pending).unwrap()));
        if number % 1000 == 0
            && let Some(seq) = waiting.pop_front()
        {
            let change = Move::DeadLetter {
                binding: key(),
                seq,
                info: DeadLetterInfo {
                    reason: Reason::Expired,
                    reason_string: None,
                    first_refusal: Timestamp::default(),
                    last_refusal: Timestamp::default(),
                    attempts: 1,
                },
            };
            block_on(journal.apply(change)).unwrap();
        }
        let done: Vec<Seq> = waiting
            .drain(..waiting.len().saturating_sub(1000))
            .collect();
        journal.settle(&key(), &done);
    }
    block_on(journal.flush()).unwrap();
    let stats = journal.stats();
    println!(
        "kept: {} segments, {} bytes copied",
        stats.segments, stats.copied_bytes
    );
    stats.written_bytes as f64 / (messages * (PAYLOAD as u64 + 28)) as f64
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let messages: u64 = numbers.next().unwrap_or(1_000_000);
    let rounds: u64 = numbers.next().unwrap_or(9);
    let folder = tempfile::tempdir_in(".").unwrap();
    for at_once in [64, 256] {
        let mut ratios = Vec::new();
        let mut rates = Vec::new();
        for round in 0..rounds {
            let place = folder.path().join(format!("{at_once}-{round}"));
            let options = JournalOptions {
                batch_records: at_once,
                ..JournalOptions::default()
            };
            let (journal, _) = Journal::open(&place, options).unwrap();
            append(&journal, 1000, 1000);
            let before = journal.stats();
            let count = 200 * at_once as u64;
            let ours = append(&journal, count, 4 * at_once);
            let after = journal.stats();
            drop(journal);
            let bytes = after.written_bytes - before.written_bytes;
            let bare = bare(folder.path(), bytes, after.syncs - before.syncs);
            ratios.push(bare.as_secs_f64() / ours.as_secs_f64());
            rates.push(count as f64 / ours.as_secs_f64());
        }
        println!(
            "append, {at_once} per fsync: {:.2} of a bare append + fdatasync, {:.0} messages/s",
            median(ratios),
            median(rates),
        );
    }
    let journal = open(&folder.path().join("latency"));
    let each = (messages / 64).min(500);
    let (ours, bare) = (
        latencies(&journal, each),
        bare_latencies(folder.path(), each),
    );
    println!(
        "one append, 64 producers: median {:?}, p99 {:?}; bare fdatasync: {:?}, {:?}",
        percentile(ours.clone(), 50),
        percentile(ours, 99),
        percentile(bare.clone(), 50),
        percentile(bare, 99),
    );
    drop(journal);
    let journal = open(&folder.path().join("depth"));
    println!(
        "depth 1000, one dead letter in 1000 kept: write amplification {:.2}",
        amplification(&journal, messages)
    );
    drop(journal);
    let place = folder.path().join("large");
    let journal = open(&place);
    append(&journal, messages, 4096);
    let stats = journal.stats();
    let payload = messages * (PAYLOAD as u64 + 28);
    println!(
        "{messages} messages: {} bytes written for {payload}, write amplification {:.2}",
        stats.written_bytes,
        stats.written_bytes as f64 / payload as f64
    );
    drop(journal);
    let before = resident();
    let start = Instant::now();
    let journal = open(&place);
    println!(
        "opened again in {:?}, {:.1} bytes of memory a message",
        start.elapsed(),
        resident().saturating_sub(before) as f64 / messages as f64
    );
    let (drained, took) = drain(&journal);
    println!("drained {drained} in {took:?}");
    block_on(journal.flush()).unwrap();
    let stats = journal.stats();
    println!("left: {} segments of {} bytes", stats.segments, stats.bytes);
}
