//! The intake of one source session: takes what arrives, and gives it to the bindings of every
//! route that wants it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use bridge_core::{
    Clock, Delivery, MessageId, Name, Remainder, Source, StoredMessage, Subscription, Topic,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::RouteSpec;
use crate::lane::{self, Job, Lane};
use crate::metrics::SourceMetrics;
use crate::settlement;

/// How much of one session's messages may be unsettled in memory: 64 MiB, in units of 1 KiB.
pub(crate) const UNSETTLED_KIB: u32 = 64 * 1024;
/// What the smallest message counts for, so that their number is bounded as well.
const SMALLEST_KIB: u32 = 16;

/// What one session is asked for so that each of `routes` gets what it wants.
///
/// A filter that another one covers is left out: a broker may send a message once for each of
/// its subscriptions that match (MQTT 5 §3.3.4), and it would be taken twice.
pub fn subscriptions_of<'a>(routes: impl IntoIterator<Item = &'a RouteSpec>) -> Vec<Subscription> {
    let mut kept: Vec<Subscription> = Vec::new();
    for wanted in routes.into_iter().flat_map(|route| &route.subscriptions) {
        let group = wanted.filter.share_group();
        let same_group = |other: &Subscription| other.filter.share_group() == group;
        if let Some(wider) = kept
            .iter_mut()
            .find(|other| same_group(other) && other.filter.covers(&wanted.filter))
        {
            wider.qos = wider.qos.max(wanted.qos);
            wider.no_local &= wanted.no_local;
            continue;
        }
        let mut wanted = wanted.clone();
        kept.retain(|other| {
            let covered = same_group(other) && wanted.filter.covers(&other.filter);
            if covered {
                wanted.qos = wanted.qos.max(other.qos);
                wanted.no_local &= other.no_local;
            }
            !covered
        });
        kept.push(wanted);
    }
    kept
}

/// The routes of one session, and the lanes of each.
#[derive(Debug)]
pub(crate) struct Router(Vec<(Vec<Subscription>, Vec<Arc<Lane>>)>);

impl Router {
    pub(crate) fn new<'a>(
        routes: impl IntoIterator<Item = &'a RouteSpec>,
        lanes: &BTreeMap<Name, Vec<Arc<Lane>>>,
    ) -> Self {
        let routes = routes.into_iter().map(|route| {
            let lanes = lanes.get(&route.name).cloned().unwrap_or_default();
            (route.subscriptions.clone(), lanes)
        });
        Self(routes.collect())
    }

    fn lanes_for(&self, topic: &Topic) -> Vec<Arc<Lane>> {
        let wants = |subscriptions: &[Subscription]| {
            subscriptions
                .iter()
                .any(|subscription| subscription.filter.matches(topic))
        };
        let routes = self.0.iter().filter(|(wanted, _)| wants(wanted));
        routes
            .flat_map(|(_, lanes)| lanes.iter().cloned())
            .collect()
    }
}

/// The stop of all intakes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// Nothing is to be taken that stays with its source.
    pub(crate) begun: CancellationToken,
    /// Nothing is to be taken at all.
    pub(crate) time_is_up: CancellationToken,
}

/// One session's intake.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) session: Name,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) router: Router,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: SourceMetrics,
    pub(crate) unsettled: Arc<Semaphore>,
}

impl Intake {
    /// Takes messages until the source is closed or told to `stop`, and says whose intake it was.
    ///
    /// What is not taken stays with the source, and so does what is taken and never settles. A
    /// source that would lose it is emptied first, for as long as there is time.
    pub(crate) async fn run(self, stop: Stop) -> Name {
        self.serve(&stop).await;
        self.session
    }

    async fn serve(&self, stop: &Stop) {
        let mut over = pin!(self.over(stop));
        loop {
            let delivery = tokio::select! {
                biased;
                () = &mut over => return,
                delivery = self.source.next() => delivery,
            };
            let Some(delivery) = delivery else { return };
            let size = u32::try_from(delivery.message.size() / 1024).unwrap_or(u32::MAX);
            let share = size.clamp(SMALLEST_KIB, UNSETTLED_KIB);
            let share = tokio::select! {
                biased;
                () = &mut over => return,
                share = self.unsettled.clone().acquire_many_owned(share) => share,
            };
            // The semaphore is never closed; if it were, the session would be over.
            let Ok(share) = share else { return };
            self.take(delivery, share);
        }
    }

    /// Ends when nothing more is to be taken.
    async fn over(&self, stop: &Stop) {
        stop.begun.cancelled().await;
        if self.source.wind_down() == Remainder::Kept {
            return;
        }
        stop.time_is_up.cancelled().await;
        warn!(
            event = "intake_cut_off",
            session = %self.session,
            "the session is not kept by its broker, and what the broker had for it could not be \
             taken in before the time for the stop was up: the rest goes with the session"
        );
    }

    fn take(&self, delivery: Delivery, share: tokio::sync::OwnedSemaphorePermit) {
        self.metrics.received.inc();
        if delivery.redelivered {
            self.metrics.redelivered.inc();
        }
        let lanes = self.router.lanes_for(&delivery.message.topic);
        if lanes.is_empty() {
            self.metrics.unrouted.inc();
        }
        let tokens = settlement::tokens(delivery.acknowledge, share, lanes.len());
        let stored = Arc::new(StoredMessage {
            id: MessageId::new(delivery.received, rand::random()),
            cause: None,
            session: self.session.clone(),
            received: delivery.received,
            message: delivery.message,
        });
        let given = self.clock.monotonic();
        let jobs = tokens.into_iter().map(|token| Job {
            stored: stored.clone(),
            token,
            given,
        });
        lane::give(lanes.into_iter().zip(jobs).collect());
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::{QoS, TopicFilter};

    use super::*;
    use crate::DeliveryMode;

    fn route(filters: &[(&str, QoS)]) -> RouteSpec {
        let subscriptions = filters.iter().map(|(filter, qos)| Subscription {
            filter: TopicFilter::parse(filter).unwrap(),
            qos: *qos,
            no_local: false,
        });
        RouteSpec {
            name: Name::parse("r").unwrap(),
            source: Name::parse("s").unwrap(),
            subscriptions: subscriptions.collect(),
            mode: DeliveryMode::StoreAndForward,
            bindings: Vec::new(),
        }
    }

    fn asked(routes: &[RouteSpec]) -> Vec<(String, QoS)> {
        let asked = subscriptions_of(routes).into_iter();
        asked.map(|s| (s.filter.to_string(), s.qos)).collect()
    }

    #[test]
    fn a_covered_filter_is_not_asked_for_and_lends_its_qos() {
        use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};
        let one = route(&[("a/b", ExactlyOnce), ("c/+", AtMostOnce)]);
        let other = route(&[
            ("a/#", AtLeastOnce),
            ("c/+", AtLeastOnce),
            ("c/d", AtMostOnce),
        ]);
        assert_eq!(
            asked(&[one, other]),
            [("c/+".into(), AtLeastOnce), ("a/#".into(), ExactlyOnce)]
        );
    }

    #[test]
    fn a_shared_subscription_stands_beside_an_ordinary_one() {
        let one = route(&[
            ("$share/g/a/#", QoS::AtLeastOnce),
            ("a/#", QoS::AtLeastOnce),
        ]);
        assert_eq!(asked(&[one]).len(), 2);
    }
}
