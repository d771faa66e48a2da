//! Asking a bridge that runs, over its admin API: where it is, what opens it, and what its answers
//! and their absence mean for an exit status.

mod access;
mod client;
mod failure;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::cli;
use crate::config::ConfigErrors;
use crate::health::patience;
use crate::show;

pub(crate) use client::{Answer, Client};
pub(crate) use failure::{Failure, Whom};

/// Some of what was asked for was not done, or is not there.
pub(crate) const EXIT_SOME_NOT: u8 = 1;
/// The bridge could not be asked.
pub(crate) const EXIT_NOT_ASKED: u8 = 2;

/// For `--help`.
pub(crate) const EXIT_HELP: &str = "Exit status: 0 when all was done, 1 when something of it was \
not or is not there, 2 when the bridge could not be asked, which includes a wrong command line, \
a wrong token and a lost connection.";

/// Of the options that say which bridge.
pub(crate) const HEADING: &str = "Which bridge";

/// Which bridge that runs, and what opens its admin API.
#[derive(Debug, Args)]
#[group(id = "running")]
pub(crate) struct Running {
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "URL",
        conflicts_with = "config",
        help = "The admin listener of a bridge that runs, as in http://127.0.0.1:8080; without it, \
                where `admin` of the configuration listens [env: BRIDGE_ADMIN_URL=]"
    )]
    url: Option<String>,
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "FILE",
        help = "The configuration file, of which only `admin` is read; its token goes to its own \
                listener alone [env: BRIDGE_CONFIG=] [default: /etc/bridge/bridge.yaml]"
    )]
    config: Option<PathBuf>,
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "FILE",
        help = "A file that holds the admin token [env: BRIDGE_ADMIN_TOKEN= is the token itself]"
    )]
    token_file: Option<PathBuf>,
    /// A PEM file with the certificate, or its authority, that the listener is trusted by, in place
    /// of those that the operating system trusts
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    ca_file: Option<PathBuf>,
    /// How long the bridge may be silent, as in 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience, help_heading = HEADING)]
    timeout: Duration,
}

impl Running {
    /// How long it may be silent.
    pub(crate) const fn patience(&self) -> Duration {
        self.timeout
    }

    /// The configuration of the bridge, where there is no other way to it.
    pub(crate) fn config_file(&self) -> anyhow::Result<PathBuf> {
        access::config_file(self).with_context(|| {
            format!(
                "which bridge? Say it with --config, or BRIDGE_CONFIG in the environment; there is \
                 no {}",
                cli::DEFAULT_CONFIG
            )
        })
    }

    /// Whether the command line says anything of it.
    pub(crate) const fn is_given(&self) -> bool {
        self.url.is_some()
            || self.config.is_some()
            || self.token_file.is_some()
            || self.ca_file.is_some()
    }
}

/// Finds the bridge, asks it what `ask` does, and says why where that comes to nothing.
pub(crate) fn asking(
    running: &Running,
    ask: impl AsyncFnOnce(Client) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let asked = || {
        let client = access::client(running)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start asking")?;
        runtime.block_on(ask(client))
    };
    asked().or_else(|error| not_asked(&error))
}

/// A time as the API takes it: a part of a second is waited for as a whole one.
pub(crate) const fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + if time.subsec_nanos() > 0 { 1 } else { 0 }
}

/// Says what a bridge that has answered could not do.
pub(crate) fn not_done(what: &str) -> anyhow::Result<ExitCode> {
    let label = cli::paint_stderr().red("error:");
    cli::eprint(&format!("{label} {what}\n"))?;
    Ok(ExitCode::from(EXIT_SOME_NOT))
}

/// Says why there is no answer.
pub(crate) fn not_asked(error: &anyhow::Error) -> anyhow::Result<ExitCode> {
    let paint = cli::paint_stderr();
    if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
        cli::eprint(&errors.0.render(paint))?;
        return Ok(ExitCode::from(EXIT_NOT_ASKED));
    }
    let mut text = format!(
        "{} {}\n",
        paint.red("error:"),
        show::text(&format!("{error:#}"))
    );
    let help = error.downcast_ref().and_then(Failure::help);
    if let Some(help) = help {
        let _ = writeln!(text, "help: {}", show::text(&help));
    }
    cli::eprint(&text)?;
    Ok(ExitCode::from(EXIT_NOT_ASKED))
}
