//! An outage of the dead letters between two real brokers.
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping it"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Backoff, BindingKey, Name, QoS, ReadLimit, Reason, ReasonCode, Sink, Source, SourceState,
    Store as _, StoreError, Subscription, SystemClock, TopicFilter, TopicTemplate, View,
};
use bridge_runtime::{
    BindingSpec, BindingStatus, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull,
    OnExpired, OnFull, Parts, QueueBounds, RetainPolicy, RouteSpec, Runtime,
};
use bridge_testkit::{MemoryStore, Metrics, Mosquitto, Publish, RawClient, wait_until};
use bridge_transport::{Address, Brokers, Endpoint, Reader, SessionConfig, Writer, WriterIdentity};
use prometheus::{Registry, TextEncoder};

const PATIENCE: Duration = Duration::from_secs(60);
const READER: &str = "outage-reader";
/// Of the topics that are published, `bad` is denied.
const ACL: &str = "topic readwrite good\n";

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn session(broker: &Mosquitto, client_id: &str) -> SessionConfig {
    let address = Address {
        host: "127.0.0.1".to_owned(),
        port: broker.port(),
    };
    let endpoint = Brokers::one(Endpoint::tcp(address));
    SessionConfig::new(name("session"), endpoint, client_id)
}

fn subscription() -> Subscription {
    Subscription {
        filter: TopicFilter::parse("#").unwrap(),
        qos: QoS::AtLeastOnce,
        no_local: false,
    }
}

fn binding() -> BindingSpec {
    let (max_entries, max_bytes) = (1_000, 1 << 20);
    BindingSpec {
        name: name("binding"),
        sink: name("destination"),
        topic: TopicTemplate::parse("{topic}").unwrap(),
        qos: None,
        retain: RetainPolicy::Keep,
        max_in_flight: 50.try_into().unwrap(),
        queue: QueueBounds {
            max_entries,
            max_bytes,
            on_full: OnFull::Backpressure,
        },
        deferral: DeferralSpec {
            window: Duration::from_secs(900),
            retry_interval: Duration::from_secs(120),
            max_entries,
            max_bytes,
        },
        dead_letters: DeadLetterBounds {
            max_entries,
            max_bytes,
            on_full: OnDeadLettersFull::DiscardNewest,
        },
        max_attempts: 5.try_into().unwrap(),
        on_expired: OnExpired::Drop,
    }
}

/// A route between two Mosquittos, over a store that fails when told.
struct Line {
    source: Mosquitto,
    _destination: Mosquitto,
    store: Arc<MemoryStore>,
    registry: Registry,
    runtime: Runtime,
    publisher: RawClient,
}

impl Line {
    async fn start() -> Self {
        let source = Mosquitto::start().await;
        let destination = Mosquitto::builder().acl(ACL).start().await;
        let clock = Arc::new(SystemClock::new());
        let reader = Reader::start(
            session(&source, READER),
            vec![subscription()],
            clock.clone(),
        );
        let writer = Writer::start(
            session(&destination, "outage-writer"),
            WriterIdentity::ClientId,
            clock.clone(),
        );
        let store = Arc::new(MemoryStore::new());
        let registry = Registry::new();
        let runtime = Runtime::start(Parts {
            routes: vec![RouteSpec {
                name: name("route"),
                source: name("source"),
                subscriptions: vec![subscription()],
                mode: DeliveryMode::StoreAndForward,
                bindings: vec![binding()],
            }],
            sources: BTreeMap::from([(name("source"), Arc::new(reader) as Arc<dyn Source>)]),
            sinks: BTreeMap::from([(name("destination"), Arc::new(writer) as Arc<dyn Sink>)]),
            store: store.clone(),
            clock,
            registry: registry.clone(),
            backoff: Backoff::try_new(Duration::from_millis(1), Duration::from_millis(2)).unwrap(),
        });
        let publisher = RawClient::connect(source.port(), "publisher")
            .await
            .unwrap();
        let line = Self {
            source,
            _destination: destination,
            store,
            registry,
            runtime: runtime.unwrap(),
            publisher,
        };
        wait_until("subscribed and live", PATIENCE, || {
            let status = line.runtime.overview().status();
            let subscribed = status
                .sources
                .values()
                .all(|s| *s == SourceState::Subscribed);
            subscribed && line.status().state == "live"
        })
        .await;
        line
    }

    async fn publish(&mut self, topic: &str) {
        let code = self.publisher.publish(Publish::new(topic, "x")).await;
        assert!(code.unwrap() < 0x80);
    }

    fn status(&self) -> BindingStatus {
        let status = self.runtime.overview().status();
        status.bindings.into_iter().next().unwrap()
    }

    fn metric(&self, name: &str) -> u64 {
        self.runtime.overview().refresh_metrics();
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        let metrics = Metrics::parse(&text.unwrap()).unwrap();
        metrics.whole(name, &[]).unwrap_or(0)
    }

    /// How many messages the source has an acknowledgement for.
    fn acknowledged(&self) -> usize {
        let line = format!("Received PUBACK from {READER}");
        self.source.log().matches(&line).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_what_cannot_become_a_dead_letter_is_held_and_the_mqtt_source_keeps_it() {
    let mut line = Line::start().await;
    line.publish("good").await;
    wait_until("the first is acknowledged", PATIENCE, || {
        line.acknowledged() == 1
    })
    .await;

    let outage = StoreError::Io {
        action: "write",
        place: "the dead letters".to_owned(),
        error: "outage".to_owned(),
    };
    line.store.set_failing(Some(outage));
    line.publish("bad").await;
    let rounds = "bridge_store_failures_total";
    for hundreds in 1..=5 {
        wait_until("written again and again", PATIENCE, || {
            line.metric(rounds) >= hundreds * 100
        })
        .await;
        assert_eq!(line.status().open, 1, "held, and one of it");
        // Not in the moment in which it is being written.
        wait_until("shown as held", PATIENCE, || {
            line.metric("bridge_dead_letters_held") == 1
        })
        .await;
        assert!(line.metric("bridge_counted_attempts") <= 1);
        assert_eq!(line.acknowledged(), 1, "nothing is acknowledged");
    }
    // What is accepted needs no store, and goes on; its acknowledgement waits for its turn.
    line.publish("good").await;
    wait_until("the second arrives", PATIENCE, || {
        line.metric("bridge_delivered_total") == 2
    })
    .await;
    assert_eq!(line.acknowledged(), 1, "in the order of arrival");

    line.store.set_failing(None);
    wait_until("all are acknowledged", PATIENCE, || {
        line.acknowledged() == 3
    })
    .await;
    let key = BindingKey::new(name("route"), name("binding"));
    let limit = ReadLimit {
        entries: usize::MAX,
        bytes: u64::MAX,
    };
    let dead = line.store.read(&key, View::DeadLetters, None, limit);
    let dead = dead.await.unwrap();
    let reasons: Vec<_> = dead
        .iter()
        .filter_map(|dead| dead.dead_letter.as_ref())
        .collect();
    assert_eq!(reasons.len(), 1, "one dead letter");
    let denied = Reason::Broker(ReasonCode::NOT_AUTHORIZED);
    assert_eq!(
        (
            reasons.first().unwrap().reason,
            reasons.first().unwrap().attempts
        ),
        (denied, 1)
    );
    assert_eq!(line.status().open, 0);
    for gauge in ["bridge_counted_attempts", "bridge_dead_letters_held"] {
        assert_eq!(line.metric(gauge), 0, "{gauge}");
    }
    line.runtime.shutdown(Duration::from_secs(5)).await.unwrap();
}
