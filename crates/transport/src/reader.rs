//! The connection that reads.
//!
//! A persistent session is resumed, after a restart of the process too: the broker sends again
//! what was not acknowledged. Messages are acknowledged by hand, in the order of arrival, and only
//! on a connection on which they came. What comes again while it is still in our hands, or after
//! it has settled, is recognised and not handed out a second time.

mod acks;
mod announcing;
mod exchanges;
mod held;
mod inbox;
mod leftovers;
mod receiving;
mod subscribing;
mod winding;

use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_core::{
    Backoff, BoxFuture, Clock, Delivery, Permit, Remainder, Source, SourceState, Subscription,
    TopicFilter,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::approach::{Approach, Renewal};
use crate::connection::{Connection, Ending, Purpose, is_takeover};
use crate::gate::{Gate, Pass};
use crate::lifecycle::Lifecycle;
use crate::link::Seen;
use crate::stats::Counters;
use crate::status::Status;
use crate::task::SessionTask;
use crate::{SessionConfig, SessionKind, SessionStats};

use acks::{Acks, Line, Releasing};
use announcing::Birth;
use held::Held;
use inbox::Inbox;
use leftovers::Leftovers;
use receiving::Receiving;
use subscribing::Standing;
pub use subscribing::{DowngradedSubscription, RefusedSubscription};
use winding::Winding;

/// How many QoS 0 messages may wait to be taken.
const QOS0_ROOM: usize = 4096;
/// How long a goodbye waits for acknowledgements that the library has no room for.
const LAST_ACKNOWLEDGEMENTS: Duration = Duration::from_secs(2);
/// How many bytes may wait to be taken, give or take one message.
const BYTES_ROOM: u64 = 32 << 20;

/// How patient a reader is; the defaults suit a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderTuning {
    /// How long a connection must have stood before it is given up so that the broker sends
    /// again what was left with it.
    pub leave_pacing: Duration,
    /// Delays between attempts at subscriptions that the broker refuses.
    pub resubscribe: Backoff,
}

impl Default for ReaderTuning {
    fn default() -> Self {
        let (min, max) = (Duration::from_secs(30), Duration::from_secs(600));
        Self {
            leave_pacing: min,
            #[expect(clippy::expect_used, reason = "two constants in the right order")]
            resubscribe: Backoff::try_new(min, max).expect("30 s is less than 10 min"),
        }
    }
}

/// The reading side of a session.
///
/// It connects by itself, for as long as it lives; dropped, it stops without a goodbye.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    task: SessionTask,
}

#[derive(Debug)]
struct Shared {
    config: Arc<SessionConfig>,
    subscriptions: Vec<Subscription>,
    tuning: ReaderTuning,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    state: Seen<SourceState>,
    inbox: Inbox,
    acks: Arc<Acks>,
    releasing: Arc<Releasing>,
    /// By which messages are compared; nobody else knows it.
    digests: RandomState,
    standing: Mutex<Standing>,
    /// A SUBSCRIBE or UNSUBSCRIBE is unanswered.
    asking: AtomicBool,
    winding: Winding,
}

impl Reader {
    /// Starts connecting and subscribing. Must be called within a tokio runtime.
    pub fn start(
        config: SessionConfig,
        subscriptions: Vec<Subscription>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::start_tuned(config, subscriptions, clock, ReaderTuning::default())
    }

    /// Like [`Reader::start`], with a patience of one's own.
    pub fn start_tuned(
        config: SessionConfig,
        subscriptions: Vec<Subscription>,
        clock: Arc<dyn Clock>,
        tuning: ReaderTuning,
    ) -> Self {
        Self::begin(config, subscriptions, clock, tuning, None)
    }

    /// Like [`Reader::start`], of an exclusive session: it is connected only while `permit` grants
    /// it, whose instants are of the same clock.
    pub fn start_with_permit(
        config: SessionConfig,
        subscriptions: Vec<Subscription>,
        clock: Arc<dyn Clock>,
        permit: Arc<dyn Permit>,
    ) -> Self {
        let tuning = ReaderTuning::default();
        Self::begin(config, subscriptions, clock, tuning, Some(permit))
    }

    fn begin(
        config: SessionConfig,
        subscriptions: Vec<Subscription>,
        clock: Arc<dyn Clock>,
        tuning: ReaderTuning,
        permit: Option<Arc<dyn Permit>>,
    ) -> Self {
        let config = Arc::new(config);
        let counters = Arc::new(Counters::default());
        let lifecycle = Lifecycle::new(
            Arc::clone(&config),
            config.client_id.clone(),
            "reader",
            Arc::clone(&clock),
            Arc::clone(&counters),
        )
        .subscribed_to(&subscriptions)
        .exclusive(permit.is_some());
        let releasing = Arc::<Releasing>::default();
        let acks = Acks::new(
            config.receive_maximum.get(),
            Arc::clone(&releasing),
            Arc::clone(&counters),
        );
        let gate = Gate::new(config.name.clone(), "reader", permit, Arc::clone(&clock));
        let shared = Arc::new(Shared {
            config,
            subscriptions,
            tuning,
            clock,
            counters,
            state: Seen::new(SourceState::Down),
            inbox: Inbox::new(QOS0_ROOM, BYTES_ROOM),
            acks: Arc::new(acks),
            releasing,
            digests: RandomState::new(),
            standing: Mutex::default(),
            asking: AtomicBool::new(false),
            winding: Winding::new(),
        });
        let task = SessionTask::spawn(shared.config.name.clone(), "reader", |cancel| {
            run(Arc::clone(&shared), lifecycle, gate, cancel)
        });
        Self { shared, task }
    }

