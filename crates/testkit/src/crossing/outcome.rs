//! What came of a crossing.

use std::fmt;
use std::time::Duration;

use crate::feeder::{Fed, Load};
use crate::ledger::Ledger;
use crate::numbered::Tally;
use crate::process::Metrics;

/// What may have made messages come twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    /// Messages that the bridge sent and heard no answer for.
    pub unanswered: u64,
    /// Messages that the source delivered again.
    pub source_redelivered: u64,
    /// Messages that may have been under way when the bridge was killed, and what it found in its
    /// journal when it came back.
    pub across_kills: u64,
    /// How often it was killed.
    pub kills: u32,
}

/// What came of a crossing.
#[derive(Debug, Clone)]
#[must_use = "a report may say that messages are missing"]
pub struct CrossingReport {
    /// What was to cross.
    pub load: Load,
    /// What arrived.
    pub tally: Tally,
    /// What the publisher did.
    pub fed: Fed,
    /// What may have made messages come twice.
    pub loss: Loss,
    /// The ledger of the bridge's last process at the end.
    pub ledger: Ledger,
    /// From the first message published to the last one received.
    pub elapsed: Duration,
}

impl Loss {
    /// Adds the counters of one process.
    pub(super) fn add_counters(&mut self, metrics: &Metrics) {
        let count = |name| metrics.whole(name, &[]).unwrap_or(0);
        self.unanswered += count("bridge_publish_unanswered_total");
        self.source_redelivered += count("bridge_source_redelivered_total");
    }
}

impl CrossingReport {
    /// The most duplicates for which there is an explanation.
    pub fn explained(&self) -> u64 {
        let loss = self.loss;
        loss.unanswered + loss.source_redelivered + loss.across_kills + self.fed.sent_again
    }

    /// Messages per second, from the first published to the last received.
    pub fn rate(&self) -> f64 {
        let messages = u32::try_from(self.load.messages).map_or(f64::INFINITY, f64::from);
        messages / self.elapsed.as_secs_f64()
    }

    /// What is wrong: messages that are missing, damaged or out of order, more duplicates than
    /// are explained, a ledger that does not balance. Nothing, when all is well.
    pub fn faults(&self) -> Vec<String> {
        let missing = self.tally.missing(self.load.messages);
        let strangers = self.tally.distinct() + missing.len() as u64 - self.load.messages;
        let unexplained = self.tally.duplicates().saturating_sub(self.explained());
        let mut faults = Vec::new();
        for (count, what) in [
            (missing.len() as u64, "messages are missing"),
            (strangers, "messages came that were never sent"),
            (self.tally.damaged(), "messages were damaged"),
            (self.tally.out_of_order(), "messages came out of order"),
            (unexplained, "duplicates are not explained"),
        ] {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            faults.push(format!("missing are numbers from {first} to {last}"));
        }
        if !self.ledger.balances() {
            faults.push("the ledger does not balance".to_owned());
        }
        faults
    }

    /// Insists that there are no [`CrossingReport::faults`].
    ///
    /// # Panics
    /// When there are.
    pub fn expect_all_and_in_order(&self) {
        assert_eq!(self.faults(), [""; 0], "{self}");
    }

    /// Insists on [`CrossingReport::expect_all_and_in_order`] and that nothing came twice.
    ///
    /// # Panics
    /// When that is not so.
    pub fn expect_all_once_and_in_order(&self) {
        self.expect_all_and_in_order();
        assert_eq!(self.tally.duplicates(), 0, "{self}");
    }
}

impl fmt::Display for CrossingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, loss, .. } = self;
        writeln!(
            f,
            "{} of {} messages of {} B in {:.1} s ({:.0}/s): {} out of order, {} damaged",
            tally.distinct(),
            self.load.messages,
            self.load.size,
            self.elapsed.as_secs_f64(),
            self.rate(),
            tally.out_of_order(),
            tally.damaged(),
        )?;
        writeln!(
            f,
            "duplicates {}, explained up to {}: unanswered {}, redelivered by the source {}, \
             across {} kills {}, published again {}",
            tally.duplicates(),
            self.explained(),
            loss.unanswered,
            loss.source_redelivered,
            loss.kills,
            loss.across_kills,
            self.fed.sent_again,
        )?;
        write!(f, "ledger: {}", self.ledger)
    }
}
