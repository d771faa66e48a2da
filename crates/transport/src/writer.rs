//! The connection that publishes.
//!
//! Every connection begins clean and the library replays nothing: what was admitted and not
//! answered when a connection ends is answered with [`Unanswered`] at once, and it is the caller
//! who sends it again. So a message that costs the connection cannot do so again by itself, and
//! no answer hangs through an outage.

mod in_flight;
mod live;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{Admitted, BoxFuture, Clock, Link, NotAdmitted, Outgoing, Permit, Sink};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::approach::Approach;
use crate::connection::{Connection, Ending, Purpose, is_takeover};
use crate::gate::{Gate, Pass};
use crate::lifecycle::Lifecycle;
use crate::link::LinkState;
use crate::stats::Counters;
use crate::status::{ONCE_MORE, Status};
use crate::task::SessionTask;
use crate::{SessionConfig, SessionStats};

use in_flight::InFlight;
use live::{Live, Publishing};

/// How long a writer that closes waits for answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Under which client id a writer connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterIdentity {
    /// [`SessionConfig::client_id`]: nothing reads from this session.
    ClientId,
    /// [`SessionConfig::publisher_client_id`]: a [`Reader`](crate::Reader) has the other one.
    PublisherClientId,
}

/// The writing side of a session.
///
/// It connects by itself, for as long as it lives; dropped, it stops without a goodbye.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    task: SessionTask,
}

#[derive(Debug)]
struct Shared {
    config: Arc<SessionConfig>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    link: Arc<LinkState>,
    live: Arc<Mutex<Option<Arc<Live>>>>,
}

impl Writer {
    /// Starts connecting. Must be called within a tokio runtime.
    pub fn start(config: SessionConfig, identity: WriterIdentity, clock: Arc<dyn Clock>) -> Self {
        Self::begin(config, identity, clock, None)
    }

    /// Like [`Writer::start`], of an exclusive session: it is connected only while `permit` grants
    /// it, whose instants are of the same clock.
    pub fn start_with_permit(
        config: SessionConfig,
        identity: WriterIdentity,
        clock: Arc<dyn Clock>,
        permit: Arc<dyn Permit>,
    ) -> Self {
        Self::begin(config, identity, clock, Some(permit))
    }

    fn begin(
        config: SessionConfig,
        identity: WriterIdentity,
        clock: Arc<dyn Clock>,
        permit: Option<Arc<dyn Permit>>,
    ) -> Self {
        let config = Arc::new(config);
        let counters = Arc::new(Counters::default());
        let client_id = match identity {
            WriterIdentity::ClientId => config.client_id.clone(),
            WriterIdentity::PublisherClientId => config.publisher_client_id.clone(),
        };
        let lifecycle = Lifecycle::new(
            Arc::clone(&config),
            client_id,
            "writer",
            Arc::clone(&clock),
            Arc::clone(&counters),
        )
        .exclusive(permit.is_some());
        let gate = Gate::new(config.name.clone(), "writer", permit, Arc::clone(&clock));
        let shared = Arc::new(Shared {
            config,
            clock,
            counters,
            link: Arc::new(LinkState::new(Link::Down)),
            live: Arc::default(),
        });
        let task = SessionTask::spawn(shared.config.name.clone(), "writer", |cancel| {
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
}

// === impl Sink for Writer ===

impl Sink for Writer {
    fn publish(&self, outgoing: Outgoing) -> BoxFuture<'_, Result<Admitted, NotAdmitted>> {
        Box::pin(async move {
            let live = self.shared.live().ok_or(NotAdmitted::LinkDown)?;
            live.publish(outgoing).await
        })
    }

    fn link(&self) -> Link {
        self.shared.link.get()
    }

    fn changed(&self, seen: Link) -> BoxFuture<'_, Link> {
        Box::pin(self.shared.link.changed(seen))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.task.close())
    }
}

// === the session's task ===

impl Shared {
    fn live(&self) -> Option<Arc<Live>> {
        self.live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Takes the link down when the session's task ends, also by a panic.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        live::take_down(&self.0.link, &self.0.live);
    }
}

