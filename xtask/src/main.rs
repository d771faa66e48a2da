//! The project's own chores: `cargo xtask <what>`.

mod bench;
mod ci;
mod crossing;
mod exclusive;
mod schemathesis;
mod screenshots;
mod setup;
mod soak;
mod spec;
mod step;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The project's own chores"
)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Setup, format, lints, all tests, docs: what has to pass before a change is taken
    Ci {
        /// Go on after a step that failed, and report them all
        #[arg(long)]
        keep_going: bool,
    },
    /// Measure messages per second and CPU per message beside Mosquitto's own bridge
    Bench(bench::BenchArgs),
    /// Let many messages cross while a broker is stopped, halted or restarted
    Crossing(crossing::CrossingArgs),
    /// Kill the bridge again and again while messages cross
    Crash(crossing::CrashArgs),
    /// Let everything happen to a pair of bridges that share a lease: never two at once
    Exclusive(exclusive::ExclusiveArgs),
    /// Let everything go wrong at once, for long, and see that the ledger balances
    Soak(soak::SoakArgs),
    /// Hold the admin API of a running bridge to spec/openapi.yaml
    Schemathesis,
    /// Take the pictures of the operator's page that are in the book anew
    Screenshots,
    /// Write spec/openapi.yaml anew, after a change of the admin API
    Spec,
    /// Install what the tests need: mosquitto, PostgreSQL and Chromium, and where they can be
    /// had, RabbitMQ and NATS
    Setup,
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Ci { keep_going } => ci::run(keep_going),
        Chore::Bench(args) => bench::run(&args),
        Chore::Crossing(args) => crossing::run(&args),
        Chore::Crash(args) => crossing::crash(&args),
        Chore::Exclusive(args) => exclusive::run(&args),
        Chore::Soak(args) => soak::run(&args),
        Chore::Screenshots => screenshots::run(),
        Chore::Spec => spec::run(),
        Chore::Schemathesis => schemathesis::run(),
        Chore::Setup => setup::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
