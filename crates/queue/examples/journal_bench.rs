//! The journal beside a bare append and fdatasync of the same bytes, interleaved, as ratios.
//!
//! `cargo run --release -p bridge-queue --example journal_bench -- [MESSAGES] [ROUNDS]`

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a measurement that fails loudly, with numbers far below 2^52"
)]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{
    BindingKey, Destination, Message, MessageId, Name, Pending, Placement, ReadLimit, Seq, Store,
    StoredMessage, Timestamp, Topic, View,
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

/// Puts `count` messages, `at_once` of them in flight.
fn append(journal: &Journal, count: u64, at_once: u64) -> Duration {
    let start = Instant::now();
    let mut number = 0;
    while number < count {
        let burst: Vec<_> = (0..at_once).map(|n| ask(journal, number + n)).collect();
        for pending in burst {
            block_on(pending).unwrap();
        }
        number += at_once;
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
            let count = at_once * 200;
            let place = folder.path().join(format!("{at_once}-{round}"));
            let journal = open(&place);
            append(&journal, at_once, at_once);
            let before = journal.stats().written_bytes;
            let ours = append(&journal, count, at_once);
            let bytes = journal.stats().written_bytes - before;
            drop(journal);
            let bare = bare(folder.path(), bytes, 200);
            ratios.push(bare.as_secs_f64() / ours.as_secs_f64());
            rates.push(count as f64 / ours.as_secs_f64());
        }
        println!(
            "append, {at_once} per fsync: {:.2} of a bare append + fdatasync, {:.0} messages/s",
            median(ratios),
            median(rates),
        );
    }
    let place = folder.path().join("large");
    let journal = open(&place);
    append(&journal, messages, 1024);
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
