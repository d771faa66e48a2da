//! Changing what is in a data folder in which no bridge is at work.
//!
//! The bindings of the configuration are made over its journal as `bridge run` would make them,
//! without sessions, and the calls of the admin API are asked within this process: so what is done,
//! what keeps it in bounds, and what is said of it is the same as with a bridge that runs.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bridge_core::{Clock, SystemClock};
use bridge_dlq_admin::{Described, LeaseFacts, Observed, Offline};
use bridge_queue::{Journal, OpenError};
use bridge_runtime::{AtRest, Status};
use prometheus::proto::MetricFamily;

use crate::config::{Config, Machine};
use crate::logging::{self, LogFormat};
use crate::running::{self, Client, Failure, Running};
use crate::service;

/// What is worth a line on standard error, besides the audit log: what opening the journal found.
const LOG: &str = "warn";

/// Opens the journal of the configuration that `running` names, does with it what `ask` asks for,
/// and says why where that comes to nothing. Nobody else can work in the folder meanwhile.
pub(crate) fn changing(
    running: &Running,
    ask: impl AsyncFnOnce(Client) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let changed = || {
        let path = running.config_file()?;
        let (config, _) = Config::load(&path, &Machine)?;
        logging::start(LogFormat::Text, LOG.parse()?)?;
        let journal = Arc::new(open(&config)?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        let asked = runtime.block_on(answered(running, &config, journal.clone(), ask));
        journal.close();
        asked
    };
    changed().or_else(|error| running::not_asked(&error))
}

fn open(config: &Config) -> anyhow::Result<Journal> {
    let folder = &config.data_dir;
    match Journal::open_existing(folder, service::journal_options(config)) {
        // What was damaged is in the log, and set aside, as when a bridge starts.
        Ok((journal, _)) => Ok(journal),
        Err(OpenError::Locked { holder, .. }) => Err(Failure::AtWork {
            folder: folder.clone(),
            holder,
        }
        .into()),
        Err(error) => Err(error)
            .with_context(|| format!("cannot use the folder {} (data_dir)", folder.display())),
    }
}

async fn answered(
    running: &Running,
    config: &Config,
    journal: Arc<Journal>,
    ask: impl AsyncFnOnce(Client) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let at_rest = AtRest::over(&config.routes, journal, clock.clone())?;
    let user = rustix::process::getuid().as_raw();
    let still = Arc::new(Still(Arc::new(service::describe(config))));
    let who = format!("user {user}, offline");
    let offline = Arc::new(Offline::new(who, still, at_rest.control(), clock));
    let folder = config.data_dir.clone();
    let answered = ask(Client::here(folder, offline.clone(), running.patience())).await;
    offline.end().await;
    let ended = at_rest.end().await;
    let code = answered?;
    ended.context("the journal could not be flushed")?;
    Ok(code)
}

/// A bridge that does not run.
struct Still(Arc<Described>);

impl Observed for Still {
    fn status(&self) -> Option<Status> {
        Some(Status {
            sources: BTreeMap::new(),
            refused: BTreeMap::new(),
            sinks: BTreeMap::new(),
            bindings: Vec::new(),
        })
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        Vec::new()
    }

    fn described(&self) -> Arc<Described> {
        self.0.clone()
    }

    fn lease(&self) -> Option<LeaseFacts> {
        None
    }
}
