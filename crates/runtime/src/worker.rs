//! A binding's worker: the shell around [`Phase`] that moves messages and awaits answers.
//!
//! It is the one place where a message of its binding is offered, judged and given up on (I19).
//! The queue goes before what has just arrived; a message that was lost on the way goes back to
//! its place before anything behind it is sent.

mod attempts;
mod judge;
mod moves;
mod offer;
mod pace;
mod pass;
mod reading;
mod retained;
mod room;
mod second_chance;
mod trial;
mod under_way;
mod witness;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Admitted, Backoff, BoxFuture, Clock, Link, NotAdmitted, Path, Seq, Sink, StoredMessage,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::attempts::Attempts;
use self::moves::Moves;
use self::pass::Pass;
use self::retained::Retained;
use self::second_chance::SecondChance;
use self::trial::Trial;
use self::under_way::UnderWay;
use crate::DeliveryMode;
use crate::announce::Announced;
use crate::deferral::Deferral;
use crate::held::HeadHeld;
use crate::lane::{Job, Lane, Shown};
use crate::phase::{Event, Next, Phase};
use crate::session::Share;

/// A worker that has nothing to wait for looks again after this long (I11).
const WAKE_UP: Duration = Duration::from_secs(30);
/// The longest queue that is drained while new messages already wait in memory behind it.
const HAND_OVER: u64 = 256;

/// What a message under way is to its binding.
#[derive(Debug)]
enum Item {
    /// It has just arrived; the number is its place in the order of arrival.
    Live(u64, Job),
    /// It is in the queue.
    Replay(Seq, Arc<StoredMessage>),
    /// It is deferred, and offered again.
    Deferred(Seq, Arc<StoredMessage>),
}

impl Item {
    fn stored(&self) -> &Arc<StoredMessage> {
        match self {
            Self::Live(_, job) => &job.stored,
            Self::Replay(_, stored) | Self::Deferred(_, stored) => stored,
        }
    }

    const fn path(&self) -> Path {
        match self {
            Self::Live(..) => Path::Live,
            Self::Replay(..) | Self::Deferred(..) => Path::Replay,
        }
    }
}

/// A message and its wait for a place in the window.
type Admission<'a> = (Option<Item>, BoxFuture<'a, Result<Admitted, NotAdmitted>>);

/// What a worker needs besides its lane.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Delays before a message that was refused for now, or that the store refused, is offered again.
    pub(crate) backoff: Backoff,
    /// Whether other bindings take what the same session receives.
    pub(crate) shares_source: bool,
    /// Nothing more will arrive: settle what has, and end.
    pub(crate) stopping: CancellationToken,
}

struct Worker<'a> {
    lane: &'a Arc<Lane>,
    sink: &'a dyn Sink,
    context: &'a Context,
    phase: Phase,
    link: Link,
    /// A message that waits for its place in the window.
    admission: Option<Admission<'a>>,
    under_way: UnderWay<Item>,
    /// Live messages that were lost or are to stay, until everything under way is resolved.
    lost: BTreeMap<u64, Job>,
    next_live: u64,
    pass: Pass,
    second: SecondChance,
    /// Entries that are being deferred or becoming dead letters.
    moves: Moves,
    attempts: Attempts,
    retained: Retained,
    share: Share,
    trial: Trial,
    /// Whether the latest attempt to publish what is first failed (I12).
    head_failed: bool,
    /// Why, if that was a refusal.
    held: Option<Arc<HeadHeld>>,
    /// Whether an operator has paused the binding.
    paused: bool,
    /// Whether the log says last that what arrives waits, or that the destination is slow.
    told_held: bool,
    /// Whether the destination did not keep up, and has not caught up yet.
    slow: bool,
    /// Whether it is in the log that the dead letters are full.
    told_full: bool,
    /// How often in a row the head was refused for now.
    refusals: u32,
    retry_store_at: Option<Duration>,
    announced: Announced,
}

/// Serves one binding until it is stopped and everything that was given to it has settled.
pub(crate) async fn run(lane: Arc<Lane>, share: Share, context: Context) {
    let sink = context.sink.clone();
    let mut worker = Worker {
        lane: &lane,
        sink: &*sink,
        phase: Phase::LinkDown,
        link: Link::Down,
        admission: None,
        under_way: UnderWay::new(),
        lost: BTreeMap::new(),
        next_live: 0,
        pass: Pass::default(),
        second: SecondChance::new(Deferral::new(lane.spec.deferral), &*lane.store, &lane.key),
        moves: Moves::new(lane.store.clone(), lane.key.clone(), context.backoff),
        attempts: Attempts::default(),
        retained: Retained::default(),
        share,
        trial: Trial::default(),
        head_failed: false,
        held: None,
        paused: false,
        told_held: true,
        slow: false,
        told_full: false,
        refusals: 0,
        retry_store_at: None,
        announced: Announced::default(),
        context: &context,
    };
    worker.serve().await;
}

