//! `bridge health`: asks the monitor listener of a bridge that runs, for the health check of a
//! container whose image holds nothing that speaks HTTP.

mod exchange;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};

use self::exchange::Answer;
use crate::cli;
use crate::config::{self, Machine};

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
        Some(url) => Monitor::of_url(url)?,
        None => match config::monitor(&args.config, &Machine) {
            Ok(listen) => Monitor::of_config(args, listen)?,
            Err(errors) => {
                cli::eprint(&errors.0.render(cli::paint_stderr()))?;
                return Ok(ExitCode::FAILURE);
            }
        },
    };
    let path = format!("/readyz?level={}", args.level.as_str());
    let Answer { status, body } =
        exchange::get(&monitor.addresses, &monitor.host, &path, args.timeout)
            .with_context(|| format!("no answer from the bridge at {}", monitor.host))?;
    if status == 200 {
        return cli::print(&format!("{body}\n"));
    }
    cli::print(&format!("not ready (HTTP {status}): {body}\n"))?;
    Ok(ExitCode::FAILURE)
}

/// Where the monitor listens.
#[derive(Debug, PartialEq, Eq)]
struct Monitor {
    /// As it stands in a URL, with its port.
    host: String,
    /// To be tried in this order.
    addresses: Vec<SocketAddr>,
}

impl Monitor {
    fn of_config(args: &HealthArgs, listen: Option<SocketAddr>) -> anyhow::Result<Self> {
        let file = args.config.display();
        let Some(listen) = listen else {
            bail!("{file} has no `monitor`, so that nothing answers: add it, or use --url");
        };
        if listen.port() == 0 {
            bail!("{file} leaves the port of the monitor to the operating system: use --url");
        }
        let addresses = reachable(listen);
        let host = addresses.first().map(ToString::to_string);
        Ok(Self {
            host: host.unwrap_or_default(),
            addresses,
        })
    }

    /// `http://host:port`, with port 80 where it is left out.
    fn of_url(url: &str) -> anyhow::Result<Self> {
        let wrong =
            || anyhow!("{url:?} is not the URL of a monitor: write it as in http://127.0.0.1:9090");
        let host = url.strip_prefix("http://").ok_or_else(wrong)?;
        let host = host.strip_suffix('/').unwrap_or(host);
        let usable = |c: char| c.is_ascii_graphic() && !"/?#@\\".contains(c);
        if host.is_empty() || !host.chars().all(usable) {
            return Err(wrong());
        }
        // The last colon, unless it is one of an IPv6 address in brackets.
        let with_port = match host.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => host.to_owned(),
            _ => format!("{host}:80"),
        };
        let addresses = with_port
            .to_socket_addrs()
            .with_context(|| format!("cannot find the host of {url}"))?;
        Ok(Self {
            host: with_port.clone(),
            addresses: addresses.collect(),
        })
    }
}

/// What reaches a listener of this machine: one that listens everywhere listens on the loopback
/// too. `[::]` takes IPv4 as well where IPv6 is switched off but for the name.
fn reachable(listen: SocketAddr) -> Vec<SocketAddr> {
    let at = |ip: IpAddr| SocketAddr::new(ip, listen.port());
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => vec![at(Ipv4Addr::LOCALHOST.into())],
        IpAddr::V6(ip) if ip.is_unspecified() => vec![
            at(Ipv6Addr::LOCALHOST.into()),
            at(Ipv4Addr::LOCALHOST.into()),
        ],
        _ => vec![listen],
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    match config::duration(text) {
        Some(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err("write it with its unit, as in 500ms or 5s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_asked_on_the_loopback() {
        let asked = |listen: &str| -> Vec<String> {
            let addresses = reachable(listen.parse().unwrap());
            addresses.iter().map(ToString::to_string).collect()
        };
        assert_eq!(asked("0.0.0.0:9090"), ["127.0.0.1:9090"]);
        assert_eq!(asked("[::]:9090"), ["[::1]:9090", "127.0.0.1:9090"]);
        assert_eq!(asked("127.0.0.2:9090"), ["127.0.0.2:9090"]);
        assert_eq!(asked("[::1]:9090"), ["[::1]:9090"]);
    }

    #[test]
    fn a_url_names_a_host_and_nothing_else() {
        let host = |url: &str| Monitor::of_url(url).unwrap().host;
        assert_eq!(host("http://127.0.0.1:9090"), "127.0.0.1:9090");
        assert_eq!(host("http://[::1]:9090/"), "[::1]:9090");
        assert_eq!(host("http://[::1]"), "[::1]:80");
        assert_eq!(host("http://127.0.0.1"), "127.0.0.1:80");
        for wrong in [
            "127.0.0.1:9090",
            "https://127.0.0.1:9090",
            "http://",
            "http:///",
            "http://127.0.0.1:9090/readyz",
            "http://user@127.0.0.1",
            "http://127.0.0.1:9090\r\nx: y",
            "http://127.0.0.1:http",
            "http://::1:9090x",
        ] {
            assert!(Monitor::of_url(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_timeout_has_a_unit() {
        assert_eq!(patience("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["5", "0s", "", "soon"] {
            assert!(patience(wrong).is_err(), "{wrong:?}");
        }
    }
}
