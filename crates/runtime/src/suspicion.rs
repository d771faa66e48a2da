//! Which message costs the connection: some brokers refuse by closing it (I06).
//!
//! Pure. After a connection was lost, the first message that got no answer is under suspicion and
//! goes alone: nothing else of its session is under way meanwhile. Is it answered, whatever the
//! answer, it is cleared. Does the connection end instead, that is a strike, but only if others were
//! accepted on the session since the last one. The third strike is a finding. So a plain outage,
//! in which nothing is accepted, never condemns anybody, however long it lasts.

use std::collections::HashMap;

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
    /// Nothing: nobody else was accepted in between either.
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
        let record = Record { strikes: 0, others };
        self.0.entry(id).or_insert(record);
    }

    /// A message whose topic was found guilty is to be tried again: only a strike with others
    /// accepted since the session had accepted `others` says anything.
    pub(crate) fn doubt(&mut self, id: MessageId, others: u64) {
        self.0.entry(id).or_insert(Record { strikes: 1, others });
    }

    pub(crate) fn concerns(&self, id: MessageId) -> bool {
        self.0.contains_key(&id)
    }

    /// What to do with `id` next.
    pub(crate) fn next(&self, id: MessageId, others: u64) -> Next {
        match self.0.get(&id) {
            Some(record) if record.strikes > 0 && others == record.others => Next::Others,
            _ => Next::Try,
        }
    }

    /// The connection ended on `id`, which was alone.
    pub(crate) fn ended(&mut self, id: MessageId, others: u64) -> Finding {
        let Some(record) = self.0.get_mut(&id) else {
            return Finding::Nothing;
        };
        if record.strikes > 0 && others == record.others {
            return Finding::Nothing;
        }
        record.strikes = record.strikes.saturating_add(1);
        record.others = others;
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

    #[test]
    fn i06_three_strikes_with_others_accepted_in_between_are_a_finding() {
        let mut suspicion = Suspicion::default();
        suspicion.suspect(id(1), 70);
        assert_eq!(suspicion.next(id(1), 70), Next::Try);
        assert_eq!(suspicion.ended(id(1), 70), Finding::Strike);
        assert_eq!(suspicion.next(id(1), 70), Next::Others);
        assert_eq!(suspicion.next(id(1), 71), Next::Try);
        assert_eq!(suspicion.ended(id(1), 71), Finding::Strike);
        assert_eq!(suspicion.next(id(1), 80), Next::Try);
        assert_eq!(suspicion.ended(id(1), 80), Finding::Guilty);
        suspicion.clear(id(1));
        assert!(!suspicion.concerns(id(1)));
    }

    #[test]
    fn case_13_a_plain_outage_with_the_same_head_condemns_nobody() {
        let mut suspicion = Suspicion::default();
        suspicion.suspect(id(1), 70);
        suspicion.ended(id(1), 70);
        // An hour of connections that end at once, one a second.
        for _ in 0..3_600 {
            suspicion.suspect(id(1), 70);
            assert_eq!(suspicion.ended(id(1), 70), Finding::Nothing);
        }
    }

    #[test]
    fn i06_one_that_was_found_guilty_before_a_restart_is_not_blamed_for_an_outage() {
        let mut suspicion = Suspicion::default();
        suspicion.doubt(id(1), 0);
        assert_eq!(suspicion.next(id(1), 0), Next::Others);
        assert_eq!(suspicion.ended(id(1), 0), Finding::Nothing);
        assert_eq!(suspicion.ended(id(1), 3), Finding::Strike);
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
            assert_eq!(suspicion.ended(id(1), others), Finding::Strike);
            assert_eq!(suspicion.ended(id(1), others + 1), Finding::Strike);
            suspicion.clear(id(1));
        }
        assert_eq!(suspicion.ended(id(2), 5), Finding::Nothing, "not suspected");
    }
}
