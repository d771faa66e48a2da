//! The source: waits for what its subscriptions get, and lets go of it when told.

use std::sync::Arc;

use bridge_core::{
    Acknowledge, BoxFuture, Delivery, Message, Name, QoS, Source, SourceState, TopicFilter,
};
use tracing::error;

use crate::MemoryBroker;
use crate::backlog::{Consumer, Taken, Ticket};
use crate::state::{Key, Step};

/// A session that reads from a [`MemoryBroker`]. Dropped or closed, what it has not settled stays
/// with its subscriptions, which wait for the client's next source.
#[derive(Debug)]
pub struct MemorySource {
    broker: MemoryBroker,
    client: Name,
    consumer: Consumer,
}

impl MemorySource {
    pub(crate) const fn new(broker: MemoryBroker, client: Name, consumer: Consumer) -> Self {
        Self {
            broker,
            client,
            consumer,
        }
    }

    /// Ends the subscriptions as well, with all that they hold; that of a share group ends with
    /// its last source.
    pub fn unsubscribe(self) {
        self.broker.change(|state, _| state.end(self.consumer));
    }

    async fn wait(&self) -> Option<Delivery> {
        loop {
            let bell = self.broker.bell().notified();
            tokio::pin!(bell);
            // From here on no ring is missed.
            bell.as_mut().enable();
            let (step, now) = self
                .broker
                .look(|state, now| (state.step(self.consumer, now), now));
            match step {
                Step::Deliver {
                    key,
                    number,
                    ticket,
                    qos,
                    taken,
                } => {
                    let claim = Claim {
                        broker: self.broker.clone(),
                        key,
                        number,
                        ticket,
                    };
                    return Some(delivery(claim, qos, taken));
                }
                Step::Closed => return None,
                Step::Wait(None) => bell.await,
                Step::Wait(Some(until)) => {
                    let pause = tokio::time::sleep(until.saturating_sub(now.monotonic));
                    tokio::select! {
                        () = bell => {}
                        () = pause => {}
                    }
                }
            }
        }
    }
}

fn delivery(claim: Claim, qos: QoS, taken: Taken) -> Delivery {
    Delivery {
        message: Message {
            qos,
            ..Arc::unwrap_or_clone(taken.message)
        },
        // Since when its expiry counts: the broker itself takes nothing off.
        received: taken.received,
        redelivered: taken.redelivered,
        acknowledge: Box::new(Right(Some(claim))),
    }
}

impl Source for MemorySource {
    fn next(&self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.wait())
    }

    fn mark_subscription_owned(&self, stream: &TopicFilter, group: Option<&str>) {
        let found = self
            .broker
            .change(|state, _| state.own(self.consumer, stream, group));
        if !found {
            error!(
                event = "no_such_subscription",
                client = %self.client,
                stream = %stream,
                group,
                "a subscription that this source does not have was marked as owned: make the \
                 source with the subscriptions that its owner asks for"
            );
        }
    }

    fn state(&self) -> SourceState {
        let attached = self
            .broker
            .look(|state, _| state.is_attached(self.consumer));
        if attached {
            SourceState::Subscribed
        } else {
            SourceState::Down
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.broker.change(|state, _| state.detach(self.consumer)) })
    }
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.broker.change(|state, _| state.detach(self.consumer));
    }
}

/// One delivery of one message.
#[derive(Debug)]
struct Claim {
    broker: MemoryBroker,
    key: Key,
    number: u64,
    ticket: Ticket,
}

/// The right to acknowledge; dropped unused, the message is left.
#[derive(Debug)]
struct Right(Option<Claim>);

impl Acknowledge for Right {
    fn settled(mut self: Box<Self>) {
        if let Some(claim) = self.0.take() {
            let (key, number, ticket) = (&claim.key, claim.number, claim.ticket);
            claim
                .broker
                .change(|state, _| state.settle(key, number, ticket));
        }
    }

    fn leave(self: Box<Self>) {
        // As by dropping it.
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            let (key, number, ticket) = (&claim.key, claim.number, claim.ticket);
            claim
                .broker
                .change(|state, now| state.leave(key, number, ticket, now.monotonic));
        }
    }
}
