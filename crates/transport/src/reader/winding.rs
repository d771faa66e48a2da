//! The end in order of a session that the broker does not keep: what it has given us, and holds
//! for us, is taken and settled before the goodbye.
//!
//! ```text
//!   UNSUBSCRIBE (all) ─► UNSUBACK ─► all that came ─► UNSUBSCRIBE (one, ─► UNSUBACK ─► came
//!                                    has settled      once more)                       nothing?
//!                                         ▲                                             │  │
//!                                         └──────────────── something has come ─────────┘  ▼
//!                                                                               nothing will
//! ```
//!
//! With the first answer the broker gives us nothing new (MQTT 5 §3.10.4); what a shared
//! subscription gets is another member's from then on. But what it had for us it may go on
//! delivering, and our Receive Maximum holds it back until we acknowledge: Mosquitto 2.0.11 sends
//! all of it, also what came by a shared subscription. So a second question goes behind the
//! acknowledgements. A broker answers in the order in which it was asked, so what it had room to
//! send comes before that answer, and where nothing did there is nothing. To unsubscribe from what
//! one is not subscribed to is the one question of MQTT that changes nothing, is always answered,
//! and waits for its turn behind the acknowledgements.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rumqttc::AsyncClient;
use rumqttc::mqttbytes::v5::UnsubAckReason;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Shared;
use super::leftovers::Leftovers;
use super::subscribing::{self, AT_A_TIME};
use crate::connection::{Ending, Serves};
use crate::link::Seen;

/// Whether a session winds down, and what came meanwhile.
#[derive(Debug)]
pub(super) struct Winding {
    begun: CancellationToken,
    /// How many messages have come.
    came: AtomicU64,
    answered: Seen<Answered>,
}

/// What had come when the latest UNSUBACK was looked at, in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Answered {
    unsubacks: u64,
    came: u64,
}

/// The broker has not answered in time, or the connection has ended.
#[derive(Debug)]
struct Unanswered;

impl Winding {
    pub(super) fn new() -> Self {
        Self {
            begun: CancellationToken::new(),
            came: AtomicU64::new(0),
            answered: Seen::new(Answered::default()),
        }
    }

    pub(super) fn begin(&self) {
        self.begun.cancel();
    }

    /// Ends when it has begun.
    pub(super) async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// What `future` gives, if that is before it has begun.
    pub(super) async fn unless_begun<T>(&self, future: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.begun() => pending().await,
            value = future => value,
        }
    }

    /// A message has come, and has been looked at.
    pub(super) fn message(&self) {
        self.came.fetch_add(1, Ordering::AcqRel);
    }

    /// An UNSUBACK has come, and everything before it has been looked at.
    pub(super) fn unsuback(&self) {
        let Answered { unsubacks, .. } = self.answered.get();
        self.answered.set(Answered {
            unsubacks: unsubacks + 1,
            came: self.came(),
        });
    }

    fn came(&self) -> u64 {
        self.came.load(Ordering::Acquire)
    }
}

/// Subscribes, and winds down when that has begun. Ends only when the connection is no longer of
/// use.
pub(super) async fn keep_subscribed(
    shared: &Arc<Shared>,
    client: &AsyncClient,
    serves: Serves,
    leftovers: &mut Leftovers<'_>,
) -> Ending {
    tokio::select! {
        biased;
        () = shared.winding.begun() => {}
        ending = subscribing::keep_subscribed(shared, client, serves, leftovers) => return ending,
    }
    Box::pin(wind_down(shared, client, serves)).await;
    pending().await
}

/// Ends the subscriptions of a connection, and then the deliveries, once all that came by it has
/// settled and nothing more can come. The connection stands until it is closed.
async fn wind_down(shared: &Shared, client: &AsyncClient, serves: Serves) {
    let asked = shared.subscriptions.iter();
    let asked = asked.filter(|asked| serves.refuses(&asked.filter).is_none());
    let filters: Vec<String> = asked.map(|s| s.filter.as_str().to_owned()).collect();
    info!(
        event = "session_winding_down",
        session = %shared.config.name,
        filters = filters.len(),
        "the broker does not keep this session: unsubscribing, and taking in what it still holds \
         for us"
    );
    let before = shared.winding.came();
    if drained(shared, client, &filters).await.is_ok() {
        info!(
            event = "session_wound_down",
            session = %shared.config.name,
            came = shared.winding.came() - before,
            "the broker holds nothing for us any more, and all that came has settled"
        );
    } else {
        warn!(
            event = "wind_down_unanswered",
            session = %shared.config.name,
            broker = %shared.config.brokers,
            "the broker has not answered an UNSUBSCRIBE: what it has sent by now still settles, \
             and what it has not sent goes with the session"
        );
    }
    shared.inbox.close();
}

async fn drained(
    shared: &Shared,
    client: &AsyncClient,
    filters: &[String],
) -> Result<(), Unanswered> {
    for batch in filters.chunks(AT_A_TIME) {
        unsubscribe(shared, client, batch, true).await?;
    }
    let Some(one) = filters.first() else {
        shared.acks.all_settled().await;
        return Ok(());
    };
    loop {
        let came = shared.winding.came();
        shared.acks.all_settled().await;
        if shared.winding.came() != came {
            continue;
        }
        let one = std::slice::from_ref(one);
        if unsubscribe(shared, client, one, false).await? == came {
            return Ok(());
        }
    }
}

/// One UNSUBSCRIBE: how many messages have come when its UNSUBACK is there, and what came before
/// it has been looked at. A refusal is only told of what `was_held`.
async fn unsubscribe(
    shared: &Shared,
    client: &AsyncClient,
    filters: &[String],
    was_held: bool,
) -> Result<u64, Unanswered> {
    let before = shared.winding.answered.get();
    let asked = async {
        let notice = client.unsubscribe_many_tracked(filters.to_vec()).await;
        let unsuback = notice.ok()?.wait_async().await.ok()?;
        // The library has seen it; what it has seen before may be waiting for room.
        Some((unsuback, shared.winding.answered.changed(before).await))
    };
    let mut asked = pin!(asked);
    let answer = loop {
        let came = shared.winding.came();
        match timeout(shared.config.answer_timeout, &mut asked).await {
            Ok(answer) => break answer,
            // It is busy with what comes before the answer, or we are.
            Err(_) if shared.winding.came() != came => {}
            Err(_) => break None,
        }
    };
    let (unsuback, answered) = answer.ok_or(Unanswered)?;
    for (filter, reason) in filters.iter().zip(&unsuback.reasons) {
        let ended = matches!(
            reason,
            UnsubAckReason::Success | UnsubAckReason::NoSubscriptionExisted
        );
        if was_held && !ended {
            warn!(
                event = "subscription_kept",
                session = %shared.config.name,
                filter,
                reason = ?reason,
                "the broker does not end a subscription: what comes by it is taken in until the \
                 time for the stop is up, and what comes then goes with the session"
            );
        }
    }
    Ok(answered.came)
}
