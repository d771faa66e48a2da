//! Lines whose first message costs the connection, by all that is known (I06).

use std::time::Duration;

use bridge_core::{Reason, Seq};

use super::{Course, Deferral, Line, Place};

impl Line {
    /// Whether what is in it costs the connection, by all that is known.
    pub(super) fn is_suspected(&self) -> bool {
        self.reason == Reason::SuspectedRefusal && self.course != Course::Granted
    }
}

impl Deferral {
    /// Lets the next suspected line be tried, if it is time: one each time, for each costs a
    /// connection. A reconnect does not skip that, for it may be the trial's own doing.
    pub(super) fn wake_trial(&mut self, now: Duration) {
        if !self.any_suspected || self.trial.is_some() || now < self.next_trial {
            return;
        }
        let suspected = self.lines.values().filter(|line| line.is_suspected());
        let heads = suspected.filter_map(|line| line.seqs.first().copied());
        let mut heads: Vec<Seq> = heads.filter(|seq| self.is(*seq, Place::Waiting)).collect();
        heads.sort_unstable();
        let after_last = heads.iter().find(|seq| Some(**seq) > self.last_trial);
        self.trial = after_last.or(heads.first()).copied();
        if self.trial.is_some() {
            self.next_trial = now.saturating_add(self.spec.retry_interval);
            self.last_trial = self.trial;
        }
    }

    /// The message whose trial is due is not tried this time.
    pub(crate) fn skip_trial(&mut self) {
        self.trial = None;
    }

    /// Whether a message costs the connection, by all that is known: it has to be alone.
    pub(crate) fn is_suspected(&self, seq: Seq) -> bool {
        let entry = self.entries.get(&seq);
        let line = entry.and_then(|entry| self.lines.get(&entry.topic));
        line.is_some_and(Line::is_suspected)
    }
}
