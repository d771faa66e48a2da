//! One round of measurements.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bridge_core::{Store, View};
use bridge_queue::Journal;
use rustix::fs::Advice;
use tokio::task::JoinSet;

use super::super::usage::Usage;
use super::load::{Load, open as open_journal};
use super::open_apart;
use super::table::Table;

/// How often the journal and the bare file take turns in a measurement of throughput.
const TURNS: u64 = 10;
/// How many batches are appended in one turn.
const BATCHES: u64 = 40;
/// Producers that each wait for their own message before they put the next.
const PRODUCERS: u64 = 64;
/// How many messages each of them puts in one turn.
const EACH: u64 = 60;

/// Measures everything once.
pub(super) async fn round(
    load: &Arc<Load>,
    folder: &Path,
    number: u16,
    table: &mut Table,
) -> Result<()> {
    for at_once in [64, 256] {
        append(load, folder, at_once, table).await?;
    }
    latency(load, folder, table).await?;
    let plain = amplification(load, &folder.join("flow"), None).await?;
    table.note("amplification", plain.written);
    table.note("amplification_pages", plain.pages);
    let kept = amplification(load, &folder.join("kept"), Some(1000)).await?;
    table.note("amplification_kept", kept.written);
    table.note("amplification_kept_pages", kept.pages);
    table.note("kept_disk_mib", mib(kept.left));
    large(load, &folder.join("large"), table).await?;
    if number == 1 {
        two_views(load, &folder.join("views"), table).await?;
    }
    Ok(())
}

/// Appends in batches of `at_once`, and as many bytes in as many pieces without a journal, by
/// turns: a disk that other work slows down for a while slows down both.
async fn append(load: &Load, folder: &Path, at_once: usize, table: &mut Table) -> Result<()> {
    let count = BATCHES * at_once as u64;
    let journal = open_journal(&folder.join(format!("append-{at_once}")), Some(at_once))?;
    load.append(&journal, 10 * at_once as u64, 4 * at_once)
        .await?;
    let path = folder.join("bare");
    let mut file = File::create(&path)?;
    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TURNS {
        let before = journal.stats();
        ours += load.append(&journal, count, 4 * at_once).await?;
        let after = journal.stats();
        let bytes = after.written_bytes - before.written_bytes;
        theirs += sum(&bare(&mut file, bytes, after.syncs - before.syncs)?);
    }
    journal.close();
    fs::remove_file(path)?;
    let put = whole(count * TURNS);
    table.note(
        &format!("append_{at_once}"),
        theirs.as_secs_f64() / ours.as_secs_f64(),
    );
    table.note(&format!("append_{at_once}_rate"), put / ours.as_secs_f64());
    Ok(())
}

