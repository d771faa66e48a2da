//! The audit log: who did or saw what, to which entries, and what came of it.
//!
//! Its target is `audit`, which the log of the service never filters out. What changes something
//! is written down before it begins as well, so that a crash in between leaves a trace. What has
//! begun has one end in the log, whatever becomes of who asked.
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::info;

use crate::auth::Who;

/// So many ids are in the line that says what a call is about; all are counted.
const FIRST: usize = 20;
/// So many ids are in one line of those that have all.
const IN_A_LINE: usize = 100;

/// The number of the next call since the process began: it tells which lines are of one.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// Something that is to be done, or was seen.
#[derive(Debug)]
pub(crate) struct Act {
    call: u64,
    who: Who,
    what: &'static str,
    target: String,
    /// The ids that `target` leaves out, as lines.
    more: Vec<String>,
}

/// Something that has begun. Dropped before it is told how it ended, it says that nobody knows.
#[derive(Debug)]
pub(crate) struct Begun {
    act: Act,
    told: bool,
}

impl Act {
    /// `who` asks for `what`, a verb, of `target`: a filter, a binding.
    pub(crate) fn new(who: &Who, what: &'static str, target: impl Display) -> Self {
        Self {
            call: CALLS.fetch_add(1, Ordering::Relaxed),
            who: who.clone(),
            what,
            target: target.to_string(),
            more: Vec::new(),
        }
    }

    /// `who` asks for `what` of these.
    pub(crate) fn of<T: Display>(who: &Who, what: &'static str, ids: &[T]) -> Self {
        let more = ids.get(FIRST..).unwrap_or_default();
        Self {
            more: more.chunks(IN_A_LINE).map(line).collect(),
            ..Self::new(who, what, Ids(ids))
        }
    }

    /// It is about to begin.
    pub(crate) fn begins(self) -> Begun {
        self.write("begins", &self.target, None);
        for ids in &self.more {
            self.write("begins", ids, None);
        }
        Begun {
            act: self,
            told: false,
        }
    }

    /// It is over, with that outcome.
    pub(crate) fn ended(self, outcome: impl Display) {
        self.write("ended", &self.target, Some(&outcome));
    }

    fn write(&self, stage: &'static str, target: &str, outcome: Option<&dyn Display>) {
        info!(
            target: "audit",
            event = "audit",
            call = self.call,
            action = self.what,
            stage,
            who = %self.who,
            peer = %self.who.peer().address.ip(),
            what = target,
            outcome = outcome.map(tracing::field::display),
        );
    }
}

impl Begun {
    /// What came of entries, so many in a line.
    pub(crate) fn came<T: Display>(&self, results: impl IntoIterator<Item = (T, String)>) {
        let mut by_outcome: BTreeMap<String, Vec<T>> = BTreeMap::new();
        for (id, outcome) in results {
            by_outcome.entry(outcome).or_default().push(id);
        }
        for (outcome, ids) in by_outcome {
            for ids in ids.chunks(IN_A_LINE) {
                self.act.write("came", &line(ids), Some(&outcome));
            }
        }
    }

    /// It is over, with that outcome.
    pub(crate) fn ended(&mut self, outcome: impl Display) {
        self.told = true;
        self.act.write("ended", &self.act.target, Some(&outcome));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.told {
            self.ended("unknown: it was cut off");
        }
    }
}

fn line<T: Display>(ids: &[T]) -> String {
    ids.iter().fold(String::new(), |mut line, id| {
        if !line.is_empty() {
            line.push(' ');
        }
        // Writing into a String cannot fail.
        let _ = write!(line, "{id}");
        line
    })
}

/// Ids, the first of them written out.
struct Ids<'a, T>(&'a [T]);

impl<T: Display> Display for Ids<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries:", self.0.len())?;
        for id in self.0.iter().take(FIRST) {
            write!(f, " {id}")?;
        }
        if self.0.len() > FIRST {
            f.write_char('…')?;
        }
        Ok(())
    }
}
