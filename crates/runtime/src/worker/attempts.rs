//! How often each message has failed without a verdict: the one place that counts (I19).

use std::collections::HashMap;

use bridge_core::{MessageId, Timestamp};

/// Counts that live exactly as long as their message is neither done nor given up on.
#[derive(Debug, Default)]
pub(super) struct Attempts(HashMap<MessageId, Count>);

/// How often a message has failed, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) failures: u32,
    pub(super) first: Timestamp,
}

impl Attempts {
    /// Counts one more failure of `id` at `now`.
    pub(super) fn failed(&mut self, id: MessageId, now: Timestamp) -> Count {
        let none = Count {
            failures: 0,
            first: now,
        };
        let count = self.0.entry(id).or_insert(none);
        count.failures = count.failures.saturating_add(1);
        *count
    }

    /// The message is done, given up on, or left: there is nothing to count any more.
    pub(super) fn forget(&mut self, id: MessageId) -> Option<Count> {
        self.0.remove(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i19_a_count_lives_as_long_as_its_message_and_never_overflows() {
        let mut attempts = Attempts::default();
        let id = MessageId::new(Timestamp::from_millis(1), [1; 10]);
        let other = MessageId::new(Timestamp::from_millis(1), [2; 10]);
        let at = Timestamp::from_millis;
        assert_eq!(attempts.failed(id, at(5)).failures, 1);
        assert_eq!(attempts.failed(other, at(6)).failures, 1);
        let count = attempts.failed(id, at(7));
        assert_eq!((count.failures, count.first), (2, at(5)));
        assert_eq!(attempts.forget(id), Some(count));
        assert_eq!((attempts.forget(id), attempts.len()), (None, 1));
        attempts.0.get_mut(&other).unwrap().failures = u32::MAX;
        assert_eq!(attempts.failed(other, at(8)).failures, u32::MAX);
    }
}
