//! The audit log: who did or saw what, to which entries, and what came of it.
//!
//! Its target is `audit`, which the log of the service never filters out. What changes something
//! is written down before it begins as well, so that a crash in between leaves a trace.
use std::fmt::{self, Display, Write as _};

use tracing::info;

use crate::auth::Who;

/// So many ids are written out; all are counted.
const IDS: usize = 20;

/// Something that is to be done, or was seen.
#[derive(Debug)]
pub(crate) struct Act<'a> {
    who: &'a Who,
    what: &'static str,
    target: String,
}

impl<'a> Act<'a> {
    /// `who` asks for `what`, a verb, of `target`: ids, a filter, a binding.
    pub(crate) fn new(who: &'a Who, what: &'static str, target: impl Display) -> Self {
        Self {
            who,
            what,
            target: target.to_string(),
        }
    }

    /// It is about to begin.
    pub(crate) fn begins(&self) {
        info!(
            target: "audit",
            event = "audit",
            action = self.what,
            stage = "begins",
            who = %self.who,
            peer = %self.who.peer().address.ip(),
            what = self.target,
        );
    }

    /// It is over, with that outcome.
    pub(crate) fn ended(&self, outcome: impl Display) {
        info!(
            target: "audit",
            event = "audit",
            action = self.what,
            stage = "ended",
            who = %self.who,
            peer = %self.who.peer().address.ip(),
            what = self.target,
            outcome = %outcome,
        );
    }
}

/// Ids, the first of them written out.
pub(crate) struct Ids<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for Ids<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries:", self.0.len())?;
        for id in self.0.iter().take(IDS) {
            write!(f, " {id}")?;
        }
        if self.0.len() > IDS {
            f.write_char('…')?;
        }
        Ok(())
    }
}
