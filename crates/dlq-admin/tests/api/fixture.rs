//! A bridge of one route, `telemetry`, with the bindings `one`, `two` and `three`, and its admin
//! API on a port of its own.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bridge_core::{
    Backoff, Clock, Name, QoS, Sink, Source, Subscription, SystemClock, TopicTemplate,
};
use bridge_dlq_admin::{
    Admin, AdminOptions, Described, LeaseFacts, Observed, SessionFacts, TlsFiles, Token,
    TokenOrigin,
};
use bridge_runtime::{
    BindingSpec, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull, OnExpired,
    OnFull, Overview, Parts, QueueBounds, RetainPolicy, RouteSpec, Runtime, Status,
};
use bridge_testkit::http::{self, Response};
use bridge_testkit::{MemoryStore, SteadySink, wait_for};
use bridge_transport_memory::{MemoryBroker, Options};
use prometheus::Registry;
use prometheus::proto::MetricFamily;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::MakeWriter;

/// What opens the API; it is in no log.
pub(crate) const TOKEN: &str = "swordfish-0123456789abcdef";
/// How long anything may take that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The names of the bindings, and of their sessions.
pub(crate) const BINDINGS: [&str; 3] = ["one", "two", "three"];

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Everything that is logged by all tests of this program, down to the finest.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

static LOG: OnceLock<Log> = OnceLock::new();

fn listen_to_the_log() {
    LOG.get_or_init(|| {
        let log = Log::default();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(log.clone())
            .init();
        log
    });
}

/// What was logged so far.
pub(crate) fn logged() -> String {
    let bytes = LOG.get().unwrap().0.lock().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The lines of the audit log with that text in them.
pub(crate) fn audited(text: &str) -> Vec<String> {
    let lines = logged();
    lines
        .lines()
        .filter(|line| line.contains(" audit: ") && line.contains(text))
        .map(str::to_owned)
        .collect()
}

/// The bridge behind the API.
struct Behind {
    overview: Overview,
    registry: Registry,
    described: Arc<Described>,
    stopping: AtomicBool,
    /// Its next look at the status panics: a defect.
    defect: AtomicBool,
    lease: Option<LeaseFacts>,
}

impl Observed for Behind {
    fn status(&self) -> Option<Status> {
        assert!(!self.defect.load(Ordering::SeqCst), "a defect on purpose");
        (!self.stopping.load(Ordering::SeqCst)).then(|| self.overview.status())
    }
    fn metrics(&self) -> Vec<MetricFamily> {
        self.overview.refresh_metrics();
        self.registry.gather()
    }
    fn described(&self) -> Arc<Described> {
        self.described.clone()
    }
    fn lease(&self) -> Option<LeaseFacts> {
        self.lease.clone()
    }
}

/// What a test wants to be different.
pub(crate) struct Setup {
    pub(crate) token: TokenOrigin,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) lease: Option<LeaseFacts>,
    /// What the topic becomes at the binding `one`.
    pub(crate) topic: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            token: TokenOrigin::Text(Token::parse(TOKEN).unwrap()),
            tls: None,
            lease: None,
            topic: "out/{topic}",
        }
    }
}

/// It all, running.
pub(crate) struct Fixture {
    pub(crate) port: u16,
    pub(crate) sinks: BTreeMap<&'static str, Arc<SteadySink>>,
    broker: MemoryBroker,
    behind: Arc<Behind>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    runtime: Option<Runtime>,
}

fn binding(name_of: &str) -> BindingSpec {
    BindingSpec {
        name: name(name_of),
        sink: name(name_of),
        topic: TopicTemplate::parse("out/{topic}").unwrap(),
        qos: None,
        retain: RetainPolicy::Keep,
        max_in_flight: 50.try_into().unwrap(),
        queue: QueueBounds {
            max_entries: 100_000,
            max_bytes: 1 << 30,
            on_full: OnFull::Backpressure,
        },
        deferral: DeferralSpec {
            window: Duration::from_secs(900),
            retry_interval: Duration::from_secs(120),
            max_entries: 100_000,
            max_bytes: 1 << 30,
        },
        dead_letters: DeadLetterBounds {
            max_entries: 100_000,
            max_bytes: 1 << 30,
            on_full: OnDeadLettersFull::DiscardNewest,
        },
        max_attempts: 5.try_into().unwrap(),
        on_expired: OnExpired::Drop,
    }
}

