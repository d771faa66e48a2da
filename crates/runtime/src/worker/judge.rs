//! What becomes of a message once it is answered: the half of the worker that applies verdicts.

use std::sync::Arc;

use bridge_core::{
    Answer, DeadLetterInfo, DeferInfo, Disposition, MessageId, Reason, Seq, Topic, Unanswered,
    Verdict,
};
use tracing::{error, warn};

use super::moves::{Done, Ended};
use super::{Item, Worker};
use crate::deferral::Refusal;
use crate::held::HeadHeld;
use crate::lane::Came;
use crate::metrics::DropPolicy;
use crate::phase::Event;
use crate::{OnDeadLettersFull, OnExpired, mapping};

impl Worker<'_> {
    pub(super) fn answered(&mut self, item: Item, answer: Answer) {
        let accepted = match &answer {
            Answer::Answered { by, code, .. } => Verdict::of(*by, *code) == Verdict::Accepted,
            Answer::Unanswered(_) | Answer::Failed { .. } => false,
        };
        let was_alone = self.not_under_way(&item, accepted);
        if !matches!(answer, Answer::Unanswered(_)) {
            self.trial.suspicion.clear(item.stored().id);
        }
        let (by, code, reason_string) = match answer {
            Answer::Answered {
                by,
                code,
                reason_string,
            } => (by, code, reason_string),
            Answer::Unanswered(how) => {
                if how != Unanswered::NeverSent {
                    self.lane.metrics.unanswered.inc();
                }
                if how == Unanswered::MayHaveBeenSent {
                    self.connection_ended_on(item, was_alone);
                } else {
                    self.keep(item);
                }
                self.on(Event::Unanswered);
                return;
            }
            Answer::Failed { reason, detail } => {
                self.failed(item, reason, detail);
                return;
            }
        };
        match Verdict::of(by, code).disposition(item.path()) {
            Disposition::Delivered => self.delivered(item),
            Disposition::DeadLetter => self.give_up(item, Reason::Broker(code), reason_string),
            Disposition::Defer => self.refused(item, Reason::Broker(code), reason_string),
            Disposition::Keep => {
                let reason = Reason::Broker(code);
                self.announce(&item, reason);
                // The quota of a deferred message is not that of the queue's head.
                let deferred = matches!(item, Item::Deferred(..));
                self.keep(item);
                if !deferred {
                    self.refusals = self.refusals.saturating_add(1);
                    self.block(self.refusals, reason, reason_string);
                }
                return;
            }
        }
        self.refusals = 0;
    }

    /// The head stays, and is offered again after the back-off of `failures` in a row.
    fn block(&mut self, failures: u32, reason: Reason, reason_string: Option<String>) {
        let delay = self.context.backoff.delay(failures, rand::random());
        let (now, wall) = (self.context.clock.monotonic(), self.context.clock.wall());
        let until = now + delay;
        let held = self.held.as_deref();
        let held = HeadHeld::once_more(held, reason, reason_string, wall, wall.after(delay));
        self.held = Some(Arc::new(held));
        self.on(Event::RefusedForNow { until });
    }

    fn delivered(&mut self, item: Item) {
        self.head_is_done(&item);
        self.attempts.forget(item.stored().id);
        self.lane.metrics.delivered.inc();
        self.lane.watched.tell(item.stored().id, Came::Delivered);
        let retained = self.retained.accepted(item.stored().id);
        let deferral = &mut self.second.deferral;
        let queued = match &item {
            Item::Replay(seq, _) => Some(*seq),
            Item::Live(..) | Item::Deferred(..) => None,
        };
        let (done, overtaken) = match item {
            Item::Live(_, job) => {
                self.lane.metrics.published.inc();
                let overtaken = retained.map(|topic| deferral.overtaken(&topic, None));
                (Done::Live(job.token), overtaken.unwrap_or_default())
            }
            Item::Replay(seq, _) => {
                self.lane.metrics.replayed.inc();
                let overtaken = retained.map(|topic| deferral.overtaken(&topic, Some(seq)));
                (Done::Stored(seq), overtaken.unwrap_or_default())
            }
            Item::Deferred(seq, stored) => {
                self.lane.metrics.deferred_recovered.inc();
                let retained = self.lane.spec.retain.apply(&stored.message);
                let now = self.context.clock.monotonic();
                let overtaken = deferral.accepted(seq, retained, now);
                (Done::Stored(seq), overtaken)
            }
        };
        if overtaken.is_empty() {
            return self.done(done);
        }
        // It is done with when that is stored: no crash brings back an older retained value.
        if let Some(seq) = queued {
            self.pass.leaves(seq);
        }
        self.moves.note(overtaken, done);
    }

    /// The destination has it, and the store knows all that follows from that.
    fn done(&mut self, done: Done) {
        match done {
            Done::Live(token) => token.settled(),
            Done::Stored(seq) => {
                if self.pass.is_leaving(seq) {
                    self.pass.has_left(seq);
                }
                self.lane.store.settle(&self.lane.key, &[seq]);
            }
        }
    }

    /// What was first in the queue has been dealt with.
    fn head_is_done(&mut self, item: &Item) {
        if !matches!(item, Item::Deferred(..)) {
            self.head_failed = false;
            self.held = None;
        }
    }

    /// A message that is to be offered again: a queued or deferred one is still in its place.
    pub(super) fn keep(&mut self, item: Item) {
        match item {
            Item::Live(number, job) => drop(self.lost.insert(number, job)),
            Item::Replay(seq, _) => self.pass.stays(seq),
            Item::Deferred(seq, _) => self.second.deferral.put_back(seq),
        }
    }

    pub(super) fn expired(&mut self, item: Item) {
        if self.lane.spec.on_expired == OnExpired::DeadLetter {
            self.give_up(item, Reason::Expired, None);
            return;
        }
        self.head_is_done(&item);
        self.forget(item.stored().id);
        let dropped = Came::Dropped(DropPolicy::Expired);
        self.lane.watched.tell(item.stored().id, dropped);
        match item {
            Item::Live(_, job) => {
                self.lane.metrics.dropped_live(DropPolicy::Expired);
                job.token.settled();
            }
            Item::Replay(seq, _) | Item::Deferred(seq, _) => {
                self.pass.has_left(seq);
                self.second.deferral.remove(seq);
                self.lane.metrics.dropped_queued(DropPolicy::Expired);
                self.lane.store.settle(&self.lane.key, &[seq]);
            }
        }
    }

    /// A refusal that may change on the replay path: the message gets its second chance, or has
    /// had it.
    pub(super) fn refused(&mut self, item: Item, reason: Reason, reason_string: Option<String>) {
        let (wall, now) = (self.context.clock.wall(), self.context.clock.monotonic());
        match item {
            Item::Deferred(seq, stored) => {
                match self.second.deferral.refused(seq, reason, (wall, now)) {
                    Some(Refusal::Stays(info)) => self.moves.defer(seq, info),
                    Some(Refusal::Over(info)) => {
                        let count = self.attempts.forget(stored.id);
                        let failures = count.map_or(0, |count| count.failures);
                        let info = DeadLetterInfo {
                            reason,
                            reason_string,
                            first_refusal: info.first_refusal,
                            last_refusal: info.last_refusal,
                            attempts: info.attempts.saturating_add(failures),
                        };
                        self.announce_given_up(&stored.message.topic, stored.id, &info);
                        self.bury(Item::Deferred(seq, stored), info);
                    }
                    None => {}
                }
            }
            Item::Live(..) => self.give_up(item, reason, reason_string),
            Item::Replay(seq, ref stored) => {
                let size = stored.message.size();
                let topic = mapping::topic(stored, &self.lane.key.route, &self.lane.spec);
                let Some(topic) = topic.filter(|_| self.second.deferral.has_room(size)) else {
                    self.lane.metrics.deferred_overflow.inc();
                    self.give_up(item, reason, reason_string);
                    return;
                };
                if self.announced.is_new(&stored.message.topic, reason) {
                    warn!(
                        event = "deferred",
                        binding = %self.lane.key,
                        topic = %stored.message.topic,
                        reason = %reason,
                        reason_string,
                        message_id = %stored.id,
                        window = ?self.lane.spec.deferral.window,
                        "a message is refused and offered again for a while, and what follows of \
                         its topic waits behind it; more of this topic and reason are only counted"
                    );
                }
                let count = self.attempts.forget(stored.id);
                let info = DeferInfo {
                    reason,
                    first_refusal: wall,
                    last_refusal: wall,
                    attempts: count.map_or(0, |count| count.failures).saturating_add(1),
                    overtaken: self.retained.forget(stored.id),
                };
                self.head_is_done(&item);
                self.pass.leaves(seq);
                self.lane.watched.moves(stored.id, seq);
                let deferral = &mut self.second.deferral;
                deferral.begin(seq, &topic, size, info.clone(), now);
                self.moves.defer(seq, info);
            }
        }
    }

    /// The destination failed on a message and gave no verdict: it is offered again, in its place,
    /// as often as the binding allows.
    fn failed(&mut self, item: Item, reason: Reason, detail: Option<String>) {
        let wall = self.context.clock.wall();
        let count = self.attempts.failed(item.stored().id, wall);
        if count.failures >= self.lane.spec.max_attempts.get() {
            let last = detail.map_or_else(|| reason.to_string(), |d| format!("{reason}: {d}"));
            self.give_up(item, Reason::RetriesExhausted, Some(last));
            return;
        }
        let deferred = matches!(item, Item::Deferred(..));
        self.keep(item);
        if !deferred {
            self.block(count.failures, reason, detail);
        }
    }

    /// A verdict for good: the message becomes a dead letter, and what is behind it goes on (I02).
    pub(super) fn give_up(&mut self, item: Item, reason: Reason, reason_string: Option<String>) {
        let now = self.context.clock.wall();
        let count = self.attempts.forget(item.stored().id);
        self.retained.forget(item.stored().id);
        let deferred = match &item {
            Item::Deferred(seq, _) => self.second.deferral.remove(*seq),
            Item::Live(..) | Item::Replay(..) => None,
        };
        let failures = count.map_or(0, |count| count.failures);
        let earlier = deferred.as_ref().map_or(0, |info| info.attempts);
        // The last failure is counted already; a refusal is not.
        let this = u32::from(reason != Reason::RetriesExhausted);
        let info = DeadLetterInfo {
            reason,
            reason_string,
            first_refusal: deferred
                .map(|info| info.first_refusal)
                .or(count.map(|count| count.first))
                .unwrap_or(now),
            last_refusal: now,
            attempts: failures.saturating_add(earlier).saturating_add(this),
        };
        self.announce_given_up(&item.stored().message.topic, item.stored().id, &info);
        self.bury(item, info);
    }

    /// Keeps a message as a dead letter, or does what the configuration wants when there is no
    /// room.
    fn bury(&mut self, item: Item, info: DeadLetterInfo) {
        self.trial.suspicion.clear(item.stored().id);
        self.head_is_done(&item);
        match &item {
            Item::Replay(seq, stored) => {
                self.pass.leaves(*seq);
                self.lane.watched.moves(stored.id, *seq);
            }
            Item::Deferred(seq, stored) => self.lane.watched.moves(stored.id, *seq),
            Item::Live(..) => {}
        }
        let lane = self.lane;
        let size = item.stored().message.size();
        if matches!(item, Item::Live(..)) {
            lane.metrics.refused.inc();
        }
        let dying = self.moves.dying();
        if lane.has_room_for_a_dead_letter(size, dying) {
            self.told_full = false;
            match item {
                Item::Live(_, job) => lane.dead_letter(job, info),
                Item::Replay(seq, _) | Item::Deferred(seq, _) => self.moves.bury(seq, info, size),
            }
            return;
        }
        if lane.spec.dead_letters.on_full == OnDeadLettersFull::Hold {
            self.tell_full();
        }
        match item {
            Item::Live(_, job) => lane.hold_dead_letter(job, info),
            Item::Replay(seq, _) | Item::Deferred(seq, _) => self.moves.hold(seq, info, size),
        }
        self.discard_what_has_no_room();
    }

    /// There is no room for a dead letter.
    fn tell_full(&mut self) {
        let policy = self.lane.spec.dead_letters.on_full;
        self.lane.metrics.dead_letter_overflow(policy);
        if !std::mem::replace(&mut self.told_full, true) {
            error!(
                event = "dead_letters_full",
                binding = %self.lane.key,
                policy = ?policy,
                "the dead letters are full: raise their bounds (dead_letters); more of \
                 this are only counted"
            );
        }
    }

    /// Drops dead letters for which there is no room, if that is the policy. While some are being
    /// written, it is not known: the store may count them already, or not yet.
    pub(super) fn discard_what_has_no_room(&mut self) {
        let policy = self.lane.spec.dead_letters.on_full;
        if policy == OnDeadLettersFull::Hold || self.moves.dying().entries > 0 {
            return;
        }
        while let Some(job) = self.lane.take_unburied() {
            self.tell_full();
            job.token.settled();
        }
        while let Some(seq) = self.moves.take_held() {
            self.tell_full();
            self.pass.has_left(seq);
            let dropped = Came::Dropped(DropPolicy::DeadLettersFull);
            self.lane.watched.tell_of(seq, dropped);
            self.lane.store.settle(&self.lane.key, &[seq]);
        }
    }

    pub(super) fn moved(&mut self, ended: Ended) {
        match ended {
            Ended::Deferred(seq) => {
                if self.pass.is_leaving(seq) {
                    self.lane.metrics.deferred.inc();
                }
                self.pass.has_left(seq);
                self.lane.watched.tell_of(seq, Came::Deferred);
                let now = self.context.clock.monotonic();
                self.second.deferral.moved(seq, now);
                self.noted(seq);
            }
            Ended::Dead(seq, reason) => {
                self.pass.has_left(seq);
                self.lane.metrics.dead_lettered(reason);
                self.lane.watched.tell_of(seq, Came::Dead(seq, reason));
            }
            Ended::Gone(seq) => {
                self.pass.has_left(seq);
                self.second.deferral.remove(seq);
                self.noted(seq);
            }
            Ended::Noted => {}
            Ended::Failed => self.lane.metrics.store_failures.inc(),
        }
    }

    fn noted(&mut self, seq: Seq) {
        for done in self.moves.noted(seq) {
            self.done(done);
        }
    }

    fn announce_given_up(&mut self, topic: &Topic, id: MessageId, info: &DeadLetterInfo) {
        if self.announced.is_new(topic, info.reason) {
            warn!(
                event = "refused",
                binding = %self.lane.key,
                topic = %topic,
                reason = %info.reason,
                reason_string = info.reason_string,
                message_id = %id,
                "a message cannot be delivered and is kept as a dead letter; \
                 more of this topic and reason are only counted"
            );
        }
    }

    fn announce(&mut self, item: &Item, reason: Reason) {
        if self.announced.is_new(&item.stored().message.topic, reason) {
            warn!(
                event = "refused_for_now",
                binding = %self.lane.key,
                topic = %item.stored().message.topic,
                reason = %reason,
                "the broker takes a message at another time; it stays in its place"
            );
        }
    }
}