async fn run(
    shared: Arc<Shared>,
    mut lifecycle: Lifecycle,
    mut gate: Gate,
    cancel: CancellationToken,
) {
    let _over = Over(Arc::clone(&shared));
    let mut approach = Approach::new(
        Arc::clone(&shared.config),
        "writer",
        Arc::clone(&shared.clock),
        Arc::clone(&shared.counters),
    );
    loop {
        let pass = tokio::select! {
            () = cancel.cancelled() => return,
            pass = gate.admitted() => pass,
        };
        approach.admitted(pass.clone());
        let in_flight = Arc::new(InFlight::new(Arc::clone(&shared.clock)));
        let client_id = lifecycle.client_id().to_owned();
        let opening = Connection::open(
            &shared.config,
            &mut approach,
            &client_id,
            &Purpose::Write,
            lifecycle.status(),
            |client, marker, witness| {
                Publishing::new(
                    lifecycle.next_epoch(),
                    Arc::clone(&shared.link),
                    Arc::clone(&shared.live),
                    Arc::clone(&in_flight),
                    Live::new(
                        client.clone(),
                        marker,
                        witness,
                        Arc::clone(&shared.counters),
                        Arc::clone(&shared.config),
                        pass.clone(),
                    ),
                    lifecycle.status().map(Status::online),
                )
            },
        );
        let opened = tokio::select! {
            () = cancel.cancelled() => return,
            () = pass.over() => continue,
            opened = opening => opened,
        };
        let delay = match opened {
            Ok(connection) => {
                approach.connected();
                lifecycle.connected(approach.endpoint(), &connection.welcome);
                let ending = {
                    let upkeep = Upkeep {
                        approach: &mut approach,
                        in_flight: &in_flight,
                        status: lifecycle.status(),
                        pass: &pass,
                    };
                    serve(&shared, connection, upkeep, &cancel).await
                };
                if is_takeover(&ending) {
                    gate.doubt();
                }
                let broker = approach.endpoint().clone();
                approach.ended(&ending);
                lifecycle.ended(&broker, &ending, in_flight.is_one())
            }
            Err(ending) => {
                let broker = approach.endpoint().clone();
                let all = approach.ended(&ending);
                lifecycle.failed(&broker, &ending, all)
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = sleep(delay) => {}
        }
    }
}

/// What a connection that stands is kept with.
struct Upkeep<'a> {
    approach: &'a mut Approach,
    in_flight: &'a InFlight,
    status: Option<&'a Status>,
    pass: &'a Pass,
}

/// Watches over a connection until it ends.
async fn serve(
    shared: &Shared,
    mut connection: Connection,
    upkeep: Upkeep<'_>,
    cancel: &CancellationToken,
) -> Ending {
    let Upkeep {
        approach,
        in_flight,
        status,
        pass,
    } = upkeep;
    let live = shared.live();
    let patience = shared.config.answer_timeout;
    let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(5));
    let mut watch = interval((patience / 4).clamp(shortest, longest));
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut once_more = status.map(|status| (Instant::now() + ONCE_MORE, status.online()));
    let mut due = std::pin::pin!(approach.due());
    let ending = loop {
        tokio::select! {
            ending = connection.ended() => {
                drop(connection);
                // Who is in our place by right has ended it.
                break if pass.is_over() { Ending::SteppedDown } else { ending };
            }
            () = pass.over() => {
                // First of all nothing more is admitted.
                shared.link.set(Link::Down);
                last_answers(live.as_deref(), patience.min(pass.left() / 2)).await;
                connection.step_down(pass, status.map(Status::offline)).await;
                break Ending::SteppedDown;
            }
            _ = &mut due => {
                // Who publishes is to wait for the next connection, not to ask again and again.
                shared.link.set(Link::Down);
                last_answers(live.as_deref(), patience).await;
                connection.goodbye(status.map(Status::offline)).await;
                break Ending::Closed;
            }
            () = cancel.cancelled() => {
                last_answers(live.as_deref(), patience).await;
                connection.goodbye(status.map(Status::offline)).await;
                break Ending::Closed;
            }
            _ = watch.tick() => {
                if let Some((_, birth)) = once_more.take_if(|(at, _)| *at <= Instant::now())
                    && let Some(live) = &live
                {
                    live.announce(birth);
                }
                if in_flight.oldest().is_some_and(|waited| waited > patience) {
                    shared.counters.answer_timeouts.add(1);
                    connection.abandon().await;
                    break Ending::Unanswered { what: "PUBLISH", after: patience };
                }
            }
        }
    };
    if let Some(live) = live {
        live.over().await;
    }
    ending
}

/// Waits until all is answered or time is up: what is not, ends unanswered.
async fn last_answers(live: Option<&Live>, patience: Duration) {
    if let Some(live) = live {
        let _ = timeout(patience.min(LAST_ANSWERS), live.answered()).await;
    }
}
