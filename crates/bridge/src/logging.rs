//! Logs: readable on a terminal, JSON for machines.

use std::io::{self, IsTerminal as _};

use bridge_core::{Clock as _, SystemClock};
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::{self, format::Writer, time::FormatTime};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people: time, level, message, fields.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged: a level, or a filter such as `info,bridge_transport=debug`.
#[derive(Debug, Clone)]
pub(crate) struct LogFilter(EnvFilter);

impl std::str::FromStr for LogFilter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        EnvFilter::builder().parse(text).map(Self)
    }
}

impl LogFilter {
    /// The audit log is no matter of how much someone wants to read.
    fn with_audit(self) -> Result<EnvFilter, ParseError> {
        Ok(self.0.add_directive("audit=info".parse()?))
    }
}

/// RFC 3339 in UTC, to the millisecond: finer is noise to people and no use to machines.
struct Milliseconds;

impl FormatTime for Milliseconds {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{}", SystemClock::new().wall())
    }
}

/// Starts logging to standard error, so that standard output stays for answers.
pub(crate) fn start(format: LogFormat, filter: LogFilter) -> anyhow::Result<()> {
    let builder = fmt::fmt()
        .with_env_filter(filter.with_audit()?)
        .with_timer(Milliseconds)
        .with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder
            .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))
}
