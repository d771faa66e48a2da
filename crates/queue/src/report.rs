//! What an opening found, in words and numbers for a log, a metric and `inspect`.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::remnant::Remnant;

/// What was found when a journal was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Segments that were read.
    pub segments: usize,
    /// Records that were read.
    pub records: u64,
    /// Everything that was not as it should be, in the order of the segments.
    pub damage: Vec<Damage>,
}

impl RecoveryReport {
    /// Whether nothing was damaged beyond what a crash leaves of a batch that it cuts short.
    pub fn is_clean(&self) -> bool {
        self.damage.iter().all(Damage::is_harmless)
    }

    /// How many things were damaged that no earlier opening has told of.
    pub fn new_damage(&self) -> u64 {
        let new = |damage: &&Damage| !damage.is_harmless() && !damage.known;
        self.damage.iter().filter(new).count() as u64
    }

    /// How many records turned out to be missing at this opening, at least; those of a torn batch
    /// aside, which no one was told were stored.
    pub fn lost_records(&self) -> u64 {
        self.damage
            .iter()
            .filter(|damage| damage.kind != DamageKind::TornBatch && !damage.known)
            .map(|damage| damage.lost_records)
            .fold(0, u64::saturating_add)
    }
}

/// One thing that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What it is.
    pub kind: DamageKind,
    /// The segment's file.
    pub segment: PathBuf,
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes of the file it covers.
    pub bytes: u64,
    /// How many records are missing because of it, by the gap in their numbers.
    pub lost_records: u64,
    /// The number of the first of them.
    pub first_lost: Option<u64>,
    /// Whether more may be missing: nothing is left that would say how many there were.
    pub uncertain: bool,
    /// What the damaged bytes look like, as far as they look like anything.
    pub remains: Vec<Remnant>,
    /// Where the bytes were set aside, if they were.
    pub quarantine: Option<PathBuf>,
    /// Whether an earlier opening has found and reported it: the bytes stay in their segment until
    /// that is unlinked.
    pub known: bool,
}

impl Damage {
    pub(crate) fn found(kind: DamageKind, segment: &Path, range: Range<u64>) -> Self {
        Self {
            kind,
            segment: segment.to_owned(),
            offset: range.start,
            bytes: range.end.saturating_sub(range.start),
            lost_records: 0,
            first_lost: None,
            uncertain: false,
            remains: Vec::new(),
            quarantine: None,
            known: false,
        }
    }

    /// With so many records missing from `first` on, or more when that is `uncertain`.
    pub(crate) fn losing(self, first: u64, lost_records: u64, uncertain: bool) -> Self {
        Self {
            lost_records,
            first_lost: (lost_records > 0).then_some(first),
            uncertain: uncertain && lost_records > 0,
            ..self
        }
    }

    /// Whether it is no more than what a crash leaves of a batch that it cuts short.
    pub const fn is_harmless(&self) -> bool {
        use DamageKind::{Abandoned, TornBatch, TornTail};
        matches!(self.kind, TornTail | TornBatch | Abandoned)
    }
}

/// The kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// Bytes at the end of the last segment that are no whole record: what was being written
    /// when the power went. Nothing of it was acknowledged. Cut, and set aside.
    TornTail,
    /// Bytes within the last batch of the last segment that are no record: of what was being
    /// written when the power went, a later part reached the disk and this did not. Set aside.
    /// Nothing of it was acknowledged, unless it was the disk that damaged this very batch later:
    /// the two cannot be told apart.
    TornBatch,
    /// Bytes at the end of a segment whose writing failed. Nothing of it was acknowledged.
    Abandoned,
    /// Bytes between or behind records that are none. Set aside.
    Records,
    /// A sound checksum over bytes that say nothing this program understands. Set aside.
    Unreadable,
    /// Neither copy of a segment's header is sound: nothing in it can be told from noise.
    Header,
    /// One of the two copies of a segment's header; nothing is lost.
    HeaderCopy,
    /// A segment that does not bear the name that its header says; read all the same.
    Misnamed,
    /// A segment that the journal does not list, such as one of another folder or of an old backup.
    /// Set aside, unread.
    Stray,
    /// A segment that should be there. One of which nothing was needed any more is never missed:
    /// the journal says so before it unlinks it.
    Missing,
}

impl DamageKind {
    /// Its name in `snake_case`, for what machines read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TornTail => "torn_tail",
            Self::TornBatch => "torn_batch",
            Self::Abandoned => "abandoned_tail",
            Self::Records => "damaged_records",
            Self::Unreadable => "unreadable_record",
            Self::Header => "damaged_header",
            Self::HeaderCopy => "damaged_header_copy",
            Self::Misnamed => "misnamed_segment",
            Self::Stray => "stray_segment",
            Self::Missing => "missing_segment",
        }
    }
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TornTail => "torn tail",
            Self::TornBatch => "torn batch",
            Self::Abandoned => "abandoned tail",
            Self::Records => "damaged records",
            Self::Unreadable => "unreadable record",
            Self::Header => "damaged header",
            Self::HeaderCopy => "damaged copy of a header",
            Self::Misnamed => "misnamed segment",
            Self::Stray => "stray segment",
            Self::Missing => "missing segment",
        })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.kind, self.segment.display())?;
        if self.bytes > 0 {
            write!(f, " at {}+{}", self.offset, self.bytes)?;
        }
        if self.lost_records > 0 {
            let bound = if self.uncertain { "at least " } else { "" };
            let plural = if self.lost_records == 1 { "" } else { "s" };
            write!(f, ", {bound}{} record{plural} lost", self.lost_records)?;
        }
        if let Some(first) = self.first_lost {
            write!(f, " from number {first} on")?;
        }
        if let Some(place) = &self.quarantine {
            write!(f, ", set aside in {}", place.display())?;
        }
        Ok(())
    }
}
