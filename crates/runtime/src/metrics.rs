//! Every metric of the runtime: the one list of their names, labels and meanings.
//!
//! No label ever holds a topic: strangers choose topics, and a label is a time series.

use bridge_core::{BindingKey, Name, Reason, Usage};
use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::OnDeadLettersFull;
use crate::lane::Standing;

/// The counters and gauges of all routes, ready to be registered once.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    source_received: IntCounterVec,
    source_redelivered: IntCounterVec,
    source_unrouted: IntCounterVec,
    source_unsettled_bytes: IntGaugeVec,
    received: IntCounterVec,
    delivered: IntCounterVec,
    publish: IntCounterVec,
    unanswered: IntCounterVec,
    replayed: IntCounterVec,
    dead_lettered: IntCounterVec,
    dead_letter_overflow: IntCounterVec,
    deferred: IntCounterVec,
    deferred_recovered: IntCounterVec,
    deferred_overflow: IntCounterVec,
    dropped: IntCounterVec,
    left: IntCounterVec,
    store_failures: IntCounterVec,
    redrive: IntCounterVec,
    deleted: IntCounterVec,
    injected: IntCounterVec,
    imported: IntCounterVec,
    queue_depth: IntGaugeVec,
    queue_bytes: IntGaugeVec,
    queue_blocked: IntGaugeVec,
    queue_oldest_age: IntGaugeVec,
    queue_deferred: IntGaugeVec,
    queue_deferred_bytes: IntGaugeVec,
    dead_letters: IntGaugeVec,
    dead_letter_bytes: IntGaugeVec,
    dead_letters_held: IntGaugeVec,
    counted_attempts: IntGaugeVec,
    in_progress: IntGaugeVec,
    paused: IntGaugeVec,
    carried_over: IntGaugeVec,
}

const BINDING: [&str; 2] = ["route", "binding"];

fn counter(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(format!("bridge_{name}"), help), labels)
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(Opts::new(format!("bridge_{name}"), help), labels)
}

