//! The sink: publishes, and answers at once.

use bridge_core::{
    Acknowledgement, Admitted, Answer, BoxFuture, Limits, Link, LocalRefusal, Name, NotAdmitted,
    Outgoing, QoS, ReasonCode, Sink,
};
use tokio::sync::watch;

use crate::MemoryBroker;
use crate::state::Published;

/// A session that publishes to a [`MemoryBroker`]. Connected until it is closed.
///
/// A message for which a subscription has no room is refused for now, with 0x97 (quota exceeded):
/// who publishes keeps it, and nothing is lost or grows without a bound.
#[derive(Debug)]
pub struct MemorySink {
    broker: MemoryBroker,
    client: Name,
    link: watch::Sender<Link>,
}

impl MemorySink {
    pub(crate) fn new(broker: MemoryBroker, client: Name) -> Self {
        let options = broker.options();
        let limits = Limits {
            window: u16::MAX,
            maximum_packet_size: None,
            // An exchange of two steps means nothing in one process.
            maximum_qos: QoS::AtLeastOnce,
            retain_available: options.retained.is_some(),
        };
        Self {
            broker,
            client,
            link: watch::Sender::new(Link::Up { epoch: 1, limits }),
        }
    }

    fn offer(&self, outgoing: Outgoing) -> Result<Answer, NotAdmitted> {
        let Link::Up { limits, .. } = self.link() else {
            return Err(NotAdmitted::LinkDown);
        };
        let largest = self.broker.options().waiting.max_bytes;
        if let Some(refusal) = refused(&outgoing, limits, largest) {
            return Err(NotAdmitted::Refused(refusal));
        }
        let by = match outgoing.qos {
            QoS::AtMostOnce => Acknowledgement::Written,
            QoS::AtLeastOnce | QoS::ExactlyOnce => Acknowledgement::PubAck,
        };
        let (code, reason_string) = match self.broker.publish(&self.client, outgoing) {
            Published::To(0) => (ReasonCode::NO_MATCHING_SUBSCRIBERS, None),
            Published::To(_) => (ReasonCode::SUCCESS, None),
            Published::NoRoom => (
                ReasonCode::QUOTA_EXCEEDED,
                Some("a subscription, or what is retained, is full".to_owned()),
            ),
        };
        Ok(Answer::Answered {
            by,
            code,
            reason_string,
        })
    }
}

/// Why `outgoing` can never be published here.
fn refused(outgoing: &Outgoing, limits: Limits, max_bytes: u64) -> Option<LocalRefusal> {
    let size = outgoing.size();
    if size > max_bytes {
        return Some(LocalRefusal::PacketTooLarge {
            size,
            maximum: max_bytes,
        });
    }
    if outgoing.qos > limits.maximum_qos {
        return Some(LocalRefusal::QosUnavailable {
            maximum: limits.maximum_qos,
        });
    }
    (outgoing.retain && !limits.retain_available).then_some(LocalRefusal::RetainUnavailable)
}

impl Sink for MemorySink {
    fn publish(&self, outgoing: Outgoing) -> BoxFuture<'_, Result<Admitted, NotAdmitted>> {
        Box::pin(async {
            let answer = self.offer(outgoing)?;
            Ok(Box::pin(std::future::ready(answer)) as Admitted)
        })
    }

    fn link(&self) -> Link {
        *self.link.borrow()
    }

    fn changed(&self, seen: Link) -> BoxFuture<'_, Link> {
        let mut link = self.link.subscribe();
        Box::pin(async move {
            // The sender is `self`: the wait cannot outlive it.
            link.wait_for(|now| *now != seen)
                .await
                .map_or(Link::Down, |now| *now)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.link.send_replace(Link::Down);
        Box::pin(async {})
    }
}