    /// The client id that it connects with: the configured one, or the one that the broker has
    /// given to a client that came without.
    pub fn client_id(&self) -> String {
        self.shared.counters.client_id()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> SessionStats {
        self.shared.counters.snapshot()
    }

    /// The subscriptions that the broker does not grant at the moment.
    pub fn refused_subscriptions(&self) -> Vec<RefusedSubscription> {
        self.shared.standing().refused.clone()
    }

    /// The subscriptions that the broker grants at a lower QoS than was asked for, at the moment.
    pub fn downgraded_subscriptions(&self) -> Vec<DowngradedSubscription> {
        self.shared.standing().downgraded.clone()
    }

    /// Ends when the state is no longer `seen`, and says how it is then.
    pub async fn state_changed(&self, seen: SourceState) -> SourceState {
        self.shared.state.changed(seen).await
    }
}

// === impl Source for Reader ===

impl Source for Reader {
    fn next(&self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.shared.inbox.next())
    }

    fn state(&self) -> SourceState {
        self.shared.state.get()
    }

    fn refused(&self) -> Vec<TopicFilter> {
        let standing = self.shared.standing();
        let refused = standing.refused.iter();
        refused.map(|r| r.subscription.filter.clone()).collect()
    }

    /// A session that the broker keeps stays as it is.
    fn wind_down(&self) -> Remainder {
        if self.shared.keep().is_some() {
            return Remainder::Kept;
        }
        self.shared.winding.begin();
        Remainder::Lost
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.task.close())
    }
}

// === the session's task ===

impl Shared {
    /// For how many seconds the broker keeps the session.
    fn keep(&self) -> Option<u32> {
        match self.config.kind {
            SessionKind::Ephemeral => None,
            SessionKind::Persistent { expiry } => {
                Some(u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX))
            }
        }
    }

    /// Someone else may use the session from now on: what is known of it means nothing any more,
    /// and what the broker has of it that is ours, it has for both of us.
    fn forget_session(&self) {
        self.releasing.clear();
        if self.keep().is_some() {
            self.inbox.forget_acknowledgeable();
        }
    }

    /// Ends when there is to be no other connection: a new one would subscribe again, and what the
    /// broker had for an old one of a session that winds down has gone with it.
    async fn may_not_connect(&self, cancel: &CancellationToken) {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.winding.begun() => {}
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(
    shared: Arc<Shared>,
    mut lifecycle: Lifecycle,
    mut gate: Gate,
    cancel: CancellationToken,
) {
    let _over = Over(Arc::clone(&shared));
    connect_and_serve(&shared, &mut lifecycle, &mut gate, &cancel).await;
}

/// Tells who waits for messages that the session is over, also when its task panics.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        let Self(shared) = self;
        shared.state.set(SourceState::Down);
        if shared.keep().is_some() {
            // The broker keeps them; handed out now, their acknowledgements would come too late.
            shared.inbox.forget_acknowledgeable();
        }
        shared.inbox.close();
    }
}

