//! The whole bridge, composed: the store, sessions, routes and listeners of one
//! configuration. The one place that knows which transport and which store there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bridge_core::{Backoff, Clock, Name, Permit, Sink, Source, Store, SystemClock};
use bridge_dlq_admin::{Admin, Described, LeaseFacts, Monitor, Observed, SessionFacts};
use bridge_queue::{Journal, RecoveryReport};
use bridge_runtime::{Overview, Parts, Runtime, Status, Stopped, subscriptions_of};
use bridge_transport::{Reader, SessionConfig, SessionKind, Writer, WriterIdentity};
use prometheus::Registry;
use prometheus::proto::MetricFamily;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::lease::Lease;
use crate::process_metrics::ProcessMetrics;

/// Delays before a message is offered again that was refused for now or could not be stored.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// How long a stop waits for what is being answered: calls of the admin API, and probes.
const CALLS: Duration = Duration::from_secs(11);
const PROBES: Duration = Duration::from_secs(2);

/// How long a stop waits for a disk that does not answer, after the flush.
const CLOSE: Duration = Duration::from_secs(10);

/// A running bridge.
pub(crate) struct Service {
    runtime: Runtime,
    observed: Arc<Observation>,
    journal: Arc<Journal>,
    lease: Option<Arc<Lease>>,
    drain_timeout: Duration,
    admin: Option<Listening>,
    monitor: Option<Listening>,
}

struct Listening {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Service {
    /// Opens the store, starts the sessions and the routes, and listens.
    ///
    /// What can be wrong is found before the first message is taken: a port in use, a data folder
    /// that another process holds.
    ///
    /// May be dropped before its end: nothing is awaited once a session has started, so that no
    /// session is left to itself.
    pub(crate) async fn start(config: Config) -> anyhow::Result<Self> {
        let (journal, opened) = open_journal(&config).await?;
        let monitor = match config.monitor {
            Some(address) => Some(Monitor::bind(address).await?),
            None => None,
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let admin = match &config.admin {
            Some(options) => Some(Admin::bind(options, clock.clone()).await?),
            None => None,
        };
        let registry = Registry::new();
        let lease = Lease::keep(&config, &clock, &registry)?.map(Arc::new);
        let permits = |session: &Name| lease.as_ref()?.permit(session);
        let readers = start_readers(&config, &clock, permits);
        let writers = start_writers(&config, &clock, permits);
        let backoff = Backoff::try_new(RETRY.0, RETRY.1).context("the delays between retries")?;
        let runtime = Runtime::start(Parts {
            routes: config.routes.clone(),
            sources: dynamic(&readers, |reader| reader as Arc<dyn Source>),
            sinks: dynamic(&writers, |writer| writer as Arc<dyn Sink>),
            store: journal.clone(),
            clock,
            registry: registry.clone(),
            backoff,
        })?;
        let observed = Arc::new(Observation {
            overview: runtime.overview(),
            described: Arc::new(describe(&config)),
            journal: journal.clone(),
            process: ProcessMetrics::register(&registry, &config.bridge_id, &opened)?,
            registry,
            lease: lease.clone(),
            sources: config
                .routes
                .iter()
                .map(|route| (route.name.clone(), route.source.clone()))
                .collect(),
            readers,
            writers,
            stopping: AtomicBool::new(false),
            scraping: Mutex::new(()),
        });
        warn_of_orphans(&config, &journal);
        let admin = match admin {
            Some(admin) => {
                let stop = CancellationToken::new();
                let address = admin.address()?;
                let encrypted = config
                    .admin
                    .as_ref()
                    .is_some_and(|admin| admin.tls.is_some());
                info!(event = "admin_listening", %address, encrypted, "the admin API, behind its token");
                let serving = admin.serve(observed.clone(), runtime.control(), stop.clone());
                let task = tokio::spawn(serving);
                Some(Listening { stop, task })
            }
            None => None,
        };
        let monitor = match monitor {
            Some(monitor) => {
                let stop = CancellationToken::new();
                let address = monitor.address()?;
                info!(event = "monitor_listening", %address, "GET /livez, /readyz and /metrics");
                let task = tokio::spawn(monitor.serve(observed.clone(), stop.clone()));
                Some(Listening { stop, task })
            }
            None => None,
        };
        info!(
            event = "started",
            bridge = %config.bridge_id,
            version = env!("CARGO_PKG_VERSION"),
            routes = config.routes.len(),
            data_dir = %config.data_dir.display(),
            "the bridge runs"
        );
        Ok(Self {
            runtime,
            observed,
            journal,
            lease,
            drain_timeout: config.drain_timeout,
            admin,
            monitor,
        })
    }

    /// How it goes now.
    #[cfg_attr(
        not(feature = "demo"),
        expect(dead_code, reason = "the demo looks at it")
    )]
    pub(crate) fn status(&self) -> Status {
        self.observed.overview.status()
    }

