//! How fast messages cross, and at what cost, beside Mosquitto's own bridge.
//!
//! Each run starts afresh: a source broker, a destination broker, and between them one contender.
//! The load generator publishes to the source and receives from the destination; it insists that
//! every message arrives once and in order, for a figure of a run that lost something is worth
//! nothing. The runs of the contenders are interleaved, so that a disturbance of the machine
//! meets all of them, and ratios are taken within a round.

pub(crate) mod build;
mod contender;
mod journal;
mod load;
mod report;
mod stats;
mod usage;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bridge_testkit::find_program;
use clap::{Args, Subcommand, value_parser};

use contender::{Contender, Course, Figures};
use load::Load;
use report::Report;
use usage::Machine;

/// How long a quiet moment is waited for.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long the machine is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What `cargo xtask bench` takes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// How many messages cross in one run
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u64).range(1_000..=100_000_000))]
    messages: u64,
    /// How many times each contender runs
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// The size of a payload in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(8..=1 << 20))]
    payload: u32,
    /// How many messages may be unanswered on each connection
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u16).range(1..=256))]
    window: u16,
    /// Where the journal is written: a folder on a real disk [default: target/bench]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Measure this binary and build none
    #[arg(long, value_name = "FILE")]
    bridge: Option<PathBuf>,
    /// Wait until other work takes at most so many percent of the CPUs, and repeat a run that was
    /// disturbed by more
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u8).range(1..=99))]
    quiet: Option<u8>,
    /// Run these contenders alone
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CONTENDERS")]
    only: Vec<Contender>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure the journal alone, beside bare appends that are made durable
    Journal(journal::JournalArgs),
    /// Measure pages of a million dead letters, and live messages beside jobs of 100,000
    DeadLetters,
}

/// Measures, and prints the figures to standard output; how it goes is told on standard error.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    if let Some(What::DeadLetters) = args.what {
        return build::dead_letters();
    }
    if cfg!(debug_assertions) {
        // A load generator that is not optimized takes its CPU from what it measures.
        return build::again_in_release();
    }
    if let Some(What::Journal(args)) = &args.what {
        return journal::run(args);
    }
    if find_program("mosquitto").is_none() {
        bail!("mosquitto is not installed: run `cargo xtask setup`");
    }
    let data_dir = build::data_dir(args.data_dir.as_deref())?;
    let bridge = match &args.bridge {
        Some(path) => path.clone(),
        None => build::bridge()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the load generator")?;
    let report = runtime.block_on(measure(args, bridge, data_dir))?;
    if args.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{}", report.render());
    }
    Ok(())
}

async fn measure(args: &BenchArgs, bridge: PathBuf, data_dir: PathBuf) -> Result<Report> {
    let course = Course {
        bridge,
        data_dir,
        load: Load {
            messages: args.messages,
            payload: usize::try_from(args.payload)?,
            window: args.window,
        },
    };
    let contenders = match args.only.as_slice() {
        [] => Contender::ALL.to_vec(),
        only => only.to_vec(),
    };
    let mut report = Report::new(course.load, &contenders);
    for round in 1..=args.rounds {
        for &contender in &contenders {
            let (figures, broker) = undisturbed(&course, contender, args.quiet)
                .await
                .with_context(|| format!("round {round}, {contender}"))?;
            eprintln!("round {round}/{}  {contender:<17} {figures}", args.rounds);
            report.add(contender, figures, broker);
        }
    }
    Ok(report)
}

/// One run, repeated until other work has taken no more than `limit` percent of the CPUs.
async fn undisturbed(
    course: &Course,
    contender: Contender,
    limit: Option<u8>,
) -> Result<(Figures, String)> {
    let Some(limit) = limit.map(f64::from) else {
        return course.run(contender).await;
    };
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if Machine::elsewhere_within(LOOK).await? > limit {
            continue;
        }
        let (figures, broker) = course.run(contender).await?;
        if figures.elsewhere <= limit {
            return Ok((figures, broker));
        }
        eprintln!("disturbed, again:  {contender:<17} {figures}");
    }
    bail!("the machine was not quiet within {PATIENCE:?}")
}
