//! What a CONNACK says: MQTT 5 §3.2.2.3.

use std::time::Duration;

use bridge_core::{Limits, QoS, ReasonCode, TopicFilter};
use rumqttc::mqttbytes::v5::{ConnAck, ConnAckProperties};

/// What the broker said when it let us in.
#[derive(Debug, Clone)]
pub(crate) struct Welcome {
    /// It still has the session.
    pub(crate) session_present: bool,
    /// What it takes.
    pub(crate) limits: Limits,
    /// What it can subscribe us to.
    pub(crate) serves: Serves,
    /// The keep-alive that counts instead of ours.
    pub(crate) keep_alive: Option<Duration>,
    /// For how many seconds it keeps the session, where that is not what was asked for.
    pub(crate) session_expiry: Option<u32>,
    /// The client id that it gave us.
    pub(crate) client_id: Option<String>,
    /// Its own words.
    pub(crate) reason_string: Option<String>,
}

/// What kinds of subscription a broker serves; without a word from it, all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Serves {
    /// Filters with `+` or `#`.
    pub(crate) wildcards: bool,
    /// `$share/…`.
    pub(crate) shared: bool,
}

impl Welcome {
    /// What `connack` says to a client that has at most `window` messages unanswered.
    pub(super) fn new(connack: &ConnAck, window: u16) -> Self {
        let said = connack.properties.as_ref();
        let number = |from: fn(&ConnAckProperties) -> Option<u16>| said.and_then(from);
        let available =
            |from: fn(&ConnAckProperties) -> Option<u8>| said.and_then(from).unwrap_or(1) != 0;
        let receive_maximum = number(|said| said.receive_max).unwrap_or(u16::MAX);
        let maximum_qos = said.and_then(|said| said.max_qos).and_then(QoS::from_u8);
        let seconds = |seconds: u16| Duration::from_secs(u64::from(seconds));
        Self {
            session_present: connack.session_present,
            limits: Limits {
                window: window.min(receive_maximum).max(1),
                maximum_packet_size: said.and_then(|said| said.max_packet_size),
                maximum_qos: maximum_qos.unwrap_or(QoS::ExactlyOnce),
                retain_available: available(|said| said.retain_available),
            },
            serves: Serves {
                wildcards: available(|said| said.wildcard_subscription_available),
                shared: available(|said| said.shared_subscription_available),
            },
            keep_alive: number(|said| said.server_keep_alive).map(seconds),
            session_expiry: said.and_then(|said| said.session_expiry_interval),
            client_id: said.and_then(|said| said.assigned_client_identifier.clone()),
            reason_string: said.and_then(|said| said.reason_string.clone()),
        }
    }
}

impl Serves {
    /// The code that the broker would refuse `filter` with, or worse: some close the connection
    /// on a filter that they have said they do not serve.
    pub(crate) fn refuses(self, filter: &TopicFilter) -> Option<ReasonCode> {
        let wildcard = |level: &str| matches!(level, "+" | "#");
        if !self.shared && filter.share_group().is_some() {
            return Some(ReasonCode::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED);
        }
        (!self.wildcards && filter.levels().any(wildcard))
            .then_some(ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_the_broker_does_not_serve_is_known_before_it_is_sent() {
        let refused = |wildcards, shared, filter| {
            let serves = Serves { wildcards, shared };
            serves
                .refuses(&TopicFilter::parse(filter).unwrap())
                .map(ReasonCode::get)
        };
        for filter in ["a/b", "a/+", "#", "$share/g/a"] {
            assert_eq!(refused(true, true, filter), None);
        }
        assert_eq!(refused(false, true, "a/+"), Some(0xA2));
        assert_eq!(refused(false, true, "$share/g/a/#"), Some(0xA2));
        assert_eq!(refused(false, true, "$share/g/a"), None);
        assert_eq!(refused(true, false, "$share/g/a"), Some(0x9E));
        assert_eq!(refused(false, false, "a/b"), None);
    }
}
