//! The `bridge` command: see `bridge --help`.

mod bindings;
mod cli;
mod config;
mod dead_letters;
#[cfg(feature = "demo")]
mod demo;
mod explain;
mod health;
mod identities;
mod inject;
mod jobs;
mod lease;
mod logging;
mod offline;
mod place;
mod process_metrics;
mod run;
mod running;
mod service;
mod show;

fn main() -> std::process::ExitCode {
    cli::main()
}
