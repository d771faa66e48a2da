//! Which message costs the connection: some brokers refuse by closing it (I06).
//!
//! Pure. After a connection was lost, the first message that got no answer is under suspicion and
//! goes alone: nothing else of its session is under way meanwhile. Is it answered, whatever the
//! answer, it is cleared. Does the connection end instead, that is a strike, but only if others were
//! accepted on the session since the last one. The third strike is a finding. So a plain outage,
//! in which nothing is accepted, never condemns anybody, however long it lasts.
//!
//! A deferred message cannot wait for others for ever (I11): there may be none. Once in a while it
//! is offered without, and gets through if the broker takes it by now. Where its topic was found
//! guilty before, its end is evidence as well after three connections [in a row](Stood) that stood
//! until they were offered it.

use std::collections::HashMap;
use std::time::Duration;

use bridge_core::MessageId;

/// So many strikes are a finding.
const STRIKES: u8 = 3;

/// The messages of one binding that are under suspicion: at most what was under way at once.
#[derive(Debug, Default)]
pub(crate) struct Suspicion(HashMap<MessageId, Record>);

#[derive(Debug, Clone, Copy)]
struct Record {
    strikes: u8,
    /// How many messages the session had accepted at the latest strike.
    others: u64,
    /// How many connections that stood before it has ended since then, with no others accepted.
    quiet: u8,
    /// The monotonic instant at which a connection last ended on it, alone.
    tried: Option<Duration>,
}

impl Record {
    const fn new(strikes: u8, others: u64) -> Self {
        Self {
            strikes,
            others,
            quiet: 0,
            tried: None,
        }
    }

    /// Whether nothing was accepted that would make another strike say something.
    const fn lacks_others(&self, others: u64) -> bool {
        self.strikes > 0 && others == self.others
    }
}

/// How long a connection had stood when a message was offered alone, and for how long after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stood {
    /// Until the message was offered.
    pub(crate) before: Duration,
    /// From then until the connection ended.
    pub(crate) after: Duration,
}

impl Stood {
    /// Whether it was the offer that ended the connection, as far as that can be known with nobody
    /// else to ask: it stood for at least half of the `interval` between offers, and then ended in
    /// less than a tenth of that time. One that ends whatever is sent, or at any time, does not; nor
    /// does one that is dead already, which is noticed by its keep-alive.
    pub(crate) fn until_offered(self, interval: Duration) -> bool {
        self.before >= interval / 2 && self.after <= self.before / 10
    }
}

/// What to do with a message under suspicion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Offer it, alone.
    Try,
    /// Let something else be accepted first: without that, another strike would say nothing.
    Others,
}

/// What a connection that ended on a message, alone, says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing: nobody else was accepted in between either, and there is no other evidence.
    Nothing,
    /// One more strike.
    Strike,
    /// It is the message.
    Guilty,
}

impl Suspicion {
    /// The connection ended, and `id` was the first that got no answer, or one of the deferred;
    /// `others` messages have been accepted on the session so far.
    pub(crate) fn suspect(&mut self, id: MessageId, others: u64) {
        self.0.entry(id).or_insert(Record::new(0, others));
    }

    /// A message whose topic was found guilty is to be tried again: only a strike with others
    /// accepted since the session had accepted `others` says anything.
    pub(crate) fn doubt(&mut self, id: MessageId, others: u64) {
        self.0.entry(id).or_insert(Record::new(1, others));
    }

    pub(crate) fn concerns(&self, id: MessageId) -> bool {
        self.0.contains_key(&id)
    }

    /// What to do with `id` next.
    pub(crate) fn next(&self, id: MessageId, others: u64) -> Next {
        match self.0.get(&id) {
            Some(record) if record.lacks_others(others) => Next::Others,
            _ => Next::Try,
        }
    }

    /// Whether `id` may be offered without others before it, which is so once an `interval`: half of
    /// it has passed since it was last tried, for what paces it is not to the point.
    pub(crate) fn is_due(&self, id: MessageId, now: Duration, interval: Duration) -> bool {
        let tried = self.0.get(&id).and_then(|record| record.tried);
        tried.is_none_or(|tried| now.saturating_sub(tried) >= interval / 2)
    }

    /// The connection ended on `id`, which was alone, at the monotonic instant `now`. Whether it
    /// `stood` until then is only asked of a message whose topic was found guilty before.
    pub(crate) fn ended(
        &mut self,
        id: MessageId,
        others: u64,
        stood: bool,
        now: Duration,
    ) -> Finding {
        let Some(record) = self.0.get_mut(&id) else {
            return Finding::Nothing;
        };
        record.tried = Some(now);
        if record.lacks_others(others) {
            record.quiet = record.quiet.saturating_add(u8::from(stood));
            return if stood && record.quiet >= STRIKES {
                Finding::Strike
            } else {
                Finding::Nothing
            };
        }
        record.strikes = record.strikes.saturating_add(1);
        record.others = others;
        record.quiet = 0;
        if record.strikes >= STRIKES {
            Finding::Guilty
        } else {
            Finding::Strike
        }
    }

