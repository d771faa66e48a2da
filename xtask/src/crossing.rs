//! Many messages through a release build of the bridge while something is broken: does each one
//! arrive, in order, and is every one that comes twice explained?

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bridge_testkit::{Crossing, CrossingReport, Disturbance, Load};
use clap::{Args, value_parser};

use crate::bench::build;
use crate::step::{Report, Step};

/// The deliveries in which nothing may be lost when the bridge is killed.
const DURABLE: [&str; 2] = ["store_and_forward", "outbox"];

/// What `cargo xtask crossing` takes.
#[derive(Debug, Args)]
pub(crate) struct CrossingArgs {
    /// How many messages cross each time
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u64).range(1_000..=100_000_000))]
    messages: u64,
    /// The size of a payload in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(12..=1 << 20))]
    payload: u32,
    /// For how many seconds the destination is away or halted
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=600))]
    away: u64,
}

/// What `cargo xtask crash` takes.
#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    /// How often the bridge is killed, in each delivery mode [default: 20; of the journal alone: 200]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Only the journal: a process that puts, settles, defers, dead-letters, redrives and deletes is
    /// killed again and again, and what it was told is compared with what is there
    #[arg(long, conflicts_with_all = ["messages", "seed"])]
    journal: bool,
    /// How many messages cross meanwhile
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u64).range(1_000..=100_000_000))]
    messages: u64,
    /// Decides on the moments; printed by a run that chose it by chance
    #[arg(long)]
    seed: Option<u64>,
}

/// A crossing undisturbed, with the destination away, with it halted, and with the source
/// restarted.
pub(crate) fn run(args: &CrossingArgs) -> Result<()> {
    let program = build::bridge()?;
    let load = Load {
        messages: args.messages,
        size: args.payload as usize,
    };
    let away = Duration::from_secs(args.away);
    let mut failures = 0;
    for (what, delivery, disturbance) in [
        ("undisturbed", DURABLE[0], Disturbance::None),
        ("undisturbed", DURABLE[1], Disturbance::None),
        (
            "the destination is stopped",
            DURABLE[0],
            Disturbance::DestinationStopped(away),
        ),
        (
            "the destination is halted",
            DURABLE[0],
            Disturbance::DestinationPaused(away),
        ),
        (
            "the source restarts",
            DURABLE[0],
            Disturbance::SourceRestarted,
        ),
        (
            "the bridge is stopped and started",
            DURABLE[0],
            Disturbance::BridgeRestarted { rounds: 5 },
        ),
    ] {
        println!("\n=== {what}, {delivery}");
        let report = cross(&program, load, delivery, disturbance)?;
        let calm = disturbance == Disturbance::None;
        failures += judge(&report, calm);
    }
    verdict(failures)
}

/// A crossing in each durable delivery mode with the bridge killed again and again.
pub(crate) fn crash(args: &CrashArgs) -> Result<()> {
    if args.journal {
        return crash_journal(args.rounds.unwrap_or(200));
    }
    let rounds = args.rounds.unwrap_or(20);
    let program = build::bridge()?;
    let seed = args
        .seed
        .unwrap_or_else(|| RandomState::new().hash_one("moments"));
    let load = Load {
        messages: args.messages,
        size: 256,
    };
    let mut failures = 0;
    for delivery in DURABLE {
        println!("\n=== killed {rounds} times, {delivery}, --seed {seed}");
        let killed = Disturbance::BridgeKilled { rounds, seed };
        failures += judge(&cross(&program, load, delivery, killed)?, false);
    }
    verdict(failures)
}

/// The test of `bridge-queue` that does this for a few rounds in every test run.
fn crash_journal(rounds: u32) -> Result<()> {
    let mut report = Report::new(false);
    let test = "test -p bridge-queue --test kill --locked -- --nocapture";
    let rounds = rounds.to_string();
    report.run(Step::cargo("journal", test).env("BRIDGE_QUEUE_KILL_TEST_ROUNDS", &rounds))?;
    report.finish()
}

fn cross(
    program: &Path,
    load: Load,
    delivery: &'static str,
    disturbance: Disturbance,
) -> Result<CrossingReport> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the load generator")?;
    let crossing = Crossing {
        program: program.to_owned(),
        load,
        delivery,
        disturbance,
    };
    Ok(runtime.block_on(crossing.run()))
}

/// Prints a report and what is wrong with it; 1 when something is.
fn judge(report: &CrossingReport, calm: bool) -> u32 {
    println!("{report}");
    let mut faults = report.faults();
    if calm && report.tally.duplicates() > 0 {
        faults.push("messages came twice although nothing was disturbed".to_owned());
    }
    for fault in &faults {
        println!("FAILED: {fault}");
    }
    u32::from(!faults.is_empty())
}

fn verdict(failures: u32) -> Result<()> {
    if failures > 0 {
        bail!("{failures} of the crossings failed");
    }
    println!("\nevery message arrived");
    Ok(())
}
