//! What is offered next, and how: the half of the worker that sends.

use bridge_core::{Admitted, Link, NotAdmitted, Topic};
use futures_util::future::FutureExt;

use super::{Item, Worker};
use crate::mapping::{self, Unfit};
use crate::phase::{Event, Phase};

impl Worker<'_> {
    /// The next message to offer: the queue's first, then what has just arrived.
    pub(super) fn next_item(&mut self) -> Option<Item> {
        let stopping = self.context.stopping.is_cancelled();
        if !self.second.is_loaded() && !stopping {
            return None;
        }
        if !stopping && !self.moves.are_many() {
            self.second.deferral.wake(self.context.clock.monotonic());
            if let Some((seq, stored)) = self.second.next() {
                return Some(Item::Deferred(seq, stored));
            }
        }
        if self.phase == Phase::Replaying {
            // A service that stops leaves the queue for its next run.
            if stopping {
                self.pass.discard();
            }
            if self.second.deferral.is_sweeping() || self.moves.are_many() {
                return None;
            }
            while let Some(entry) = self.pass.next() {
                match entry.message {
                    Ok(stored) => return Some(Item::Replay(entry.seq, stored)),
                    Err(failure) => self.cannot_read(entry.seq, &failure),
                }
            }
            // While the rest of the queue drains, what arrives already waits in memory behind it:
            // under steady traffic a queue that everything still goes through is never empty.
            if !stopping && self.lane.go_live(self.longest_hand_over()) && self.lane.is_complete() {
                let usage = self.lane.store.usage(&self.lane.key);
                if self.pass.is_over(&usage, !self.moves.is_idle()) {
                    self.pass.end();
                    self.on(Event::Drained);
                }
            }
        }
        if self.phase != Phase::Live {
            return None;
        }
        let job = self.lane.take_live()?;
        let number = self.next_live;
        self.next_live += 1;
        Some(Item::Live(number, job))
    }

    /// Offers a message; one that is `alone` has the session for itself.
    pub(super) fn offer(&mut self, item: Item, alone: bool) {
        self.send(item, alone);
        if alone && !self.trial.is_on() {
            // It was not sent at all.
            self.share.release();
        }
    }

    fn send(&mut self, item: Item, alone: bool) {
        let link = self.sink.link();
        if link.is_up() && link != self.link {
            // A new connection that was not heard of yet: what the old one carried is lost, and
            // goes before this message.
            self.link = link;
            self.connected();
            self.keep(item);
            self.on(Event::Unanswered);
            return;
        }
        let Link::Up { limits, .. } = self.link else {
            self.keep(item);
            self.on(Event::LinkDown);
            return;
        };
        let now = self.context.clock.wall();
        let outgoing = mapping::outgoing(
            item.stored(),
            &self.lane.key.route,
            &self.lane.spec,
            &limits,
            now,
        );
        let overtaken = match &item {
            Item::Deferred(seq, _) => {
                let now = self.context.clock.monotonic();
                self.second.deferral.offer(*seq, now)
            }
            Item::Live(..) | Item::Replay(..) => false,
        };
        match outgoing {
            Ok(outgoing) if self.lines_up(&item, &outgoing.topic) => {
                self.line_up(item, outgoing.topic);
            }
            Ok(mut outgoing) => {
                // The topic's retained value may be a newer one already.
                outgoing.retain &= !overtaken;
                if outgoing.retain && !matches!(item, Item::Deferred(..)) {
                    let id = item.stored().id;
                    outgoing.retain = !self.retained.offered(id, &outgoing.topic);
                }
                if alone {
                    let now = self.context.clock.monotonic();
                    self.trial.begin(item.stored().id, now);
                }
                self.share.begun();
                let mut admission = self.sink.publish(outgoing);
                match (&mut admission).now_or_never() {
                    Some(result) => self.item_admitted(item, result),
                    None => self.admission = Some((Some(item), admission)),
                }
            }
            Err(Unfit::Expired) => self.expired(item),
            Err(Unfit::Refused(reason)) => self.give_up(item, reason, None),
        }
    }

    pub(super) fn admitted(
        &mut self,
        (item, result): (Option<Item>, Result<Admitted, NotAdmitted>),
    ) {
        self.admission = None;
        if let Some(item) = item {
            self.item_admitted(item, result);
        }
    }

    fn item_admitted(&mut self, item: Item, result: Result<Admitted, NotAdmitted>) {
        match result {
            Ok(answer) => self.under_way.push(item, answer),
            Err(NotAdmitted::LinkDown) => {
                self.not_under_way(&item, false);
                self.keep(item);
                self.on(Event::LinkDown);
            }
            Err(NotAdmitted::Refused(refusal)) => {
                self.not_under_way(&item, false);
                self.give_up(item, refusal.reason(), Some(refusal.to_string()));
            }
        }
    }

    /// Whether older messages of its topic are deferred, and this one has to stay behind them.
    fn lines_up(&self, item: &Item, topic: &Topic) -> bool {
        !matches!(item, Item::Deferred(..)) && self.second.deferral.holds(topic)
    }

    fn line_up(&mut self, item: Item, topic: Topic) {
        let (wall, now) = (self.context.clock.wall(), self.context.clock.monotonic());
        let Some(mut info) = self.second.deferral.lining_up(&topic, wall) else {
            self.keep(item);
            return;
        };
        let size = item.stored().message.size();
        if !self.second.deferral.has_room(size) {
            self.lane.metrics.deferred_overflow.inc();
            let why = "older messages of its topic are deferred, and there is no room for more";
            self.give_up(item, info.reason, Some(why.to_owned()));
            return;
        }
        info.overtaken = self.retained.forget(item.stored().id);
        match item {
            Item::Live(_, job) => {
                self.second.deferral.placing(&topic, size);
                self.lane.defer(job, topic, info);
            }
            Item::Replay(seq, stored) | Item::Deferred(seq, stored) => {
                self.pass.leaves(seq);
                self.lane.watched.moves(stored.id, seq);
                self.second
                    .deferral
                    .begin(seq, &topic, size, info.clone(), now);
                self.moves.defer(seq, info);
            }
        }
    }
}
