//! Which dead letters: what all of their lists, redrives and deletes go by.

use bridge_core::{
    BindingKey, DeadLetterInfo, GivenUp, MessageId, Name, Reason, StoredMessage, Timestamp,
    TopicFilter,
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

    /// What of it a store goes by without a look at the messages.
    pub const fn given_up(&self) -> GivenUp {
        GivenUp {
            reason: self.reason,
            since: self.since,
            until: self.until,
        }
    }

    /// Whether the messages have to be looked at to tell which of them it takes.
    pub const fn looks_at_messages(&self) -> bool {
        self.topic.is_some() || self.message_id.is_some()
    }

    /// Whether it takes all dead letters that there are.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it takes the dead letter of `stored`, if it takes its binding.
    pub fn takes(&self, stored: &StoredMessage, info: &DeadLetterInfo) -> bool {
        self.message_id.is_none_or(|id| id == stored.id)
            && self.given_up().takes(info)
            && self
                .topic
                .as_ref()
                .is_none_or(|topic| topic.matches(&stored.message.topic))
    }
}
