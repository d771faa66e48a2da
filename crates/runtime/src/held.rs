//! Why the head of a queue stays where it is.

use bridge_core::{Reason, Timestamp};

/// Of what a broker says so many characters are kept.
const SAID: usize = 200;

/// The latest refusals of the message that is to go first: each was for now, or no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadHeld {
    /// The reason of the latest one.
    pub reason: Reason,
    /// What was said to it, its first 200 characters.
    pub reason_string: Option<String>,
    /// When the first one was.
    pub since: Timestamp,
    /// When the latest one was.
    pub latest: Timestamp,
    /// How many there were in a row.
    pub times: u32,
    /// When the message is offered again; earlier where there is a new connection.
    pub next_attempt: Timestamp,
}

impl HeadHeld {
    /// What is known after one more refusal at `now`.
    pub(crate) fn once_more(
        earlier: Option<&Self>,
        reason: Reason,
        reason_string: Option<String>,
        now: Timestamp,
        next_attempt: Timestamp,
    ) -> Self {
        let reason_string = reason_string.map(|said| match said.char_indices().nth(SAID) {
            Some((end, _)) => said.get(..end).unwrap_or_default().to_owned() + "…",
            None => said,
        });
        Self {
            reason,
            reason_string,
            since: earlier.map_or(now, |earlier| earlier.since),
            latest: now,
            times: earlier.map_or(0, |earlier| earlier.times).saturating_add(1),
            next_attempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::ReasonCode;

    use super::*;

    #[test]
    fn what_is_told_is_the_latest_refusal_and_how_long_they_have_come() {
        let at = Timestamp::from_millis;
        let reason = |code| Reason::Broker(ReasonCode::new(code));
        let first = HeadHeld::once_more(None, reason(0x97), None, at(5), at(6));
        assert_eq!((first.since, first.times), (at(5), 1));
        let long = Some("ä".repeat(201));
        let second = HeadHeld::once_more(Some(&first), reason(0x91), long, at(7), at(9));
        assert_eq!(second.reason, reason(0x91));
        assert_eq!(
            (second.since, second.latest, second.times),
            (at(5), at(7), 2)
        );
        assert_eq!(second.next_attempt, at(9));
        assert_eq!(second.reason_string, Some("ä".repeat(200) + "…"));
    }
}
