//! Which dead letters: what all of their lists, redrives and deletes go by.

use bridge_core::{
    BindingKey, DeadLetterInfo, MessageId, Name, Reason, StoredMessage, Timestamp, TopicFilter,
};

/// Which dead letters; the empty filter takes all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetterFilter {
    /// Only of this route.
    pub route: Option<Name>,
    /// Only of bindings of this name.
    pub binding: Option<Name>,
    /// Only those given up on for a reason of this name: a broker's own `packet_too_large` and ours
    /// are one.
    pub reason: Option<Reason>,
    /// Only those whose topic, as it came, matches.
    pub topic: Option<TopicFilter>,
    /// Only those given up on at this instant or later.
    pub since: Option<Timestamp>,
    /// Only those given up on before this instant.
    pub until: Option<Timestamp>,
    /// Only those of the message with this id.
    pub message_id: Option<MessageId>,
}

impl DeadLetterFilter {
    /// Whether it may take any dead letter of `key`.
    pub fn takes_binding(&self, key: &BindingKey) -> bool {
        let is = |wanted: &Option<Name>, name| wanted.as_ref().is_none_or(|wanted| wanted == name);
        is(&self.route, &key.route) && is(&self.binding, &key.binding)
    }

    /// Whether it takes all dead letters of the bindings that it takes.
    pub const fn is_by_binding_only(&self) -> bool {
        self.reason.is_none()
            && self.topic.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.message_id.is_none()
    }

    /// Whether it takes all dead letters that there are.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it takes the dead letter of `stored`, if it takes its binding.
    pub fn takes(&self, stored: &StoredMessage, info: &DeadLetterInfo) -> bool {
        let given_up = info.last_refusal;
        self.message_id.is_none_or(|id| id == stored.id)
            && self.since.is_none_or(|since| given_up >= since)
            && self.until.is_none_or(|until| given_up < until)
            && self
                .reason
                .is_none_or(|reason| reason.as_str() == info.reason.as_str())
            && self
                .topic
                .as_ref()
                .is_none_or(|topic| topic.matches(&stored.message.topic))
    }
}
