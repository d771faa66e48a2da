//! How the bridge goes: itself, its sessions, its routes and its bindings.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use bridge_core::{Name, QoS, Quantity, ReasonCode, SourceState};
use bridge_runtime::{BindingSpec, BindingStatus, DeliveryMode, Status};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::{App, LeaseFacts};
use crate::auth::Who;
use crate::problem::{Problem, ProblemDetails};
use crate::rates::{Counts, PerSecond};
use crate::request::{Json, Query};

/// The bridge as a whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BridgeView {
    /// Its name.
    id: String,
    /// The version of the program.
    version: String,
    /// The time of the machine.
    #[schema(format = DateTime)]
    now: String,
    /// `active` or `standby`; absent where no session is exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// The instance that holds the lease of the exclusive sessions, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_holder: Option<String>,
    /// The number of its tenure, greater for each of any instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_token: Option<u64>,
    sessions: usize,
    /// Those of them with a connection that is not there.
    sessions_down: usize,
    routes: usize,
    bindings: usize,
    /// Those of them whose queue does not move.
    blocked: usize,
    queued: u64,
    deferred: u64,
    dead_letters: u64,
}

/// One session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    name: String,
    /// The URLs of its brokers, without anything secret.
    brokers: Vec<String>,
    /// The version of MQTT.
    protocol: String,
    /// What the broker keeps while we are away: `ephemeral` or `persistent`.
    mode: String,
    /// The connection that reads; absent where nothing is read, and of an exclusive session on
    /// standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Connection>,
    /// The connection that writes; absent where nothing is written, and of an exclusive session
    /// on standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<Connection>,
}

/// One connection of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Connection {
    client_id: String,
    /// `down`, `connected`, or for a source `subscribed`.
    state: &'static str,
}

/// One route.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RouteView {
    name: String,
    /// The session that it reads from.
    session: String,
    /// What it takes.
    topics: Vec<String>,
    /// Those of them that the broker refuses.
    refused_topics: Vec<String>,
    /// `store_and_forward`, `outbox` or `direct_hold`.
    delivery: &'static str,
    /// The names of its bindings.
    bindings: Vec<String>,
}

/// One binding.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BindingView {
    route: String,
    binding: String,
    /// The session that it publishes to.
    session: String,
    /// What the topic becomes.
    topic: String,
    /// The QoS that it publishes with; absent where the message's own is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    qos: Option<u8>,
    /// `live`, `replaying`, `blocked`, `link_down`, `recalling` or `paused`.
    state: &'static str,
    /// Whether an operator has paused it.
    paused: bool,
    /// Whether the head of the queue could not be published at the latest attempt.
    blocked: bool,
    /// Why nothing moves; absent while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What the head of the queue is refused with; absent while it is not, and where its latest
    /// attempt had no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<HeadView>,
    queue: Waiting,
    deferred: Waiting,
    dead_letters: Waiting,
    /// How long the head of the queue has waited.
    oldest_seconds: u64,
    /// Messages that are under way, or have not settled.
    in_progress: u64,
    /// Messages that were given up on and are held until they can be kept as dead letters.
    held_dead_letters: u64,
    /// Messages per second over the last ten seconds or so; absent in the first seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
    /// Messages since the start; absent in the first moments.
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
}

/// The refusals of the head of a queue, each of which was for now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeadView {
    /// The reason of the latest one.
    #[schema(example = "quota_exceeded")]
    reason: String,
    /// Its MQTT 5 reason code, if a broker gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    /// What the broker said to it, the first 200 characters of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_string: Option<String>,
    /// When the first one was.
    #[schema(format = DateTime)]
    since: String,
    /// When the latest one was.
    #[schema(format = DateTime)]
    latest: String,
    /// How many there were in a row.
    times: u32,
    /// When it is offered again; absent while it is.
    #[schema(format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<String>,
}

/// What waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waiting {
    entries: u64,
    bytes: u64,
}

/// Messages per second.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rates {
    received: f64,
    delivered: f64,
    /// Those of the delivered that came from the queue.
    replayed: f64,
    dead_lettered: f64,
    dropped: f64,
}

/// Messages since the start.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Totals {
    received: u64,
    delivered: u64,
    /// Those of the delivered that came from the queue.
    replayed: u64,
    dead_lettered: u64,
    dropped: u64,
}

/// A list, whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    items: Vec<T>,
}

impl<T> List<T> {
    pub(crate) const fn of(items: Vec<T>) -> Self {
        Self { items }
    }
}

