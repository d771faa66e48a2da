//! What became of a run of messages.

use std::io;
use std::time::Duration;

/// What the broker answered to each message that was given out, in their order.
#[derive(Debug)]
#[must_use = "a report may say that messages were refused or lost"]
pub struct PublishReport {
    /// The reason code of each message; `None` where no answer came.
    pub codes: Vec<Option<u8>>,
    /// What ended the connection, if that came before the last answer.
    pub lost: Option<io::Error>,
    /// From the first byte to the last answer.
    pub elapsed: Duration,
}

impl PublishReport {
    /// How many messages were accepted.
    pub fn accepted(&self) -> usize {
        self.codes
            .iter()
            .flatten()
            .filter(|code| **code < 0x80)
            .count()
    }

    /// The refused messages: each one's number, from 0, and the code.
    pub fn refused(&self) -> Vec<(usize, u8)> {
        let numbered = self.codes.iter().enumerate();
        numbered
            .filter_map(|(number, code)| code.filter(|code| *code >= 0x80).map(|c| (number, c)))
            .collect()
    }

    /// How many messages got no answer.
    pub fn unanswered(&self) -> usize {
        self.codes.iter().filter(|code| code.is_none()).count()
    }

    /// Insists that every message was accepted.
    ///
    /// # Panics
    /// When one was refused or not answered.
    pub fn expect_all_accepted(&self) {
        assert!(
            self.lost.is_none() && self.accepted() == self.codes.len(),
            "of {} messages {} were accepted, {} got no answer, refused were {:?}; lost: {:?}",
            self.codes.len(),
            self.accepted(),
            self.unanswered(),
            self.refused(),
            self.lost,
        );
    }
}
