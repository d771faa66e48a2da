//! Looking at a journal without opening it: nothing is locked, changed or repaired.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_core::{BindingKey, Quantity, Seq, StoreError, Timestamp, View};

use crate::OpenError;
use crate::disk::{Disk, Layout, RealDisk};
use crate::fetch::{Address, FetchError, Fetcher, info_in, message_in};
use crate::recovery::{Scan, scan};
use crate::report::{Damage, RecoveryReport};

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
}

/// One file of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Where it is.
    pub file: PathBuf,
    /// The number of its first record.
    pub first_seq: u64,
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
    pub queue: Quantity,
    /// Deferred.
    pub deferred: Quantity,
    /// Its dead letters.
    pub dead_letters: Quantity,
    /// When the head of its queue was received.
    pub oldest: Option<Timestamp>,
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

/// Reads the journal in `folder` and says what is in it.
pub fn inspect(folder: &Path) -> Result<Inspection, OpenError> {
    let layout = Layout::new(folder);
    let found = scan(&RealDisk, &layout)?;
    Ok(inspection(&layout, &found))
}

/// Like [`inspect`], and reads every message that waits.
pub fn verify(folder: &Path) -> Result<Verification, OpenError> {
    verify_on(Arc::new(RealDisk), folder)
}

pub(crate) fn verify_on(disk: Arc<dyn Disk>, folder: &Path) -> Result<Verification, OpenError> {
    let layout = Layout::new(folder);
    let found = scan(&*disk, &layout)?;
    let mut verification = Verification {
        inspection: inspection(&layout, &found),
        sound: 0,
        unreadable: Vec::new(),
    };
    let index = &found.index;
    let mut fetcher = Fetcher::new(disk, layout.clone());
    for (slot, key) in index.keys() {
        let name = index.name(slot);
        for view in [View::Queue, View::Deferred, View::DeadLetters] {
            let page = index.page(slot, view, 0, usize::MAX, u64::MAX);
            for (number, (entry, info)) in page.iter().enumerate() {
                let address = Address::of(index, entry.location);
                if let Some(address) = address {
                    let rest = page.iter().skip(number + 1);
                    fetcher.read_ahead(address, rest.map(|(entry, _)| entry.location));
                }
                let message = address
                    .ok_or(FetchError::Gone)
                    .and_then(|address| fetcher.frame(address, message_in));
                let info = info.map_or(Ok(()), |info| {
                    let address = Address::of(index, info).ok_or(FetchError::Gone)?;
                    let info = fetcher.frame(address, |frame| info_in(frame, &name));
                    info.map(drop)
                });
                match message.and(info) {
                    Ok(()) => verification.sound += 1,
                    Err(error) => verification.unreadable.push(Unreadable {
                        binding: key.clone(),
                        view,
                        seq: Seq::new(entry.seq),
                        error: error.into_store_error(&layout, entry.seq, address),
                    }),
                }
            }
        }
    }
    Ok(verification)
}

fn inspection(layout: &Layout, found: &Scan) -> Inspection {
    let index = &found.index;
    let segments = index.segments.iter().map(|segment| SegmentInfo {
        file: layout.segment(segment.first_seq),
        first_seq: segment.first_seq,
        bytes: segment.bytes,
        live_bytes: segment.live_bytes(),
    });
    let mut bindings = Vec::new();
    for (slot, key) in index.keys() {
        let [queue, deferred, dead_letters] = index.quantities(slot);
        if queue.entries + deferred.entries + dead_letters.entries > 0 {
            bindings.push(BindingInfo {
                binding: key.clone(),
                queue,
                deferred,
                dead_letters,
                oldest: index.head(slot).map(|entry| entry.received),
            });
        }
    }
    bindings.sort_by(|a, b| a.binding.cmp(&b.binding));
    let damage = found.findings.iter().map(|finding| finding.damage.clone());
    Inspection {
        segments: segments.collect(),
        bindings,
        report: RecoveryReport {
            segments: index.segments.iter().len(),
            records: found.records,
            damage: damage.collect::<Vec<Damage>>(),
        },
    }
}
