//! What a session says of itself on its status topic: the birth, the will, and the farewell.
//!
//! Exactly one connection of a session carries it: the one that writes, where there is one. It is
//! the will's connection that says the birth, before anything else, so that no broker can put an
//! old will behind a new birth by having two clients to choose from; and the farewell is said
//! before the DISCONNECT that takes the will back.
//!
//! ```text
//!   CONNECT(will: offline) ─► birth: online ─► … ─► farewell: offline ─► DISCONNECT
//!                                  └─ once more after a while: a will that a broker was slow to
//!                                     publish for the connection before has come out by then
//! ```

use std::time::Duration;

use bridge_core::{Message, QoS, ReasonCode};
use rumqttc::mqttbytes::v5::{LastWill, LastWillProperties};

use tracing::warn;

use crate::convert::to_wire_qos;
use crate::{Protocol, SessionConfig, StatusTopic};

/// How long a broker holds the will back: a connection that is there again by then was not gone.
pub(crate) const WILL_DELAY: Duration = Duration::from_secs(5);
/// When the birth is said once more: when every will of the connection before has come out.
pub(crate) const ONCE_MORE: Duration = Duration::from_secs(10);

/// The status of one session, in the form that its broker takes.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    topic: StatusTopic,
    delay: bool,
    retain: bool,
    qos: QoS,
}

impl Status {
    /// The status of a session that has a topic for it.
    pub(crate) fn new(config: &SessionConfig) -> Option<Self> {
        Some(Self {
            topic: config.status.clone()?,
            delay: config.protocol == Protocol::V5,
            retain: true,
            qos: QoS::AtLeastOnce,
        })
    }

    /// For how many seconds a session that carries it has to outlive its connection, so that the
    /// will can wait.
    pub(crate) fn outlives(&self) -> Option<u32> {
        self.delay
            .then(|| u32::try_from(WILL_DELAY.as_secs()).unwrap_or(u32::MAX))
    }

    /// What the broker says for us when we are gone.
    pub(crate) fn will(&self) -> LastWill {
        let properties = self.outlives().map(|seconds| LastWillProperties {
            delay_interval: Some(seconds),
            payload_format_indicator: Some(1),
            message_expiry_interval: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
        });
        LastWill::new(
            self.topic.topic.as_str(),
            self.topic.offline.clone(),
            to_wire_qos(self.qos),
            self.retain,
            properties,
        )
    }

    /// The birth.
    pub(crate) fn online(&self) -> Message {
        self.message(&self.topic.online)
    }

    /// The farewell.
    pub(crate) fn offline(&self) -> Message {
        self.message(&self.topic.offline)
    }

    fn message(&self, payload: &str) -> Message {
        let mut message = Message::new(self.topic.topic.clone(), payload.to_owned());
        message.qos = self.qos;
        message.retain = self.retain;
        message
    }

    /// Gives way to a broker that lets nobody in with such a will (MQTT 5 §3.2.2.2); whether
    /// there was something to give way with.
    pub(crate) fn refused(&mut self, code: ReasonCode) -> bool {
        match code {
            ReasonCode::RETAIN_NOT_SUPPORTED => std::mem::replace(&mut self.retain, false),
            ReasonCode::QOS_NOT_SUPPORTED => {
                std::mem::replace(&mut self.qos, QoS::AtMostOnce) > QoS::AtMostOnce
            }
            _ => false,
        }
    }
}

impl SessionConfig {
    /// Tells that the broker does not take what the session says of itself.
    pub(crate) fn status_refused(&self, code: ReasonCode, reason_string: Option<&str>) {
        warn!(
            event = "status_refused",
            session = %self.name,
            broker = %self.brokers,
            topic = self.status.as_ref().map(|status| status.topic.as_str()),
            reason = %code,
            reason_string,
            "the broker does not take the session's status: grant this client its status topic"
        );
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::{Name, Topic};

    use super::*;
    use crate::{Address, Brokers, Endpoint};

    fn status(protocol: Protocol) -> Status {
        let brokers = Brokers::one(Endpoint::tcp(Address {
            host: "localhost".to_owned(),
            port: 1883,
        }));
        let mut config = SessionConfig::new(Name::parse("s").unwrap(), brokers, "s");
        config.protocol = protocol;
        config.status = Some(StatusTopic {
            topic: Topic::parse("status/s").unwrap(),
            online: "1".to_owned(),
            offline: "0".to_owned(),
        });
        Status::new(&config).unwrap()
    }

    #[test]
    fn birth_will_and_farewell_are_retained_on_one_topic() {
        let status = status(Protocol::V5);
        let will = status.will();
        for (message, payload) in [(status.online(), "1"), (status.offline(), "0")] {
            assert_eq!(message.payload, payload);
            assert_eq!(message.topic.as_str().as_bytes(), &will.topic[..]);
            assert!(message.retain && will.retain);
            assert_eq!(to_wire_qos(message.qos), will.qos);
        }
        assert_eq!(will.message, "0");
        assert_eq!(will.properties.unwrap().delay_interval, Some(5));
    }

    #[test]
    fn mqtt_3_1_1_has_no_delay() {
        let status = status(Protocol::V311);
        assert_eq!((status.will().properties, status.outlives()), (None, None));
    }

    #[test]
    fn a_broker_that_takes_less_is_given_less_and_each_thing_once() {
        let mut status = status(Protocol::V5);
        assert!(!status.refused(ReasonCode::NOT_AUTHORIZED));
        assert!(status.refused(ReasonCode::RETAIN_NOT_SUPPORTED));
        assert!(!status.refused(ReasonCode::RETAIN_NOT_SUPPORTED));
        assert!(status.refused(ReasonCode::QOS_NOT_SUPPORTED));
        assert!(!status.refused(ReasonCode::QOS_NOT_SUPPORTED));
        let will = status.will();
        assert!(!will.retain && !status.online().retain);
        assert_eq!(status.offline().qos, QoS::AtMostOnce);
    }
}
