//! The durable store of the bridge: one journal on disk, and over it each binding's queue, its
//! deferred messages and its dead letters.
//!
//! [`Journal`] keeps the promises of [`bridge_core::Store`] against a loss of power: what it
//! acknowledged is on disk, a move or a put for several bindings is one record, and what a disk
//! tears or damages is set aside and reported, never a reason not to start. It never counts
//! attempts, never gives up on a message and never drops one.
//!
//! ```text
//! put, apply, flush ──► requests ──► writer ──► batch: one write, one fdatasync ──► index, answers
//! settle ─► index (at once) ─► settles that wait ─┘    (the next one is drafted meanwhile)
//! read ─► index ─► reader ─► frames
//! ```
//!
//! The format on disk is a chapter of the book, `docs/src/journal-format.md`.
//!
//! ```
//! use std::sync::Arc;
//! use bridge_core::*;
//! use bridge_queue::{Journal, JournalOptions};
//!
//! # let folder = tempfile::tempdir()?;
//! let (journal, report) = Journal::open(folder.path(), JournalOptions::default())?;
//! assert!(report.is_clean());
//! let binding = BindingKey::new(Name::parse("telemetry")?, Name::parse("cloud")?);
//! let message = StoredMessage {
//!     id: MessageId::new(Timestamp::default(), [0; 10]),
//!     cause: None,
//!     session: Name::parse("plant")?,
//!     received: Timestamp::default(),
//!     message: Message::new(Topic::parse("sensors/1")?, "21.5"),
//! };
//! let destination = Destination { binding: binding.clone(), placement: Placement::Queue };
//! let stored = journal.put(Arc::new(message), vec![destination]);
//! futures_executor::block_on(stored)?;
//! assert_eq!(journal.usage(&binding).queue.entries, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod active;
mod answers;
mod codec;
mod dead;
mod disk;
mod draft;
mod effect;
mod feed;
mod fetch;
mod frame;
mod head;
mod index;
mod inspect;
mod journal;
mod lock;
mod options;
mod pipe;
mod reading;
mod record;
mod recovery;
mod remnant;
mod repair;
mod report;
mod reserve;
mod run;
mod segment;
mod segments;
mod shared;
mod snapshot;
mod tidy;
mod walk;
mod window;
mod writer;

pub use inspect::{
    BindingInfo, Inspection, QuarantineFile, SegmentInfo, Unreadable, Verification, ViewInfo,
};
pub use journal::Journal;
pub use lock::Holder;
pub use options::{JournalOptions, OpenError};
pub use remnant::Remnant;
pub use report::{Damage, DamageKind, RecoveryReport};
pub use shared::JournalStats;
pub use snapshot::Snapshot;

/// What the fuzz target calls, and its stand-in in the tests: see `fuzz/`.
#[cfg(any(test, fuzzing))]
#[allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "for tests only, which run on 64 bits"
)]
pub mod hostile;
#[cfg(any(test, fuzzing))]
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests only, which run on 64 bits"
)]
#[cfg_attr(fuzzing, allow(dead_code, reason = "the tests use more of it"))]
mod sim;
#[cfg(test)]
mod tests;
