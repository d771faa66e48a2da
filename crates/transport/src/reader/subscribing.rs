//! Asks for subscriptions until all are granted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bridge_core::{QoS, ReasonCode, SourceState, Subscription};
use rumqttc::AsyncClient;
use rumqttc::mqttbytes::v5::{RetainForwardRule, SubscribeFilter, SubscribeReasonCode};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Shared;
use super::leftovers::Leftovers;
use crate::connection::{Ending, Serves};
use crate::convert::to_wire_qos;

/// How many filters one SUBSCRIBE or UNSUBSCRIBE names: some brokers refuse more.
pub(super) const AT_A_TIME: usize = 8;

/// A subscription that the broker does not grant at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSubscription {
    /// What was asked for.
    pub subscription: Subscription,
    /// The broker's answer, or what it said beforehand in its CONNACK.
    pub code: ReasonCode,
}

/// A subscription that the broker grants at a lower QoS than was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DowngradedSubscription {
    /// What was asked for.
    pub subscription: Subscription,
    /// What was granted.
    pub granted: QoS,
}

/// How the subscriptions of a session stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Standing {
    pub(super) refused: Vec<RefusedSubscription>,
    pub(super) downgraded: Vec<DowngradedSubscription>,
}

/// Subscribes, and asks again for what is refused, ever more slowly; ends what is left over from an
/// earlier configuration. Ends only when the connection is no longer of use.
pub(super) async fn keep_subscribed(
    shared: &Arc<Shared>,
    client: &AsyncClient,
    serves: Serves,
    leftovers: &mut Leftovers<'_>,
) -> Ending {
    // What the broker does not serve stays so for as long as the connection lives.
    let mut never = Vec::new();
    let mut open = Vec::new();
    for subscription in shared.subscriptions.clone() {
        match serves.refuses(&subscription.filter) {
            Some(code) => never.push(RefusedSubscription { subscription, code }),
            None => open.push(subscription),
        }
    }
    let mut standing = Standing::default();
    let mut attempts = 0;
    leftovers.find(shared).await;
    loop {
        standing.refused.clone_from(&never);
        let asked = async {
            // First, so that nothing more of it comes.
            leftovers.end(shared, client).await?;
            ask_all(shared, client, &open, &mut standing).await
        };
        shared.asking.store(true, Ordering::Relaxed);
        open = match asked.await {
            Ok(refused) => refused,
            Err(Some(ending)) => return ending,
            // The connection has ended, and says itself why.
            Err(None) => std::future::pending().await,
        };
        shared.asking.store(false, Ordering::Relaxed);
        note(shared, &standing);
        if standing.refused.is_empty() {
            shared.state.set(SourceState::Subscribed);
        }
        if open.is_empty() && leftovers.is_empty() {
            std::future::pending::<()>().await;
        }
        attempts += 1;
        sleep(shared.tuning.resubscribe.delay(attempts, rand::random())).await;
    }
}

/// Asks for all of these, and says which are refused.
async fn ask_all(
    shared: &Shared,
    client: &AsyncClient,
    open: &[Subscription],
    standing: &mut Standing,
) -> Result<Vec<Subscription>, Option<Ending>> {
    let mut again = Vec::new();
    for batch in open.chunks(AT_A_TIME) {
        let codes = ask(shared, client, batch).await?;
        for (subscription, code) in batch.iter().cloned().zip(codes) {
            if code.is_refusal() {
                again.push(subscription.clone());
                let refused = RefusedSubscription { subscription, code };
                standing.refused.push(refused);
            } else if let Some(granted) = QoS::from_u8(code.get())
                && granted < subscription.qos
            {
                let downgraded = DowngradedSubscription {
                    subscription,
                    granted,
                };
                standing.downgraded.push(downgraded);
            }
        }
    }
    Ok(again)
}

/// One SUBSCRIBE and its SUBACK.
async fn ask(
    shared: &Shared,
    client: &AsyncClient,
    batch: &[Subscription],
) -> Result<Vec<ReasonCode>, Option<Ending>> {
    let filters: Vec<SubscribeFilter> = batch.iter().map(filter).collect();
    let Ok(notice) = client.subscribe_many_tracked(filters).await else {
        return Err(None);
    };
    let after = shared.config.answer_timeout;
    match timeout(after, notice.wait_async()).await {
        Ok(Ok(suback)) => {
            if let Some(reason_string) = suback.properties.and_then(|said| said.reason_string) {
                info!(
                    event = "subscriptions_answered",
                    session = %shared.config.name,
                    reason_string,
                    "the broker says something about subscriptions"
                );
            }
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

fn filter(subscription: &Subscription) -> SubscribeFilter {
    let mut filter =
        SubscribeFilter::new(subscription.filter.as_str(), to_wire_qos(subscription.qos));
    // The retain flag as it was published: a bridge has to pass it on.
    filter.preserve_retain = true;
    // Retained messages come with a new subscription, not each time that a resumed session makes
    // sure of one it has.
    filter.retain_forward_rule = RetainForwardRule::OnNewSubscribe;
    // With a shared subscription it is a protocol error, MQTT 5 §3.8.3.1.
    filter.nolocal = subscription.no_local && subscription.filter.share_group().is_none();
    filter
}

/// Keeps how the subscriptions stand, with one log line for each whose answer is another than
/// before.
fn note(shared: &Shared, standing: &Standing) {
    let counters = &shared.counters;
    let count = |filters: usize| u64::try_from(filters).unwrap_or(u64::MAX);
    counters
        .refused_subscriptions
        .set(count(standing.refused.len()));
    counters
        .downgraded_subscriptions
        .set(count(standing.downgraded.len()));
    let before = std::mem::replace(&mut *shared.standing(), standing.clone());
    let session = &shared.config.name;
    for refused in standing
        .refused
        .iter()
        .filter(|r| !before.refused.contains(r))
    {
        warn!(
            event = "subscription_refused",
            session = %session,
            filter = refused.subscription.filter.as_str(),
            reason = %refused.code,
            "the broker refuses a subscription; asking again from time to time"
        );
    }
    let downgraded = standing.downgraded.iter();
    for downgraded in downgraded.filter(|d| !before.downgraded.contains(d)) {
        warn!(
            event = "subscription_downgraded",
            session = %session,
            filter = downgraded.subscription.filter.as_str(),
            asked = %downgraded.subscription.qos,
            granted = %downgraded.granted,
            "the broker grants a subscription at a lower QoS than was asked for: it sends what \
             matches with that QoS at most"
        );
    }
    for old in &before.refused {
        let mut refused = standing.refused.iter();
        if !refused.any(|new| new.subscription == old.subscription) {
            info!(
                event = "subscription_granted",
                session = %session,
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
