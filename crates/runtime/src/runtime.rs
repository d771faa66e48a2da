//! The whole of it running: routes between their sources and sinks, until told to stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Backoff, BindingKey, Clock, Name, Sink, Source, SourceState, Store, StoreError, TopicFilter,
    Usage,
};
use futures_util::future::join_all;
use prometheus::Registry;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::control::Shared;
use crate::intake::{Intake, Router, Stop, UNSETTLED_KIB, subscriptions_of};
use crate::lane::Lane;
use crate::metrics::Metrics;
use crate::session::Session;
use crate::worker::{self, Context};
use crate::{Control, HeadHeld, RouteSpec};

/// How long a stop waits for the store to make durable what it has.
const FLUSH: Duration = Duration::from_secs(10);
/// How long calls may take to say so when time is up.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// How much of the time for a stop sources may take that are to be emptied; the rest is for what
/// was taken last to settle.
const INTAKE_SHARE: f64 = 0.75;

/// What a runtime is made of.
#[derive(Debug)]
pub struct Parts {
    /// The routes; every session that they name is in `sources` or `sinks`.
    pub routes: Vec<RouteSpec>,
    /// The sessions that are read from, subscribed with [`crate::subscriptions_of`] their routes.
    pub sources: BTreeMap<Name, Arc<dyn Source>>,
    /// The sessions that are written to.
    pub sinks: BTreeMap<Name, Arc<dyn Sink>>,
    /// Where messages wait.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where the metrics are registered.
    pub registry: Registry,
    /// Delays before what was refused for now, or could not be stored, is tried again.
    pub backoff: Backoff,
}

/// Why a runtime does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A route names a session that is not there.
    #[error("route {route} names the session {session}, which is not there")]
    NoSuchSession {
        /// The route.
        route: Name,
        /// The session.
        session: Name,
    },
    /// The registry has metrics of these names already.
    #[error("cannot register the metrics")]
    Metrics(#[from] prometheus::Error),
}

/// What no part of a runtime does by design.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A source that was not closed has ended.
    #[error("the session {session} ended by itself and delivers nothing any more")]
    SourceEnded {
        /// The session.
        session: Name,
    },
    /// A task has panicked.
    #[error("a task of a route failed")]
    Task(#[source] tokio::task::JoinError),
}

/// A look at running routes; it stays good while they stop.
#[derive(Debug, Clone)]
pub struct Overview {
    sources: BTreeMap<Name, (Arc<dyn Source>, Arc<Semaphore>)>,
    sinks: BTreeMap<Name, Arc<dyn Sink>>,
    /// Name, source and filters of each route.
    routes: Vec<(Name, Name, Vec<TopicFilter>)>,
    lanes: Vec<Arc<Lane>>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

/// Running routes.
#[derive(Debug)]
pub struct Runtime {
    overview: Overview,
    control: Arc<Shared>,
    intakes: JoinSet<Name>,
    workers: JoinSet<()>,
    puts: TaskTracker,
    stop_intake: Stop,
    stop_workers: CancellationToken,
}

/// How it goes, for health checks and the API.
#[derive(Debug, Clone)]
pub struct Status {
    /// The sessions that are read from.
    pub sources: BTreeMap<Name, SourceState>,
    /// The filters of each route that its source does not grant, where there are any: that route
    /// is degraded, and the others of the same session run.
    pub refused: BTreeMap<Name, Vec<TopicFilter>>,
    /// Whether each session that is written to is connected.
    pub sinks: BTreeMap<Name, bool>,
    /// Every binding.
    pub bindings: Vec<BindingStatus>,
}

/// How one binding stands.
#[derive(Debug, Clone)]
pub struct BindingStatus {
    /// Which one.
    pub key: BindingKey,
    /// `live`, `replaying`, `blocked`, `link_down`, `recalling` or `paused`.
    pub state: &'static str,
    /// Whether the head of its queue could not be published at the latest attempt (I12).
    pub blocked: bool,
    /// Why, if the latest attempt ended with a refusal.
    pub held: Option<Arc<HeadHeld>>,
    /// What waits.
    pub usage: Usage,
    /// Messages that are under way, or have not settled.
    pub open: u64,
    /// Messages that were given up on and are held until they can be kept as dead letters.
    pub unburied: u64,
    /// Whether an operator has paused it: what is under way still settles, and then nothing is
    /// sent until it is resumed or the bridge starts anew.
    pub paused: bool,
}

/// How a runtime ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Messages that were under way or had not settled when time was up; they are still at their
    /// sources, or in the store where they came from the queue.
    pub unsettled: u64,
}

