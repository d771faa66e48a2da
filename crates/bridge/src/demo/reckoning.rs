//! The end of the demo: what was published, what arrived, and what the bridge says of it.

use super::arrivals::Tally;
use super::ledger::Ledger;
use super::text::{counted, grouped};
use super::traffic::Count;

/// The numbers of all parties after everything has come to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reckoning {
    /// What the sensors' broker acknowledged.
    pub(crate) published: Count,
    /// What the subscriber at the destination saw.
    pub(crate) arrived: Tally,
    /// How many of the readings it has not seen.
    pub(crate) missing: u64,
    /// What the bridge says.
    pub(crate) ledger: Ledger,
    /// What had not settled when the bridge stopped.
    pub(crate) unsettled: u64,
    /// The longest that the queue was.
    pub(crate) waited: u64,
}

impl Reckoning {
    /// What is wrong, in sentences; empty when all is well.
    pub(crate) fn findings(&self) -> Vec<String> {
        let Self {
            published,
            arrived,
            ledger,
            ..
        } = self;
        let mut findings = Vec::new();
        let mut expect = |holds: bool, finding: String| {
            if !holds {
                findings.push(finding);
            }
        };
        expect(
            published.readings > 0 && published.audits > 0 && self.waited > 0,
            format!(
                "the demo did not happen: {} readings and {} audit messages published, at most {} queued",
                published.readings, published.audits, self.waited
            ),
        );
        expect(
            ledger.received == published.all(),
            format!(
                "{} were published, but the bridge received {}",
                counted(published.all(), "message"),
                grouped(ledger.received)
            ),
        );
        expect(
            ledger.balances(),
            format!(
                "the ledger does not balance: {} received, {} accounted for",
                grouped(ledger.received),
                grouped(ledger.accounted())
            ),
        );
        expect(
            self.missing == 0,
            format!("{} never arrived", counted(self.missing, "message")),
        );
        expect(
            arrived.overtaken == 0,
            format!(
                "{} arrived out of order",
                counted(arrived.overtaken, "message")
            ),
        );
        expect(
            arrived.altered == 0,
            format!(
                "{} arrived that had not been published like that",
                counted(arrived.altered, "message")
            ),
        );
        expect(
            arrived.duplicates <= ledger.unanswered,
            format!(
                "{} arrived twice, but only {} had gone unanswered",
                counted(arrived.duplicates, "message"),
                grouped(ledger.unanswered)
            ),
        );
        expect(
            ledger.delivered == arrived.distinct,
            format!(
                "the bridge counts {} delivered, the destination {}",
                grouped(ledger.delivered),
                grouped(arrived.distinct)
            ),
        );
        expect(
            ledger.refused() == published.audits,
            format!(
                "the destination refuses {}, but there are {} and {} deferred",
                counted(published.audits, "message"),
                counted(ledger.dead_lettered, "dead letter"),
                grouped(ledger.deferred)
            ),
        );
        expect(
            self.unsettled == 0,
            format!(
                "{} had not settled when the bridge stopped",
                counted(self.unsettled, "message")
            ),
        );
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Reckoning {
        Reckoning {
            published: Count {
                readings: 100,
                audits: 5,
            },
            arrived: Tally {
                distinct: 100,
                duplicates: 2,
                ..Tally::default()
            },
            missing: 0,
            ledger: Ledger {
                received: 105,
                delivered: 100,
                dead_lettered: 5,
                unanswered: 3,
                ..Ledger::default()
            },
            unsettled: 0,
            waited: 40,
        }
    }

    #[test]
    fn when_all_numbers_agree_there_is_nothing_to_find() {
        assert_eq!(good().findings(), Vec::<String>::new());
    }

    #[test]
    fn each_number_that_disagrees_is_found() {
        type Spoil = fn(&mut Reckoning);
        let spoilt: [(Spoil, &str); 10] = [
            (|sums| sums.waited = 0, "the demo did not happen"),
            (
                |sums| sums.published.readings += 1,
                "but the bridge received 105",
            ),
            (
                |sums| sums.ledger.queued = 1,
                "105 received, 106 accounted for",
            ),
            (|sums| sums.missing = 1, "1 message never arrived"),
            (
                |sums| sums.arrived.overtaken = 2,
                "2 messages arrived out of order",
            ),
            (
                |sums| sums.arrived.altered = 1,
                "1 message arrived that had not been",
            ),
            (
                |sums| sums.arrived.duplicates = 4,
                "only 3 had gone unanswered",
            ),
            (
                |sums| sums.arrived.distinct = 99,
                "delivered, the destination 99",
            ),
            (
                |sums| sums.ledger.dead_lettered = 1,
                "but there are 1 dead letter",
            ),
            (|sums| sums.unsettled = 1, "1 message had not settled"),
        ];
        for (spoil, expected) in spoilt {
            let mut sums = good();
            spoil(&mut sums);
            let findings = sums.findings();
            assert!(
                findings.iter().any(|finding| finding.contains(expected)),
                "{expected:?} is not in {findings:?}"
            );
        }
    }
}
