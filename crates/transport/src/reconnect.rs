//! When to connect again: the pure part of a session's patience.

use std::time::Duration;

use bridge_core::Backoff;

/// How long a connection must have lived for the delays to begin anew. One that is closed sooner
/// counts as one more failure: a broker that welcomes and throws out is not hammered.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Delays between connections. The time is passed in as [`bridge_core::Clock::monotonic`].
#[derive(Debug, Clone)]
pub(crate) struct Reconnect {
    backoff: Backoff,
    failures: u32,
    connected_at: Option<Duration>,
}

impl Reconnect {
    pub(crate) const fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            failures: 0,
            connected_at: None,
        }
    }

    /// A connection stands.
    pub(crate) const fn connected(&mut self, now: Duration) {
        self.connected_at = Some(now);
    }

    /// The attempt failed or the connection has ended: how long to wait before the next attempt.
    pub(crate) fn ended(&mut self, now: Duration, random: u32) -> Duration {
        self.disconnected(now);
        self.failures = self.failures.saturating_add(1);
        self.backoff.delay(self.failures, random)
    }

    fn disconnected(&mut self, now: Duration) {
        let since = self.connected_at.take();
        if since.is_some_and(|since| now.saturating_sub(since) >= STABLE_AFTER) {
            self.failures = 0;
        }
    }

    /// The attempt failed, and another broker is tried next: how long to wait before that. A round
    /// of all brokers counts as one failure.
    pub(crate) fn elsewhere(&self, random: u32) -> Duration {
        self.backoff.delay(self.failures, random)
    }

    /// We ended it ourselves, for a reason that is no failure: the next attempt may come at once.
    pub(crate) fn ended_by_us(&mut self, now: Duration) {
        self.disconnected(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Reconnect {
        Reconnect::new(Backoff::try_new(SECOND, SECOND * 60).unwrap())
    }

    #[test]
    fn delays_grow_from_failure_to_failure() {
        let mut policy = policy();
        let delays: Vec<u64> = (0..4)
            .map(|n| policy.ended(SECOND * n, u32::MAX).as_secs())
            .collect();
        assert_eq!(delays, [1, 2, 4, 8]);
    }

    #[test]
    fn a_connection_that_was_thrown_out_at_once_does_not_begin_anew() {
        let mut policy = policy();
        let mut now = Duration::ZERO;
        let mut delays = Vec::new();
        for _ in 0..4 {
            policy.connected(now);
            now += SECOND / 20;
            let delay = policy.ended(now, u32::MAX);
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(delays, [1, 2, 4, 8]);
    }

    #[test]
    fn a_connection_that_has_lived_begins_anew() {
        let mut policy = policy();
        for _ in 0..5 {
            policy.ended(SECOND, u32::MAX);
        }
        policy.connected(SECOND);
        assert_eq!(policy.ended(SECOND + STABLE_AFTER, u32::MAX), SECOND);
    }

    #[test]
    fn a_round_of_all_brokers_counts_as_one_failure() {
        let mut policy = policy();
        let mut delays = Vec::new();
        for _ in 0..3 {
            delays.push(policy.elsewhere(u32::MAX).as_secs());
            delays.push(policy.ended(SECOND, u32::MAX).as_secs());
        }
        assert_eq!(delays, [1, 1, 1, 2, 2, 4]);
    }

    #[test]
    fn ending_it_ourselves_counts_as_no_failure() {
        let mut policy = policy();
        policy.connected(SECOND);
        policy.ended_by_us(SECOND * 2);
        assert_eq!(policy.ended(SECOND * 2, u32::MAX), SECOND);
    }

    #[test]
    fn what_failed_before_a_connection_that_has_lived_is_forgotten_however_it_ends() {
        let outage = || {
            let mut policy = policy();
            for _ in 0..5 {
                policy.ended(SECOND, u32::MAX);
            }
            policy.connected(SECOND);
            policy
        };
        let mut lived = outage();
        lived.ended_by_us(SECOND + STABLE_AFTER);
        assert_eq!(lived.ended(SECOND * 60, u32::MAX), SECOND);
        let mut short = outage();
        short.ended_by_us(SECOND * 2);
        assert_eq!(short.ended(SECOND * 60, u32::MAX), SECOND * 32);
    }

    /// The instants at which a session with the default delays connects to a broker that throws
    /// it out after 50 ms, in an hour.
    fn connects(random: impl Fn(u32) -> u32) -> Vec<Duration> {
        let (mut policy, mut now, mut connects) = (policy(), Duration::ZERO, Vec::new());
        while now < SECOND * 3600 {
            policy.connected(now);
            connects.push(now);
            now += SECOND / 20;
            let count = u32::try_from(connects.len()).unwrap();
            now += policy.ended(now, random(count));
        }
        connects
    }

    #[test]
    fn case_21_a_broker_that_throws_out_at_once_sees_at_most_8_connects_a_minute() {
        // The shortest delays that chance can make, the longest, and some.
        let chances: [fn(u32) -> u32; 3] = [|_| 0, |_| u32::MAX, |n| n.wrapping_mul(2_654_435_761)];
        for random in chances {
            let connects = connects(random);
            for (first, at) in connects.iter().enumerate() {
                let within_a_minute = |other: &&Duration| **other < *at + SECOND * 60;
                let count = connects[first..].iter().take_while(within_a_minute).count();
                assert!(count <= 8, "{count} from {at:?} on");
            }
        }
    }

    #[test]
    fn case_22_fifty_bridges_come_back_neither_as_one_nor_ever_more_slowly() {
        let mut attempts = [0_u32; 3600];
        for bridge in 0..50_u32 {
            let mut policy = policy();
            let mut now = Duration::ZERO;
            let mut chance = bridge.wrapping_mul(2_654_435_761) | 1;
            while now < SECOND * 3600 {
                attempts[usize::try_from(now.as_secs()).unwrap()] += 1;
                // xorshift
                chance ^= chance << 13;
                chance ^= chance >> 17;
                chance ^= chance << 5;
                let delay = policy.ended(now, chance);
                assert!(delay >= SECOND / 2 && delay <= SECOND * 60, "{delay:?}");
                now += delay;
            }
        }
        // The first seconds are everybody's; then they spread, to about one a second in all.
        let (first, later) = attempts.split_at(300);
        assert!(first[0] >= 50, "all notice at once: {}", first[0]);
        assert!(later.iter().all(|attempts| *attempts <= 10), "{later:?}");
        let minutes = later.chunks(60).map(|minute| minute.iter().sum::<u32>());
        assert!(
            minutes
                .into_iter()
                .all(|attempts| (40..=110).contains(&attempts))
        );
    }
}
