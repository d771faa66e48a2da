//! What a runtime over the broker is made of in these tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Backoff, BindingKey, BoxFuture, Clock, Delivery, Message, Move, Name, Placement, QoS,
    ReadLimit, Seated, Sink, Source, SourceState, Store, StoreError, Subscription, Timestamp,
    Topic, TopicFilter, TopicTemplate, View,
};
use bridge_runtime::{
    BindingSpec, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull, OnExpired,
    OnFull, Parts, QueueBounds, RetainPolicy, RouteSpec, Runtime,
};
use bridge_testkit::{FailingStore, MemoryStore, SteadySink, Write};
use bridge_transport_memory::MemorySource;
use prometheus::Registry;

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn asking(filter: &str) -> Subscription {
    Subscription {
        filter: TopicFilter::parse(filter).unwrap(),
        qos: QoS::AtLeastOnce,
        no_local: false,
    }
}

pub(crate) fn message(payload: &str) -> Message {
    Message::new(Topic::parse("t").unwrap(), payload.to_owned())
}

/// Tokio's own time, which moves on when everyone waits.
#[derive(Debug)]
pub(crate) struct PausedClock(tokio::time::Instant);

impl PausedClock {
    pub(crate) fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for PausedClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_764_486_000_000).after(self.0.elapsed())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A source whose ceiling nobody switches off.
#[derive(Debug)]
pub(crate) struct Unmarked(pub(crate) MemorySource);

impl Source for Unmarked {
    fn next(&self) -> BoxFuture<'_, Option<Delivery>> {
        self.0.next()
    }
    fn state(&self) -> SourceState {
        self.0.state()
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

/// A store in memory that cannot write dead letters.
pub(crate) type Outage = FailingStore<MemoryStore>;

/// An outage that lasts until the store is told not to fail.
pub(crate) fn outage() -> Outage {
    let store = FailingStore::new(MemoryStore::new(), |write| {
        let dead = match write {
            Write::Put(to) => to
                .iter()
                .any(|to| matches!(to.placement, Placement::DeadLetter(_))),
            Write::Move(change) => matches!(change, Move::DeadLetter { .. }),
            Write::Flush => false,
        };
        dead.then(|| StoreError::Io {
            action: "write",
            place: "the dead letters".to_owned(),
            error: "outage".to_owned(),
        })
    });
    store.fail(true);
    store
}

/// One route from `reader` to one binding.
pub(crate) struct Running {
    /// It fails on everything without a verdict, until it is told otherwise.
    pub(crate) sink: Arc<SteadySink>,
    store: Arc<Outage>,
    registry: Registry,
    runtime: Runtime,
}

impl Running {
    pub(crate) fn start(mode: DeliveryMode, source: Arc<dyn Source>, store: Arc<Outage>) -> Self {
        Self::adjusted(mode, source, store, |_| {})
    }

    pub(crate) fn adjusted(
        mode: DeliveryMode,
        source: Arc<dyn Source>,
        store: Arc<Outage>,
        adjust: impl FnOnce(&mut BindingSpec),
    ) -> Self {
        let sink = Arc::new(SteadySink::default());
        sink.fail();
        let registry = Registry::new();
        let mut binding = BindingSpec {
            name: name("binding"),
            sink: name("writer"),
            topic: TopicTemplate::parse("{topic}").unwrap(),
            qos: None,
            retain: RetainPolicy::Keep,
            max_in_flight: 50.try_into().unwrap(),
            queue: QueueBounds {
                max_entries: 1_000,
                max_bytes: 1 << 20,
                on_full: OnFull::Backpressure,
            },
            deferral: DeferralSpec {
                window: Duration::from_secs(900),
                retry_interval: Duration::from_secs(120),
                max_entries: 1_000,
                max_bytes: 1 << 20,
            },
            dead_letters: DeadLetterBounds {
                max_entries: 1_000,
                max_bytes: 1 << 20,
                on_full: OnDeadLettersFull::DiscardNewest,
            },
            max_attempts: 5.try_into().unwrap(),
            on_expired: OnExpired::Drop,
        };
        adjust(&mut binding);
        let runtime = Runtime::start(Parts {
            routes: vec![RouteSpec {
                name: name("route"),
                source: name("reader"),
                subscriptions: vec![asking("#")],
                mode,
                bindings: vec![binding],
            }],
            sources: BTreeMap::from([(name("reader"), source)]),
            sinks: BTreeMap::from([(name("writer"), sink.clone() as Arc<dyn Sink>)]),
            store: store.clone(),
            clock: Arc::new(PausedClock::new()),
            registry: registry.clone(),
            backoff: Backoff::try_new(Duration::from_secs(1), Duration::from_secs(30)).unwrap(),
        });
        Self {
            sink,
            store,
            registry,
            runtime: runtime.unwrap(),
        }
    }

    /// Whether what arrives goes straight to the destination.
    pub(crate) fn is_live(&self) -> bool {
        self.runtime.overview().status().bindings[0].state == "live"
    }

    /// Messages that have not settled.
    pub(crate) fn open(&self) -> u64 {
        self.runtime.overview().status().bindings[0].open
    }

    /// Entries of the worker's counts.
    pub(crate) fn counted(&self) -> u64 {
        self.metric("bridge_counted_attempts")
    }

    /// How often a message was left with the source.
    pub(crate) fn left(&self) -> u64 {
        self.metric("bridge_left_at_source_total")
    }

    fn metric(&self, wanted: &str) -> u64 {
        self.runtime.overview().refresh_metrics();
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == wanted);
        let metrics = family.unwrap().get_metric().iter();
        let values = metrics.map(|m| m.get_counter().get_value() + m.get_gauge().get_value());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let value = values.sum::<f64>() as u64;
        value
    }

    pub(crate) async fn dead_letters(&self) -> Vec<Seated> {
        let limit = ReadLimit {
            entries: usize::MAX,
            bytes: u64::MAX,
        };
        let key = BindingKey::new(name("route"), name("binding"));
        let read = self.store.read(&key, View::DeadLetters, None, limit);
        read.await.unwrap()
    }

    pub(crate) async fn stop(self) {
        self.runtime.shutdown(Duration::ZERO).await.unwrap();
    }
}