impl Worker<'_> {
    async fn serve(&mut self) {
        let mut link_change = self.sink.changed(self.link);
        loop {
            let began = self.context.clock.monotonic();
            self.pump().await;
            if self.context.stopping.is_cancelled() && self.is_done() {
                return;
            }
            let now = self.context.clock.monotonic();
            let until = self.next_deadline(began, now);
            tokio::select! {
                answered = self.under_way.answered() => {
                    for (item, answer) in answered {
                        self.answered(item, answer);
                    }
                }
                admitted = admitted(&mut self.admission) => self.admitted(admitted),
                read = self.pass.read() => self.have_read(read),
                page = witness::page(&mut self.trial.search) => self.have_searched(page),
                read = self.second.read() => self.have_read_deferred(read),
                ended = self.moves.next() => self.moved(ended),
                link = &mut link_change => {
                    self.link_is(link);
                    link_change = self.sink.changed(link);
                }
                () = self.lane.wake.notified() => self.ring(),
                () = self.context.stopping.cancelled(), if !self.context.stopping.is_cancelled() => {}
                () = tokio::time::sleep(until.saturating_sub(now)) => self.ring(),
            }
        }
    }

    /// Starts whatever can be started.
    async fn pump(&mut self) {
        self.see_pause();
        self.keep_pace();
        self.settle_the_past();
        self.see_what_was_stored();
        self.make_room().await;
        if self.pass.are_fewer_leaving() {
            self.see_the_queue();
        }
        while self.phase.sends() && self.admission.is_none() && self.trial.may_send(&self.share) {
            if self.under_way.len() >= usize::from(self.lane.spec.max_in_flight.get()) {
                break;
            }
            let Some((item, alone)) = self.next_allowed() else {
                break;
            };
            self.offer(item, alone);
        }
        // What an offer has brought about need not wait for something else to happen.
        self.settle_the_past();
        self.read_ahead();
        let taken = self.lost.len()
            + self.moves.len()
            + self.under_way.len()
            + usize::from(self.admission.is_some())
            + usize::from(self.trial.parked.is_some());
        self.lane.show(Shown {
            phase: self.phase,
            taken: taken as u64,
            head_failed: self.head_failed,
            held: self.held.clone(),
            unburied: self.moves.unburied(),
            counted: self.attempts.len() as u64,
        });
    }

    /// Stops or goes on as the operator wants.
    fn see_pause(&mut self) {
        let wanted = self.lane.is_paused();
        if wanted == std::mem::replace(&mut self.paused, wanted) {
            return;
        }
        if wanted {
            self.on(Event::Paused);
        } else {
            let up = self.link.is_up();
            self.on(Event::Resumed { up });
        }
    }

    /// Resolves a recall when nothing is under way any more, and sees what the time has brought.
    fn settle_the_past(&mut self) {
        let now = self.context.clock.monotonic();
        self.on(Event::Tick);
        if self.phase == Phase::LinkDown {
            // A message that found no connection may be heard of after the connection that
            // followed: whoever waits for a link looks at it.
            let link = self.sink.link();
            if link.is_up() {
                self.link_is(link);
            }
        }
        if matches!(self.phase, Phase::Recalling { .. })
            && self.under_way.is_empty()
            && self.admission.is_none()
        {
            self.adjourn();
            let lost = std::mem::take(&mut self.lost);
            let drains = matches!(self.phase, Phase::Recalling { then: Next::Drain });
            if !(drains && lost.is_empty()) {
                self.lane.recall(lost.into_values());
            }
            self.pass.rewind();
            self.second.deferral.interrupt();
            self.on(Event::Resolved);
        }
        if let DeliveryMode::DirectHold { send_retry_budget } = self.lane.mode {
            let over = |job: &Job| now.saturating_sub(job.given) >= send_retry_budget;
            while let Some(job) = self.lane.take_live_if(over) {
                debug!(event = "left_at_source", binding = %self.lane.key, id = %job.stored.id);
                self.lane.metrics.left.inc();
                self.forget(job.stored.id);
                job.token.leave();
            }
            if let Some(job) = self.trial.take_live_if(over) {
                self.lane.metrics.left.inc();
                self.forget(job.stored.id);
                job.token.leave();
            }
        }
        if self.context.stopping.is_cancelled() && self.trial.parked.is_some() {
            self.on(Event::Unanswered);
        }
        // What is being recalled goes before what waits: it is older.
        let in_order = !matches!(self.phase, Phase::Live | Phase::Recalling { .. });
        if self.context.stopping.is_cancelled() {
            self.lane.leave_unburied();
            if in_order {
                self.put_away();
            }
        }
    }

    /// What has joined a line of deferred messages, and room that has come to be for dead letters.
    fn see_what_was_stored(&mut self) {
        let now = self.context.clock.monotonic();
        for placed in self.lane.take_placed() {
            let deferral = &mut self.second.deferral;
            deferral.placed(placed.seq, &placed.line, placed.size, placed.info, now);
        }
        let lane = self.lane;
        self.moves
            .retry_held(|size, under_way| lane.has_room_for_a_dead_letter(size, under_way));
        lane.retry_unburied(self.moves.dying());
        self.discard_what_has_no_room();
    }

    /// What waits in memory for a queue or a link goes where it is safe before the service ends:
    /// into the store, or it is left with the source.
    fn put_away(&mut self) {
        if !self.lane.holds_directly() {
            self.lane.recall(std::iter::empty());
            return;
        }
        if matches!(self.phase, Phase::LinkDown | Phase::Paused) {
            while let Some(job) = self.lane.take_live_if(|_| true) {
                self.lane.metrics.left.inc();
                // Not `leave`: the source is about to be closed, and keeps what it was not told.
                drop(job);
            }
        }
    }

    fn link_is(&mut self, link: Link) {
        let is_new = link.is_up() && link != self.link;
        self.link = link;
        if is_new {
            self.connected();
            if !self.under_way.is_empty() || self.admission.is_some() {
                // It was carried by a connection that ended unheard of, and goes before the rest.
                self.on(Event::Unanswered);
            }
        }
        if link.is_up() {
            self.on(Event::LinkUp);
        } else {
            self.on(Event::LinkDown);
        }
    }

    /// There is a new connection.
    fn connected(&mut self) {
        self.second.deferral.reconnected();
        self.trial.connected(self.context.clock.monotonic());
    }

    fn on(&mut self, event: Event) {
        let before = self.phase;
        if matches!(
            event,
            Event::LinkDown | Event::Unanswered | Event::RefusedForNow { .. }
        ) {
            self.head_failed = true;
            if !matches!(event, Event::RefusedForNow { .. }) {
                self.held = None;
            }
        }
        if before == Phase::LinkDown && event == Event::LinkUp {
            // What waits could not go before.
            let usage = self.lane.store.usage(&self.lane.key);
            self.head_failed = usage.queue.entries > 0;
        }
        self.phase = before.on_event(event, self.context.clock.monotonic());
        if self.phase != before {
            let usage = self.lane.store.usage(&self.lane.key);
            let depth = usage.queue.entries;
            match self.phase {
                Phase::LinkDown | Phase::Blocked { .. } | Phase::Paused => {
                    self.told_held = true;
                    info!(
                        event = "binding_held",
                        binding = %self.lane.key,
                        state = self.phase.as_str(),
                        depth,
                        "what arrives waits in the queue"
                    );
                }
                // Not after each message that was redriven on the way.
                Phase::Live if std::mem::replace(&mut self.told_held, false) => {
                    self.slow = false;
                    info!(
                        event = "binding_live",
                        binding = %self.lane.key,
                        "what arrives goes straight to the destination"
                    );
                }
                phase => debug!(
                    event = "binding_state",
                    binding = %self.lane.key,
                    state = phase.as_str(),
                    depth,
                ),
            }
        }
    }

    /// Until when nothing is to be done, after a pump that began a moment ago.
    fn next_deadline(&self, began: Duration, now: Duration) -> Duration {
        let mut until = now + WAKE_UP;
        if let Phase::Blocked { until: retry } = self.phase {
            until = until.min(retry);
        }
        if let Some(retry) = self.retry_store_at {
            until = until.min(retry);
        }
        // What was due before the pump and has not begun waits for something that rings: room in
        // the window, an answer, the store, or the session.
        let comes = |due: &Duration| *due > began;
        if let Some(sweep) = self.second.deferral.next_sweep().filter(comes)
            && self.phase.sends()
            && !self.second.deferral.is_sweeping()
        {
            until = until.min(sweep);
        }
        if let Some(others) = self.trial.others_until.filter(comes) {
            until = until.min(others);
        }
        if let Some(turn) = self.next_turn() {
            until = until.min(turn);
        }
        if let DeliveryMode::DirectHold { send_retry_budget } = self.lane.mode
            && let Some(given) = self.lane.oldest_given()
        {
            until = until.min(given + send_retry_budget);
        }
        until
    }

    fn is_done(&self) -> bool {
        self.lane.is_settled()
            && self.lost.is_empty()
            && self.under_way.is_empty()
            && self.admission.is_none()
            && self.moves.is_idle()
            && self.trial.parked.is_none()
    }
}

/// Ends when the message that waits for its place in the window has got it, or will not.
async fn admitted(
    admission: &mut Option<Admission<'_>>,
) -> (Option<Item>, Result<Admitted, NotAdmitted>) {
    match admission {
        Some((item, future)) => {
            let result = future.await;
            (item.take(), result)
        }
        None => pending().await,
    }
}
