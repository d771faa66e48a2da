//! Time as a value that is passed in, so that what depends on it is tested without waiting.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A wall-clock instant: milliseconds since 1970-01-01T00:00:00Z.
///
/// For what is stored or shown. What measures a passing time uses the monotonic
/// [`Clock::monotonic`], which no one can set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant that many milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when the wall clock has been set back behind it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` later, at most the last that can be said.
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = i64::try_from(self.0)
            .ok()
            .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        match instant {
            Some(instant) => write!(f, "{instant:.3}"),
            None => write!(f, "{} ms after 1970", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The wall clock, for what is stored or shown.
    fn wall(&self) -> Timestamp;
    /// Time since an arbitrary start, never going backwards, for pacing and deadlines.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
///
/// On Linux the monotonic one goes on while the machine sleeps (`CLOCK_BOOTTIME`), unlike that of
/// [`std::time::Instant`]: a lease runs out for others meanwhile, and whoever holds it has to know
/// when it wakes up. The timers of the runtime do stand still, so that a deadline may be noticed late,
/// but it is noticed.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Duration,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    pub fn new() -> Self {
        Self {
            start: since_boot(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the wall clock is read"
    )]
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::default().after(since)
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }
}

fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    // Both clocks count up from zero, in seconds and a fraction below one.
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// A clock that stands still until a test moves it; wall and monotonic time move apart at will.
#[derive(Debug)]
pub struct ManualClock(Mutex<(Timestamp, Duration)>);

impl ManualClock {
    /// A clock whose wall time is `start` and whose monotonic time is zero.
    pub fn new(start: Timestamp) -> Self {
        Self(Mutex::new((start, Duration::ZERO)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut (Timestamp, Duration)) -> T) -> T {
        act(&mut self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Lets `by` pass on both clocks.
    pub fn advance(&self, by: Duration) {
        self.with(|(wall, monotonic)| {
            *wall = wall.after(by);
            *monotonic += by;
        });
    }

    /// Sets the wall clock alone, as an administrator or NTP does.
    pub fn set_wall(&self, to: Timestamp) {
        self.with(|(wall, _)| *wall = to);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        self.with(|(wall, _)| *wall)
    }

    fn monotonic(&self) -> Duration {
        self.with(|(_, monotonic)| *monotonic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_reads_as_rfc_3339() {
        let instant = Timestamp::from_millis(1_764_486_000_042);
        assert_eq!(instant.to_string(), "2025-11-30T07:00:00.042Z");
        assert!(
            Timestamp::from_millis(u64::MAX)
                .to_string()
                .contains("after 1970")
        );
    }

    #[test]
    fn a_wall_clock_set_back_never_makes_a_negative_age() {
        let clock = ManualClock::new(Timestamp::from_millis(10_000));
        let then = clock.wall();
        clock.advance(Duration::from_secs(3));
        assert_eq!(clock.wall().since(then), Duration::from_secs(3));
        clock.set_wall(Timestamp::from_millis(1));
        assert_eq!(clock.wall().since(then), Duration::ZERO);
        assert_eq!(clock.monotonic(), Duration::from_secs(3));
    }
}
