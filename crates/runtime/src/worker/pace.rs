//! A destination that is slower than a source which others read from as well: what has waited too
//! long for its turn goes into the queue, so that the source can be acknowledged and the other
//! bindings keep their own pace.

use std::time::Duration;

use tracing::info;

use super::{HAND_OVER, Worker};
use crate::DeliveryMode;
use crate::phase::{Event, Phase};

/// How long what has arrived waits for its turn in memory, its source not acknowledged.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Worker<'_> {
    /// The instant from which on what has arrived has waited too long for its turn.
    fn turn_ends(&self) -> Option<Duration> {
        let concerned =
            self.context.shares_source && self.lane.mode == DeliveryMode::StoreAndForward;
        let given = self.lane.oldest_given().filter(|_| concerned)?;
        Some(given.saturating_add(LONGEST_WAIT))
    }

    /// Lets what arrives go through the queue when the destination does not keep up.
    pub(super) fn keep_pace(&mut self) {
        let now = self.context.clock.monotonic();
        if self.turn_ends().is_none_or(|end| now < end) {
            return;
        }
        match self.phase {
            Phase::Live => self.on(Event::Queued { few: false }),
            // Behind the rest of the queue, for which it waits in memory.
            Phase::Replaying => self.lane.recall(std::iter::empty()),
            Phase::LinkDown | Phase::Recalling { .. } | Phase::Blocked { .. } | Phase::Paused => {
                return;
            }
        }
        if !std::mem::replace(&mut self.slow, true) {
            self.told_held = true;
            info!(
                event = "binding_slow",
                binding = %self.lane.key,
                "the destination does not keep up: what arrives goes through the queue, and the \
                 other bindings of its source go on"
            );
        }
    }

    /// When [`Worker::keep_pace`] has to look again.
    pub(super) fn next_turn(&self) -> Option<Duration> {
        self.turn_ends().filter(|_| self.phase.sends())
    }

    /// The longest queue that is drained while new messages wait in memory behind it: what a slow
    /// destination has behind it has to be gone but for one window.
    pub(super) fn longest_hand_over(&self) -> u64 {
        if self.slow {
            HAND_OVER.min(u64::from(self.lane.spec.max_in_flight.get()))
        } else {
            HAND_OVER
        }
    }
}
