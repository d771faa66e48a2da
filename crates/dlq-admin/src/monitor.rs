//! The monitor listener: liveness, readiness and metrics, without secrets and without a login.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bridge_core::SourceState;
use bridge_runtime::Status;
use prometheus::{Encoder, TextEncoder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admin::{LeaseFacts, Observed, StartError};
use crate::listener::{Limits, bind, serve};

/// How long a stop waits for the probes under way.
const GRACE: Duration = Duration::from_secs(1);
/// What connections may cost: ten seconds are many times what a probe or a scrape needs, and here
/// nobody has logged in.
const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(5),
    stall: Duration::from_secs(5),
    lifetime: Duration::from_secs(5),
    last_request: Duration::from_secs(5),
};
/// The answer to every other path.
const PATHS: &str = "there are /livez, /readyz and /metrics\n";

/// A bound listener, so that an address in use stops the start before anything else has begun.
#[derive(Debug)]
pub struct Monitor(TcpListener);

impl Monitor {
    /// Binds `address`.
    pub async fn bind(address: SocketAddr) -> Result<Self, StartError> {
        bind(address, "monitor.listen").await.map(Self)
    }

    /// The address that is really listened on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers until `stop` is cancelled, and then until what is under way has ended.
    pub async fn serve(self, observed: Arc<dyn Observed>, stop: CancellationToken) {
        let routes = Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .fallback(|| async { (StatusCode::NOT_FOUND, PATHS) })
            .with_state(observed);
        serve(self.0, None, routes, LIMITS, stop, GRACE).await;
    }
}

/// How much has to be well for "ready".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// The service runs.
    Live,
    /// Every source is connected.
    Connected,
    /// Every source has granted its subscriptions.
    Subscribed,
    /// Every destination is connected as well, and no queue is blocked.
    Full,
}

impl Level {
    /// The level of `?level=…`; without one, what a service needs to do its work: a destination
    /// that is away is what the queue is for.
    fn of(query: Option<&str>) -> Result<Self, String> {
        let mut level = Self::Subscribed;
        for pair in query
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty())
        {
            level = match pair {
                "level=live" => Self::Live,
                "level=connected" => Self::Connected,
                "level=subscribed" => Self::Subscribed,
                "level=full" => Self::Full,
                _ => {
                    return Err(
                        "unknown query: use ?level=live, connected, subscribed or full\n".into(),
                    );
                }
            };
        }
        Ok(level)
    }
}

/// What keeps `status` from `level`, a line each; empty when it is ready.
fn missing(status: &Status, level: Level) -> String {
    let mut lines = String::new();
    // Writing into a String cannot fail.
    if level >= Level::Connected {
        for (session, state) in &status.sources {
            if *state == SourceState::Down {
                let _ = writeln!(lines, "session {session}: source not connected");
            } else if level >= Level::Subscribed && *state == SourceState::Connected {
                let _ = writeln!(lines, "session {session}: source not subscribed");
            }
        }
    }
    if level >= Level::Subscribed {
        for (route, filters) in &status.refused {
            for filter in filters {
                let _ = writeln!(
                    lines,
                    "route {route}: degraded, the broker refuses its topic filter {filter}"
                );
            }
        }
    }
    if level >= Level::Full {
        for (session, connected) in &status.sinks {
            if !connected {
                let _ = writeln!(lines, "session {session}: destination not connected");
            }
        }
        for binding in status.bindings.iter().filter(|binding| binding.blocked) {
            let depth = binding.usage.queue.entries;
            let _ = writeln!(lines, "binding {}: blocked, {depth} queued", binding.key);
        }
    }
    lines
}

/// Whether that is ready, and the answer.
fn told(missing: &str, role: Option<&str>) -> (bool, String) {
    let ready = missing.is_empty();
    let mut text = if ready { "ready\n" } else { missing }.to_owned();
    if let Some(role) = role {
        let _ = writeln!(text, "role: {role}");
    }
    (ready, text)
}

async fn readyz(State(observed): State<Arc<dyn Observed>>, RawQuery(query): RawQuery) -> Response {
    let level = match Level::of(query.as_deref()) {
        Ok(level) => level,
        Err(problem) => return (StatusCode::BAD_REQUEST, problem).into_response(),
    };
    let Some(status) = observed.status() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    };
    let role = observed.lease().as_ref().map(LeaseFacts::role);
    let (ready, text) = told(&missing(&status, level), role);
    let code = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, text).into_response()
}

async fn metrics(State(observed): State<Arc<dyn Observed>>) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&observed.metrics(), &mut text) {
        Ok(()) => (
            [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
            text,
        )
            .into_response(),
        Err(failure) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot encode the metrics: {failure}\n"),
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bridge_core::{Name, TopicFilter};

    use super::*;

    fn status(source: SourceState, sink: bool) -> Status {
        Status {
            sources: BTreeMap::from([(Name::parse("plant").unwrap(), source)]),
            refused: BTreeMap::new(),
            sinks: BTreeMap::from([(Name::parse("cloud").unwrap(), sink)]),
            bindings: Vec::new(),
        }
    }

    #[test]
    fn readiness_has_levels() {
        use SourceState::{Connected, Down, Subscribed};
        for (source, sink, ready) in [
            (Down, false, [true, false, false, false]),
            (Connected, false, [true, true, false, false]),
            (Subscribed, false, [true, true, true, false]),
            (Subscribed, true, [true, true, true, true]),
        ] {
            for (level, expected) in ["live", "connected", "subscribed", "full"]
                .into_iter()
                .zip(ready)
            {
                let level = Level::of(Some(&format!("level={level}"))).unwrap();
                let missing = missing(&status(source, sink), level);
                assert_eq!(missing.is_empty(), expected, "{source:?} {sink} {level:?}");
            }
        }
    }

    #[test]
    fn case_20_a_route_whose_filter_is_refused_says_so() {
        let mut status = status(SourceState::Connected, true);
        let filters = ["a/#", "b"].map(|filter| TopicFilter::parse(filter).unwrap());
        let route = Name::parse("telemetry").unwrap();
        status.refused.insert(route, filters.to_vec());
        assert_eq!(
            missing(&status, Level::Subscribed),
            "session plant: source not subscribed\n\
             route telemetry: degraded, the broker refuses its topic filter a/#\n\
             route telemetry: degraded, the broker refuses its topic filter b\n"
        );
        assert_eq!(missing(&status, Level::Connected), "");
    }

    #[test]
    fn the_role_is_told_where_there_is_one_ready_or_not() {
        assert_eq!(told("", None), (true, "ready\n".to_owned()));
        assert_eq!(
            told("", Some("standby")),
            (true, "ready\nrole: standby\n".to_owned())
        );
        let (ready, text) = told("session plant: source not connected\n", Some("active"));
        assert!(!ready);
        assert_eq!(text, "session plant: source not connected\nrole: active\n");
    }

    #[test]
    fn a_query_is_understood_or_refused() {
        assert_eq!(Level::of(None), Ok(Level::Subscribed));
        assert_eq!(Level::of(Some("")), Ok(Level::Subscribed));
        assert!(Level::of(Some("level=fine")).is_err());
        assert!(Level::of(Some("lvl=full")).is_err());
    }
}
