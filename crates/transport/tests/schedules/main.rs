//! Schedules by chance: a real writer, or a real reader, and a broker and a line that break in
//! every way. Each future of a published message ends exactly once and with the truth, what is
//! acknowledged was settled, the order of a connection is kept, no task stays behind, and memory
//! does not grow.
//!
//! A failure names its seeds; `SCHEDULE_SEED=<seed>` plays one of them alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the code of tests: failing loudly is what it is for"
)]

mod broker;
mod chance;
mod play;
mod reading;

use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use play::Tally;
use tokio::runtime::Builder;

/// Seeds below this play a writer, the rest a reader.
const OF_A_WRITER: u64 = 1_000;
const SCHEDULES: u64 = 1_300;
/// Most of a schedule is waiting: many of them share a core.
const AT_A_TIME: usize = 32;
/// After how many memory is first looked at, half of them of a writer and half of a reader: the
/// allocator has its arenas by then.
const WARM: u64 = 300;

#[test]
fn a_thousand_schedules_end_each_future_once_and_with_the_truth_and_acknowledge_what_is_settled() {
    if let Ok(seed) = std::env::var("SCHEDULE_SEED") {
        println!("{:?}", run(seed.parse().expect("a number")));
        return;
    }
    let began = Instant::now();
    let record = Record::default();
    record.run_all(OF_A_WRITER - WARM / 2..OF_A_WRITER + WARM / 2);
    let warm = bridge_testkit::resident_kib();
    record.run_all(0..OF_A_WRITER - WARM / 2);
    record.run_all(OF_A_WRITER + WARM / 2..SCHEDULES);
    let cold = bridge_testkit::resident_kib();
    let (tally, failed) = (
        record.tally.into_inner().unwrap(),
        record.failed.into_inner().unwrap(),
    );
    println!(
        "{SCHEDULES} schedules in {:.1} s; {warm} KiB after {WARM}, {cold} KiB at the end; {tally:?}",
        began.elapsed().as_secs_f64()
    );
    assert!(
        failed.is_empty(),
        "{} failed, see above: {:#?}",
        failed.len(),
        &failed[..failed.len().min(5)]
    );
    for count in [
        tally.refused,
        tally.may_have_been_sent,
        tally.never_sent,
        tally.lost,
    ] {
        assert!(count > 20, "hardly seen, so hardly tested: {tally:?}");
    }
    assert!(
        cold < warm + 8 * 1024,
        "memory grew from {warm} to {cold} KiB"
    );
}

/// What has come of schedules so far.
#[derive(Default)]
struct Record {
    tally: Mutex<Tally>,
    failed: Mutex<Vec<(u64, String)>>,
}

impl Record {
    /// Plays the schedules of these seeds, many at a time.
    fn run_all(&self, seeds: Range<u64>) {
        let next = AtomicU64::new(seeds.start);
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        if seed >= seeds.end {
                            return;
                        }
                        match catch_unwind(|| run(seed)) {
                            Ok(one) => *self.tally.lock().unwrap() += one,
                            Err(panic) => {
                                let text = panic.downcast_ref::<String>().cloned();
                                let mut failed = self.failed.lock().unwrap();
                                failed.push((seed, text.unwrap_or_default()));
                            }
                        }
                    }
                });
            }
        });
    }
}

/// Plays one schedule on a runtime of its own, and looks at what it has left behind.
fn run(seed: u64) -> Tally {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tally = if seed < OF_A_WRITER {
            play::play(seed).await
        } else {
            reading::play(seed).await;
            Tally::default()
        };
        let metrics = runtime.metrics();
        bridge_testkit::wait_until("no task is left", Duration::from_secs(20), || {
            metrics.num_alive_tasks() == 0
        })
        .await;
        tally
    })
}