    /// Every metric, up to date.
    #[cfg_attr(
        not(feature = "demo"),
        expect(dead_code, reason = "the demo looks at it")
    )]
    pub(crate) fn metrics(&self) -> Vec<MetricFamily> {
        self.observed.metrics()
    }

    /// Ends when a part of the service has failed, which none does by design.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let (admin, monitor) = (ended(&mut self.admin), ended(&mut self.monitor));
        tokio::select! {
            failure = self.runtime.failed() => failure.into(),
            failure = admin => failure.context("the admin listener failed"),
            failure = monitor => failure.context("the monitor listener failed"),
        }
    }

    /// Stops in order: not ready any more, no intake, what is under way settles, the store is
    /// flushed, the sessions say goodbye, the lease goes to whoever waits for it, the listener
    /// closes.
    pub(crate) async fn shutdown(self) -> anyhow::Result<Stopped> {
        self.observed.stopping.store(true, Ordering::SeqCst);
        let stopped = self.runtime.shutdown(self.drain_timeout).await;
        if let Some(lease) = &self.lease {
            lease.release().await;
        }
        for (listener, patience) in [(self.admin, CALLS), (self.monitor, PROBES)] {
            if let Some(listener) = listener {
                listener.stop.cancel();
                // One that ended by itself has said so in `failed`, and a task's end is told once.
                if !listener.task.is_finished() {
                    let _ = tokio::time::timeout(patience, listener.task).await;
                }
            }
        }
        let journal = self.journal;
        let closing = tokio::task::spawn_blocking(move || journal.close());
        let closed = tokio::time::timeout(CLOSE, closing).await;
        let stopped = stopped.context("the journal could not be flushed")?;
        closed
            .with_context(|| {
                format!(
                    "the journal is flushed and was not closed within {CLOSE:?}: the disk does not \
                     answer"
                )
            })?
            .context("closing the journal")?;
        info!(
            event = "stopped",
            unsettled = stopped.unsettled,
            "everything is closed"
        );
        Ok(stopped)
    }
}

/// Why a listener ended, which none does by design.
async fn ended(listener: &mut Option<Listening>) -> anyhow::Error {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    match (&mut listener.task).await {
        Ok(()) => anyhow!("it ended"),
        Err(failure) => failure.into(),
    }
}

/// What the listeners and the demo see of the service.
struct Observation {
    overview: Overview,
    described: Arc<Described>,
    journal: Arc<Journal>,
    registry: Registry,
    process: ProcessMetrics,
    lease: Option<Arc<Lease>>,
    /// Of each route.
    sources: BTreeMap<Name, Name>,
    readers: BTreeMap<Name, Arc<Reader>>,
    writers: BTreeMap<Name, Arc<Writer>>,
    stopping: AtomicBool,
    /// One scrape at a time: counters of the sessions are brought forward by their difference.
    scraping: Mutex<()>,
}

impl Observed for Observation {
    fn status(&self) -> Option<Status> {
        if self.stopping.load(Ordering::SeqCst) {
            return None;
        }
        let mut status = self.overview.status();
        if let Some(lease) = &self.lease {
            let expected = |session: &Name| !lease.excuses(session);
            status.sources.retain(|session, _| expected(session));
            status.sinks.retain(|session, _| expected(session));
            let sources = &self.sources;
            status
                .refused
                .retain(|route, _| sources.get(route).is_none_or(expected));
        }
        Some(status)
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let _one = self.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        self.overview.refresh_metrics();
        for (session, reader) in &self.readers {
            self.process.session(session, "reader", &reader.stats());
        }
        for (session, writer) in &self.writers {
            self.process.session(session, "writer", &writer.stats());
        }
        if let Some(lease) = &self.lease {
            lease.refresh_metrics();
        }
        self.process.journal(&self.journal.stats());
        self.registry.gather()
    }

    fn described(&self) -> Arc<Described> {
        self.described.clone()
    }

    fn lease(&self) -> Option<LeaseFacts> {
        self.lease.as_ref().map(|lease| lease.facts())
    }
}

/// What the admin API says of the configuration: nothing secret.
pub(crate) fn describe(config: &Config) -> Described {
    let sources: BTreeSet<&Name> = config.routes.iter().map(|route| &route.source).collect();
    let sinks = sinks(config);
    let facts = |session: &SessionConfig| {
        let (read, written) = (
            sources.contains(&session.name),
            sinks.contains(&session.name),
        );
        let writes_as = if read {
            &session.publisher_client_id
        } else {
            &session.client_id
        };
        SessionFacts {
            name: session.name.clone(),
            brokers: session.brokers.iter().map(ToString::to_string).collect(),
            protocol: session.protocol.to_string(),
            reads_as: read.then(|| session.client_id.clone()),
            writes_as: written.then(|| writes_as.clone()),
            mode: match session.kind {
                SessionKind::Ephemeral => "ephemeral".to_owned(),
                SessionKind::Persistent { .. } => "persistent".to_owned(),
            },
        }
    };
    Described {
        bridge: config.bridge_id.clone(),
        version: env!("CARGO_PKG_VERSION"),
        routes: config.routes.clone(),
        sessions: config.sessions.values().map(facts).collect(),
    }
}

