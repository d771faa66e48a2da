//! Exclusive pairs: rounds of faults by chance, and never two at once.

use anyhow::Result;
use clap::{Args, value_parser};

use crate::step::{Report, Step};

/// What `cargo xtask exclusive` takes.
#[derive(Debug, Args)]
pub(crate) struct ExclusiveArgs {
    /// How many rounds, with a lease in a file and again with one in PostgreSQL
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Decides on what happens and when; printed by a run that chose it by chance
    #[arg(long)]
    seed: Option<u64>,
}

/// The test of the bridge that plays a few rounds in every test run.
pub(crate) fn run(args: &ExclusiveArgs) -> Result<()> {
    let test =
        "test -p bridge --test e2e --locked i18_never_two_at_once -- --nocapture --test-threads=1";
    let rounds = args.rounds.to_string();
    let mut step = Step::cargo("exclusive", test).env("BRIDGE_EXCLUSIVE_ROUNDS", &rounds);
    if let Some(seed) = args.seed {
        step = step.env("BRIDGE_EXCLUSIVE_SEED", &seed.to_string());
    }
    let mut report = Report::new(false);
    report.run(step)?;
    report.finish()
}
