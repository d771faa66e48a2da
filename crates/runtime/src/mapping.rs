//! What a message becomes for one binding: the same for a live, a queued and a retained one.

use bridge_core::{
    Expiry, Limits, Message, Name, Reason, StoredMessage, TemplateContext, Timestamp, Topic,
};

use crate::BindingSpec;

/// Why a message is not to be published at a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Its expiry interval is over.
    Expired,
    /// It can never be published here.
    Refused(Reason),
}

/// What `binding` publishes for `stored` at `now`, to a broker with `limits`.
pub(crate) fn outgoing(
    stored: &StoredMessage,
    route: &Name,
    binding: &BindingSpec,
    limits: &Limits,
    now: Timestamp,
) -> Result<Message, Unfit> {
    let mut properties = stored.message.properties.clone();
    match stored.message.expiry_left(stored.received, now) {
        Expiry::Never => {}
        Expiry::In(seconds) => properties.message_expiry = Some(seconds),
        Expiry::Expired => return Err(Unfit::Expired),
    }
    let topic = topic(stored, route, binding).ok_or(Unfit::Refused(Reason::TopicInvalid))?;
    let qos = binding.qos.unwrap_or(stored.message.qos);
    Ok(Message {
        topic,
        payload: stored.message.payload.clone(),
        // A broker that takes less gets less: the message counts for more than its QoS.
        qos: qos.min(limits.maximum_qos),
        retain: binding.retain.apply(&stored.message),
        properties,
    })
}

/// The topic that `binding` publishes `stored` to, if that can be one.
pub(crate) fn topic(stored: &StoredMessage, route: &Name, binding: &BindingSpec) -> Option<Topic> {
    let context = TemplateContext {
        topic: &stored.message.topic,
        session: &stored.session,
        route,
    };
    binding.topic.render(&context).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bridge_core::{MessageId, QoS, TopicTemplate};

    use super::*;
    use crate::{
        DeadLetterBounds, DeferralSpec, OnDeadLettersFull, OnExpired, OnFull, QueueBounds,
        RetainPolicy,
    };

    const LIMITS: Limits = Limits {
        window: 10,
        maximum_packet_size: None,
        maximum_qos: QoS::ExactlyOnce,
        retain_available: true,
    };

    fn binding() -> BindingSpec {
        BindingSpec {
            name: Name::parse("cloud").unwrap(),
            sink: Name::parse("cloud").unwrap(),
            topic: TopicTemplate::parse("plants/7/{topic}").unwrap(),
            qos: None,
            retain: RetainPolicy::Keep,
            max_in_flight: 100.try_into().unwrap(),
            queue: QueueBounds {
                max_entries: 10,
                max_bytes: 1_000,
                on_full: OnFull::Backpressure,
            },
            deferral: DeferralSpec {
                window: Duration::from_secs(900),
                retry_interval: Duration::from_secs(120),
                max_entries: 10,
                max_bytes: 1_000,
            },
            dead_letters: DeadLetterBounds {
                max_entries: 10,
                max_bytes: 1_000,
                on_full: OnDeadLettersFull::DiscardNewest,
            },
            max_attempts: 10.try_into().unwrap(),
            on_expired: OnExpired::Drop,
        }
    }

    fn stored(expiry: Option<u32>) -> StoredMessage {
        let mut message = Message::new(Topic::parse("sensors/1").unwrap(), "x");
        message.retain = true;
        message.properties.message_expiry = expiry;
        let received = Timestamp::from_millis(1_000_000);
        StoredMessage {
            id: MessageId::new(received, [0; 10]),
            cause: None,
            session: Name::parse("plant").unwrap(),
            received,
            message,
        }
    }

    fn map(
        stored: &StoredMessage,
        binding: &BindingSpec,
        waited_ms: u64,
    ) -> Result<Message, Unfit> {
        let now = Timestamp::from_millis(1_000_000 + waited_ms);
        let route = Name::parse("telemetry").unwrap();
        outgoing(stored, &route, binding, &LIMITS, now)
    }

    #[test]
    fn i08_four_seconds_in_the_queue_leave_six_of_ten() {
        let out = map(&stored(Some(10)), &binding(), 4_000).unwrap();
        assert_eq!(out.properties.message_expiry, Some(6));
        assert_eq!(
            map(&stored(Some(10)), &binding(), 10_000),
            Err(Unfit::Expired)
        );
        let never = map(&stored(None), &binding(), 1 << 40).unwrap();
        assert_eq!(never.properties.message_expiry, None);
    }

    #[test]
    fn topic_qos_and_retain_follow_the_binding() {
        let mut spec = binding();
        let out = map(&stored(None), &spec, 0).unwrap();
        assert_eq!(out.topic.as_str(), "plants/7/sensors/1");
        assert_eq!((out.qos, out.retain), (QoS::AtLeastOnce, true));
        spec.qos = Some(QoS::AtMostOnce);
        spec.retain = RetainPolicy::Never;
        let out = map(&stored(None), &spec, 0).unwrap();
        assert_eq!((out.qos, out.retain), (QoS::AtMostOnce, false));
        spec.retain = RetainPolicy::Always;
        let mut plain = stored(None);
        plain.message.retain = false;
        assert!(map(&plain, &spec, 0).unwrap().retain);
    }
}
