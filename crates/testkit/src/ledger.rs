//! The ledger of a binding, from its metrics alone.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::process::{BridgeProcess, Metrics};

/// Between two looks.
const PACE: Duration = Duration::from_millis(10);

/// Where the messages of one binding are, by what `/metrics` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields' names are those of the metrics")]
pub struct Ledger {
    pub received: u64,
    pub carried_over: u64,
    pub injected: u64,
    pub imported: u64,
    pub delivered: u64,
    pub queued: u64,
    pub deferred: u64,
    pub dead_letters: u64,
    pub dropped: u64,
    pub left: u64,
    pub deleted: u64,
    pub in_progress: u64,
}

impl Ledger {
    /// Reads the ledger of one binding.
    ///
    /// # Panics
    /// When a metric that is always there is not.
    pub fn of(metrics: &Metrics, route: &str, binding: &str) -> Self {
        let labels = [("route", route), ("binding", binding)];
        let there = |name: &str| {
            let value = metrics.whole(name, &labels);
            value.unwrap_or_else(|| panic!("no metric {name} of {route}/{binding}"))
        };
        Self {
            received: there("bridge_received_total"),
            carried_over: there("bridge_carried_over"),
            injected: there("bridge_injected_total"),
            imported: there("bridge_dead_letters_imported_total"),
            delivered: there("bridge_delivered_total"),
            queued: there("bridge_queue_depth"),
            deferred: there("bridge_queue_deferred"),
            dead_letters: there("bridge_dead_letters"),
            // One series for each policy that has dropped something.
            dropped: metrics.whole("bridge_dropped_total", &labels).unwrap_or(0),
            left: there("bridge_left_at_source_total"),
            deleted: there("bridge_dead_letters_deleted_total"),
            in_progress: there("bridge_in_progress"),
        }
    }

    /// Waits until the ledger of one binding is as `condition` says and balances: a look at a busy
    /// bridge does not see everything at the same moment.
    ///
    /// # Panics
    /// When it does not come to that in time, with how it is then.
    pub async fn until(
        bridge: &BridgeProcess,
        (route, binding): (&str, &str),
        what: &str,
        deadline: Duration,
        condition: impl Fn(&Self) -> bool,
    ) -> Self {
        let end = Instant::now() + deadline;
        loop {
            let ledger = Self::of(&bridge.metrics().await, route, binding);
            if ledger.balances() && condition(&ledger) {
                return ledger;
            }
            assert!(
                Instant::now() < end,
                "waited {deadline:?} in vain for a ledger that balances, and: {what}\n{ledger}"
            );
            sleep(PACE).await;
        }
    }

    /// Whether every message is somewhere, and none in two places. Only at a quiet moment: what
    /// is in progress has no place yet.
    pub fn balances(&self) -> bool {
        let came = self.received + self.carried_over + self.injected + self.imported;
        let went = self.delivered
            + self.queued
            + self.deferred
            + self.dead_letters
            + self.dropped
            + self.left
            + self.deleted;
        self.is_quiet() && came == went
    }

    /// Whether nothing is in progress.
    const fn is_quiet(&self) -> bool {
        self.in_progress == 0
    }

    /// Whether nothing waits either.
    pub fn is_drained(&self) -> bool {
        self.is_quiet() && self.queued + self.deferred == 0
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "received {} + carried over {} + injected {} + imported {} = delivered {} + queued {} + deferred {} + \
             dead letters {} + dropped {} + left {} + deleted {} (in progress {})",
            self.received,
            self.carried_over,
            self.injected,
            self.imported,
            self.delivered,
            self.queued,
            self.deferred,
            self.dead_letters,
            self.dropped,
            self.left,
            self.deleted,
            self.in_progress,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(delivered: u32, in_progress: u32) -> Ledger {
        let text = format!(
            "bridge_received_total{{route=\"r\",binding=\"b\"}} 3\n\
             bridge_carried_over{{route=\"r\",binding=\"b\"}} 2\n\
             bridge_injected_total{{route=\"r\",binding=\"b\"}} 1\n\
             bridge_dead_letters_imported_total{{route=\"r\",binding=\"b\"}} 2\n\
             bridge_delivered_total{{route=\"r\",binding=\"b\"}} {delivered}\n\
             bridge_queue_depth{{route=\"r\",binding=\"b\"}} 1\n\
             bridge_queue_deferred{{route=\"r\",binding=\"b\"}} 0\n\
             bridge_dead_letters{{route=\"r\",binding=\"b\"}} 1\n\
             bridge_dropped_total{{route=\"r\",binding=\"b\",policy=\"drop_oldest\"}} 1\n\
             bridge_dropped_total{{route=\"r\",binding=\"b\",policy=\"expired\"}} 1\n\
             bridge_left_at_source_total{{route=\"r\",binding=\"b\"}} 0\n\
             bridge_dead_letters_deleted_total{{route=\"r\",binding=\"b\"}} 1\n\
             bridge_in_progress{{route=\"r\",binding=\"b\"}} {in_progress}\n"
        );
        Ledger::of(&Metrics::parse(&text).unwrap(), "r", "b")
    }

    #[test]
    fn i24_a_ledger_balances_when_every_message_is_somewhere() {
        assert!(ledger(3, 0).balances());
        assert!(!ledger(2, 0).balances(), "one is nowhere");
        assert!(!ledger(4, 0).balances(), "one is in two places");
        assert!(!ledger(3, 1).balances(), "not a quiet moment");
    }
}
