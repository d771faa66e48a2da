//! How long a lease is held, and how it is kept.

use std::time::Duration;

/// The times of a lease, checked against each other: renewing never outlasts the lease.
///
/// ```text
///   sent                                        until              fence  lease_ttl
///   ├──── renew_interval ──┼── renew_interval ──┼─ step_down_grace ─┼───────┤
///   │                      │ renewed            │ closes in order   │       │ another may
///   │                      │ a second attempt,  │                   │ nothing leaves
///   │                      │ at least           │                   │
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSettings {
    lease_ttl: Duration,
    renew_interval: Duration,
    step_down_grace: Duration,
}

/// What an error repeats is at most this, so that it can reckon with it.
const SAYABLE: Duration = Duration::from_secs(24 * 3_600);

/// Why times do not make a lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// Less than a scheduler and a disk can keep.
    #[error(
        "{field} is {is:?}, and must be at least {:?}",
        LeaseSettings::SHORTEST
    )]
    TooShort {
        /// Which one.
        field: &'static str,
        /// What it is.
        is: Duration,
    },
    /// A takeover would take that long.
    #[error(
        "lease_ttl is {0:?}, and may be at most 10 minutes: after a crash nobody is active for so long"
    )]
    TooLong(Duration),
    /// Two renewals and the grace do not fit into the lease.
    #[error(
        "renewing could outlast the lease: two times renew_interval ({renew_interval:?}) and \
         step_down_grace ({step_down_grace:?}) are more than lease_ttl ({lease_ttl:?}); \
         set renew_interval to at most {:?}, or lease_ttl to at least {:?}",
        lease_ttl.saturating_sub(*step_down_grace) / 2,
        *renew_interval * 2 + *step_down_grace
    )]
    DoNotFit {
        /// As given.
        lease_ttl: Duration,
        /// As given.
        renew_interval: Duration,
        /// As given.
        step_down_grace: Duration,
    },
    /// The grace is so small a part of the lease that clocks may differ by more.
    #[error(
        "step_down_grace is {step_down_grace:?}, and must be at least a hundredth of lease_ttl \
         ({lease_ttl:?}), as no two clocks run at the same pace; set it to at least {:?}",
        *lease_ttl / 100
    )]
    GraceTooSmall {
        /// As given.
        lease_ttl: Duration,
        /// As given.
        step_down_grace: Duration,
    },
}

impl LeaseSettings {
    /// The least that any of the three may be.
    pub const SHORTEST: Duration = Duration::from_millis(100);
    /// The most that a lease may last.
    pub const LONGEST: Duration = Duration::from_secs(600);

    /// Checks the three against each other.
    pub fn new(
        lease_ttl: Duration,
        renew_interval: Duration,
        step_down_grace: Duration,
    ) -> Result<Self, InvalidSettings> {
        for (field, is) in [
            ("lease_ttl", lease_ttl),
            ("renew_interval", renew_interval),
            ("step_down_grace", step_down_grace),
        ] {
            if is < Self::SHORTEST {
                return Err(InvalidSettings::TooShort { field, is });
            }
        }
        if lease_ttl > Self::LONGEST {
            return Err(InvalidSettings::TooLong(lease_ttl));
        }
        let needed = renew_interval
            .saturating_mul(2)
            .saturating_add(step_down_grace);
        if needed > lease_ttl {
            return Err(InvalidSettings::DoNotFit {
                lease_ttl,
                renew_interval: renew_interval.min(SAYABLE),
                step_down_grace: step_down_grace.min(SAYABLE),
            });
        }
        if step_down_grace < lease_ttl / 100 {
            return Err(InvalidSettings::GraceTooSmall {
                lease_ttl,
                step_down_grace,
            });
        }
        Ok(Self {
            lease_ttl,
            renew_interval,
            step_down_grace,
        })
    }

    /// How long nobody else can have the lease after the last renewal.
    pub const fn lease_ttl(self) -> Duration {
        self.lease_ttl
    }

    /// How often it is renewed.
    pub const fn renew_interval(self) -> Duration {
        self.renew_interval
    }

    /// How long before its end the sessions begin to close.
    pub const fn step_down_grace(self) -> Duration {
        self.step_down_grace
    }

