//! A runtime between a source and sinks that do what a test says, over a real journal.

mod sink;
mod source;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Backoff, BindingKey, Clock, Name, QoS, ReadLimit, Seated, Sink, Source, Store, Subscription,
    SystemClock, TopicFilter, TopicTemplate, View,
};
use bridge_runtime::{
    BindingSpec, BindingStatus, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull,
    OnExpired, OnFull, Parts, QueueBounds, RetainPolicy, RouteSpec, Runtime,
};
use prometheus::Registry;

pub(crate) use self::sink::{Reply, TestSink};
pub(crate) use self::source::TestSource;
pub(crate) use self::store::SwitchedStore;

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn key(binding: &str) -> BindingKey {
    BindingKey::new(name("route"), name(binding))
}

/// How long anything may take that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long a stop waits for what has not settled, and how long one takes at most that waits
/// for nothing.
const DRAIN: Duration = Duration::from_secs(60);
pub(crate) const NOT_WAITED: Duration = Duration::from_secs(30);

pub(crate) async fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    bridge_testkit::wait_until(what, PATIENCE, condition).await;
}

/// A route named `route` from `#` to one binding per sink.
pub(crate) struct Fixture {
    pub(crate) source: Arc<TestSource>,
    pub(crate) sinks: Vec<Arc<TestSink>>,
    pub(crate) store: Arc<SwitchedStore>,
    pub(crate) registry: Registry,
    pub(crate) runtime: Runtime,
    pub(crate) data: tempfile::TempDir,
}

/// What a test says of its route.
pub(crate) struct Setup {
    mode: DeliveryMode,
    bindings: usize,
    adjust: Box<dyn Fn(&mut BindingSpec)>,
    data: Option<tempfile::TempDir>,
    clock: Arc<dyn Clock>,
}

impl Setup {
    pub(crate) fn new(mode: DeliveryMode) -> Self {
        Self {
            mode,
            bindings: 1,
            adjust: Box::new(|_| {}),
            data: None,
            clock: Arc::new(SystemClock::new()),
        }
    }

    pub(crate) fn bindings(mut self, count: usize) -> Self {
        self.bindings = count;
        self
    }

    pub(crate) fn queue(self, max_entries: u64, on_full: OnFull) -> Self {
        self.adjust(move |spec| {
            spec.queue.max_entries = max_entries;
            spec.queue.on_full = on_full;
        })
    }

    pub(crate) fn adjust(mut self, adjust: impl Fn(&mut BindingSpec) + 'static) -> Self {
        self.adjust = Box::new(adjust);
        self
    }

    /// Goes by a clock that the test moves.
    pub(crate) fn clock<C: Clock + 'static>(mut self, clock: &Arc<C>) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Goes on with the data of an earlier run.
    pub(crate) fn data(mut self, data: tempfile::TempDir) -> Self {
        self.data = Some(data);
        self
    }

    /// What the fixture would do.
    pub(crate) fn route(&self) -> RouteSpec {
        let bindings = (0..self.bindings).map(|n| {
            let mut spec = BindingSpec {
                name: name(&format!("b{n}")),
                sink: name(&format!("b{n}")),
                topic: TopicTemplate::parse("{topic}").unwrap(),
                qos: None,
                retain: RetainPolicy::Keep,
                max_in_flight: 50.try_into().unwrap(),
                queue: QueueBounds {
                    max_entries: 1_000_000,
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
            };
            (self.adjust)(&mut spec);
            spec
        });
        RouteSpec {
            name: name("route"),
            source: name("source"),
            subscriptions: vec![Subscription {
                filter: TopicFilter::parse("#").unwrap(),
                qos: QoS::AtLeastOnce,
                no_local: false,
            }],
            mode: self.mode,
            bindings: bindings.collect(),
        }
    }

    pub(crate) fn start(self) -> Fixture {
        let route = self.route();
        let data = self.data.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let store = Arc::new(store::open(data.path()));
        let source = Arc::new(TestSource::new(self.clock.clone()));
        let sinks: Vec<_> = (0..self.bindings)
            .map(|_| Arc::new(TestSink::new()))
            .collect();
        let registry = Registry::new();
        let as_sink = |(n, sink): (usize, &Arc<TestSink>)| {
            (name(&format!("b{n}")), sink.clone() as Arc<dyn Sink>)
        };
        let runtime = Runtime::start(Parts {
            routes: vec![route],
            sources: BTreeMap::from([(name("source"), source.clone() as Arc<dyn Source>)]),
            sinks: sinks.iter().enumerate().map(as_sink).collect(),
            store: store.clone(),
            clock: self.clock,
            registry: registry.clone(),
            backoff: Backoff::try_new(Duration::from_millis(20), Duration::from_millis(40))
                .unwrap(),
        })
        .unwrap();
        Fixture {
            source,
            sinks,
            store,
            registry,
            runtime,
            data,
        }
    }
}

impl Fixture {
    pub(crate) fn sink(&self) -> &TestSink {
        &self.sinks[0]
    }

