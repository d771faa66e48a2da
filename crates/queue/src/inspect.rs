//! What looking into a journal shows: see [`crate::Snapshot`].

use std::path::PathBuf;

use bridge_core::{BindingKey, Quantity, Seq, StoreError, Timestamp, View};

use crate::report::RecoveryReport;

/// What is in a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Its files, in their order.
    pub segments: Vec<SegmentInfo>,
    /// Every binding that has something waiting, by name.
    pub bindings: Vec<BindingInfo>,
    /// The records that were read, and what is damaged. While a bridge is at work, the end of the
    /// last segment may look torn.
    pub report: RecoveryReport,
    /// What was set aside at earlier openings, by name.
    pub quarantine: Vec<QuarantineFile>,
}

/// One file of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Where it is.
    pub file: PathBuf,
    /// The number of its first record.
    pub first_seq: u64,
    /// The version of its format.
    pub version: u16,
    /// Whether its checksums are salted, which those of every version so far are. The salt itself
    /// is no one's business: who knows it can make a payload that holds frames.
    pub salted: bool,
    /// How long it is.
    pub bytes: u64,
    /// How many of its bytes are still needed, about.
    pub live_bytes: u64,
}

/// What waits at one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingInfo {
    /// Which.
    pub binding: BindingKey,
    /// In its queue.
    pub queue: ViewInfo,
    /// Deferred.
    pub deferred: ViewInfo,
    /// When the one of its deferred messages was refused that was refused first: from then on its
    /// window counts.
    pub first_refusal: Option<Timestamp>,
    /// Its dead letters.
    pub dead_letters: ViewInfo,
}

/// What is in one view of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViewInfo {
    /// How much.
    pub quantity: Quantity,
    /// When the one of its messages was received that was received first.
    pub oldest: Option<Timestamp>,
}

/// A file of what was damaged or torn, set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineFile {
    /// Where it is.
    pub file: PathBuf,
    /// How long it is.
    pub bytes: u64,
}

/// What came of reading everything that a journal holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// What is in it.
    pub inspection: Inspection,
    /// How many entries were read and are whole.
    pub sound: u64,
    /// Entries that the journal knows and that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Entries whose segment a bridge at work unlinked meanwhile: it has moved them, or they are
    /// done.
    pub moved: u64,
}

/// An entry that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// At which binding.
    pub binding: BindingKey,
    /// In which view.
    pub view: View,
    /// Which entry.
    pub seq: Seq,
    /// Why not.
    pub error: StoreError,
}

impl Verification {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.unreadable.is_empty() && self.inspection.report.is_clean()
    }
}
