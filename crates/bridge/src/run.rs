//! `bridge run`: the service, until it is told to stop.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::config::Config;
use crate::identities;
use crate::service::Service;

/// `timeout` and some supervisors signal a process and its group, so that one wish arrives twice.
const ECHO: Duration = Duration::from_millis(500);

/// Serves until SIGTERM or SIGINT, then stops in order. A second signal stops at once.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the service")?;
    let ended = runtime.block_on(serve(config));
    // Whoever stops at once does not wait for a disk that does not answer.
    runtime.shutdown_background();
    ended
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // Listened for before anything starts, so that no signal is lost.
    let mut signals = Signals::listen()?;
    let identities = config.identities.clone();
    let Some(service) = unless_told(Service::start(config), signals.next()).await else {
        return Ok(());
    };
    let mut service = service?;
    identities::log(&identities);
    let failure = tokio::select! {
        name = signals.next() => {
            info!(event = "signal", signal = name, "stopping; a second signal stops at once");
            None
        }
        failure = service.failed() => {
            error!(event = "failed", error = format!("{failure:#}"), "a part has failed; stopping");
            Some(failure)
        }
    };
    let stopped = tokio::select! {
        stopped = service.shutdown() => stopped,
        name = signals.once_more() => {
            warn!(event = "signal", signal = name, "stopping at once");
            anyhow::bail!("stopped by a second {name} before everything had settled; what had not \
                           is still at its source or in the journal");
        }
    };
    match failure {
        Some(failure) => Err(failure),
        None => stopped.map(|_| ()),
    }
}

/// What has started, or nothing when a signal comes first: to read a long journal takes its time,
/// and a start that is given up has taken nothing in.
async fn unless_told<T>(
    start: impl Future<Output = T>,
    signal: impl Future<Output = &'static str>,
) -> Option<T> {
    tokio::select! {
        started = start => Some(started),
        name = signal => {
            info!(event = "signal", signal = name, "stopping before the start was through");
            None
        }
    }
}

/// The signals that ask a service to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// The next that is not an echo of the one just taken.
    async fn once_more(&mut self) -> &'static str {
        let taken = Instant::now();
        loop {
            let name = self.next().await;
            if taken.elapsed() >= ECHO {
                return name;
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_signal_ends_a_start_that_does_not_come_to_an_end() {
        assert_eq!(unless_told(pending::<()>(), ready("SIGTERM")).await, None);
    }

    #[tokio::test]
    async fn a_start_that_no_signal_interrupts_is_what_it_is() {
        assert_eq!(unless_told(ready(1), pending()).await, Some(1));
    }
}