async fn open_journal(config: &Config) -> anyhow::Result<(Arc<Journal>, RecoveryReport)> {
    let options = journal_options(config);
    let data_dir = config.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || Journal::open(&data_dir, options));
    let (journal, report) = opened
        .await
        .context("opening the journal")?
        .with_context(|| {
            format!(
                "cannot use the folder {} (data_dir)",
                config.data_dir.display()
            )
        })?;
    Ok((Arc::new(journal), report))
}

/// How the journal of that configuration is kept.
pub(crate) fn journal_options(config: &Config) -> bridge_queue::JournalOptions {
    bridge_queue::JournalOptions {
        segment_bytes: config.journal.segment_size,
        ..bridge_queue::JournalOptions::default()
    }
}

/// Says what waits at bindings that the configuration does not name: it is kept, and not sent.
fn warn_of_orphans(config: &Config, journal: &Journal) {
    let named: BTreeSet<_> = config
        .routes
        .iter()
        .flat_map(|route| route.bindings.iter().map(|b| (&route.name, &b.name)))
        .collect();
    for key in journal.bindings() {
        if !named.contains(&(&key.route, &key.binding)) {
            let usage = journal.usage(&key);
            warn!(
                event = "orphaned_binding",
                binding = %key,
                queued = usage.queue.entries,
                deferred = usage.deferred.entries,
                dead_letters = usage.dead_letters.entries,
                "messages wait at a binding that the configuration does not name: they are kept, \
                 and go on when it is named again"
            );
        }
    }
}

/// The sessions that are written to.
fn sinks(config: &Config) -> BTreeSet<&Name> {
    let routes = config.routes.iter();
    routes
        .flat_map(|route| route.bindings.iter().map(|binding| &binding.sink))
        .collect()
}

fn start_readers(
    config: &Config,
    clock: &Arc<dyn Clock>,
    permit: impl Fn(&Name) -> Option<Arc<dyn Permit>>,
) -> BTreeMap<Name, Arc<Reader>> {
    let sources: BTreeSet<&Name> = config.routes.iter().map(|route| &route.source).collect();
    let sinks = sinks(config);
    let reader = |(name, session): (&Name, &bridge_transport::SessionConfig)| {
        let routes = config.routes.iter().filter(|route| route.source == *name);
        let mut session = session.clone();
        let filters = format!("{name}.filters");
        session.filters_file = Some(config.data_dir.join("sessions").join(filters));
        if sinks.contains(name) {
            // One connection says whether the session is there: the one that writes.
            session.status = None;
        }
        let (subscriptions, clock) = (subscriptions_of(routes), clock.clone());
        let reader = match permit(name) {
            Some(permit) => Reader::start_with_permit(session, subscriptions, clock, permit),
            None => Reader::start(session, subscriptions, clock),
        };
        (name.clone(), Arc::new(reader))
    };
    let sessions = config.sessions.iter();
    sessions
        .filter(|(name, _)| sources.contains(name))
        .map(reader)
        .collect()
}

fn start_writers(
    config: &Config,
    clock: &Arc<dyn Clock>,
    permit: impl Fn(&Name) -> Option<Arc<dyn Permit>>,
) -> BTreeMap<Name, Arc<Writer>> {
    let sources: BTreeSet<&Name> = config.routes.iter().map(|route| &route.source).collect();
    let sinks = sinks(config);
    let writer = |(name, session): (&Name, &bridge_transport::SessionConfig)| {
        let identity = if sources.contains(name) {
            WriterIdentity::PublisherClientId
        } else {
            WriterIdentity::ClientId
        };
        let (session, clock) = (session.clone(), clock.clone());
        let writer = match permit(name) {
            Some(permit) => Writer::start_with_permit(session, identity, clock, permit),
            None => Writer::start(session, identity, clock),
        };
        (name.clone(), Arc::new(writer))
    };
    let sessions = config.sessions.iter();
    sessions
        .filter(|(name, _)| sinks.contains(name))
        .map(writer)
        .collect()
}

fn dynamic<T, D: ?Sized>(
    sessions: &BTreeMap<Name, Arc<T>>,
    upcast: impl Fn(Arc<T>) -> Arc<D>,
) -> BTreeMap<Name, Arc<D>> {
    let upcast = |(name, session): (&Name, &Arc<T>)| (name.clone(), upcast(session.clone()));
    sessions.iter().map(upcast).collect()
}