impl Metrics {
    /// Makes all of them and registers them.
    pub(crate) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let with_policy = ["route", "binding", "policy"];
        let metrics = Self {
            source_received: counter(
                "source_received_total",
                "Messages that a session received from its broker.",
                &["session"],
            )?,
            source_redelivered: counter(
                "source_redelivered_total",
                "Received messages of which the broker says that it has sent them before.",
                &["session"],
            )?,
            source_unrouted: counter(
                "source_unrouted_total",
                "Received messages that no route takes; they are acknowledged.",
                &["session"],
            )?,
            source_unsettled_bytes: gauge(
                "source_unsettled_bytes",
                "Memory held by messages that were received and have not settled.",
                &["session"],
            )?,
            received: counter(
                "received_total",
                "Messages that a binding was given.",
                &BINDING,
            )?,
            delivered: counter(
                "delivered_total",
                "Messages that the destination accepted, live or from the queue.",
                &BINDING,
            )?,
            publish: counter(
                "publish_total",
                "What became of messages on the live path.",
                &["route", "binding", "outcome"],
            )?,
            unanswered: counter(
                "publish_unanswered_total",
                "Messages that were sent and never answered, because the connection ended: they \
                 are sent again and may arrive twice.",
                &BINDING,
            )?,
            replayed: counter(
                "queue_replayed_total",
                "Messages from the queue that the destination accepted.",
                &BINDING,
            )?,
            dead_lettered: counter(
                "queue_dead_lettered_total",
                "Messages that were given up on and kept as dead letters.",
                &["route", "binding", "reason"],
            )?,
            dead_letter_overflow: counter(
                "dead_letter_overflow_total",
                "Messages that were given up on and for which there was no room among the dead \
                 letters.",
                &with_policy,
            )?,
            deferred: counter(
                "queue_deferred_total",
                "Messages that were deferred: refused as not authorized on the replay path, or \
                 lined up behind such ones of their topic.",
                &BINDING,
            )?,
            deferred_recovered: counter(
                "queue_deferred_recovered_total",
                "Deferred messages that the destination accepted in the end.",
                &BINDING,
            )?,
            deferred_overflow: counter(
                "queue_deferred_overflow_total",
                "Messages that were to be deferred and became dead letters for lack of room.",
                &BINDING,
            )?,
            dropped: counter(
                "dropped_total",
                "Messages that a policy of the configuration dropped.",
                &with_policy,
            )?,
            left: counter(
                "left_at_source_total",
                "Messages that were held as long as direct_hold allows and left with the source.",
                &BINDING,
            )?,
            store_failures: counter(
                "store_failures_total",
                "Attempts to store a message that failed; the message is held and stored again.",
                &BINDING,
            )?,
            redrive: counter(
                "redrive_total",
                "Redrives of dead letters, by what came of them.",
                &["route", "binding", "outcome"],
            )?,
            deleted: counter(
                "dead_letters_deleted_total",
                "Dead letters that were deleted.",
                &BINDING,
            )?,
            injected: counter(
                "injected_total",
                "Test messages that an operator gave a binding.",
                &BINDING,
            )?,
            imported: counter(
                "dead_letters_imported_total",
                "Dead letters that an operator imported.",
                &BINDING,
            )?,
            queue_depth: gauge("queue_depth", "Messages that wait in the queue.", &BINDING)?,
            queue_bytes: gauge(
                "queue_bytes",
                "Bytes of the messages that wait in the queue.",
                &BINDING,
            )?,
            queue_blocked: gauge(
                "queue_blocked",
                "1 while the head of the queue could not be published at the latest attempt.",
                &BINDING,
            )?,
            queue_oldest_age: gauge(
                "queue_oldest_age_seconds",
                "How long the head of the queue has waited.",
                &BINDING,
            )?,
            queue_deferred: gauge("queue_deferred", "Deferred messages.", &BINDING)?,
            queue_deferred_bytes: gauge(
                "queue_deferred_bytes",
                "Bytes of the deferred messages.",
                &BINDING,
            )?,
            dead_letters: gauge("dead_letters", "Dead letters that are kept.", &BINDING)?,
            dead_letter_bytes: gauge("dead_letter_bytes", "Bytes of the dead letters.", &BINDING)?,
            dead_letters_held: gauge(
                "dead_letters_held",
                "Messages that were given up on and are held until they can be kept as dead letters.",
                &BINDING,
            )?,
            counted_attempts: gauge(
                "counted_attempts",
                "Messages that have failed without a verdict and are offered again.",
                &BINDING,
            )?,
            in_progress: gauge(
                "in_progress",
                "Messages that are under way to the destination, those from the queue too, or that have \
                 not settled.",
                &BINDING,
            )?,
            paused: gauge(
                "binding_paused",
                "1 while an operator has paused the binding.",
                &BINDING,
            )?,
            carried_over: gauge(
                "carried_over",
                "Messages that the binding had in queue, deferred and dead letters at start.",
                &BINDING,
            )?,
        };
        for collector in metrics.all() {
            registry.register(collector)?;
        }
        Ok(metrics)
    }

    fn all(&self) -> Vec<Box<dyn Collector>> {
        let counters = [
            &self.source_received,
            &self.source_redelivered,
            &self.source_unrouted,
            &self.received,
            &self.delivered,
            &self.publish,
            &self.unanswered,
            &self.replayed,
            &self.dead_lettered,
            &self.dead_letter_overflow,
            &self.deferred,
            &self.deferred_recovered,
            &self.deferred_overflow,
            &self.dropped,
            &self.left,
            &self.store_failures,
            &self.redrive,
            &self.deleted,
            &self.injected,
            &self.imported,
        ];
        let gauges = [
            &self.source_unsettled_bytes,
            &self.queue_depth,
            &self.queue_bytes,
            &self.queue_blocked,
            &self.queue_oldest_age,
            &self.queue_deferred,
            &self.queue_deferred_bytes,
            &self.dead_letters,
            &self.dead_letter_bytes,
            &self.dead_letters_held,
            &self.counted_attempts,
            &self.in_progress,
            &self.paused,
            &self.carried_over,
        ];
        let counters = counters
            .into_iter()
            .map(|c| Box::new(c.clone()) as Box<dyn Collector>);
        let gauges = gauges
            .into_iter()
            .map(|g| Box::new(g.clone()) as Box<dyn Collector>);
        counters.chain(gauges).collect()
    }

    /// The counters of one source session.
    pub(crate) fn source(&self, session: &Name) -> SourceMetrics {
        let labels = [session.as_str()];
        SourceMetrics {
            received: self.source_received.with_label_values(&labels),
            redelivered: self.source_redelivered.with_label_values(&labels),
            unrouted: self.source_unrouted.with_label_values(&labels),
        }
    }

    /// Says how much of a session's messages is in memory.
    pub(crate) fn set_unsettled(&self, session: &Name, bytes: u64) {
        self.source_unsettled_bytes
            .with_label_values(&[session.as_str()])
            .set(signed(bytes));
    }

    /// Counts what came of the redrive of so many dead letters.
    pub(crate) fn redriven(&self, key: &BindingKey, outcome: &str, count: u64) {
        let labels = [key.route.as_str(), key.binding.as_str(), outcome];
        self.redrive.with_label_values(&labels).inc_by(count);
    }

    /// Counts a dead letter that was deleted.
    pub(crate) fn dead_letter_deleted(&self, key: &BindingKey) {
        let labels = [key.route.as_str(), key.binding.as_str()];
        self.deleted.with_label_values(&labels).inc();
    }

    /// The counters of one binding, all there from the start so that a rate has a first value.
    pub(crate) fn binding(&self, key: &BindingKey) -> BindingMetrics {
        let labels = [key.route.as_str(), key.binding.as_str()];
        let outcome = |outcome| {
            self.publish
                .with_label_values(&[labels[0], labels[1], outcome])
        };
        for policy in ["discard_newest", "hold"] {
            self.dead_letter_overflow
                .with_label_values(&[labels[0], labels[1], policy]);
        }
        for outcome in ["moved", "already_redriven", "queue_full", "store_failed"] {
            self.redrive
                .with_label_values(&[labels[0], labels[1], outcome]);
        }
        self.deleted.with_label_values(&labels);
        BindingMetrics {
            received: self.received.with_label_values(&labels),
            delivered: self.delivered.with_label_values(&labels),
            published: outcome("published"),
            queued: outcome("queued"),
            refused: outcome("refused"),
            live_dropped: outcome("dropped"),
            unanswered: self.unanswered.with_label_values(&labels),
            replayed: self.replayed.with_label_values(&labels),
            deferred: self.deferred.with_label_values(&labels),
            deferred_recovered: self.deferred_recovered.with_label_values(&labels),
            deferred_overflow: self.deferred_overflow.with_label_values(&labels),
            left: self.left.with_label_values(&labels),
            store_failures: self.store_failures.with_label_values(&labels),
            injected: self.injected.with_label_values(&labels),
            imported: self.imported.with_label_values(&labels),
            key: key.clone(),
            all: self.clone(),
        }
    }
}

