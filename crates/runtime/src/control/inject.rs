//! Test messages, and pausing.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Acknowledge, BindingKey, Message, MessageId, Name, StoredMessage, Subscription};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::redrive::verdict_of;
use super::{Control, ControlError, RedriveVerdict, Shared};
use crate::lane::{self, Job, Lane, NotTaken, Watched};
use crate::{mapping, settlement};

/// How long it is waited until the store has a test message.
const STORED_WITHIN: Duration = Duration::from_secs(10);

/// A route, as far as an operator gives it messages.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) source: Name,
    pub(super) subscriptions: Vec<Subscription>,
    /// In the order of the configuration.
    pub(super) lanes: Vec<Arc<Lane>>,
}

/// Where a test message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectTarget {
    /// To all bindings of the route, as if its source had delivered it: the route has to take its
    /// topic.
    Pipeline,
    /// To this binding of the route alone, whatever its topic.
    Binding(Name),
}

/// What came of a test message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// Its id.
    pub message_id: MessageId,
    /// Whether every binding has it durably; else the store is slow or fails, and it is stored as
    /// soon as that works.
    pub stored: bool,
    /// Its bindings, and what became of it at each, if that was asked for.
    pub bindings: Vec<(BindingKey, Option<RedriveVerdict>)>,
}

/// Tells that a test message is stored.
#[derive(Debug)]
struct Told(oneshot::Sender<()>);

impl Acknowledge for Told {
    fn settled(self: Box<Self>) {
        // Who asked may have gone.
        let _ = self.0.send(());
    }

    fn leave(self: Box<Self>) {}
}

impl Control {
    /// Puts one test message into the queues of a route's bindings, as one record, and waits until
    /// it is durable; then up to `wait` for what becomes of it.
    ///
    /// What none of them can ever publish is refused at once. Where one can, the others give up on
    /// it, as on a message that arrives.
    pub async fn inject(
        &self,
        route: &Name,
        message: Message,
        target: InjectTarget,
        wait: Option<Duration>,
    ) -> Result<Injected, ControlError> {
        let shared = self.running()?;
        let (source, lanes) = shared.lanes_of(route, &message, &target)?;
        let now = shared.clock.wall();
        let stored = Arc::new(StoredMessage {
            id: shared.new_id(),
            cause: None,
            session: source,
            received: now,
            message,
        });
        let fits = |lane: &Arc<Lane>| mapping::topic(&stored, route, &lane.spec).is_some();
        if !lanes.iter().any(fits) {
            return Err(ControlError::TopicInvalid);
        }
        let work = shared.clone();
        work.detached(1, async move {
            let message_id = stored.id;
            let watched: Vec<Option<Watched>> = lanes
                .iter()
                .map(|lane| wait.map(|_| lane.watch(message_id)))
                .collect();
            let share = shared.by_hand.clone().try_acquire_owned();
            let share = share.map_err(|_| ControlError::Busy)?;
            let (jobs, told) = shared.jobs_of(&stored, share, lanes.len());
            lane::inject(lanes.iter().cloned().zip(jobs).collect())?;
            let stored = tokio::select! {
                biased;
                told = told => told.is_ok(),
                () = tokio::time::sleep(STORED_WITHIN) => false,
                () = shared.given_up.cancelled() => false,
            };
            let deadline = Instant::now() + wait.unwrap_or_default();
            let mut bindings = Vec::with_capacity(lanes.len());
            for (lane, watched) in lanes.iter().zip(watched) {
                let verdict = match watched {
                    Some(watched) => Some(verdict_of(&shared, &lane.key, watched, deadline).await),
                    None => None,
                };
                bindings.push((lane.key.clone(), verdict));
            }
            Ok(Injected {
                message_id,
                stored,
                bindings,
            })
        })
        .await
    }

    /// Stops sending at a binding; what arrives is queued, what is under way settles. A binding of
    /// a `direct_hold` route, which never queues, holds what arrives as long as its retry budget
    /// allows, and then leaves it with the source. Says whether it was running before.
    ///
    /// It ends with [`Control::resume`], and with the process: after a restart every binding runs.
    pub fn pause(&self, binding: &BindingKey) -> Result<bool, ControlError> {
        self.set_paused(binding, true)
    }

    /// Has a paused binding go on, the queue first. Says whether it was paused before.
    pub fn resume(&self, binding: &BindingKey) -> Result<bool, ControlError> {
        self.set_paused(binding, false)
    }

    fn set_paused(&self, binding: &BindingKey, paused: bool) -> Result<bool, ControlError> {
        let shared = self.running()?;
        let lane = shared
            .lanes
            .get(binding)
            .ok_or(ControlError::NoSuchBinding)?;
        Ok(lane.pause(paused))
    }
}

impl Shared {
    fn lanes_of(
        &self,
        route: &Name,
        message: &Message,
        target: &InjectTarget,
    ) -> Result<(Name, Vec<Arc<Lane>>), ControlError> {
        let route = self.routes.get(route).ok_or(ControlError::NoSuchRoute)?;
        let lanes = match target {
            InjectTarget::Pipeline => {
                let takes = |wanted: &Subscription| wanted.filter.matches(&message.topic);
                if !route.subscriptions.iter().any(takes) {
                    return Err(ControlError::NotTaken);
                }
                route.lanes.clone()
            }
            InjectTarget::Binding(name) => {
                let wanted = route.lanes.iter().find(|lane| lane.key.binding == *name);
                vec![wanted.ok_or(ControlError::NoSuchBinding)?.clone()]
            }
        };
        Ok((route.source.clone(), lanes))
    }

    /// The parts of `bindings` bindings in the settlement of a message that comes from no source,
    /// and when it has settled.
    pub(super) fn jobs_of(
        &self,
        stored: &Arc<StoredMessage>,
        share: OwnedSemaphorePermit,
        bindings: usize,
    ) -> (Vec<Job>, oneshot::Receiver<()>) {
        let (tell, told) = oneshot::channel();
        let given = self.clock.monotonic();
        let tokens = settlement::tokens(Box::new(Told(tell)), share, bindings);
        let job = |token| Job {
            stored: stored.clone(),
            token,
            given,
        };
        (tokens.into_iter().map(job).collect(), told)
    }
}

impl From<NotTaken> for ControlError {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Full => Self::QueueFull,
            NotTaken::StoreFails => Self::StoreFails,
        }
    }
}
