//! How long something has not changed, by one's own monotonic clock.

use std::time::Duration;

/// What was seen last, and when for the first time.
///
/// It is how a lease is judged without trusting any clock but one's own: whoever holds it changes
/// it with every renewal, so that what has not changed for the `ttl` is not held any more. That
/// needs a whole `ttl` of looking first.
#[derive(Debug)]
pub(crate) struct Observation<V>(Option<(V, Duration)>);

impl<V: PartialEq> Observation<V> {
    /// Nothing has been seen yet.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Takes note of what was there, and says for how long it has been so.
    ///
    /// `now` is read after the look: what is seen may have been written while one was looking.
    pub(crate) fn unchanged_for(&mut self, seen: V, now: Duration) -> Duration {
        match &self.0 {
            Some((before, since)) if *before == seen => now.saturating_sub(*since),
            _ => {
                self.0 = Some((seen, now));
                Duration::ZERO
            }
        }
    }

    /// Whether that was seen last.
    pub(crate) fn is(&self, seen: &V) -> bool {
        self.0.as_ref().is_some_and(|(before, _)| before == seen)
    }

    /// What was seen last, and for how long it had been so if it still is.
    pub(crate) fn last(&self, now: Duration) -> Option<(&V, Duration)> {
        let (seen, since) = self.0.as_ref()?;
        Some((seen, now.saturating_sub(*since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_begins_anew_with_each_change() {
        let second = Duration::from_secs(1);
        let mut observation = Observation::new();
        assert_eq!(observation.last(second), None);
        assert_eq!(observation.unchanged_for(1, second), Duration::ZERO);
        assert_eq!(observation.unchanged_for(1, 5 * second), 4 * second);
        assert_eq!(observation.unchanged_for(2, 6 * second), Duration::ZERO);
        assert_eq!(observation.unchanged_for(1, 7 * second), Duration::ZERO);
        assert_eq!(observation.last(9 * second), Some((&1, 2 * second)));
    }
}
