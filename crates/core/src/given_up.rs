//! Which dead letters, by why and when they were given up on.

use crate::{DeadLetterInfo, Reason, Timestamp};

/// Which dead letters of a binding, by what a store knows of them without a look at the message;
/// the empty one takes all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GivenUp {
    /// Only for a reason of this name: a broker's own `packet_too_large` and ours are one.
    pub reason: Option<Reason>,
    /// Only at this instant or later.
    pub since: Option<Timestamp>,
    /// Only before this instant.
    pub until: Option<Timestamp>,
}

impl GivenUp {
    /// Every dead letter.
    pub const ALL: Self = Self {
        reason: None,
        since: None,
        until: None,
    };

    /// Whether it takes what was given up on for `reason`, if it takes the instant.
    pub fn takes_reason(&self, reason: Reason) -> bool {
        self.reason
            .is_none_or(|wanted| wanted == reason || wanted.as_str() == reason.as_str())
    }

    /// Whether it takes what was given up on `at` that instant, if it takes the reason.
    pub fn takes_instant(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }

    /// Whether it takes the dead letter of `info`.
    pub fn takes(&self, info: &DeadLetterInfo) -> bool {
        self.takes_instant(info.last_refusal) && self.takes_reason(info.reason)
    }
}
