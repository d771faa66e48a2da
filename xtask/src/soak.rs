//! The soak: refusals that come and go, cut lines, brokers and bridges that restart, kills, expiry,
//! all by chance; and at the end every numbered message is where the ledger says.

use anyhow::Result;
use clap::{Args, value_parser};

use crate::step::{Report, Step};

/// What `cargo xtask soak` takes.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// For how long
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u64).range(1..=10_080))]
    minutes: u64,
    /// Decides on what happens and when; printed by a run that chose it by chance
    #[arg(long)]
    seed: Option<u64>,
}

/// The test of the bridge that does this for a minute in every test run, with a release build.
pub(crate) fn run(args: &SoakArgs) -> Result<()> {
    let test = "test -p bridge --release --no-default-features --test soak --locked -- --nocapture";
    let seconds = (args.minutes * 60).to_string();
    let mut step = Step::cargo("soak", test).env("BRIDGE_SOAK_SECONDS", &seconds);
    if let Some(seed) = args.seed {
        step = step.env("BRIDGE_SOAK_SEED", &seed.to_string());
    }
    let mut report = Report::new(false);
    report.run(step)?;
    report.finish()
}