fn facts(name_of: &str, reads: bool) -> SessionFacts {
    SessionFacts {
        name: name(name_of),
        brokers: vec![format!("mqtt://{name_of}:1883")],
        protocol: "5".to_owned(),
        reads_as: reads.then(|| format!("bridge-{name_of}")),
        writes_as: (!reads).then(|| format!("bridge-{name_of}")),
        mode: "persistent".to_owned(),
    }
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        listen_to_the_log();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let broker = MemoryBroker::new(Options::default(), clock.clone());
        let asked = Subscription {
            filter: "#".parse().unwrap(),
            qos: QoS::AtLeastOnce,
            no_local: false,
        };
        let source: Arc<dyn Source> =
            Arc::new(broker.source(name("plant"), std::slice::from_ref(&asked)));
        let sinks: BTreeMap<_, _> = BINDINGS
            .into_iter()
            .map(|binding| (binding, Arc::new(SteadySink::default())))
            .collect();
        let mut bindings: Vec<_> = BINDINGS.into_iter().map(binding).collect();
        bindings[0].topic = TopicTemplate::parse(setup.topic).unwrap();
        let route = RouteSpec {
            name: name("telemetry"),
            source: name("plant"),
            subscriptions: vec![asked],
            mode: DeliveryMode::StoreAndForward,
            bindings,
        };
        let registry = Registry::new();
        let second = Duration::from_millis(1);
        let dynamic = sinks.iter().map(|(binding, sink)| {
            let sink: Arc<dyn Sink> = sink.clone();
            (name(binding), sink)
        });
        let runtime = Runtime::start(Parts {
            routes: vec![route.clone()],
            sources: BTreeMap::from([(name("plant"), source)]),
            sinks: dynamic.collect(),
            store: Arc::new(MemoryStore::new()),
            clock: clock.clone(),
            registry: registry.clone(),
            backoff: Backoff::try_new(second, 20 * second).unwrap(),
        })
        .unwrap();
        let sessions = BINDINGS.map(|binding| facts(binding, false));
        let behind = Arc::new(Behind {
            overview: runtime.overview(),
            registry,
            described: Arc::new(Described {
                bridge: name("test"),
                version: "0.0.0",
                routes: vec![route],
                sessions: std::iter::once(facts("plant", true))
                    .chain(sessions)
                    .collect(),
            }),
            stopping: AtomicBool::new(false),
            defect: AtomicBool::new(false),
            lease: setup.lease,
        });
        let options = AdminOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: setup.token,
            tls: setup.tls,
        };
        let admin = Admin::bind(&options, clock).await.unwrap();
        let port = admin.address().unwrap().port();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(admin.serve(behind.clone(), runtime.control(), stop.clone()));
        Self {
            port,
            sinks,
            broker,
            behind,
            stop,
            serving,
            runtime: Some(runtime),
        }
    }

    /// The bridge says that it is stopping.
    pub(crate) fn is_stopping(&self) {
        self.behind.stopping.store(true, Ordering::SeqCst);
    }

    /// What is behind the API stops before it says so.
    pub(crate) async fn stop_what_is_behind(&mut self) {
        let runtime = self.runtime.take().unwrap();
        runtime.shutdown(PATIENCE).await.unwrap();
    }

    /// From now on a call meets a defect, or does not any more.
    pub(crate) fn has_a_defect(&self, defect: bool) {
        self.behind.defect.store(defect, Ordering::SeqCst);
    }

    /// Publishes at the source.
    pub(crate) async fn publish(&self, topic: &str, payload: &str) {
        let sink = self.broker.sink(name("publisher"));
        let message = bridge_core::Message::new(topic.parse().unwrap(), payload.to_owned());
        let admitted = sink.publish(message).await.ok().unwrap();
        admitted.await;
    }

    /// Asks without proving anything.
    pub(crate) async fn anonymous(&self, method: &str, path: &str) -> Response {
        http::request(self.port, method, path, &[], "")
            .await
            .unwrap()
    }

    /// Asks with the token.
    pub(crate) async fn ask(&self, method: &str, path: &str) -> Response {
        self.send(method, path, &[], "").await
    }

    /// Asks with the token, more headers and a body.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let bearer = format!("Bearer {TOKEN}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        http::request(self.port, method, path, &all, body)
            .await
            .unwrap()
    }

    /// Asks with the token and a body of JSON.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Response {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, body).await
    }

    /// What a `GET` that goes well answers.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.ask("GET", path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        json(&response)
    }

    /// The view of one binding, once it is as `condition` says.
    pub(crate) async fn binding_until(
        &self,
        binding: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        wait_for(what, PATIENCE, async || {
            let all = self.get("/api/v1/bindings").await;
            let mut items = all["items"].as_array().unwrap().iter();
            let found = items.find(|item| item["binding"] == binding).unwrap();
            condition(found).then(|| found.clone())
        })
        .await
    }

    /// Stops the API, and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
        if let Some(runtime) = self.runtime {
            runtime.shutdown(PATIENCE).await.unwrap();
        }
    }
}

pub(crate) fn json(response: &Response) -> Value {
    let media = response.header("content-type");
    assert_eq!(media, Some("application/json"), "{response:?}");
    serde_json::from_str(&response.body).unwrap()
}

/// The problem that `response` is; it is one, with that status and of that kind.
pub(crate) fn problem(response: &Response, status: u16, kind: &str) -> Value {
    assert_eq!(response.status, status, "{response:?}");
    let media = response.header("content-type");
    assert_eq!(media, Some("application/problem+json"), "{response:?}");
    let problem: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(problem["type"], format!("urn:bridge:problem:{kind}"));
    assert_eq!(problem["status"], status);
    for field in ["title", "detail"] {
        let text = problem[field].as_str().unwrap();
        assert!(!text.is_empty(), "{problem}");
    }
    problem
}
