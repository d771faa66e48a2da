//! A runtime between a source and sinks that do what a test says, over a real journal.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_core::{
    Acknowledge, Admitted, Answer, Backoff, BindingKey, BoxFuture, Clock, Delivery, Destination,
    Durability, Limits, Link, Message, Move, Moved, Name, NotAdmitted, Outgoing, Pending, QoS,
    ReadLimit, ReasonCode, Seated, Seq, Sink, Source, SourceState, Store, StoreError,
    StoredMessage, Subscription, SystemClock, Topic, TopicFilter, TopicTemplate, Unanswered, Usage,
    View,
};
use bridge_queue::{Journal, JournalOptions};
use bridge_runtime::{
    BindingSpec, BindingStatus, DeliveryMode, OnExpired, OnFull, Parts, QueueBounds, RetainPolicy,
    RouteSpec, Runtime,
};
use prometheus::Registry;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn key(binding: &str) -> BindingKey {
    BindingKey::new(name("route"), name(binding))
}

pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

// === The source ===

/// A source that delivers what a test gives it, and remembers what was acknowledged.
#[derive(Debug)]
pub(crate) struct TestSource {
    send: mpsc::Sender<Delivery>,
    receive: tokio::sync::Mutex<mpsc::Receiver<Delivery>>,
    acknowledged: Arc<Mutex<Vec<u64>>>,
    left: Arc<Mutex<Vec<u64>>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Ack {
    number: u64,
    acknowledged: Arc<Mutex<Vec<u64>>>,
    left: Arc<Mutex<Vec<u64>>>,
}

impl Acknowledge for Ack {
    fn settled(self: Box<Self>) {
        self.acknowledged.lock().unwrap().push(self.number);
    }
    fn leave(self: Box<Self>) {
        self.left.lock().unwrap().push(self.number);
    }
}

impl Source for TestSource {
    fn next(&self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(async { self.receive.lock().await.recv().await })
    }
    fn state(&self) -> SourceState {
        SourceState::Subscribed
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl TestSource {
    fn new() -> Self {
        let (send, receive) = mpsc::channel(100_000);
        Self {
            send,
            receive: tokio::sync::Mutex::new(receive),
            acknowledged: Arc::default(),
            left: Arc::default(),
            next: AtomicU64::new(0),
        }
    }

    /// Lets a message arrive whose payload is its number, and says that number.
    pub(crate) fn arrive(&self, topic: &str) -> u64 {
        self.arrive_with(topic, |_| {})
    }

    pub(crate) fn arrive_with(&self, topic: &str, adjust: impl FnOnce(&mut Message)) -> u64 {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let mut message = Message::new(Topic::parse(topic).unwrap(), number.to_string());
        adjust(&mut message);
        let delivery = Delivery {
            message,
            received: SystemClock::new().wall(),
            redelivered: false,
            acknowledge: Box::new(Ack {
                number,
                acknowledged: self.acknowledged.clone(),
                left: self.left.clone(),
            }),
        };
        self.send.try_send(delivery).unwrap();
        number
    }

    pub(crate) fn arrive_many(&self, count: usize, topic: &str) {
        for _ in 0..count {
            self.arrive(topic);
        }
    }

    /// What was acknowledged, sorted.
    pub(crate) fn acknowledged(&self) -> Vec<u64> {
        let mut numbers = self.acknowledged.lock().unwrap().clone();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn left(&self) -> Vec<u64> {
        self.left.lock().unwrap().clone()
    }
}

// === A sink ===

/// What a sink is to do with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Accept,
    Refuse(u8),
    /// No answer until [`TestSink::cut`] or [`TestSink::release`].
    Hold,
    /// The connection ends, with this message unanswered.
    Cut,
}

type Policy = Box<dyn FnMut(&Message) -> Reply + Send>;

/// A sink that answers what a test says.
pub(crate) struct TestSink {
    link: watch::Sender<Link>,
    state: Mutex<SinkState>,
    pub(crate) closed: AtomicBool,
}

struct SinkState {
    policy: Policy,
    held: VecDeque<(Message, oneshot::Sender<Answer>)>,
    accepted: Vec<Message>,
    offered: usize,
    epoch: u64,
}

impl std::fmt::Debug for TestSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestSink")
    }
}

const ACCEPTED: Answer = Answer::Answered {
    code: ReasonCode::SUCCESS,
    reason_string: None,
};

impl TestSink {
    fn new() -> Self {
        Self {
            link: watch::Sender::new(Link::Down),
            closed: AtomicBool::new(false),
            state: Mutex::new(SinkState {
                policy: Box::new(|_| Reply::Accept),
                held: VecDeque::new(),
                accepted: Vec::new(),
                offered: 0,
                epoch: 0,
            }),
        }
    }