    pub(crate) fn binding(&self, n: usize) -> BindingStatus {
        self.runtime.overview().status().bindings[n].clone()
    }

    pub(crate) fn depth(&self, n: usize) -> u64 {
        self.binding(n).usage.queue.entries
    }

    /// How many messages a binding has in its queue, deferred, and among its dead letters.
    pub(crate) fn waiting(&self, n: usize) -> (u64, u64, u64) {
        let usage = self.binding(n).usage;
        let (queue, deferred) = (usage.queue.entries, usage.deferred.entries);
        (queue, deferred, usage.dead_letters.entries)
    }

    /// Waits until that is so; says how it is when it does not come to that.
    pub(crate) async fn waits(&self, n: usize, expected: (u64, u64, u64)) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.waiting(n) != expected {
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain for {expected:?}: {:?}",
                self.binding(n)
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Everything in one view of a binding.
    pub(crate) async fn view(&self, n: usize, view: View) -> Vec<Seated> {
        let limit = ReadLimit {
            entries: usize::MAX,
            bytes: u64::MAX,
        };
        let key = key(&format!("b{n}"));
        self.store.read(&key, view, None, limit).await.unwrap()
    }

    pub(crate) async fn is_in(&self, n: usize, state: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.binding(n).state != state {
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain for {state}: {:?}",
                self.binding(n)
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Connects every sink and waits until every binding is live.
    pub(crate) async fn go_live(&self) {
        for sink in &self.sinks {
            sink.connect();
        }
        for n in 0..self.sinks.len() {
            self.is_in(n, "live").await;
        }
    }

    pub(crate) async fn acknowledges(&self, count: usize) {
        wait_until("acknowledgements", || {
            self.source.acknowledged().len() >= count
        })
        .await;
    }

    /// The value of a metric of one binding, with one more label if need be.
    pub(crate) fn metric(&self, metric: &str, binding: usize, label: Option<(&str, &str)>) -> u64 {
        self.runtime.overview().refresh_metrics();
        let families = self.registry.gather();
        let Some(family) = families
            .iter()
            .find(|f| f.name() == format!("bridge_{metric}"))
        else {
            return 0;
        };
        let binding = format!("b{binding}");
        let wanted = |m: &&prometheus::proto::Metric| {
            let has = |name: &str, value: &str| {
                m.get_label()
                    .iter()
                    .any(|l| l.name() == name && l.value() == value)
            };
            has("binding", &binding) && label.is_none_or(|(name, value)| has(name, value))
        };
        let values = family
            .get_metric()
            .iter()
            .filter(wanted)
            .map(|m| m.get_counter().get_value() + m.get_gauge().get_value());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let value = values.sum::<f64>() as u64;
        value
    }

    /// I24: what a binding was given is somewhere, each message in one place. A worker that has
    /// just been answered has not counted it yet, so it is looked at until it balances.
    pub(crate) async fn ledger_balances(&self, binding: usize) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let of = |metric| self.metric(metric, binding, None);
        loop {
            let status = self.binding(binding);
            let usage = status.usage;
            let came = of("received_total")
                + of("carried_over")
                + of("injected_total")
                + of("dead_letters_imported_total");
            let went = of("delivered_total")
                + of("dropped_total")
                + of("left_at_source_total")
                + of("dead_letters_deleted_total");
            let waiting = usage.queue.entries + usage.deferred.entries + usage.dead_letters.entries;
            if status.open == 0 && came == went + waiting {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "the ledger of binding {binding} does not balance: {came} came, {went} went, \
                 {status:?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the runtime and hands back the data for another run.
    pub(crate) async fn stop(self) -> (Arc<TestSource>, tempfile::TempDir, u64) {
        let stopped = self.runtime.shutdown(DRAIN).await.unwrap();
        (self.source, self.data, stopped.unsettled)
    }
}
