//! What becomes of a message once it is answered: the half of the worker that applies verdicts.

use bridge_core::{Answer, DeadLetterInfo, Disposition, Reason, ReasonCode, Unanswered, Verdict};
use tracing::warn;

use super::burial::Burial;
use super::{Item, Worker};
use crate::OnExpired;
use crate::metrics::DropPolicy;
use crate::phase::Event;

impl Worker<'_> {
    pub(super) fn answered(&mut self, item: Item, answer: Answer) {
        let (code, reason_string) = match answer {
            Answer::Answered {
                code,
                reason_string,
            } => (code, reason_string),
            Answer::Unanswered(how) => {
                if how == Unanswered::MayHaveBeenSent {
                    self.lane.metrics.unanswered.inc();
                }
                self.keep(item);
                self.on(Event::Unanswered);
                return;
            }
        };
        match Verdict::of(code).disposition(item.path()) {
            Disposition::Delivered => self.delivered(item),
            // Until a message can be deferred, a policy's refusal is final on both paths.
            Disposition::DeadLetter | Disposition::Defer => {
                self.give_up(item, Reason::Broker(code), reason_string);
            }
            Disposition::Keep => {
                self.announce(&item, code);
                self.keep(item);
                self.refusals = self.refusals.saturating_add(1);
                let delay = self.context.backoff.delay(self.refusals, rand::random());
                let until = self.context.clock.monotonic() + delay;
                self.on(Event::RefusedForNow { until });
                return;
            }
        }
        self.refusals = 0;
    }

    fn delivered(&mut self, item: Item) {
        let metrics = &self.lane.metrics;
        metrics.delivered.inc();
        match item {
            Item::Live(_, job) => {
                metrics.published.inc();
                job.token.settled();
            }
            Item::Replay(seq, _) => {
                metrics.replayed.inc();
                self.lane.store.settle(&self.lane.key, &[seq]);
            }
        }
    }

    /// A message that is to be offered again: a queued one is still in its place.
    pub(super) fn keep(&mut self, item: Item) {
        if let Item::Live(number, job) = item {
            self.lost.insert(number, job);
        }
    }

    pub(super) fn expired(&mut self, item: Item) {
        if self.lane.spec.on_expired == OnExpired::DeadLetter {
            self.give_up(item, Reason::Expired, None);
            return;
        }
        match item {
            Item::Live(_, job) => {
                self.lane.metrics.dropped_live(DropPolicy::Expired);
                job.token.settled();
            }
            Item::Replay(seq, _) => {
                self.lane.metrics.dropped_queued(DropPolicy::Expired);
                self.lane.store.settle(&self.lane.key, &[seq]);
            }
        }
    }

    /// A verdict for good: the message becomes a dead letter, and what is behind it goes on (I02).
    pub(super) fn give_up(&mut self, item: Item, reason: Reason, reason_string: Option<String>) {
        if self.announced.is_new(&item.stored().message.topic, reason) {
            warn!(
                event = "refused",
                binding = %self.lane.key,
                topic = %item.stored().message.topic,
                reason = %reason,
                reason_string,
                message_id = %item.stored().id,
                "a message cannot be delivered and is kept as a dead letter; \
                 more of this topic and reason are only counted"
            );
        }
        let now = self.context.clock.wall();
        let info = DeadLetterInfo {
            reason,
            reason_string,
            first_refusal: now,
            last_refusal: now,
            attempts: 1,
        };
        match item {
            Item::Live(_, job) => {
                self.lane.metrics.refused.inc();
                self.lane.dead_letter(job, info);
            }
            Item::Replay(seq, _) => {
                self.pass.leaves(seq);
                self.burials.begin(seq, info);
            }
        }
    }

    pub(super) fn buried(&mut self, burial: Burial) {
        match burial {
            Burial::Done(seq, reason) => {
                self.pass.has_left(seq);
                self.lane.metrics.dead_lettered(reason);
            }
            Burial::Gone(seq) => self.pass.has_left(seq),
            Burial::Failed => self.lane.metrics.store_failures.inc(),
        }
    }

    fn announce(&mut self, item: &Item, code: ReasonCode) {
        let reason = Reason::Broker(code);
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