    pub(crate) fn policy(&self, policy: impl FnMut(&Message) -> Reply + Send + 'static) {
        self.state.lock().unwrap().policy = Box::new(policy);
    }

    pub(crate) fn connect(&self) {
        let mut state = self.state.lock().unwrap();
        state.epoch += 1;
        self.link.send_replace(Link::Up {
            epoch: state.epoch,
            limits: Limits {
                window: 100,
                maximum_packet_size: None,
                maximum_qos: QoS::ExactlyOnce,
                retain_available: true,
            },
        });
    }

    /// Ends the connection: what is held gets no answer.
    pub(crate) fn cut(&self) {
        self.cut_locked(&mut self.state.lock().unwrap());
    }

    fn cut_locked(&self, state: &mut SinkState) {
        self.link.send_replace(Link::Down);
        for (_, answer) in state.held.drain(..) {
            let _ = answer.send(Answer::Unanswered(Unanswered::MayHaveBeenSent));
        }
    }

    /// Accepts what is held.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock().unwrap();
        while let Some((message, answer)) = state.held.pop_front() {
            state.accepted.push(message);
            let _ = answer.send(ACCEPTED);
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    pub(crate) fn offered(&self) -> usize {
        self.state.lock().unwrap().offered
    }

    /// The payload numbers of what was accepted, in order.
    pub(crate) fn accepted(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        let numbers = state.accepted.iter().map(|message| {
            std::str::from_utf8(&message.payload)
                .unwrap()
                .parse()
                .unwrap()
        });
        numbers.collect()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.state.lock().unwrap().accepted.clone()
    }
}

impl Sink for TestSink {
    fn publish(&self, outgoing: Outgoing) -> BoxFuture<'_, Result<Admitted, NotAdmitted>> {
        let mut state = self.state.lock().unwrap();
        if !self.link.borrow().is_up() {
            return Box::pin(async { Err(NotAdmitted::LinkDown) });
        }
        state.offered += 1;
        let (send, receive) = oneshot::channel();
        match (state.policy)(&outgoing) {
            Reply::Accept => {
                state.accepted.push(outgoing);
                send.send(ACCEPTED).unwrap();
            }
            Reply::Refuse(code) => send
                .send(Answer::Answered {
                    code: ReasonCode::new(code),
                    reason_string: Some("because".into()),
                })
                .unwrap(),
            Reply::Hold => state.held.push_back((outgoing, send)),
            Reply::Cut => {
                state.held.push_back((outgoing, send));
                self.cut_locked(&mut state);
            }
        }
        let answer: Admitted = Box::pin(async move {
            receive
                .await
                .unwrap_or(Answer::Unanswered(Unanswered::NeverSent))
        });
        Box::pin(async { Ok(answer) })
    }

    fn link(&self) -> Link {
        *self.link.borrow()
    }

    fn changed(&self, seen: Link) -> BoxFuture<'_, Link> {
        let mut link = self.link.subscribe();
        Box::pin(async move { *link.wait_for(|now| *now != seen).await.unwrap() })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::SeqCst);
        Box::pin(async {})
    }
}

// === A store that fails when told ===

/// The real journal, behind a switch that makes it fail, counting records.
#[derive(Debug)]
pub(crate) struct SwitchedStore {
    journal: Journal,
    pub(crate) puts: AtomicUsize,
    failing: Arc<Mutex<bool>>,
    behind: Arc<Mutex<Vec<BindingKey>>>,
}

impl SwitchedStore {
    pub(crate) fn fail(&self, failing: bool) {
        *self.failing.lock().unwrap() = failing;
    }
}

fn full<T: Send + 'static>() -> Pending<T> {
    Box::pin(async {
        Err(StoreError::Full {
            place: "the test".into(),
        })
    })
}