    /// It was answered, or is there no longer.
    pub(crate) fn clear(&mut self, id: MessageId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::Timestamp;

    use super::*;

    fn id(n: u8) -> MessageId {
        MessageId::new(Timestamp::from_millis(1), [n; 10])
    }

    /// The connection, which was a new one, ended on the message.
    fn ended(suspicion: &mut Suspicion, id: MessageId, others: u64) -> Finding {
        suspicion.ended(id, others, false, Duration::ZERO)
    }

    #[test]
    fn i06_three_strikes_with_others_accepted_in_between_are_a_finding() {
        let mut suspicion = Suspicion::default();
        suspicion.suspect(id(1), 70);
        assert_eq!(suspicion.next(id(1), 70), Next::Try);
        assert_eq!(ended(&mut suspicion, id(1), 70), Finding::Strike);
        assert_eq!(suspicion.next(id(1), 70), Next::Others);
        assert_eq!(suspicion.next(id(1), 71), Next::Try);
        assert_eq!(ended(&mut suspicion, id(1), 71), Finding::Strike);
        assert_eq!(suspicion.next(id(1), 80), Next::Try);
        assert_eq!(ended(&mut suspicion, id(1), 80), Finding::Guilty);
        suspicion.clear(id(1));
        assert!(!suspicion.concerns(id(1)));
    }

    #[test]
    fn case_13_a_plain_outage_with_the_same_head_condemns_nobody() {
        let mut suspicion = Suspicion::default();
        suspicion.suspect(id(1), 70);
        ended(&mut suspicion, id(1), 70);
        // An hour of connections that end at once, one a second.
        for _ in 0..3_600 {
            suspicion.suspect(id(1), 70);
            assert_eq!(ended(&mut suspicion, id(1), 70), Finding::Nothing);
        }
    }

    #[test]
    fn i06_one_that_was_found_guilty_before_a_restart_is_not_blamed_for_an_outage() {
        let mut suspicion = Suspicion::default();
        suspicion.doubt(id(1), 0);
        assert_eq!(suspicion.next(id(1), 0), Next::Others);
        assert_eq!(ended(&mut suspicion, id(1), 0), Finding::Nothing);
        assert_eq!(ended(&mut suspicion, id(1), 3), Finding::Strike);
        suspicion.doubt(id(1), 9);
        assert_eq!(
            suspicion.next(id(1), 3),
            Next::Others,
            "what is known stays"
        );
    }

    #[test]
    fn i06_an_answer_clears_and_strikes_count_only_in_a_row() {
        let mut suspicion = Suspicion::default();
        for others in 0..10 {
            suspicion.suspect(id(1), others);
            assert_eq!(ended(&mut suspicion, id(1), others), Finding::Strike);
            assert_eq!(ended(&mut suspicion, id(1), others + 1), Finding::Strike);
            suspicion.clear(id(1));
        }
        assert_eq!(
            ended(&mut suspicion, id(2), 5),
            Finding::Nothing,
            "not suspected"
        );
    }

    #[test]
    fn i11_without_others_a_message_is_due_once_an_interval() {
        let interval = Duration::from_secs(120);
        let at = Duration::from_secs;
        let mut suspicion = Suspicion::default();
        suspicion.doubt(id(1), 0);
        assert!(suspicion.is_due(id(1), at(1), interval), "never tried");
        suspicion.ended(id(1), 0, false, at(10));
        // Whatever else makes its turn come, as a new connection does.
        assert!(!suspicion.is_due(id(1), at(11), interval));
        assert!(!suspicion.is_due(id(1), at(69), interval));
        assert!(suspicion.is_due(id(1), at(129), interval));
    }

    #[test]
    fn i06_connections_that_stand_until_a_guilty_message_is_offered_are_evidence_after_three() {
        let mut suspicion = Suspicion::default();
        let now = Duration::ZERO;
        suspicion.doubt(id(1), 7);
        for stood in [true, false, true, false, false] {
            assert_eq!(suspicion.ended(id(1), 7, stood, now), Finding::Nothing);
        }
        assert_eq!(suspicion.ended(id(1), 7, true, now), Finding::Strike);
        assert_eq!(suspicion.ended(id(1), 7, false, now), Finding::Nothing);
        assert_eq!(suspicion.ended(id(1), 7, true, now), Finding::Strike);
        suspicion.clear(id(1));
        suspicion.doubt(id(1), 7);
        let again = suspicion.ended(id(1), 7, true, now);
        assert_eq!(again, Finding::Nothing, "an answer ends the row");
    }

    #[test]
    fn i06_a_connection_that_ends_at_any_time_did_not_stand_until_the_offer() {
        let interval = Duration::from_secs(120);
        let stood = |before, after| {
            let (before, after) = (Duration::from_secs(before), Duration::from_secs(after));
            Stood { before, after }.until_offered(interval)
        };
        assert!(stood(118, 0) && stood(60, 1));
        assert!(!stood(0, 0), "it ends at once, whatever is offered");
        assert!(!stood(59, 0), "it never stands for long");
        assert!(!stood(118, 30), "a dead one, which its keep-alive ended");
    }
}
