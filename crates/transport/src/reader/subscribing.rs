//! Asks for subscriptions until all are granted.

use std::sync::Arc;

use bridge_core::{ReasonCode, SourceState, Subscription};
use rumqttc::AsyncClient;
use rumqttc::mqttbytes::v5::{RetainForwardRule, SubscribeFilter, SubscribeReasonCode};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Shared;
use crate::connection::Ending;
use crate::convert::to_wire_qos;

/// How many filters one SUBSCRIBE asks for: some brokers refuse more.
const AT_A_TIME: usize = 8;

/// A subscription that the broker does not grant at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSubscription {
    /// What was asked for.
    pub subscription: Subscription,
    /// The broker's answer.
    pub code: ReasonCode,
}

/// Subscribes, and asks again for what is refused, ever more slowly. Ends only when the
/// connection is no longer of use.
pub(super) async fn keep_subscribed(shared: &Arc<Shared>, client: &AsyncClient) -> Ending {
    let mut open = shared.subscriptions.clone();
    let mut attempts = 0;
    loop {
        let mut refused = Vec::new();
        for batch in open.chunks(AT_A_TIME) {
            match ask(shared, client, batch).await {
                Ok(codes) => {
                    for (subscription, code) in batch.iter().zip(codes) {
                        if code.is_refusal() {
                            refused.push(RefusedSubscription {
                                subscription: subscription.clone(),
                                code,
                            });
                        }
                    }
                }
                Err(Some(ending)) => return ending,
                // The connection has ended, and says itself why.
                Err(None) => std::future::pending().await,
            }
        }
        announce(shared, &refused);
        open = refused.iter().map(|r| r.subscription.clone()).collect();
        shared
            .counters
            .refused_subscriptions
            .set(refused.len() as u64);
        *shared.refused() = refused;
        if open.is_empty() {
            shared.state.set(SourceState::Subscribed);
            std::future::pending::<()>().await;
        }
        attempts += 1;
        sleep(shared.tuning.resubscribe.delay(attempts, rand::random())).await;
    }
}

/// One SUBSCRIBE and its SUBACK.
async fn ask(
    shared: &Shared,
    client: &AsyncClient,
    batch: &[Subscription],
) -> Result<Vec<ReasonCode>, Option<Ending>> {
    let filters: Vec<SubscribeFilter> = batch
        .iter()
        .map(|subscription| {
            let mut filter =
                SubscribeFilter::new(subscription.filter.as_str(), to_wire_qos(subscription.qos));
            // The retain flag as it was published: a bridge has to pass it on.
            filter.preserve_retain = true;
            // Retained messages come with a new subscription, not each time that a resumed
            // session makes sure of one it has.
            filter.retain_forward_rule = RetainForwardRule::OnNewSubscribe;
            filter
        })
        .collect();
    let Ok(notice) = client.subscribe_many_tracked(filters).await else {
        return Err(None);
    };
    let after = shared.config.answer_timeout;
    match timeout(after, notice.wait_async()).await {
        Ok(Ok(suback)) => {
            let mut codes: Vec<_> = suback.return_codes.into_iter().map(code).collect();
            // A SUBACK with too few codes grants nothing by its silence.
            codes.resize(batch.len(), ReasonCode::new(0x80));
            Ok(codes)
        }
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(Ending::Unanswered {
            what: "SUBSCRIBE",
            after,
        })),
    }
}

/// One log line for each filter whose answer is another than before.
fn announce(shared: &Shared, refused: &[RefusedSubscription]) {
    let before = shared.refused().clone();
    for RefusedSubscription { subscription, code } in refused {
        let known = before
            .iter()
            .any(|old| old.subscription == *subscription && old.code == *code);
        if !known {
            warn!(
                event = "subscription_refused",
                session = %shared.config.name,
                filter = subscription.filter.as_str(),
                reason = %code,
                "the broker refuses a subscription; asking again from time to time"
            );
        }
    }
    for old in &before {
        let still = refused
            .iter()
            .any(|new| new.subscription == old.subscription);
        if !still {
            info!(
                event = "subscription_granted",
                session = %shared.config.name,
                filter = old.subscription.filter.as_str(),
                "the broker now grants a subscription that it had refused"
            );
        }
    }
}

const fn code(code: SubscribeReasonCode) -> ReasonCode {
    ReasonCode::new(match code {
        SubscribeReasonCode::Success(qos) => qos as u8,
        SubscribeReasonCode::Failure | SubscribeReasonCode::Unspecified => 0x80,
        SubscribeReasonCode::ImplementationSpecific => 0x83,
        SubscribeReasonCode::NotAuthorized => 0x87,
        SubscribeReasonCode::TopicFilterInvalid => 0x8F,
        SubscribeReasonCode::PkidInUse => 0x91,
        SubscribeReasonCode::QuotaExceeded => 0x97,
        SubscribeReasonCode::SharedSubscriptionsNotSupported => 0x9E,
        SubscribeReasonCode::SubscriptionIdNotSupported => 0xA1,
        SubscribeReasonCode::WildcardSubscriptionsNotSupported => 0xA2,
    })
}
