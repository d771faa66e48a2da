//! Which broker of a list is next: the pure part of a session's approach.

use std::time::Duration;

/// Brokers that stand in for one another, by their place in the list. The time is passed in as
/// [`bridge_core::Clock::monotonic`].
#[derive(Debug, Clone)]
pub(crate) struct Failover {
    count: usize,
    fail_back: Option<Duration>,
    at: usize,
    /// Brokers that were tried since the last connection or the last whole round.
    tried: usize,
    /// Since when a connection to another than the preferred broker stands, or since when that
    /// one was last found away.
    settled: Option<Duration>,
}

impl Failover {
    /// Begins with the preferred one, the first.
    pub(crate) const fn new(count: usize, fail_back: Option<Duration>) -> Self {
        Self {
            count,
            fail_back,
            at: 0,
            tried: 0,
            settled: None,
        }
    }

    /// The broker of the connection that stands, or of the next attempt.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// A connection stands.
    pub(crate) const fn connected(&mut self, now: Duration) {
        self.tried = 0;
        self.settled = Some(now);
    }

    /// This broker is of no use: the next one. Says whether all have been tried by now.
    pub(crate) const fn next(&mut self) -> bool {
        self.settled = None;
        self.at = if self.at + 1 < self.count {
            self.at + 1
        } else {
            0
        };
        self.tried += 1;
        let all = self.tried >= self.count;
        if all {
            self.tried = 0;
        }
        all
    }

    /// When to look for the preferred broker again; `None` when it is the one in use, or when
    /// nobody asked for it.
    pub(crate) fn look_back_at(&self) -> Option<Duration> {
        if self.at == 0 {
            return None;
        }
        Some(self.settled?.saturating_add(self.fail_back?))
    }

    /// The preferred broker is still away.
    pub(crate) const fn still_away(&mut self, now: Duration) {
        self.settled = Some(now);
    }

    /// The preferred broker is there again: it is next.
    pub(crate) const fn back(&mut self) {
        self.at = 0;
        self.tried = 0;
        self.settled = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn case_12_the_next_broker_is_used_when_one_is_of_no_use_and_the_first_after_the_last() {
        let mut failover = Failover::new(3, None);
        let mut tried = Vec::new();
        for _ in 0..4 {
            let at = failover.at();
            tried.push((at, failover.next()));
        }
        assert_eq!(tried, [(0, false), (1, false), (2, true), (0, false)]);
    }

    #[test]
    fn a_round_begins_anew_with_each_connection() {
        let mut failover = Failover::new(3, None);
        failover.next();
        failover.next();
        failover.connected(MINUTE);
        assert_eq!(failover.at(), 2, "where it stands");
        assert!(!failover.next(), "the first of a round");
        assert!(!failover.next());
        assert!(failover.next(), "the third and last");
    }

    #[test]
    fn one_broker_alone_is_a_whole_round() {
        let mut failover = Failover::new(1, Some(MINUTE));
        failover.connected(MINUTE);
        assert_eq!(failover.look_back_at(), None);
        assert!(failover.next());
        assert_eq!(failover.at(), 0);
    }

    #[test]
    fn case_12_the_first_is_looked_for_again_when_asked_to() {
        let mut failover = Failover::new(2, Some(MINUTE));
        failover.connected(MINUTE);
        assert_eq!(failover.look_back_at(), None, "it is the first");
        failover.next();
        assert_eq!(failover.look_back_at(), None, "nothing stands");
        failover.connected(MINUTE * 5);
        assert_eq!(failover.look_back_at(), Some(MINUTE * 6));
        failover.still_away(MINUTE * 6);
        assert_eq!(failover.look_back_at(), Some(MINUTE * 7));
        failover.back();
        assert_eq!((failover.at(), failover.look_back_at()), (0, None));
    }

    #[test]
    fn nobody_is_called_back_who_was_not_asked_to() {
        let mut failover = Failover::new(2, None);
        failover.next();
        failover.connected(MINUTE);
        assert_eq!(failover.look_back_at(), None);
    }
}
