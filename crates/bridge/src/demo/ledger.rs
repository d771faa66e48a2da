//! The bridge's own account of itself, read from its metrics as a monitoring system would.

use prometheus::proto::MetricFamily;

/// Where every message is, by the bridge's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ledger {
    pub(crate) received: u64,
    pub(crate) delivered: u64,
    /// Given to the binding, not settled yet.
    pub(crate) under_way: u64,
    pub(crate) queued: u64,
    pub(crate) deferred: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) dropped: u64,
    /// What the bridge found on disk when it started.
    pub(crate) carried_over: u64,
    /// Sent and never answered because the connection ended, so sent again.
    pub(crate) unanswered: u64,
    pub(crate) queue_bytes: u64,
    pub(crate) oldest_seconds: u64,
}

impl Ledger {
    /// Adds up what the metrics say.
    pub(crate) fn read(families: &[MetricFamily]) -> Self {
        let of = |name: &str| sum(families, name);
        Self {
            received: of("bridge_received_total"),
            delivered: of("bridge_delivered_total"),
            under_way: of("bridge_in_progress"),
            queued: of("bridge_queue_depth"),
            deferred: of("bridge_queue_deferred"),
            dead_lettered: of("bridge_dead_letters"),
            dropped: of("bridge_dropped_total"),
            carried_over: of("bridge_carried_over"),
            unanswered: of("bridge_publish_unanswered_total"),
            queue_bytes: of("bridge_queue_bytes"),
            oldest_seconds: of("bridge_queue_oldest_age_seconds"),
        }
    }

    /// This account continued by a bridge that was started anew: what is counted goes on, what
    /// is held is what it holds now.
    pub(crate) const fn continued_by(&self, now: &Self) -> Self {
        Self {
            received: self.received + now.received,
            delivered: self.delivered + now.delivered,
            dropped: self.dropped + now.dropped,
            unanswered: self.unanswered + now.unanswered,
            ..*now
        }
    }

    /// All that the bridge knows the whereabouts of.
    pub(crate) const fn accounted(&self) -> u64 {
        self.delivered + self.queued + self.deferred + self.dead_lettered + self.dropped
    }

    /// What the destination refuses. On the live path that is a dead letter; a message that had
    /// to wait first is deferred, for the policy may change.
    pub(crate) const fn refused(&self) -> u64 {
        self.dead_lettered + self.deferred
    }

    /// Whether every received message is accounted for (I24). Holds at quiet moments.
    pub(crate) const fn balances(&self) -> bool {
        self.received == self.accounted()
    }
}

/// The sum of a counter or gauge over all its labels; 0 when there is none of that name.
fn sum(families: &[MetricFamily], name: &str) -> u64 {
    let of_that_name = families.iter().filter(|family| family.name() == name);
    let values = of_that_name.flat_map(|family| {
        let metrics = family.get_metric().iter();
        metrics.map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
    });
    let sum: f64 = values.sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of messages: whole, not negative, and far below 2^53"
    )]
    {
        sum as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

    #[test]
    fn the_ledger_adds_up_every_label_of_a_metric() {
        let registry = Registry::new();
        let dropped =
            IntCounterVec::new(Opts::new("bridge_dropped_total", "-"), &["policy"]).unwrap();
        let queued = IntGauge::new("bridge_queue_depth", "-").unwrap();
        registry.register(Box::new(dropped.clone())).unwrap();
        registry.register(Box::new(queued.clone())).unwrap();
        dropped.with_label_values(&["expired"]).inc_by(2);
        dropped.with_label_values(&["drop_oldest"]).inc_by(3);
        queued.set(7);

        let ledger = Ledger::read(&registry.gather());

        assert_eq!((ledger.dropped, ledger.queued), (5, 7));
        assert_eq!(ledger.accounted(), 12);
        assert!(!ledger.balances(), "12 accounted for, 0 received");
    }

    #[test]
    fn i24_the_ledger_balances_across_a_restart() {
        let before = Ledger {
            received: 10,
            delivered: 6,
            queued: 4,
            ..Ledger::default()
        };
        let after = Ledger {
            received: 5,
            delivered: 7,
            queued: 2,
            ..Ledger::default()
        };
        let whole = before.continued_by(&after);
        assert_eq!((whole.received, whole.delivered, whole.queued), (15, 13, 2));
        assert!(whole.balances());
    }

    #[test]
    fn i24_the_ledger_balances_only_when_every_message_is_somewhere() {
        let ledger = Ledger {
            received: 10,
            delivered: 5,
            queued: 2,
            deferred: 1,
            dead_lettered: 1,
            dropped: 1,
            ..Ledger::default()
        };
        assert!(ledger.balances());
        for received in [9, 11] {
            assert!(!Ledger { received, ..ledger }.balances());
        }
    }
}