/// The counters of one source session.
#[derive(Debug)]
pub(crate) struct SourceMetrics {
    pub(crate) received: IntCounter,
    pub(crate) redelivered: IntCounter,
    pub(crate) unrouted: IntCounter,
}

/// The counters and gauges of one binding.
#[derive(Debug)]
pub(crate) struct BindingMetrics {
    pub(crate) received: IntCounter,
    pub(crate) delivered: IntCounter,
    pub(crate) published: IntCounter,
    pub(crate) queued: IntCounter,
    pub(crate) refused: IntCounter,
    live_dropped: IntCounter,
    pub(crate) unanswered: IntCounter,
    pub(crate) replayed: IntCounter,
    pub(crate) deferred: IntCounter,
    pub(crate) deferred_recovered: IntCounter,
    pub(crate) deferred_overflow: IntCounter,
    pub(crate) left: IntCounter,
    pub(crate) store_failures: IntCounter,
    pub(crate) injected: IntCounter,
    pub(crate) imported: IntCounter,
    key: BindingKey,
    all: Metrics,
}

/// By which policy a message was dropped: the label `policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropPolicy {
    /// The queue is full and the oldest goes.
    Oldest,
    /// The queue is full and the newest is not taken.
    Newest,
    /// Its expiry interval is over and `on_expired` is `drop`.
    Expired,
    /// The store cannot hold a message of that size.
    TooLarge,
    /// The dead letters are full and the newest is not kept.
    DeadLettersFull,
}

