//! What a runtime over the broker is made of in these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_core::{
    Acknowledgement, Admitted, Answer, Backoff, BindingKey, BoxFuture, Clock, Delivery,
    Destination, Durability, Limits, Link, Message, Move, Moved, Name, NotAdmitted, Outgoing,
    Pending, Placement, QoS, ReadLimit, Reason, ReasonCode, Seated, Seq, Sink, Source, SourceState,
    Store, StoreError, StoredMessage, Subscription, Timestamp, Topic, TopicFilter, TopicTemplate,
    Usage, View,
};
use bridge_runtime::{
    BindingSpec, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull, OnExpired,
    OnFull, Parts, QueueBounds, RetainPolicy, RouteSpec, Runtime,
};
use bridge_testkit::MemoryStore;
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

/// A destination that fails on everything without a verdict, or refuses everything for good.
#[derive(Debug, Default)]
pub(crate) struct Destined {
    refuses: AtomicBool,
    offered: AtomicU64,
}

impl Destined {
    pub(crate) fn refuse(&self) {
        self.refuses.store(true, Ordering::SeqCst);
    }

    pub(crate) fn offered(&self) -> u64 {
        self.offered.load(Ordering::SeqCst)
    }
}

impl Sink for Destined {
    fn publish(&self, _: Outgoing) -> BoxFuture<'_, Result<Admitted, NotAdmitted>> {
        self.offered.fetch_add(1, Ordering::SeqCst);
        let answer = if self.refuses.load(Ordering::SeqCst) {
            Answer::Answered {
                by: Acknowledgement::PubAck,
                code: ReasonCode::new(0x99),
                reason_string: None,
            }
        } else {
            Answer::Failed {
                reason: Reason::ProcessorFailed,
                detail: None,
            }
        };
        Box::pin(async { Ok(Box::pin(std::future::ready(answer)) as Admitted) })
    }
    fn link(&self) -> Link {
        Link::Up {
            epoch: 1,
            limits: Limits {
                window: 100,
                maximum_packet_size: None,
                maximum_qos: QoS::ExactlyOnce,
                retain_available: true,
            },
        }
    }
    fn changed(&self, seen: Link) -> BoxFuture<'_, Link> {
        let link = self.link();
        Box::pin(async move {
            if seen == link {
                std::future::pending::<()>().await;
            }
            link
        })
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A store in memory that cannot write dead letters until the outage ends.
#[derive(Debug)]
pub(crate) struct Outage {
    store: MemoryStore,
    over: AtomicBool,
    refused: AtomicU64,
    /// Bindings of which a put has failed; nothing overtakes it.
    behind: Mutex<BTreeSet<BindingKey>>,
}

impl Outage {
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            over: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            behind: Mutex::default(),
        }
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// How many dead letters could not be written.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    fn refuse<T: Send + 'static>(&self) -> Pending<T> {
        self.refused.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            Err(StoreError::Io {
                action: "write",
                place: "the dead letters".to_owned(),
                error: "outage".to_owned(),
            })
        })
    }
}

impl Store for Outage {
    fn durability(&self) -> Durability {
        self.store.durability()
    }
    fn put(&self, message: Arc<StoredMessage>, to: Vec<Destination>) -> Pending<Seq> {
        let mut behind = self.behind.lock().unwrap();
        if to.iter().any(|to| behind.contains(&to.binding)) {
            return Box::pin(async { Err(StoreError::Behind) });
        }
        let dead = |to: &Destination| matches!(to.placement, Placement::DeadLetter(_));
        if to.iter().any(dead) && !self.over.load(Ordering::SeqCst) {
            behind.extend(to.into_iter().map(|to| to.binding));
            return self.refuse();
        }
        self.store.put(message, to)
    }
    fn resume(&self, binding: &BindingKey) {
        self.behind.lock().unwrap().remove(binding);
        self.store.resume(binding);
    }
    fn settle(&self, binding: &BindingKey, done: &[Seq]) {
        self.store.settle(binding, done);
    }
    fn apply(&self, change: Move) -> Pending<Moved> {
        if matches!(change, Move::DeadLetter { .. }) && !self.over.load(Ordering::SeqCst) {
            return self.refuse();
        }
        self.store.apply(change)
    }
    fn read(
        &self,
        binding: &BindingKey,
        view: View,
        after: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        self.store.read(binding, view, after, limit)
    }
    fn read_back(
        &self,
        binding: &BindingKey,
        view: View,
        before: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        self.store.read_back(binding, view, before, limit)
    }
    fn usage(&self, binding: &BindingKey) -> Usage {
        self.store.usage(binding)
    }
    fn bindings(&self) -> Vec<BindingKey> {
        self.store.bindings()
    }
    fn flush(&self) -> Pending<()> {
        self.store.flush()
    }
}

/// One route from `reader` to one binding.
pub(crate) struct Running {
    pub(crate) sink: Arc<Destined>,
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
        let sink = Arc::new(Destined::default());
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
