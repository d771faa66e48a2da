//! The `bridge` command: see `bridge --help`.

mod cli;
mod config;
#[cfg(feature = "demo")]
mod demo;
mod explain;
mod health;
mod identities;
mod lease;
mod logging;
mod monitor;
mod offline;
mod process_metrics;
mod run;
mod service;

fn main() -> std::process::ExitCode {
    cli::main()
}