async fn connect_and_serve(
    shared: &Arc<Shared>,
    lifecycle: &mut Lifecycle,
    gate: &mut Gate,
    cancel: &CancellationToken,
) {
    let mut held = Held::open(shared.config.filters_file.clone()).await;
    let room = usize::from(shared.config.receive_maximum.get());
    let mut approach = Approach::new(
        Arc::clone(&shared.config),
        "reader",
        Arc::clone(&shared.clock),
        Arc::clone(&shared.counters),
    );
    // The broker of the connection before, while its packet ids are still ours.
    let mut known = None;
    let mut pass = Pass::default();
    loop {
        let next = tokio::select! {
            () = shared.may_not_connect(cancel) => return,
            next = gate.admitted() => next,
        };
        if !next.follows(&pass) {
            known = None;
            shared.forget_session();
        }
        pass = next;
        approach.admitted(pass.clone());
        let follows = known.as_ref() == Some(approach.endpoint());
        let client_id = lifecycle.client_id().to_owned();
        let left = Arc::new(Notify::new());
        let opening = async {
            shared.inbox.at_most(room).await;
            let purpose = Purpose::Read {
                keep: shared.keep(),
                releasing: if follows {
                    shared.releasing.all()
                } else {
                    Vec::new()
                },
            };
            let status = lifecycle.status();
            Connection::open(
                &shared.config,
                &mut approach,
                &client_id,
                &purpose,
                status,
                |client, marker, _| {
                    let line = Line {
                        outlet: Box::new(client.clone()),
                        left: Arc::clone(&left),
                    };
                    Receiving::new(Arc::clone(shared), line, marker, follows)
                },
            )
            .await
        };
        let opened = tokio::select! {
            () = shared.may_not_connect(cancel) => return,
            () = pass.over() => continue,
            opened = opening => opened,
        };
        let delay = match opened {
            Ok(connection) => {
                approach.connected();
                lifecycle.connected(approach.endpoint(), &connection.welcome);
                let broker = approach.endpoint().clone();
                let mut leftovers =
                    Leftovers::new(&mut held, &connection, &client_id, broker.to_string());
                let upkeep = Upkeep {
                    approach: &mut approach,
                    status: lifecycle.status(),
                    pass: &pass,
                    left: &left,
                    leftovers: &mut leftovers,
                };
                let ending = serve(shared, connection, upkeep, cancel).await;
                // What its last SUBACK granted may have been taken in after its end.
                shared.state.set(SourceState::Down);
                let stepped_down = matches!(ending, Ending::SteppedDown);
                if stepped_down {
                    shared.forget_session();
                }
                if is_takeover(&ending) {
                    gate.doubt();
                }
                approach.ended(&ending);
                let asking = shared.asking.swap(false, Ordering::Relaxed);
                let delay = lifecycle.ended(&broker, &ending, asking);
                known = (!lifecycle.was_replaced() && !stepped_down).then_some(broker);
                delay
            }
            Err(ending) => {
                let broker = approach.endpoint().clone();
                let all = approach.ended(&ending);
                lifecycle.failed(&broker, &ending, all)
            }
        };
        tokio::select! {
            biased;
            () = shared.may_not_connect(cancel) => return,
            () = sleep(delay) => {}
        }
    }
}

/// What a connection that stands is kept with.
struct Upkeep<'a, 'b> {
    approach: &'a mut Approach,
    status: Option<&'a Status>,
    pass: &'a Pass,
    /// Told when a message is left with the broker.
    left: &'a Notify,
    leftovers: &'a mut Leftovers<'b>,
}

/// Keeps the subscriptions of a connection until it ends.
async fn serve(
    shared: &Arc<Shared>,
    mut connection: Connection,
    upkeep: Upkeep<'_, '_>,
    cancel: &CancellationToken,
) -> Ending {
    let Upkeep {
        approach,
        status,
        pass,
        left,
        leftovers,
    } = upkeep;
    let client = connection.client.clone();
    let serves = connection.welcome.serves;
    // Handed to the library now, so that nothing is published before it.
    let birth = status.map(|status| Birth::say(&connection, status));
    let again = async {
        let not_before = Instant::now() + shared.tuning.leave_pacing;
        left.notified().await;
        if shared.keep().is_none() {
            // A session that is not kept has nothing to send again.
            std::future::pending::<()>().await;
        }
        sleep_until(not_before).await;
    };
    tokio::select! {
        // Who is in our place by right has ended it.
        ending = connection.ended() => if pass.is_over() { Ending::SteppedDown } else { ending },
        () = pass.over() => {
            shared.state.set(SourceState::Down);
            let _ = timeout(pass.left() / 2, shared.acks.handed_over()).await;
            connection.step_down(pass, status.map(Status::offline)).await;
            Ending::SteppedDown
        }
        ending = winding::keep_subscribed(shared, &client, serves, leftovers) => {
            connection.abandon().await;
            ending
        }
        ending = announcing::keep_announced(shared, &client, birth) => {
            connection.abandon().await;
            ending
        }
        () = again => {
            handed_over(&shared.acks).await;
            come_again(connection, status).await;
            Ending::Closed
        }
        renewal = shared.winding.unless_begun(Box::pin(approach.due())) => {
            handed_over(&shared.acks).await;
            match renewal {
                Renewal::Keys => come_again(connection, status).await,
                Renewal::FailBack => connection.goodbye(status.map(Status::offline)).await,
            }
            Ending::Closed
        }
        () = cancel.cancelled() => {
            handed_over(&shared.acks).await;
            connection.goodbye(status.map(Status::offline)).await;
            Ending::Closed
        }
    }
}

/// Goes, to be at the same broker again in a moment.
async fn come_again(connection: Connection, status: Option<&Status>) {
    match status {
        Some(status) if status.outlives().is_some() => connection.go_and_return().await,
        status => connection.goodbye(status.map(Status::offline)).await,
    }
}

/// Waits until the library has taken every acknowledgement that was given: a goodbye overtakes
/// those that still wait for room.
async fn handed_over(acks: &Acks) {
    // A broker that takes nothing any more will send those messages again.
    let _ = timeout(LAST_ACKNOWLEDGEMENTS, acks.handed_over()).await;
}
