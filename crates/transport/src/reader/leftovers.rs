//! What a broker should still hold of an earlier connection: says when it has lost that, and ends
//! the subscriptions of an earlier configuration.

use rumqttc::AsyncClient;
use rumqttc::mqttbytes::v5::UnsubAckReason;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Shared;
use super::held::Held;
use super::subscribing::AT_A_TIME;
use crate::connection::{Connection, Ending};

/// What is left over at the broker of one connection.
#[derive(Debug)]
pub(super) struct Leftovers<'a> {
    held: &'a mut Held,
    client_id: String,
    broker: String,
    /// The broker has the session that we left.
    resumed: bool,
    filters: Vec<String>,
    /// The log has been told of a refusal.
    announced: bool,
}

impl<'a> Leftovers<'a> {
    pub(super) fn new(
        held: &'a mut Held,
        connection: &Connection,
        client_id: &str,
        broker: String,
    ) -> Self {
        Self {
            held,
            client_id: client_id.to_owned(),
            broker,
            resumed: connection.welcome.session_present,
            filters: Vec::new(),
            announced: false,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Finds what the broker holds and nobody wants any more, and writes down what it will hold:
    /// before it is asked for, so that a crash in between forgets nothing.
    pub(super) async fn find(&mut self, shared: &Shared) {
        if shared.keep().is_none() {
            return;
        }
        let held = self.held.at(&self.client_id, &self.broker);
        if !self.resumed && !held.is_empty() {
            // It is this one that we left a session with: another, that stands in for it, has
            // none to lose.
            shared.counters.sessions_lost.add(1);
            warn!(
                event = "session_lost",
                session = %shared.config.name,
                client_id = self.client_id,
                broker = self.broker,
                "the broker has lost the session, and with it what it held for us; subscribing \
                 again"
            );
        }
        if self.resumed {
            if held.is_empty() {
                info!(
                    event = "session_unknown",
                    session = %shared.config.name,
                    client_id = self.client_id,
                    broker = self.broker,
                    "the broker has a session under this client id that this bridge does not \
                     remember: if it holds topic filters that are not configured, what comes by \
                     them is acknowledged and goes nowhere"
                );
            }
            let wanted = |filter: &String| {
                let mut wanted = shared.subscriptions.iter();
                wanted.any(|subscription| subscription.filter.as_str() == filter)
            };
            let left = held.iter().filter(|filter| !wanted(filter));
            self.filters = left.cloned().collect();
        }
        self.note(shared).await;
    }

    async fn note(&mut self, shared: &Shared) {
        let wanted = shared.subscriptions.iter();
        let wanted = wanted.map(|subscription| subscription.filter.as_str().to_owned());
        let held = wanted.chain(self.filters.iter().cloned()).collect();
        self.held.note(&self.client_id, &self.broker, held).await;
    }

    /// Asks the broker to end them. What it refuses stays, to be asked for again.
    pub(super) async fn end(
        &mut self,
        shared: &Shared,
        client: &AsyncClient,
    ) -> Result<(), Option<Ending>> {
        if self.filters.is_empty() {
            return Ok(());
        }
        let (mut refused, mut ended) = (Vec::new(), 0);
        let result = self.ask(shared, client, &mut refused, &mut ended).await;
        if result.is_ok() {
            self.filters = refused;
            self.note(shared).await;
        }
        // Who sees it counted may rely on that it is not asked for again.
        shared.counters.leftover_subscriptions.add(ended);
        result
    }

    async fn ask(
        &mut self,
        shared: &Shared,
        client: &AsyncClient,
        refused: &mut Vec<String>,
        ended: &mut u64,
    ) -> Result<(), Option<Ending>> {
        for batch in self.filters.chunks(AT_A_TIME) {
            let Ok(notice) = client.unsubscribe_many_tracked(batch.to_vec()).await else {
                return Err(None);
            };
            let after = shared.config.answer_timeout;
            let unsuback = match timeout(after, notice.wait_async()).await {
                Ok(Ok(unsuback)) => unsuback,
                Ok(Err(_)) => return Err(None),
                Err(_) => {
                    let what = "UNSUBSCRIBE";
                    return Err(Some(Ending::Unanswered { what, after }));
                }
            };
            let words = unsuback.properties.and_then(|said| said.reason_string);
            for (filter, reason) in batch.iter().zip(unsuback.reasons) {
                match reason {
                    UnsubAckReason::Success => {
                        *ended += 1;
                        info!(
                            event = "leftover_subscription_ended",
                            session = %shared.config.name,
                            filter,
                            reason_string = words,
                            "the broker still held a subscription of an earlier configuration"
                        );
                    }
                    UnsubAckReason::NoSubscriptionExisted => {}
                    reason => {
                        refused.push(filter.clone());
                        if !std::mem::replace(&mut self.announced, true) {
                            warn!(
                                event = "leftover_subscription_kept",
                                session = %shared.config.name,
                                filter,
                                reason = ?reason,
                                reason_string = words,
                                "the broker does not end a subscription of an earlier \
                                 configuration; asking again from time to time, and what comes \
                                 by it goes nowhere"
                            );
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