impl Overview {
    /// How it goes now.
    pub fn status(&self) -> Status {
        let sources = self.sources.iter();
        let sinks = self.sinks.iter();
        let bindings = self.lanes.iter().map(|lane| {
            let usage = self.store.usage(&lane.key);
            let standing = lane.standing();
            let blocked = usage.queue.entries > 0
                && (standing.head_failed || standing.phase.holds_the_head());
            BindingStatus {
                key: lane.key.clone(),
                state: standing.phase.as_str(),
                blocked,
                held: standing.held.filter(|_| blocked),
                usage,
                open: standing.open,
                unburied: standing.unburied,
                paused: standing.paused,
            }
        });
        Status {
            sources: sources
                .map(|(name, (source, _))| (name.clone(), source.state()))
                .collect(),
            refused: self.refused(),
            sinks: sinks
                .map(|(name, sink)| (name.clone(), sink.link().is_up()))
                .collect(),
            bindings: bindings.collect(),
        }
    }

    /// A filter that is asked for may stand for narrower ones of several routes.
    fn refused(&self) -> BTreeMap<Name, Vec<TopicFilter>> {
        let sources = self.sources.iter();
        let by_source: BTreeMap<&Name, Vec<TopicFilter>> = sources
            .map(|(name, (source, _))| (name, source.refused()))
            .collect();
        let routes = self.routes.iter().filter_map(|(route, source, filters)| {
            let refused = by_source.get(source)?;
            let of_this = filters.iter().filter(|filter| {
                refused.iter().any(|refused| {
                    refused.share_group() == filter.share_group() && refused.covers(filter)
                })
            });
            let of_this: Vec<_> = of_this.cloned().collect();
            (!of_this.is_empty()).then(|| (route.clone(), of_this))
        });
        routes.collect()
    }

    /// Brings the gauges up to date; to be called before the metrics are read.
    pub fn refresh_metrics(&self) {
        let now = self.clock.wall();
        for (lane, status) in self.lanes.iter().zip(self.status().bindings) {
            let age = status.usage.oldest_age(now).as_secs();
            lane.metrics
                .set_usage(&status.usage, age, status.blocked, &lane.standing());
        }
        for (session, (_, unsettled)) in &self.sources {
            let held =
                u64::from(UNSETTLED_KIB).saturating_sub(unsettled.available_permits() as u64);
            self.metrics.set_unsettled(session, held * 1024);
        }
    }
}

impl Runtime {
    /// Starts a task for each source session and for each binding.
    pub fn start(parts: Parts) -> Result<Self, StartError> {
        let metrics = Metrics::register(&parts.registry)?;
        let puts = TaskTracker::new();
        let (stop_intake, stop_workers) = (Stop::default(), CancellationToken::new());
        let mut workers = JoinSet::new();
        let mut shared: BTreeMap<&Name, Arc<Session>> = BTreeMap::new();
        let mut lanes: BTreeMap<Name, Vec<Arc<Lane>>> = BTreeMap::new();
        for route in &parts.routes {
            for spec in &route.bindings {
                let sink = parts
                    .sinks
                    .get(&spec.sink)
                    .ok_or(StartError::NoSuchSession {
                        route: route.name.clone(),
                        session: spec.sink.clone(),
                    })?;
                let key = BindingKey::new(route.name.clone(), spec.name.clone());
                let lane = Arc::new(Lane::new(
                    key.clone(),
                    spec.clone(),
                    route.mode,
                    metrics.binding(&key),
                    parts.store.clone(),
                    puts.clone(),
                ));
                lanes
                    .entry(route.name.clone())
                    .or_default()
                    .push(lane.clone());
                let session = shared.entry(&spec.sink).or_default();
                let share = session.join(&lane);
                let context = Context {
                    sink: sink.clone(),
                    clock: parts.clock.clone(),
                    backoff: parts.backoff,
                    shares_source: bindings_of(&parts.routes, &route.source) > 1,
                    stopping: stop_workers.clone(),
                };
                workers.spawn(worker::run(lane, share, context));
            }
        }
        let mut by_source: BTreeMap<&Name, Vec<&RouteSpec>> = BTreeMap::new();
        for route in &parts.routes {
            by_source.entry(&route.source).or_default().push(route);
        }
        let mut intakes = JoinSet::new();
        let mut sources = BTreeMap::new();
        for (session, routes) in by_source {
            let missing = || StartError::NoSuchSession {
                route: routes
                    .first()
                    .map_or_else(|| session.clone(), |route| route.name.clone()),
                session: session.clone(),
            };
            let source = parts.sources.get(session).ok_or_else(missing)?;
            for asked in subscriptions_of(routes.iter().copied()) {
                source.mark_subscription_owned(&asked.filter, asked.filter.share_group());
            }
            let unsettled = Arc::new(Semaphore::new(UNSETTLED_KIB as usize));
            let intake = Intake {
                session: session.clone(),
                source: source.clone(),
                router: Router::new(routes.iter().copied(), &lanes),
                clock: parts.clock.clone(),
                metrics: metrics.source(session),
                unsettled: unsettled.clone(),
            };
            intakes.spawn(intake.run(stop_intake.clone()));
            sources.insert(session.clone(), (source.clone(), unsettled));
        }
        let (control, serving) = Shared::new(
            &parts.routes,
            &lanes,
            parts.store.clone(),
            parts.clock.clone(),
            metrics.clone(),
            true,
        );
        workers.spawn(serving);
        Ok(Self {
            control,
            overview: Overview {
                sources,
                sinks: parts.sinks,
                routes: parts.routes.iter().map(route_filters).collect(),
                lanes: lanes.into_values().flatten().collect(),
                store: parts.store,
                clock: parts.clock,
                metrics,
            },
            intakes,
            workers,
            puts,
            stop_intake,
            stop_workers,
        })
    }