impl Store for SwitchedStore {
    fn durability(&self) -> Durability {
        self.journal.durability()
    }
    fn put(&self, message: Arc<StoredMessage>, to: Vec<Destination>) -> Pending<Seq> {
        let mut behind = self.behind.lock().unwrap();
        let is_behind = to.iter().any(|to| behind.contains(&to.binding));
        if *self.failing.lock().unwrap() || is_behind {
            behind.extend(to.into_iter().map(|to| to.binding));
            return if is_behind {
                Box::pin(async { Err(StoreError::Behind) })
            } else {
                full()
            };
        }
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.journal.put(message, to)
    }
    fn resume(&self, binding: &BindingKey) {
        self.behind.lock().unwrap().retain(|key| key != binding);
        self.journal.resume(binding);
    }
    fn settle(&self, binding: &BindingKey, done: &[Seq]) {
        self.journal.settle(binding, done);
    }
    fn apply(&self, change: Move) -> Pending<Moved> {
        if *self.failing.lock().unwrap() {
            return full();
        }
        self.journal.apply(change)
    }
    fn read(
        &self,
        binding: &BindingKey,
        view: View,
        after: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        self.journal.read(binding, view, after, limit)
    }
    fn usage(&self, binding: &BindingKey) -> Usage {
        self.journal.usage(binding)
    }
    fn bindings(&self) -> Vec<BindingKey> {
        self.journal.bindings()
    }
    fn flush(&self) -> Pending<()> {
        if *self.failing.lock().unwrap() {
            return full();
        }
        self.journal.flush()
    }
}

// === All of it ===

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
}

impl Setup {
    pub(crate) fn new(mode: DeliveryMode) -> Self {
        Self {
            mode,
            bindings: 1,
            adjust: Box::new(|_| {}),
            data: None,
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

    /// Goes on with the data of an earlier run.
    pub(crate) fn data(mut self, data: tempfile::TempDir) -> Self {
        self.data = Some(data);
        self
    }

    pub(crate) fn start(self) -> Fixture {
        let data = self.data.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let store = Arc::new(SwitchedStore {
            journal: open(data.path()),
            puts: AtomicUsize::new(0),
            failing: Arc::default(),
            behind: Arc::default(),
        });
        let source = Arc::new(TestSource::new());
        let sinks: Vec<_> = (0..self.bindings)
            .map(|_| Arc::new(TestSink::new()))
            .collect();
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
                on_expired: OnExpired::Drop,
            };
            (self.adjust)(&mut spec);
            spec
        });
        let route = RouteSpec {
            name: name("route"),
            source: name("source"),
            subscriptions: vec![Subscription {
                filter: TopicFilter::parse("#").unwrap(),
                qos: QoS::AtLeastOnce,
                no_local: false,
            }],
            mode: self.mode,
            bindings: bindings.collect(),
        };
        let registry = Registry::new();
        let as_sink = |(n, sink): (usize, &Arc<TestSink>)| {
            (name(&format!("b{n}")), sink.clone() as Arc<dyn Sink>)
        };
        let runtime = Runtime::start(Parts {
            routes: vec![route],
            sources: BTreeMap::from([(name("source"), source.clone() as Arc<dyn Source>)]),
            sinks: sinks.iter().enumerate().map(as_sink).collect(),
            store: store.clone(),
            clock: Arc::new(SystemClock::new()),
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

fn open(data: &Path) -> Journal {
    Journal::open(data, JournalOptions::default()).unwrap().0
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

    pub(crate) async fn is_in(&self, n: usize, state: &str) {
        wait_until(state, || self.binding(n).state == state).await;
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

    /// I24: what a binding was given is somewhere, each message in one place.
    pub(crate) async fn ledger_balances(&self, binding: usize) {
        wait_until("quiet", || self.binding(binding).open == 0).await;
        let of = |metric| self.metric(metric, binding, None);
        let status = self.binding(binding);
        let waiting = status.usage.queue.entries
            + status.usage.deferred.entries
            + status.usage.dead_letters.entries;
        assert_eq!(
            of("received_total") + of("carried_over"),
            of("delivered_total") + waiting + of("dropped_total") + of("left_at_source_total"),
            "the ledger of binding {binding} does not balance"
        );
    }

    /// Stops the runtime and hands back the data for another run.
    pub(crate) async fn stop(self) -> (Arc<TestSource>, tempfile::TempDir, u64) {
        let stopped = self.runtime.shutdown(Duration::from_secs(5)).await.unwrap();
        (self.source, self.data, stopped.unsettled)
    }
}
