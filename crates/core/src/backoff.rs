//! Exponential back-off with jitter, capped in exponent and delay.

use std::time::Duration;

/// How long to wait before the n-th attempt in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
}

/// Why two durations make no [`Backoff`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBackoff {
    /// A delay of nothing is a busy loop.
    #[error("the shortest delay must be longer than zero")]
    Zero,
    /// The bounds are the wrong way round.
    #[error("the shortest delay {min:?} must not be longer than the longest {max:?}")]
    Inverted {
        /// The shortest delay.
        min: Duration,
        /// The longest delay.
        max: Duration,
    },
}

impl Backoff {
    /// Delays that begin around `min`, double, and never exceed `max`.
    pub fn try_new(min: Duration, max: Duration) -> Result<Self, InvalidBackoff> {
        if min.is_zero() {
            return Err(InvalidBackoff::Zero);
        }
        if min > max {
            return Err(InvalidBackoff::Inverted { min, max });
        }
        Ok(Self { min, max })
    }

    /// No delay is longer.
    pub const fn longest(&self) -> Duration {
        self.max
    }

    /// The delay after `failures` failed attempts in a row (0 counts as 1).
    ///
    /// `random` spreads it over the upper half of the step, so that fifty bridges that lost one
    /// broker do not come back as one, and none comes back at once.
    pub fn delay(&self, failures: u32, random: u32) -> Duration {
        let exponent = failures.saturating_sub(1).min(31);
        let step = self.min.saturating_mul(1_u32 << exponent).min(self.max);
        let half = step / 2;
        let jitter = half.as_nanos() * u128::from(random) / u128::from(u32::MAX);
        half.saturating_add(Duration::from_nanos(
            u64::try_from(jitter).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bounds_are_checked() {
        assert_eq!(
            Backoff::try_new(Duration::ZERO, SECOND),
            Err(InvalidBackoff::Zero)
        );
        assert!(matches!(
            Backoff::try_new(SECOND * 2, SECOND),
            Err(InvalidBackoff::Inverted { .. })
        ));
    }

    #[test]
    fn delays_double_up_to_the_cap_and_never_overflow() {
        let backoff = Backoff::try_new(SECOND, SECOND * 60).unwrap();
        let full: Vec<u64> = (0..9)
            .map(|n| backoff.delay(n, u32::MAX).as_secs())
            .collect();
        assert_eq!(full, [1, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.delay(u32::MAX, u32::MAX), SECOND * 60);
        assert_eq!(backoff.delay(u32::MAX, 0), SECOND * 30);
        let huge = Backoff::try_new(Duration::MAX, Duration::MAX).unwrap();
        assert!(huge.delay(u32::MAX, 7) <= Duration::MAX);
    }
}
