//! How a session gives way to whoever else has its client id: the pure part of I17.
//!
//! A broker keeps one connection for each client id. Two clients with the same one throw each other
//! out for as long as both come back at once. So each loss of this kind in a row doubles a penalty;
//! the first has none. A connection that has stood for [`STABLE_AFTER`] ends the row.
//!
//! A broker says so with 0x8E, or it only closes: on MQTT 3.1.1, before Mosquitto 2.0.13, and
//! where its last word is lost with the connection. Hence a connection that is closed without a
//! word soon after it came about, again and again, is damped as well, and called a suspicion.
//! What else explains such an end is none: a failed attempt in between, since the broker itself
//! comes and goes then, or a message that was alone under way, since some brokers refuse by
//! closing (I06).
//!
//! The delay is the greater of penalty and back-off. Only after the first takeover is it nothing,
//! although the back-off counts that as a failure like any other: the second comes after a second
//! at least, and there are never more than eight connects a minute.
//!
//! ```text
//!                                 0x8E        closed without a word
//!   first in a row                nothing     the back-off alone
//!   second                        1 s         the back-off alone
//!   third                         2 s         2 s, suspected
//!   …                             … 64 s      … the session's longest back-off
//! ```

use std::time::Duration;

/// How long a connection must have stood for nobody to be after its client id.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The penalty of the second in a row.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(64);
/// Chance takes away up to the fifth part of a penalty, so that two do not swing in step.
const SPREAD: u32 = 5;
/// So many closes without a word in a row are hardly chance.
const SUSPICIOUS: u32 = 3;
/// The same where a takeover of the same row was certain.
const SUSPICIOUS_AFTER_TAKEOVER: u32 = 2;
/// How long after a takeover the next one is an event of its own, and not the same collision,
/// which comes back each time that the other's penalty is over.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How a connection ended that we wanted to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The broker said 0x8E.
    TakenOver,
    /// The broker closed it, and nothing says why.
    Wordless,
    /// By something else.
    Otherwise,
}

/// What an end says of others with our client id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing.
    Nothing,
    /// There is one.
    Takeover {
        /// How many there were in a row, those included that are only suspected.
        row: u32,
    },
    /// There seems to be one.
    Suspected {
        /// As above.
        row: u32,
    },
}

/// The losses in a row that are due to another client with our client id. The time is passed in as
/// [`bridge_core::Clock::monotonic`].
#[derive(Debug, Clone)]
pub(crate) struct Collisions {
    /// A suspicion alone makes nobody wait longer than this.
    longest_suspected: Duration,
    connected_at: Option<Duration>,
    taken_over: u32,
    wordless: u32,
    latest: Option<Duration>,
}

impl Collisions {
    pub(crate) const fn new(longest_backoff: Duration) -> Self {
        Self {
            longest_suspected: longest_backoff,
            connected_at: None,
            taken_over: 0,
            wordless: 0,
            latest: None,
        }
    }

    /// A connection stands.
    pub(crate) const fn connected(&mut self, now: Duration) {
        self.connected_at = Some(now);
    }

    /// No connection came about: the broker is away, and what it closed is explained by that.
    pub(crate) const fn failed(&mut self) {
        self.wordless = 0;
    }

    /// We ended it ourselves.
    pub(crate) fn ended_by_us(&mut self, now: Duration) {
        self.disconnected(now);
    }

    /// The connection has ended: what that says, and how long to wait where it is `backoff` for any
    /// lost connection.
    pub(crate) fn ended(
        &mut self,
        end: End,
        backoff: Duration,
        now: Duration,
        random: u32,
    ) -> (Finding, Duration) {
        let stable = self.disconnected(now);
        match end {
            End::TakenOver => self.taken_over(backoff, now, random),
            End::Wordless if !stable => {
                self.wordless = self.wordless.saturating_add(1);
                self.suspect(backoff, random)
            }
            End::Wordless => (Finding::Nothing, backoff),
            End::Otherwise => {
                self.wordless = 0;
                (Finding::Nothing, backoff)
            }
        }
    }

    fn taken_over(&mut self, backoff: Duration, now: Duration, random: u32) -> (Finding, Duration) {
        if self.taken_over == 0 && self.wordless < SUSPICIOUS {
            self.wordless = 0;
        }
        self.taken_over = self.taken_over.saturating_add(1);
        let before = self.latest.replace(now);
        let goes_on = before.is_some_and(|before| now.saturating_sub(before) < FORGOTTEN_AFTER);
        let row = self.row();
        let delay = match row {
            1 if goes_on => backoff,
            1 => Duration::ZERO,
            _ => penalty(row, random).max(backoff),
        };
        (Finding::Takeover { row }, delay)
    }

    fn suspect(&self, backoff: Duration, random: u32) -> (Finding, Duration) {
        let (enough, longest) = if self.taken_over > 0 {
            (SUSPICIOUS_AFTER_TAKEOVER, LONGEST)
        } else {
            (SUSPICIOUS, self.longest_suspected)
        };
        if self.wordless < enough {
            return (Finding::Nothing, backoff);
        }
        let row = self.row();
        let delay = penalty(row, random).min(longest).max(backoff);
        (Finding::Suspected { row }, delay)
    }

    const fn row(&self) -> u32 {
        self.taken_over.saturating_add(self.wordless)
    }

    /// Whether the connection that has ended was stable, which ends the row.
    fn disconnected(&mut self, now: Duration) -> bool {
        let since = self.connected_at.take();
        let stable = since.is_some_and(|since| now.saturating_sub(since) >= STABLE_AFTER);
        if stable {
            self.taken_over = 0;
            self.wordless = 0;
        }
        stable
    }
}

/// What the loss of that number in a row costs.
fn penalty(row: u32, random: u32) -> Duration {
    let Some(doublings) = row.checked_sub(2) else {
        return Duration::ZERO;
    };
    let step = SHORTEST.saturating_mul(1 << doublings.min(16)).min(LONGEST);
    let off = (step / SPREAD).mul_f64(f64::from(random) / f64::from(u32::MAX));
    step.saturating_sub(off).max(SHORTEST)
}

#[cfg(test)]
mod tests;
