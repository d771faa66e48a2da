//! Finding out which message costs the connection: the shell around [`Suspicion`].

use std::time::Duration;

use bridge_core::{MessageId, Reason};

use super::witness::Search;
use super::{Item, Worker};
use crate::lane::Job;
use crate::session::Share;
use crate::suspicion::{Finding, Next, Stood, Suspicion};

/// What a worker is about with messages under suspicion.
#[derive(Default)]
pub(super) struct Trial {
    pub(super) suspicion: Suspicion,
    /// The message that is alone under way.
    alone: Option<MessageId>,
    /// The monotonic instants at which the connection came and that message was offered on it.
    connected: Duration,
    begun: Duration,
    /// A message under suspicion that waits until it may be alone, or until others were accepted.
    pub(super) parked: Option<Item>,
    /// The first message, in order, that got no answer when the connection ended.
    first_unanswered: Option<(Order, MessageId)>,
    /// The monotonic instant until which others are waited for.
    pub(super) others_until: Option<Duration>,
    /// How many messages the session had accepted when a connection last ended on one that was
    /// alone.
    at_last_strike: u64,
    /// How often in a row there were none.
    lonely: u32,
    pub(super) search: Option<Search>,
}

/// The order of what is under way: the queue goes before what has just arrived.
type Order = (bool, u64);

impl Trial {
    pub(super) fn may_send(&self, share: &Share) -> bool {
        self.alone.is_none() && share.may_send()
    }

    pub(super) const fn is_on(&self) -> bool {
        self.alone.is_some()
    }

    pub(super) fn begin(&mut self, id: MessageId, now: Duration) {
        self.alone = Some(id);
        self.begun = now;
    }

    /// There is a new connection.
    pub(super) fn connected(&mut self, now: Duration) {
        self.connected = now;
    }

    /// How long the connection stood that has ended on the message that was alone.
    fn stood(&self, now: Duration) -> Stood {
        Stood {
            before: self.begun.saturating_sub(self.connected),
            after: now.saturating_sub(self.begun),
        }
    }

    /// Takes a parked message of the live path out, when `over` says so of it.
    pub(super) fn take_live_if(&mut self, over: impl Fn(&Job) -> bool) -> Option<Job> {
        match self.parked.take() {
            Some(Item::Live(_, job)) if over(&job) => Some(job),
            parked => {
                self.parked = parked;
                None
            }
        }
    }
}

impl Worker<'_> {
    /// The next message to offer, and whether it is alone: one under suspicion is.
    pub(super) fn next_allowed(&mut self) -> Option<(Item, bool)> {
        let item = match self.trial.parked.take() {
            Some(item) => item,
            None => self.next_item()?,
        };
        if !self.is_under_suspicion(&item) {
            return Some((item, false));
        }
        let (id, accepted) = (item.stored().id, self.share.accepted());
        if self.trial.suspicion.next(id, accepted) == Next::Others {
            if let Item::Deferred(seq, _) = item {
                let now = self.context.clock.monotonic();
                let interval = self.lane.spec.deferral.retry_interval;
                if !self.trial.suspicion.is_due(id, now, interval) {
                    // The queue goes on meanwhile; its turn comes again.
                    self.second.deferral.skip_trial();
                    self.second.deferral.put_back(seq);
                    return self.next_item().map(|item| (item, false));
                }
            } else if !self.is_lonely() {
                let other = self.another(&item);
                self.trial.parked = Some(item);
                return other.map(|item| (item, false));
            }
        }
        if self.share.claim() {
            self.trial.others_until = None;
            self.trial.search = None;
            return Some((item, true));
        }
        self.trial.parked = Some(item);
        None
    }

    fn is_under_suspicion(&mut self, item: &Item) -> bool {
        let id = item.stored().id;
        if let Item::Deferred(seq, _) = item
            && self.second.deferral.is_suspected(*seq)
        {
            self.trial.suspicion.doubt(id, self.trial.at_last_strike);
        }
        self.trial.suspicion.concerns(id)
    }

    /// Whether others were waited for long enough, and none was accepted.
    fn is_lonely(&mut self) -> bool {
        let now = self.context.clock.monotonic();
        if let Some(until) = self.trial.others_until {
            let searched = self.trial.search.as_ref().is_none_or(Search::is_over);
            return searched && now >= until;
        }
        self.trial.lonely = self.trial.lonely.saturating_add(1);
        let backoff = &self.context.backoff;
        let delay = backoff.delay(self.trial.lonely, rand::random());
        self.trial.others_until = Some(now.saturating_add(delay));
        false
    }

    /// A message is no longer under way. Says whether it was alone.
    pub(super) fn not_under_way(&mut self, item: &Item, accepted: bool) -> bool {
        self.share.ended(accepted);
        if accepted {
            self.trial.lonely = 0;
        }
        let was_alone = self.trial.alone == Some(item.stored().id);
        if was_alone {
            self.trial.alone = None;
            self.share.release();
        }
        was_alone
    }

    /// The connection ended while this message was under way, and may have reached the broker.
    pub(super) fn connection_ended_on(&mut self, item: Item, alone: bool) {
        let id = item.stored().id;
        let accepted = self.share.accepted();
        if !alone {
            let order = match &item {
                Item::Deferred(..) => {
                    self.trial.suspicion.suspect(id, accepted);
                    None
                }
                Item::Replay(seq, _) => Some((false, seq.get())),
                Item::Live(number, _) => Some((true, *number)),
            };
            if let Some(order) = order
                && self
                    .trial
                    .first_unanswered
                    .is_none_or(|(first, _)| order < first)
            {
                self.trial.first_unanswered = Some((order, id));
            }
            self.keep(item);
            return;
        }
        let deferred = match &item {
            Item::Deferred(seq, _) => self.second.deferral.is_suspected(*seq),
            Item::Live(..) | Item::Replay(..) => false,
        };
        self.trial.at_last_strike = accepted;
        let now = self.context.clock.monotonic();
        let interval = self.lane.spec.deferral.retry_interval;
        let stood = deferred && self.trial.stood(now).until_offered(interval);
        match self.trial.suspicion.ended(id, accepted, stood, now) {
            Finding::Strike if !deferred => self.keep(item),
            Finding::Nothing => self.keep(item),
            Finding::Guilty | Finding::Strike => {
                let why = "the connection ends whenever this message is sent";
                self.refused(item, Reason::SuspectedRefusal, Some(why.to_owned()));
            }
        }
    }

    /// The connection is over, and everything that was under way is answered or lost.
    pub(super) fn adjourn(&mut self) {
        if let Some((_, id)) = self.trial.first_unanswered.take() {
            let accepted = self.share.accepted();
            self.trial.suspicion.suspect(id, accepted);
        }
        if let Some(parked) = self.trial.parked.take() {
            self.keep(parked);
        }
        self.trial.others_until = None;
        self.trial.search = None;
        self.share.release();
    }

    /// Nothing is to be known any more of a message that is done, given up on, or left.
    pub(super) fn forget(&mut self, id: MessageId) {
        self.attempts.forget(id);
        self.retained.forget(id);
        self.trial.suspicion.clear(id);
    }
}