/// Appends `bytes` in `pieces`, each made durable; how long each took.
fn bare(file: &mut File, bytes: u64, pieces: u64) -> Result<Vec<Duration>> {
    let piece = vec![0xA5; usize::try_from(bytes / pieces.max(1))?];
    let mut times = Vec::new();
    for _ in 0..pieces {
        let start = Instant::now();
        file.write_all(&piece)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// How long one put takes with many producers, and how long a bare append of such a batch, by
/// turns.
async fn latency(load: &Arc<Load>, folder: &Path, table: &mut Table) -> Result<()> {
    let journal = Arc::new(open_journal(&folder.join("latency"), None)?);
    load.append(&journal, 1000, 250).await?;
    let mut file = File::create(folder.join("bare"))?;
    let (mut ours, mut theirs, mut syncs) = (Vec::new(), Vec::new(), 0);
    for _ in 0..TURNS {
        let before = journal.stats();
        ours.extend(produce(load, &journal).await?);
        let after = journal.stats();
        let bytes = after.written_bytes - before.written_bytes;
        theirs.extend(bare(&mut file, bytes, after.syncs - before.syncs)?);
        syncs += after.syncs - before.syncs;
    }
    let (p99, bare_p99) = (percentile(&mut ours, 99), percentile(&mut theirs, 99));
    table.note("put_p50_us", micros(percentile(&mut ours, 50)));
    table.note("put_p99_us", micros(p99));
    table.note("bare_p50_us", micros(percentile(&mut theirs, 50)));
    table.note("bare_p99_us", micros(bare_p99));
    table.note("p99_ratio", p99.as_secs_f64() / bare_p99.as_secs_f64());
    table.note("batch", ratio(ours.len() as u64, syncs));
    Ok(())
}

/// How long each put took of producers that wait for their own before they put the next.
async fn produce(load: &Arc<Load>, journal: &Arc<Journal>) -> Result<Vec<Duration>> {
    let mut producers = JoinSet::new();
    for _ in 0..PRODUCERS {
        let (load, journal) = (load.clone(), journal.clone());
        producers.spawn(async move {
            let mut times = Vec::new();
            for number in 0..EACH {
                let start = Instant::now();
                load.put(&journal, number).await?;
                times.push(start.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = producers.join_next().await {
        times.extend(done.context("a producer panicked")??);
    }
    Ok(times)
}

/// What was written for each byte of message.
struct Amplification {
    written: f64,
    /// As the kernel counts, by whole pages.
    pages: f64,
    /// Bytes that are left on the disk.
    left: u64,
}

async fn amplification(load: &Load, folder: &Path, kept: Option<u64>) -> Result<Amplification> {
    let journal = open_journal(folder, None)?;
    let before = Usage::of(std::process::id())?.disk_bytes;
    load.flow(&journal, kept).await?;
    let after = Usage::of(std::process::id())?.disk_bytes;
    let stats = journal.stats();
    journal.close();
    let stored = load.messages * load.size;
    fs::remove_dir_all(folder)?;
    Ok(Amplification {
        written: ratio(stats.written_bytes, stored),
        pages: ratio(after - before, stored),
        left: stats.bytes,
    })
}

/// A long queue: appended, opened again, drained.
async fn large(load: &Load, folder: &Path, table: &mut Table) -> Result<()> {
    let journal = open_journal(folder, None)?;
    load.append(&journal, load.messages, 4096).await?;
    drop(journal);
    let warm = open_apart(folder)?;
    check(warm.entries == load.messages, "entries are missing")?;
    table.note("open_s", warm.seconds);
    table.note("open_memory_mib", mib(warm.memory));
    forget(&folder.join("journal"))?;
    table.note("open_cold_s", open_apart(folder)?.seconds);
    let journal = open_journal(folder, None)?;
    let (drained, took) = load.drain(&journal).await?;
    check(drained == load.messages, "not everything was drained")?;
    table.note("drain_rate", whole(drained) / took.as_secs_f64());
    let left = settled_down(load, &journal).await?;
    journal.close();
    table.note("drained_disk_mib", mib(left));
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// As many dead letters as queued messages.
async fn two_views(load: &Load, folder: &Path, table: &mut Table) -> Result<()> {
    let journal = open_journal(folder, None)?;
    load.append(&journal, 2 * load.messages, 4096).await?;
    let limit = bridge_core::ReadLimit {
        entries: 1024,
        bytes: u64::MAX,
    };
    let mut left = load.messages;
    while left > 0 {
        let page = journal.read(&load.key, View::Queue, None, limit).await?;
        let page = page.iter().take(usize::try_from(left)?);
        let moves: Vec<_> = page
            .map(|seated| load.give_up(&journal, seated.seq))
            .collect();
        left -= moves.len() as u64;
        for moved in moves {
            moved.await?;
        }
    }
    drop(journal);
    let opened = open_apart(folder)?;
    check(opened.entries == 2 * load.messages, "entries are missing")?;
    table.note("views_memory_mib", mib(opened.memory));
    table.note("views_open_s", opened.seconds);
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// The bytes of the journal's files once nothing more is given back.
async fn settled_down(load: &Load, journal: &Journal) -> Result<u64> {
    let mut bytes = journal.stats().bytes;
    for number in 0..100 {
        let seq = load.put(journal, number).await?;
        journal.settle(&load.key, &[seq]);
        journal.flush().await?;
        bytes = journal.stats().bytes;
        if journal.stats().segments == 1 {
            break;
        }
    }
    Ok(bytes)
}

/// Has the kernel drop what it keeps of the files in `folder`.
fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// What opening a journal took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    seconds: f64,
    memory: u64,
    entries: u64,
}

/// Opens the journal in `folder`.
pub(super) fn open(folder: &Path) -> Result<Opened> {
    let start = Instant::now();
    let journal = open_journal(folder, None)?;
    let seconds = start.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory: u64 = line
        .and_then(|line| line.split_whitespace().next())
        .context("no VmRSS")?
        .parse()?;
    let quantities = journal.bindings().into_iter().map(|key| {
        let usage = journal.usage(&key);
        usage.queue.entries + usage.dead_letters.entries
    });
    Ok(Opened {
        seconds,
        memory: 1024 * memory,
        entries: quantities.sum(),
    })
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.seconds, self.memory, self.entries)
    }
}

impl FromStr for Opened {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or_else(|| anyhow!("not enough figures"));
        Ok(Self {
            seconds: next()?.parse()?,
            memory: next()?.parse()?,
            entries: next()?.parse()?,
        })
    }
}

fn check(holds: bool, what: &'static str) -> Result<()> {
    holds.then_some(()).context(what)
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * percent / 100;
    times.get(at).copied().unwrap_or_default()
}

fn sum(times: &[Duration]) -> Duration {
    times.iter().sum()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn ratio(a: u64, b: u64) -> f64 {
    whole(a) / whole(b)
}

fn mib(bytes: u64) -> f64 {
    whole(bytes) / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn whole(count: u64) -> f64 {
    count as f64
}
