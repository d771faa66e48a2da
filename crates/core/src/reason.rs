//! Why a message was not accepted: the broker's reason codes and the bridge's own.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A reason code as a broker sent it, MQTT 5 §2.4. Below 0x80 it says success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReasonCode(u8);

impl ReasonCode {
    /// 0x00, success.
    pub const SUCCESS: Self = Self(0x00);
    /// 0x10, accepted though no one is subscribed.
    pub const NO_MATCHING_SUBSCRIBERS: Self = Self(0x10);
    /// 0x81, the packet does not conform to the standard.
    pub const MALFORMED_PACKET: Self = Self(0x81);
    /// 0x87, the sender may not do this (now).
    pub const NOT_AUTHORIZED: Self = Self(0x87);
    /// 0x8E, another client connected with our client id.
    pub const SESSION_TAKEN_OVER: Self = Self(0x8E);
    /// 0x91, the packet identifier is in use.
    pub const PACKET_IDENTIFIER_IN_USE: Self = Self(0x91);
    /// 0x97, an implementation or administrative limit was exceeded.
    pub const QUOTA_EXCEEDED: Self = Self(0x97);
    /// 0x9A, retained messages are not supported.
    pub const RETAIN_NOT_SUPPORTED: Self = Self(0x9A);
    /// 0x9B, this QoS is not supported.
    pub const QOS_NOT_SUPPORTED: Self = Self(0x9B);
    /// 0x9E, shared subscriptions are not supported.
    pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Self = Self(0x9E);
    /// 0xA2, subscriptions with wildcards are not supported.
    pub const WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Self = Self(0xA2);

    /// The code of that byte, known to the standard or not.
    pub const fn new(code: u8) -> Self {
        Self(code)
    }

    /// The byte.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether the code says that the request failed: 0x80 and above, MQTT 5 §2.4.
    pub const fn is_refusal(self) -> bool {
        self.0 >= 0x80
    }

    /// The `snake_case` name of the standard, if the standard names the code.
    const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x00 => "success",
            0x10 => "no_matching_subscribers",
            0x80 => "unspecified_error",
            0x81 => "malformed_packet",
            0x82 => "protocol_error",
            0x83 => "implementation_specific_error",
            0x84 => "unsupported_protocol_version",
            0x85 => "client_identifier_not_valid",
            0x86 => "bad_user_name_or_password",
            0x87 => "not_authorized",
            0x88 => "server_unavailable",
            0x89 => "server_busy",
            0x8A => "banned",
            0x8B => "server_shutting_down",
            0x8C => "bad_authentication_method",
            0x8D => "keep_alive_timeout",
            0x8E => "session_taken_over",
            0x8F => "topic_filter_invalid",
            0x90 => "topic_name_invalid",
            0x91 => "packet_identifier_in_use",
            0x92 => "packet_identifier_not_found",
            0x93 => "receive_maximum_exceeded",
            0x94 => "topic_alias_invalid",
            0x95 => "packet_too_large",
            0x96 => "message_rate_too_high",
            0x97 => "quota_exceeded",
            0x98 => "administrative_action",
            0x99 => "payload_format_invalid",
            0x9A => "retain_not_supported",
            0x9B => "qos_not_supported",
            0x9C => "use_another_server",
            0x9D => "server_moved",
            0x9E => "shared_subscriptions_not_supported",
            0x9F => "connection_rate_exceeded",
            0xA0 => "maximum_connect_time",
            0xA1 => "subscription_identifiers_not_supported",
            0xA2 => "wildcard_subscriptions_not_supported",
            _ => return None,
        })
    }
}

impl fmt::Display for ReasonCode {
    /// The standard's name in `snake_case`, or `unknown_0x…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown_0x{:02x}", self.0),
        }
    }
}

impl fmt::Debug for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (0x{:02X})", self.0)
    }
}

/// Why a message was given up on: what a dead letter and the label `reason` say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The broker refused it with this code.
    Broker(ReasonCode),
    /// It is larger than the broker's Maximum Packet Size.
    PacketTooLarge,
    /// Its topic cannot be published to.
    TopicInvalid,
    /// It is retained and the broker does not retain.
    RetainUnavailable,
    /// Its QoS is above the broker's Maximum QoS and the binding does not lower it.
    QosUnavailable,
    /// The connection ended on it again and again, while others went through (I06).
    SuspectedRefusal,
    /// Its message expiry interval ran out while it waited.
    Expired,
    /// A processor of the route failed on it.
    ProcessorFailed,
    /// It failed without a verdict as often as its binding allows.
    RetriesExhausted,
}

/// Every reason that is not a broker's code.
const LOCAL: [(Reason, &str); 8] = [
    // A broker's own 0x95 reads the same on purpose: the cause and the remedy are the same.
    (Reason::PacketTooLarge, "packet_too_large"),
    (Reason::TopicInvalid, "topic_invalid"),
    (Reason::RetainUnavailable, "retain_unavailable"),
    (Reason::QosUnavailable, "qos_unavailable"),
    (Reason::SuspectedRefusal, "suspected_refusal"),
    (Reason::Expired, "expired"),
    (Reason::ProcessorFailed, "processor_failed"),
    (Reason::RetriesExhausted, "retries_exhausted"),
];

impl Reason {
    /// The name in `snake_case`, as metrics, logs and the API say it.
    pub fn as_str(&self) -> Cow<'static, str> {
        if let Self::Broker(code) = self {
            return code
                .name()
                .map_or_else(|| Cow::Owned(code.to_string()), Cow::Borrowed);
        }
        let name = LOCAL.iter().find(|(reason, _)| reason == self);
        Cow::Borrowed(name.map_or("unspecified_error", |(_, name)| name))
    }

    /// The broker's code, when it was the broker that refused.
    pub const fn code(&self) -> Option<ReasonCode> {
        match self {
            Self::Broker(code) => Some(*code),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str())
    }
}

/// A text that names no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no such reason: {0:?}; it is the name of a broker's code, such as not_authorized or \
     quota_exceeded, or one of {names}",
    names = LOCAL.map(|(_, name)| name).join(", ")
)]
pub struct UnknownReason(String);

impl FromStr for Reason {
    type Err = UnknownReason;

    /// Reads what [`Reason::as_str`] prints; `packet_too_large` reads as the local reason.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((reason, _)) = LOCAL.iter().find(|(_, name)| *name == text) {
            return Ok(*reason);
        }
        (0..=u8::MAX)
            .map(ReasonCode::new)
            .find(|code| code.to_string() == text)
            .map(Self::Broker)
            .ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back_by_its_name() {
        for code in 0..=u8::MAX {
            let name = Reason::Broker(ReasonCode::new(code)).as_str();
            assert_eq!(name.parse::<Reason>().unwrap().as_str(), name);
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            );
        }
        for (reason, name) in LOCAL {
            assert_eq!(name.parse::<Reason>(), Ok(reason));
        }
        let unknown = "nonsense".parse::<Reason>().unwrap_err().to_string();
        assert!(
            unknown.contains("expired, "),
            "says what there is: {unknown}"
        );
    }

    #[test]
    fn a_code_that_the_standard_does_not_know_keeps_its_number() {
        assert_eq!(ReasonCode::new(0xE5).to_string(), "unknown_0xe5");
        assert!(ReasonCode::new(0xE5).is_refusal());
        assert!(!ReasonCode::new(0x7f).is_refusal());
    }
}
