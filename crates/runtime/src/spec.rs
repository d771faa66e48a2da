//! What a route is to do, checked: the configuration after everything doubtful is gone.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use bridge_core::{Message, Name, QoS, Quantity, Subscription, TopicTemplate};

/// One route: what it takes from its source, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSpec {
    /// The route's name.
    pub name: Name,
    /// The session it reads from.
    pub source: Name,
    /// What it takes; a message that matches several of these is taken once.
    pub subscriptions: Vec<Subscription>,
    /// When the source is acknowledged.
    pub mode: DeliveryMode,
    /// Where to; at least one.
    pub bindings: Vec<BindingSpec>,
}

/// One destination of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingSpec {
    /// The binding's name within its route.
    pub name: Name,
    /// The session it publishes to.
    pub sink: Name,
    /// What the topic becomes.
    pub topic: TopicTemplate,
    /// The QoS to publish with; `None` keeps the message's own.
    pub qos: Option<QoS>,
    /// What becomes of the retain flag.
    pub retain: RetainPolicy,
    /// How many messages of this binding may be unanswered at a time; the session's window bounds
    /// it as well. 1 keeps strict order across lost connections.
    pub max_in_flight: NonZeroU16,
    /// How much may wait.
    pub queue: QueueBounds,
    /// The second chance of what a policy of the broker refuses on the replay path.
    pub deferral: DeferralSpec,
    /// How much of what was given up on is kept.
    pub dead_letters: DeadLetterBounds,
    /// How often a message may fail without a verdict before it is given up on (I19). No broker
    /// answers like that; processors and other kinds of destinations do.
    pub max_attempts: NonZeroU32,
    /// What becomes of a message whose expiry interval ran out while it waited.
    pub on_expired: OnExpired,
}

/// When the source of a route is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Each binding accepted the message, or holds it durably.
    StoreAndForward,
    /// Each binding holds it durably; always through the queue.
    Outbox,
    /// Each binding accepted it; never queued.
    DirectHold {
        /// How long a message is held before it is left with the source.
        send_retry_budget: Duration,
    },
}

/// What becomes of the retain flag on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetainPolicy {
    /// As it came.
    #[default]
    Keep,
    /// Always set.
    Always,
    /// Never set.
    Never,
}

impl RetainPolicy {
    /// The flag to publish `message` with.
    pub const fn apply(self, message: &Message) -> bool {
        match self {
            Self::Keep => message.retain,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// How much may wait in a binding's queue, and what happens at the bound (I13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// At most so many messages.
    pub max_entries: u64,
    /// At most so many bytes, by [`Message::size`].
    pub max_bytes: u64,
    /// What happens at the bound.
    pub on_full: OnFull,
}

impl QueueBounds {
    /// Whether one more message of `size` bytes may wait beside `waiting`. A message that alone
    /// is larger than the bound may wait in an empty queue: it would never go otherwise.
    pub const fn have_room(&self, waiting: &Quantity, size: u64) -> bool {
        have_room(self.max_entries, self.max_bytes, waiting, size)
    }

    /// The same with half of the bounds left to others. One that fits alone may wait in an empty
    /// queue.
    pub(crate) const fn leave_room(&self, waiting: &Quantity, size: u64) -> bool {
        have_room(self.max_entries / 2, self.max_bytes / 2, waiting, size)
    }
}

const fn have_room(max_entries: u64, max_bytes: u64, kept: &Quantity, size: u64) -> bool {
    kept.entries == 0
        || (kept.entries < max_entries && kept.bytes.saturating_add(size) <= max_bytes)
}

/// The second chance of messages that are refused as not authorized (I10), and how many may have
/// one (I13). A message for which there is no room is kept as a dead letter at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeferralSpec {
    /// Counted from the first refusal: an offer that is refused after it is the last one.
    pub window: Duration,
    /// The shortest time between two sweeps through the deferred messages; a reconnect skips it.
    pub retry_interval: Duration,
    /// At most so many messages.
    pub max_entries: u64,
    /// At most so many bytes, by [`Message::size`].
    pub max_bytes: u64,
}

impl DeferralSpec {
    /// Whether one more message of `size` bytes may be deferred beside `deferred`.
    pub const fn have_room(&self, deferred: &Quantity, size: u64) -> bool {
        have_room(self.max_entries, self.max_bytes, deferred, size)
    }
}

/// How many dead letters a binding keeps, and what happens at the bound (I13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterBounds {
    /// At most so many messages.
    pub max_entries: u64,
    /// At most so many bytes, by [`Message::size`].
    pub max_bytes: u64,
    /// What happens at the bound.
    pub on_full: OnDeadLettersFull,
}

impl DeadLetterBounds {
    /// Whether one more dead letter of `size` bytes may be kept beside `kept`.
    pub const fn have_room(&self, kept: &Quantity, size: u64) -> bool {
        have_room(self.max_entries, self.max_bytes, kept, size)
    }
}

/// The policy at the bound of the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeadLettersFull {
    /// The new one is not kept, and counted: the first ones tell the story.
    #[default]
    DiscardNewest,
    /// The new one is held where it is, and not acknowledged, until there is room.
    Hold,
}

/// The policy at the bound of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFull {
    /// Nothing more is taken from the source until there is room.
    #[default]
    Backpressure,
    /// The oldest message that is not under way is dropped and counted.
    DropOldest,
    /// The new message is dropped and counted.
    DropNewest,
}

/// What becomes of a message whose expiry interval ran out while it waited (I08).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExpired {
    /// It is dropped and counted.
    #[default]
    Drop,
    /// It is kept as a dead letter with the reason `expired`.
    DeadLetter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i13_a_queue_is_bounded_in_entries_and_bytes() {
        let bounds = QueueBounds {
            max_entries: 3,
            max_bytes: 100,
            on_full: OnFull::Backpressure,
        };
        for (entries, bytes, size, room) in [
            (0, 0, 10, true),
            (2, 20, 80, true),
            (2, 20, 81, false),
            (3, 30, 1, false),
            (0, 0, 1_000, true),
            (1, 1_000, 1, false),
            (1, u64::MAX, 1, false),
        ] {
            let waiting = Quantity { entries, bytes };
            assert_eq!(
                bounds.have_room(&waiting, size),
                room,
                "{waiting:?} + {size}"
            );
        }
    }
}
