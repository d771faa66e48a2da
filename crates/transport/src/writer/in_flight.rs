//! Since when each PUBLISH of a connection waits for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_core::Clock;

/// Packet ids that wait for an answer. Written by the connection's task alone.
#[derive(Debug)]
pub(super) struct InFlight {
    clock: Arc<dyn Clock>,
    since: Mutex<HashMap<u16, Duration>>,
}

impl InFlight {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            since: Mutex::default(),
        }
    }

    /// A packet was written and waits from now on, be it a PUBLISH or, in the second half of
    /// QoS 2, a PUBREL.
    pub(super) fn waits(&self, packet_id: u16) {
        let now = self.clock.monotonic();
        self.with(|since| since.insert(packet_id, now));
    }

    /// Its answer has come.
    pub(super) fn answered(&self, packet_id: u16) {
        self.with(|since| since.remove(&packet_id));
    }

    /// How long the one that has waited longest has waited.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let since = self.with(|since| since.values().min().copied())?;
        Some(now.saturating_sub(since))
    }

    /// Whether exactly one waits: what ends then may have ended because of it (I06).
    pub(super) fn is_one(&self) -> bool {
        self.with(|since| since.len() == 1)
    }

    fn with<R>(&self, f: impl FnOnce(&mut HashMap<u16, Duration>) -> R) -> R {
        f(&mut self.since.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridge_core::{ManualClock, Timestamp};

    #[test]
    fn the_oldest_counts_though_others_are_answered() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let in_flight = InFlight::new(clock.clone());
        assert_eq!(in_flight.oldest(), None);
        in_flight.waits(1);
        clock.advance(Duration::from_secs(5));
        in_flight.waits(2);
        in_flight.answered(2);
        assert_eq!(in_flight.oldest(), Some(Duration::from_secs(5)));
        in_flight.waits(1);
        assert_eq!(in_flight.oldest(), Some(Duration::ZERO));
        in_flight.answered(1);
        assert_eq!(in_flight.oldest(), None);
    }
}