impl DropPolicy {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Oldest => "drop_oldest",
            Self::Newest => "drop_newest",
            Self::Expired => "expired",
            Self::TooLarge => "too_large_for_store",
            Self::DeadLettersFull => "dead_letters_full",
        }
    }
}

impl BindingMetrics {
    fn labels(&self) -> [&str; 2] {
        [self.key.route.as_str(), self.key.binding.as_str()]
    }

    /// Counts a message of the live path that a policy dropped.
    pub(crate) fn dropped_live(&self, policy: DropPolicy) {
        self.live_dropped.inc();
        self.dropped_queued(policy);
    }

    /// Counts a message of the queue that a policy dropped.
    pub(crate) fn dropped_queued(&self, policy: DropPolicy) {
        let [route, binding] = self.labels();
        self.all
            .dropped
            .with_label_values(&[route, binding, policy.as_str()])
            .inc();
    }

    /// Counts a message that is now a dead letter.
    pub(crate) fn dead_lettered(&self, reason: Reason) {
        let [route, binding] = self.labels();
        self.all
            .dead_lettered
            .with_label_values(&[route, binding, &reason.as_str()])
            .inc();
    }

    /// Counts a message for which there is no room among the dead letters.
    pub(crate) fn dead_letter_overflow(&self, policy: OnDeadLettersFull) {
        let [route, binding] = self.labels();
        let policy = match policy {
            OnDeadLettersFull::DiscardNewest => "discard_newest",
            OnDeadLettersFull::Hold => "hold",
        };
        self.all
            .dead_letter_overflow
            .with_label_values(&[route, binding, policy])
            .inc();
        if policy == "discard_newest" {
            self.dropped_queued(DropPolicy::DeadLettersFull);
        }
    }

    /// Says what the binding had when the process began, for the ledger.
    pub(crate) fn set_carried_over(&self, usage: &Usage) {
        let all = usage.queue.entries + usage.deferred.entries + usage.dead_letters.entries;
        self.all
            .carried_over
            .with_label_values(&self.labels())
            .set(signed(all));
    }

    /// Brings the gauges up to date.
    pub(crate) fn set_usage(
        &self,
        usage: &Usage,
        oldest_age: u64,
        blocked: bool,
        standing: &Standing,
    ) {
        let labels = self.labels();
        let set = |gauge: &IntGaugeVec, value: u64| {
            gauge.with_label_values(&labels).set(signed(value));
        };
        set(&self.all.queue_depth, usage.queue.entries);
        set(&self.all.queue_bytes, usage.queue.bytes);
        set(&self.all.queue_blocked, u64::from(blocked));
        set(&self.all.queue_oldest_age, oldest_age);
        set(&self.all.queue_deferred, usage.deferred.entries);
        set(&self.all.queue_deferred_bytes, usage.deferred.bytes);
        set(&self.all.dead_letters, usage.dead_letters.entries);
        set(&self.all.dead_letter_bytes, usage.dead_letters.bytes);
        set(&self.all.dead_letters_held, standing.unburied);
        set(&self.all.counted_attempts, standing.counted);
        set(&self.all.in_progress, standing.open);
        set(&self.all.paused, u64::from(standing.paused));
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