    /// The operator's hands on it.
    pub fn control(&self) -> Control {
        Control::of(&self.control)
    }

    /// A look at it.
    pub fn overview(&self) -> Overview {
        self.overview.clone()
    }

    /// Ends when a task of the runtime has failed, which no task does by design.
    pub async fn failed(&mut self) -> Failure {
        loop {
            tokio::select! {
                Some(ended) = self.intakes.join_next() => return match ended {
                    Ok(session) => Failure::SourceEnded { session },
                    Err(failure) => Failure::Task(failure),
                },
                Some(ended) = self.workers.join_next() => if let Err(failure) = ended {
                    return Failure::Task(failure);
                },
                else => std::future::pending().await,
            }
        }
    }

    /// Stops: no more intake, but of what its source would lose; what is under way settles, at most
    /// for `drain`; what is stored is made durable; the sessions say goodbye. What has not settled
    /// stays with its source, if that keeps it.
    pub async fn shutdown(mut self, drain: Duration) -> Result<Stopped, StoreError> {
        info!(
            event = "stopping",
            "no more messages are taken in; what is under way settles"
        );
        let deadline = Instant::now() + drain;
        self.control.stop();
        self.end_intakes(drain.mul_f64(INTAKE_SHARE)).await;
        self.stop_workers.cancel();
        for lane in &self.overview.lanes {
            lane.wake.notify_one();
        }
        let settled = tokio::time::timeout_at(deadline, async {
            while let Some(ended) = self.workers.join_next().await {
                if let Err(failure) = ended {
                    error!(event = "worker_failed", error = %failure);
                }
            }
            self.control.stopped().await;
        });
        let mut unsettled = 0;
        if settled.await.is_err() {
            unsettled = self
                .overview
                .lanes
                .iter()
                .map(|lane| lane.standing().open)
                .sum();
            warn!(
                event = "drain_timeout",
                unsettled,
                "some messages did not settle in time; their sources keep them, but for sessions \
                 that are not kept themselves"
            );
            self.workers.shutdown().await;
            self.control.give_up();
            // None waits for anything now, but for a disk that is being read and does not answer.
            let _ = tokio::time::timeout(LAST_CALLS, self.control.stopped()).await;
        }
        // A disk that does not answer is not waited for: what it has not got is with the sources.
        let flush = tokio::time::timeout(FLUSH, self.overview.store.flush());
        let flushed = flush
            .await
            .unwrap_or(Err(StoreError::Unanswered { after: FLUSH }));
        self.puts.close();
        // Puts that the store has not answered by now are answered by its end.
        let _ = tokio::time::timeout(FLUSH, self.puts.wait()).await;
        join_all(self.overview.sinks.values().map(|sink| sink.close())).await;
        let sources = self.overview.sources.values();
        join_all(sources.map(|(source, _)| source.close())).await;
        flushed.map(|()| Stopped { unsettled })
    }

    /// The workers go on meanwhile: a source that is emptied waits until all of it has settled.
    async fn end_intakes(&mut self, patience: Duration) {
        self.stop_intake.begun.cancel();
        let all = async |intakes: &mut JoinSet<Name>| {
            while let Some(ended) = intakes.join_next().await {
                if let Err(failure) = ended {
                    error!(event = "intake_failed", error = %failure);
                }
            }
        };
        if tokio::time::timeout(patience, all(&mut self.intakes))
            .await
            .is_err()
        {
            self.stop_intake.time_is_up.cancel();
            all(&mut self.intakes).await;
        }
    }
}

fn route_filters(route: &RouteSpec) -> (Name, Name, Vec<TopicFilter>) {
    let filters = route.subscriptions.iter();
    let filters = filters.map(|subscription| subscription.filter.clone());
    (route.name.clone(), route.source.clone(), filters.collect())
}

/// How many bindings take what the session `source` receives.
fn bindings_of(routes: &[RouteSpec], source: &Name) -> usize {
    let routes = routes.iter().filter(|route| route.source == *source);
    routes.map(|route| route.bindings.len()).sum()
}
