//! `bridge health`: asks the monitor listener of a bridge that runs, for the health check of a
//! container whose image holds nothing that speaks HTTP.

mod exchange;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};

use self::exchange::Answer;
use crate::cli;
use crate::config::{self, Machine};
use crate::place::Place;

/// What is asked, and where.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The monitor listener, as in `http://127.0.0.1:9090`; without it, where `monitor` of the
    /// configuration listens
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The configuration file, of which only `monitor` is read
    #[arg(long, value_name = "FILE", env = "BRIDGE_CONFIG", default_value = cli::DEFAULT_CONFIG)]
    config: PathBuf,
    /// How much has to be well
    #[arg(long, value_enum, default_value = "subscribed")]
    level: Level,
    /// How long the answer may take, as in 500ms or 5s
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    timeout: Duration,
}

/// The levels of `/readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// The service has started and is not stopping
    Live,
    /// Every source is connected
    Connected,
    /// Every source has granted every subscription
    Subscribed,
    /// Every destination is connected as well, and no queue is blocked
    Full,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Connected => "connected",
            Self::Subscribed => "subscribed",
            Self::Full => "full",
        }
    }
}

/// Exit status 0 when the bridge is ready at that level; else 1, and says why.
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let monitor = match &args.url {
        Some(url) => of_url(url)?,
        None => match config::monitor(&args.config, &Machine) {
            Ok(listen) => of_config(args, listen)?,
            Err(errors) => {
                cli::eprint(&errors.0.render(cli::paint_stderr()))?;
                return Ok(ExitCode::FAILURE);
            }
        },
    };
    let path = format!("/readyz?level={}", args.level.as_str());
    let host = monitor.authority();
    let addresses = monitor
        .addresses()
        .with_context(|| format!("cannot find the host of {monitor}"))?;
    let Answer { status, body } = exchange::get(&addresses, &host, &path, args.timeout)
        .with_context(|| format!("no answer from the bridge at {host}"))?;
    if status == 200 {
        return cli::print(&format!("{body}\n"));
    }
    if status == 404 {
        bail!("what answers at {monitor} is not the monitor of a bridge: it knows no /readyz");
    }
    cli::print(&format!("not ready (HTTP {status}): {body}\n"))?;
    Ok(ExitCode::FAILURE)
}

fn of_config(args: &HealthArgs, listen: Option<SocketAddr>) -> anyhow::Result<Place> {
    let file = args.config.display();
    let Some(listen) = listen else {
        bail!("{file} has no `monitor`, so that nothing answers: add it, or use --url");
    };
    if listen.port() == 0 {
        bail!("{file} leaves the port of the monitor to the operating system: use --url");
    }
    Ok(Place::of_listener(listen, false))
}

/// The monitor speaks HTTP without TLS.
fn of_url(url: &str) -> anyhow::Result<Place> {
    let place = Place::of_url(url).filter(|place| !place.encrypted);
    place.ok_or_else(|| {
        anyhow!("{url:?} is not the URL of a monitor: write it as in http://127.0.0.1:9090")
    })
}

pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    match config::duration(text) {
        Some(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err("write it with its unit, as in 500ms or 5s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_not_encrypted() {
        assert!(of_url("http://127.0.0.1:9090").is_ok());
        assert!(of_url("https://127.0.0.1:9090").is_err());
    }

    #[test]
    fn a_timeout_has_a_unit() {
        assert_eq!(patience("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["5", "0s", "", "soon"] {
            assert!(patience(wrong).is_err(), "{wrong:?}");
        }
    }
}