/// The bridge as a whole.
#[utoipa::path(
    get, path = "/api/v1/bridge", tag = "state", operation_id = "bridge",
    responses(
        (status = 200, description = "How it goes", body = BridgeView),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn bridge(
    State(app): State<Arc<App>>,
    _: Who,
    query: Query,
) -> Result<Json<BridgeView>, Problem> {
    query.end()?;
    let (described, status) = (app.observed.described(), status(&app)?);
    let bindings = status.bindings.iter();
    let sum = |pick: fn(&BindingStatus) -> u64| bindings.clone().map(pick).sum();
    let down = |name: &Name| {
        status.sources.get(name) == Some(&SourceState::Down)
            || status.sinks.get(name) == Some(&false)
    };
    let lease = app.observed.lease();
    let role = |lease: &LeaseFacts| if lease.active { "active" } else { "standby" };
    let holder = lease.as_ref().and_then(|lease| lease.holder.as_ref());
    Ok(Json(BridgeView {
        id: described.bridge.to_string(),
        version: described.version.to_owned(),
        now: app.clock.wall().to_string(),
        role: lease.as_ref().map(role),
        lease_holder: holder.map(|holder| holder.owner.clone()),
        lease_token: holder.map(|holder| holder.token),
        sessions: described.sessions.len(),
        sessions_down: described.sessions.iter().filter(|s| down(&s.name)).count(),
        routes: described.routes.len(),
        bindings: status.bindings.len(),
        blocked: bindings.clone().filter(|binding| binding.blocked).count(),
        queued: sum(|binding| binding.usage.queue.entries),
        deferred: sum(|binding| binding.usage.deferred.entries),
        dead_letters: sum(|binding| binding.usage.dead_letters.entries),
    }))
}

/// Every session with its connections.
#[utoipa::path(
    get, path = "/api/v1/sessions", tag = "state", operation_id = "sessions",
    responses(
        (status = 200, description = "Every session", body = List<SessionView>),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn sessions(
    State(app): State<Arc<App>>,
    _: Who,
    query: Query,
) -> Result<Json<List<SessionView>>, Problem> {
    query.end()?;
    let (described, status) = (app.observed.described(), status(&app)?);
    let connection = |client_id: &Option<String>, state: Option<&'static str>| {
        Some(Connection {
            client_id: client_id.clone()?,
            state: state?,
        })
    };
    let sessions = described.sessions.iter().map(|session| {
        let source = status.sources.get(&session.name).map(|state| match state {
            SourceState::Down => "down",
            SourceState::Connected => "connected",
            SourceState::Subscribed => "subscribed",
        });
        let sink = status.sinks.get(&session.name);
        let sink = sink.map(|up| if *up { "connected" } else { "down" });
        SessionView {
            name: session.name.to_string(),
            brokers: session.brokers.clone(),
            protocol: session.protocol.clone(),
            mode: session.mode.clone(),
            source: connection(&session.reads_as, source),
            destination: connection(&session.writes_as, sink),
        }
    });
    let items = sessions.collect();
    Ok(Json(List { items }))
}

/// Every route with what it takes.
#[utoipa::path(
    get, path = "/api/v1/routes", tag = "state", operation_id = "routes",
    responses(
        (status = 200, description = "Every route", body = List<RouteView>),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn routes(
    State(app): State<Arc<App>>,
    _: Who,
    query: Query,
) -> Result<Json<List<RouteView>>, Problem> {
    query.end()?;
    let (described, status) = (app.observed.described(), status(&app)?);
    let routes = described.routes.iter().map(|route| {
        let refused = status
            .refused
            .get(&route.name)
            .map_or(&[][..], Vec::as_slice);
        let asked = route.subscriptions.iter();
        RouteView {
            name: route.name.to_string(),
            session: route.source.to_string(),
            topics: asked.map(|asked| asked.filter.to_string()).collect(),
            refused_topics: refused.iter().map(ToString::to_string).collect(),
            delivery: match route.mode {
                DeliveryMode::StoreAndForward => "store_and_forward",
                DeliveryMode::Outbox => "outbox",
                DeliveryMode::DirectHold { .. } => "direct_hold",
            },
            bindings: route.bindings.iter().map(|b| b.name.to_string()).collect(),
        }
    });
    let items = routes.collect();
    Ok(Json(List { items }))
}

/// Every binding: depth, age, whether it is blocked and why, dead letters, rates.
#[utoipa::path(
    get, path = "/api/v1/bindings", tag = "state", operation_id = "bindings",
    responses(
        (status = 200, description = "Every binding", body = List<BindingView>),
        (status = "default", description = "Why not", body = ProblemDetails,
         content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn bindings(
    State(app): State<Arc<App>>,
    _: Who,
    query: Query,
) -> Result<Json<List<BindingView>>, Problem> {
    query.end()?;
    let (described, status) = (app.observed.described(), status(&app)?);
    let specs = described.routes.iter().flat_map(|route| {
        let bindings = route.bindings.iter();
        bindings.map(move |binding| (&route.name, binding))
    });
    let views = specs.filter_map(|(route, spec)| {
        let mut bindings = status.bindings.iter();
        let found = bindings.find(|b| b.key.route == *route && b.key.binding == spec.name)?;
        Some(view(&app, spec, found, &status))
    });
    let items = views.collect();
    Ok(Json(List { items }))
}

fn status(app: &App) -> Result<Status, Problem> {
    app.observed.status().ok_or_else(Problem::stopping)
}

fn view(app: &App, spec: &BindingSpec, binding: &BindingStatus, status: &Status) -> BindingView {
    let (rate, totals) = {
        let rates = app.rates();
        (rates.of(&binding.key), rates.totals(&binding.key))
    };
    let oldest = binding.usage.oldest_age(app.clock.wall());
    BindingView {
        route: binding.key.route.to_string(),
        binding: binding.key.binding.to_string(),
        session: spec.sink.to_string(),
        topic: spec.topic.as_str().to_owned(),
        qos: spec.qos.map(|qos: QoS| qos as u8),
        state: binding.state,
        paused: binding.paused,
        blocked: binding.blocked,
        why: why(spec, binding, status),
        head: head(binding),
        queue: (&binding.usage.queue).into(),
        deferred: (&binding.usage.deferred).into(),
        dead_letters: (&binding.usage.dead_letters).into(),
        oldest_seconds: oldest.as_secs(),
        in_progress: binding.open,
        held_dead_letters: binding.unburied,
        rates: rate.map(Into::into),
        totals: totals.map(Into::into),
    }
}

/// Why nothing moves, in words for the person who asks.
fn why(spec: &BindingSpec, binding: &BindingStatus, status: &Status) -> Option<String> {
    if binding.paused {
        return Some("an operator has paused it".to_owned());
    }
    if status.sinks.get(&spec.sink) == Some(&false) {
        return Some(format!("the session {} is not connected", spec.sink));
    }
    if binding.unburied > 0 {
        let held = binding.unburied;
        return Some(format!(
            "{held} messages cannot be kept as dead letters: they are full, or the store fails"
        ));
    }
    if let Some(head) = head(binding) {
        return Some(head.to_string());
    }
    binding.blocked.then(|| {
        "the head of the queue had no answer at the latest attempt; it is offered again".to_owned()
    })
}

fn head(binding: &BindingStatus) -> Option<HeadView> {
    let held = binding.held.as_deref()?;
    let waits = binding.state == "blocked";
    Some(HeadView {
        reason: held.reason.to_string(),
        code: held.reason.code().map(ReasonCode::get),
        reason_string: held.reason_string.clone(),
        since: held.since.to_string(),
        latest: held.latest.to_string(),
        times: held.times,
        next_attempt: waits.then(|| held.next_attempt.to_string()),
    })
}

impl fmt::Display for HeadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the head of the queue is not taken: {}", self.reason)?;
        if let Some(code) = self.code {
            write!(f, " (0x{code:02x})")?;
        }
        if let Some(said) = &self.reason_string {
            write!(f, ", “{said}”")?;
        }
        match self.times {
            1 => f.write_str(", once")?,
            times => write!(f, ", {times} times")?,
        }
        write!(f, " since {}", self.since)?;
        match &self.next_attempt {
            Some(next) => write!(f, "; offered again at {next}"),
            None => f.write_str("; offered again now"),
        }
    }
}

impl From<&Quantity> for Waiting {
    fn from(quantity: &Quantity) -> Self {
        Self {
            entries: quantity.entries,
            bytes: quantity.bytes,
        }
    }
}

impl From<PerSecond> for Rates {
    fn from(rate: PerSecond) -> Self {
        Self {
            received: rate.received,
            delivered: rate.delivered,
            replayed: rate.replayed,
            dead_lettered: rate.dead_lettered,
            dropped: rate.dropped,
        }
    }
}

impl From<Counts> for Totals {
    fn from(counts: Counts) -> Self {
        Self {
            received: counts.received,
            delivered: counts.delivered,
            replayed: counts.replayed,
            dead_lettered: counts.dead_lettered,
            dropped: counts.dropped,
        }
    }
}
