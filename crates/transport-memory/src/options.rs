//! What a broker in memory allows.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use bridge_core::Quantity;

/// A bound in entries and in bytes, by [`bridge_core::Message::size`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At most so many messages.
    pub max_entries: u64,
    /// At most so many bytes.
    pub max_bytes: u64,
}

impl Bounds {
    pub(crate) const fn have_room(&self, kept: Quantity, size: u64) -> bool {
        kept.entries < self.max_entries && kept.bytes.saturating_add(size) <= self.max_bytes
    }
}

/// What a [`MemoryBroker`](crate::MemoryBroker) allows, and when it gives up on a message that is
/// consumed directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What one subscription may hold. At the bound a publish is refused for now (0x97), at QoS 0
    /// it is dropped there and counted.
    pub waiting: Bounds,
    /// How many messages one source may have unacknowledged.
    pub max_in_flight: NonZeroU16,
    /// How long a message that was left rests before it is delivered again.
    pub redelivery_delay: Duration,
    /// After how long a message that was neither settled nor left counts as failed.
    pub stale_after: Duration,
    /// The ceiling: after so many failed deliveries a message becomes a native dead letter.
    pub max_deliveries: NonZeroU32,
    /// How many native dead letters one subscription keeps; more are only counted.
    pub dead_letters: Bounds,
    /// How many retained messages the broker keeps; `None`: it does not retain.
    pub retained: Option<Bounds>,
}

impl Default for Options {
    fn default() -> Self {
        let many = Bounds {
            max_entries: 10_000,
            max_bytes: 64 << 20,
        };
        Self {
            waiting: many,
            max_in_flight: const { NonZeroU16::new(100).unwrap() },
            redelivery_delay: Duration::from_secs(1),
            stale_after: Duration::from_secs(30),
            max_deliveries: const { NonZeroU32::new(5).unwrap() },
            dead_letters: Bounds {
                max_entries: 1_000,
                ..many
            },
            retained: Some(many),
        }
    }
}