    /// When a holder whose latest renewal was sent at `sent` has to begin closing.
    pub(crate) fn until(self, sent: Duration) -> Duration {
        sent + self.lease_ttl.saturating_sub(self.step_down_grace)
    }

    /// From when on it may write nothing any more.
    ///
    /// A quarter of the grace before the end of the lease: for the pace at which its clock and
    /// that of the store differ (the grace is a hundredth of the lease or more, so this is at least
    /// 1 in 400, and clocks are good for 1 in 5,000), and for the bytes that have passed the
    /// fence's check but not the socket yet.
    pub(crate) fn fence(self, sent: Duration) -> Duration {
        sent + self.lease_ttl.saturating_sub(self.step_down_grace / 4)
    }

    /// How often a standby asks. An eye on a lease is cheap, and a takeover waits for the next look.
    pub(crate) fn poll_interval(self) -> Duration {
        (self.renew_interval / 2).min(Duration::from_secs(1))
    }

    /// How soon a holder tries again after a failure.
    pub(crate) fn retry_interval(self) -> Duration {
        (self.renew_interval / 4).min(Duration::from_secs(1))
    }

    /// How long an attempt to acquire may take: half of what it would be good for.
    pub(crate) fn acquire_timeout(self) -> Duration {
        self.lease_ttl.saturating_sub(self.step_down_grace) / 2
    }

    /// How long a renewal may take when that much is `left` until the sessions have to close: not
    /// so long that there is no second one, and never longer than what is left.
    pub(crate) fn renew_timeout(self, left: Duration) -> Duration {
        (left / 2)
            .max(Self::SHORTEST)
            .min(self.renew_interval)
            .min(left)
    }
}

impl Default for LeaseSettings {
    /// 15 s, renewed every 4 s, with a grace of 3 s.
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(15),
            renew_interval: Duration::from_secs(4),
            step_down_grace: Duration::from_secs(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(ttl: u64, renew: u64, grace: u64) -> Result<LeaseSettings, InvalidSettings> {
        let [ttl, renew, grace] = [ttl, renew, grace].map(Duration::from_millis);
        LeaseSettings::new(ttl, renew, grace)
    }

    #[test]
    fn renewing_never_outlasts_the_lease() {
        assert!(new(15_000, 6_000, 3_000).is_ok());
        let error = new(15_000, 6_001, 3_000).unwrap_err().to_string();
        assert_eq!(
            error,
            "renewing could outlast the lease: two times renew_interval (6.001s) and \
             step_down_grace (3s) are more than lease_ttl (15s); \
             set renew_interval to at most 6s, or lease_ttl to at least 15.002s"
        );
    }

    #[test]
    fn every_wrong_time_is_named_with_what_would_be_right() {
        for (times, said) in [
            (
                (99, 100, 100),
                "lease_ttl is 99ms, and must be at least 100ms",
            ),
            ((15_000, 0, 100), "renew_interval is 0ns, and must be"),
            ((15_000, 100, 99), "step_down_grace is 99ms, and must be"),
            (
                (600_001, 100, 6_001),
                "lease_ttl is 600.001s, and may be at most 10 minutes",
            ),
            ((30_000, 1_000, 299), "set it to at least 300ms"),
            (
                (1_000, u64::MAX, 100),
                "set renew_interval to at most 450ms",
            ),
            ((1_000, 100, u64::MAX), "renewing could outlast the lease"),
        ] {
            let (ttl, renew, grace) = times;
            let error = new(ttl, renew, grace).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn the_defaults_pass_their_own_check() {
        let set = LeaseSettings::default();
        let again = LeaseSettings::new(set.lease_ttl, set.renew_interval, set.step_down_grace);
        assert_eq!(again, Ok(set));
    }

    #[test]
    fn a_renewal_never_waits_beyond_what_is_left() {
        let settings = LeaseSettings::default();
        for left in [0, 1, 50, 150, 1_000, 5_000, 60_000].map(Duration::from_millis) {
            let timeout = settings.renew_timeout(left);
            assert!(
                timeout <= left && timeout <= settings.renew_interval,
                "{left:?}"
            );
        }
    }
}
