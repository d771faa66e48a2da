//! What an answer means for a deferred message, and for those of its topic.

use std::time::Duration;

use bridge_core::{DeferInfo, Reason, Seq, Timestamp, Topic};

use super::{Course, Deferral, Place, Refusal};

impl Deferral {
    /// An offered message was accepted: the others of its line follow. When it is `retained`, it
    /// overtakes those before it; these are what is to be stored of them.
    pub(crate) fn accepted(
        &mut self,
        seq: Seq,
        retained: bool,
        now: Duration,
    ) -> Vec<(Seq, DeferInfo)> {
        let Some(entry) = self.entries.get(&seq) else {
            return Vec::new();
        };
        let retained = retained && !entry.info.overtaken;
        let topic = entry.topic.clone();
        if let Some(line) = self.lines.get_mut(&topic)
            && (line.course == Course::Untried || line.is_suspected())
        {
            line.course = Course::Granted;
        }
        self.remove(seq);
        self.open(&topic, now);
        if retained {
            self.overtaken(&topic, Some(seq))
        } else {
            Vec::new()
        }
    }

    /// The destination has a retained value of `topic` that was not deferred: `seq` in the queue, or
    /// newer than all of them. What is older is to follow without its retain flag, after a restart
    /// too: that is what is to be stored.
    pub(crate) fn overtaken(&mut self, topic: &Topic, by: Option<Seq>) -> Vec<(Seq, DeferInfo)> {
        let Some(line) = self.lines.get(topic) else {
            return Vec::new();
        };
        let older = line
            .seqs
            .iter()
            .filter(|seq| by.is_none_or(|by| **seq < by));
        let mut noted = Vec::new();
        for seq in older {
            if let Some(entry) = self.entries.get_mut(seq)
                && !entry.info.overtaken
            {
                entry.info.overtaken = true;
                noted.push((*seq, entry.info.clone()));
            }
        }
        noted
    }

    /// An offered message was refused once more.
    pub(crate) fn refused(
        &mut self,
        seq: Seq,
        reason: Reason,
        (wall, now): (Timestamp, Duration),
    ) -> Option<Refusal> {
        let window = self.spec.window;
        let entry = self.entries.get_mut(&seq)?;
        self.any_suspected |= reason == Reason::SuspectedRefusal;
        entry.info.reason = reason;
        entry.info.last_refusal = wall;
        entry.info.attempts = entry.info.attempts.saturating_add(1);
        let (info, topic) = (entry.info.clone(), entry.topic.clone());
        let over = entry.is_over(window, now);
        if let Some(line) = self.lines.get_mut(&topic) {
            line.reason = reason;
        }
        if over {
            self.remove(seq);
            self.open(&topic, now);
            return Some(Refusal::Over(info));
        }
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.place = Place::Moving;
        }
        self.offered = self.offered.saturating_sub(1);
        self.close(&topic);
        Some(Refusal::Stays(info))
    }

    /// An offered message got no verdict: it waits where it is for the next sweep.
    pub(crate) fn put_back(&mut self, seq: Seq) {
        self.trial = self.trial.filter(|trial| *trial != seq);
        let Some(entry) = self.entries.get_mut(&seq) else {
            return;
        };
        if entry.place == Place::Offered {
            entry.place = Place::Waiting;
            self.offered = self.offered.saturating_sub(1);
        }
        let topic = entry.topic.clone();
        self.ready.remove(&seq);
        self.close(&topic);
    }
}
