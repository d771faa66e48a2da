//! Reading a journal folder: what is in it, and what is wrong with it. Changes nothing; what is
//! to be done about it is a list that [`crate::repair`] carries out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::disk::{Disk, Layout};
use crate::effect::effects;
use crate::frame::{self, Frame};
use crate::head::Head;
use crate::index::Index;
use crate::record::Record;
use crate::remnant::remains;
use crate::report::{Damage, DamageKind};
use crate::run::Location;
use crate::segment::{FRAMES_AT, Salt};
use crate::walk::{Step, walk};
use crate::window::Window;

mod files;
use files::{SegmentFile, leave_names, open_all};

/// So much of what is damaged is looked at for what it may have been.
const LOOKED_AT: usize = 16 << 20;

/// A journal as it was found.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) index: Index,
    /// The number that the next record gets.
    pub(crate) next_seq: u64,
    pub(crate) records: u64,
    /// The last segment, when more may be written behind its end.
    pub(crate) tail: Option<Tail>,
    pub(crate) findings: Vec<Finding>,
    /// Files of segments that were retired, and had not been unlinked yet.
    pub(crate) leftovers: Vec<PathBuf>,
    /// With which records the segments begin that were retired, as far as records say so.
    retired: BTreeSet<u64>,
    /// Files whose header says another number than their name.
    pub(crate) renames: Vec<(PathBuf, PathBuf)>,
    /// How far the journal had come, as its head says.
    pub(crate) head: Option<Head>,
}

/// The end of the last segment.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    pub(crate) first_seq: u64,
    pub(crate) salt: Salt,
    pub(crate) len: u64,
}

/// Something wrong, and what is to be done about it.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) damage: Damage,
    pub(crate) remedy: Remedy,
}

/// What is to be done about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    None,
    /// Copy the bytes to the quarantine.
    SetAside,
    /// Copy the bytes to the quarantine and cut the file there.
    Cut,
    /// Copy the bytes to the quarantine and put a gap numbered `seq` in their place.
    Fill {
        seq: u64,
        salt: Salt,
    },
    /// Move the whole file to the quarantine.
    MoveAway,
}

/// What is known of where a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// In front of this number: a later segment says so.
    Known(u64),
    /// Somewhere before this number, with which the next segment begins.
    Before(u64),
    /// It is the last one.
    Open,
}

impl End {
    const fn limit(self) -> u64 {
        match self {
            Self::Known(limit) | Self::Before(limit) => limit,
            Self::Open => u64::MAX,
        }
    }
}

/// The segments that there should be, with the number in front of which each ends, if known.
type Listed = BTreeMap<u64, Option<u64>>;

/// Reads the journal under `layout`.
pub(crate) fn scan(disk: &dyn Disk, layout: &Layout) -> Result<Scan, OpenError> {
    let mut scan = Scan {
        next_seq: 1,
        ..Scan::default()
    };
    let head = Head::read(disk, layout);
    // Numbers that were lost are not used again.
    scan.next_seq = head.as_ref().map_or(1, |head| head.next.max(1));
    let mut files = open_all(disk, layout, head.as_ref(), &mut scan)?;
    let listed = newest_list(disk, &files)?;
    let mut unlisted = Vec::new();
    if let Some(listed) = &listed {
        let is_listed = |file: &SegmentFile| listed.contains_key(&file.header.first_seq);
        unlisted.extend(files.extract_if(.., |file| !is_listed(file)));
        leave_names(&mut scan, &unlisted);
        report_missing(layout, &files, listed, &mut scan);
    }
    let starts: Vec<u64> = files.iter().map(|file| file.header.first_seq).collect();
    for (number, file) in files.iter().enumerate() {
        let end = listed
            .as_ref()
            .and_then(|listed| *listed.get(&file.header.first_seq)?);
        // Segments behind the last one are gone when the head knows of one.
        let newest = head.as_ref().map(|head| head.segment);
        let newest = newest.filter(|newest| *newest > file.header.first_seq);
        let end = match (end, starts.get(number + 1).copied().or(newest)) {
            (Some(end), _) => End::Known(end),
            (None, Some(next)) => End::Before(next),
            (None, None) => End::Open,
        };
        let sure = head.as_ref().map_or(0, |head| head.next);
        read_segment(disk, file, end, sure, &mut scan)?;
    }
    scan.part_with(unlisted);
    look_into_headless(disk, &mut scan)?;
    if let Some(head) = head {
        miss_newest(layout, &files, &head, &mut scan);
        for finding in &mut scan.findings {
            let damage = &mut finding.damage;
            damage.known |= damage
                .first_lost
                .is_some_and(|first| head.told.contains(&first));
        }
        scan.head = Some(head);
    }
    Ok(scan)
}

/// The segments that there should be, from the newest list that can be read: the list of a
/// segment, itself, what came after it, less what was retired since.
fn newest_list(disk: &dyn Disk, files: &[SegmentFile]) -> Result<Option<Listed>, OpenError> {
    let mut retired = Vec::new();
    let mut newer = Listed::new();
    let mut next = None;
    for file in files.iter().rev() {
        let failed = |source| io_error("read", &file.path, source);
        let mut window = Window::open(disk, &file.path).map_err(failed)?;
        let mut list = None;
        walk(
            &mut window,
            &file.header,
            next.unwrap_or(u64::MAX),
            |step| {
                let Step::Frame(_, frame) = step else { return };
                match Record::decode(&frame) {
                    Ok(Record::Segments(ranges)) => list = Some(ranges),
                    Ok(Record::Retire(seqs)) => retired.extend(seqs),
                    _ => {}
                }
            },
        )
        .map_err(failed)?;
        newer.insert(file.header.first_seq, next);
        next = Some(file.header.first_seq);
        if let Some(list) = list {
            newer.extend(list.into_iter().map(|range| (range.start, Some(range.end))));
            for seq in retired {
                newer.remove(&seq);
            }
            return Ok(Some(newer));
        }
    }
    Ok(None)
}

fn report_missing(layout: &Layout, files: &[SegmentFile], listed: &Listed, scan: &mut Scan) {
    let there: BTreeSet<u64> = files.iter().map(|file| file.header.first_seq).collect();
    for (first_seq, end) in listed {
        if there.contains(first_seq) {
            continue;
        }
        let path = layout.segment(*first_seq);
        let lost = end.map_or(0, |end| end.saturating_sub(*first_seq));
        scan.miss(&path, *first_seq, lost, end.is_none());
    }
}

/// Notes the newest segment as missing when the head knows of one that is not there: no list can
/// name it, as its own list is gone with it.
fn miss_newest(layout: &Layout, files: &[SegmentFile], head: &Head, scan: &mut Scan) {
    if files
        .iter()
        .any(|file| file.header.first_seq >= head.segment)
    {
        return;
    }
    let lost = head.next.saturating_sub(head.segment);
    // Other segments that were there may have gone with it, and none is left that lists them.
    scan.miss(&layout.segment(head.segment), head.segment, lost, true);
}

/// What segments without any header look like they held.
fn look_into_headless(disk: &dyn Disk, scan: &mut Scan) -> Result<(), OpenError> {
    let findings = scan.findings.iter_mut().map(|finding| &mut finding.damage);
    for damage in findings.filter(|damage| damage.kind == DamageKind::Header) {
        let failed = |source| io_error("read", &damage.segment, source);
        let mut window = Window::open(disk, &damage.segment).map_err(failed)?;
        let first = damage.first_lost.unwrap_or_default();
        let frames = window.get(FRAMES_AT, LOOKED_AT).map_err(failed)?;
        damage.remains = remains(frames, first..first.saturating_add(frames.len() as u64));
    }
    Ok(())
}

fn read_segment(
    disk: &dyn Disk,
    file: &SegmentFile,
    bound: End,
    sure: u64,
    scan: &mut Scan,
) -> Result<(), OpenError> {
    let failed = |source| io_error("read", &file.path, source);
    let mut window = Window::open(disk, &file.path).map_err(failed)?;
    let header = &file.header;
    // A bridge at work may have written more since the file was first looked at.
    let file_len = file.len.max(window.len() as u64);
    let segments = &mut scan.index.segments;
    let id = segments.add(header.first_seq, header.salt, file_len);
    let path = &file.path;
    // Where more may be written.
    let mut clean_end = Some(file_len);
    let mut whole = true;
    let mut holes: Vec<(Range<usize>, u64, u64)> = Vec::new();
    let mut last_batch = 0;
    let mut tail = None;
    let end = walk(&mut window, header, bound.limit(), |step| match step {
        Step::Frame(at, frame) => {
            scan.records += 1;
            if frame.first {
                last_batch = at;
            }
            if scan.apply(id, at, &frame).is_err() {
                let range = at as u64..(at + frame.len) as u64;
                let damage = Damage::found(DamageKind::Unreadable, path, range);
                scan.find(damage.losing(frame.seq, 1, false), Remedy::SetAside);
            }
        }
        Step::Bad(range, seq, lost) => holes.push((range, seq, lost)),
        Step::Void(at) => {
            clean_end = None;
            let range = at as u64..file_len;
            scan.find(
                Damage::found(DamageKind::Abandoned, path, range),
                Remedy::None,
            );
        }
        Step::BadTail(at, expected) => tail = Some((at, expected)),
    })
    .map_err(failed)?;
    if let Some((at, expected)) = tail {
        let range = at as u64..file_len;
        let possible = (range.end - range.start).div_ceil(frame::OVERHEAD as u64);
        whole = false;
        clean_end = (bound == End::Open).then_some(at as u64);
        let (kind, lost, remedy) = match bound {
            // It had been whole: the head says so.
            End::Open if expected < sure => (DamageKind::Records, sure - expected, Remedy::Cut),
            End::Open => (DamageKind::TornTail, 0, Remedy::Cut),
            End::Known(limit) | End::Before(limit) if limit <= expected => {
                (DamageKind::Abandoned, 0, Remedy::None)
            }
            End::Known(limit) => (DamageKind::Records, limit - expected, Remedy::SetAside),
            End::Before(limit) => {
                let lost = (limit - expected).min(possible);
                (DamageKind::Records, lost, Remedy::SetAside)
            }
        };
        let damage = Damage {
            remains: remains(
                window.get(at, LOOKED_AT).map_err(failed)?,
                expected..u64::MAX,
            ),
            ..Damage::found(kind, path, range)
        };
        let uncertain = matches!(bound, End::Before(_));
        scan.find(damage.losing(expected, lost, uncertain), remedy);
    }
    for (range, seq, lost) in holes {
        let torn =
            bound == End::Open && range.start > last_batch && !range.is_empty() && seq >= sure;
        let bytes = window.get(range.start, range.len().min(LOOKED_AT));
        let looks = remains(bytes.map_err(failed)?, seq..seq + lost);
        let range = range.start as u64..range.end as u64;
        let (kind, remedy) = if torn {
            let salt = header.salt;
            (DamageKind::TornBatch, Remedy::Fill { seq, salt })
        } else {
            (DamageKind::Records, Remedy::SetAside)
        };
        let damage = Damage {
            remains: looks,
            ..Damage::found(kind, path, range)
        };
        scan.find(damage.losing(seq, lost, false), remedy);
    }
    scan.next_seq = scan.next_seq.max(end);
    match bound {
        End::Known(limit) => {
            if whole && end < limit {
                // Cut off by someone, between two frames.
                cut_off(path, file_len, end..limit, scan);
            }
            scan.index.segments.seal(limit);
        }
        End::Before(_) => scan.index.segments.seal(end),
        End::Open => {
            if whole && end < sure {
                cut_off(path, file_len, end..sure, scan);
            }
            // Numbers that a lost segment may have used come next: not in this one.
            let goes_on = scan.next_seq == end;
            scan.tail = clean_end.filter(|_| goes_on).map(|len| Tail {
                first_seq: header.first_seq,
                salt: header.salt,
                len,
            });
            match &scan.tail {
                Some(tail) => scan.index.segments.grow(id, tail.len),
                None => scan.index.segments.seal(end),
            }
        }
    }
    Ok(())
}

/// Notes that a segment of `len` bytes ends in front of records that it had.
fn cut_off(path: &Path, len: u64, missing: Range<u64>, scan: &mut Scan) {
    let lost = missing.end.saturating_sub(missing.start);
    let damage = Damage::found(DamageKind::Records, path, len..len);
    scan.find(damage.losing(missing.start, lost, false), Remedy::None);
}

impl Scan {
    /// A segment that no list names goes: unlinked when a record says that nothing of it is needed
    /// any more. Without one it may have come from somewhere else, and be all that is left there.
    fn part_with(&mut self, unlisted: Vec<SegmentFile>) {
        for SegmentFile { path, len, header } in unlisted {
            if self.retired.contains(&header.first_seq) {
                self.leftovers.push(path);
            } else {
                let damage = Damage::found(DamageKind::Stray, &path, 0..len);
                self.find(damage, Remedy::MoveAway);
            }
        }
    }

    fn apply(&mut self, id: u32, at: usize, frame: &Frame<'_>) -> Result<(), ()> {
        let location = Location {
            segment: id,
            offset: u32::try_from(at).map_err(drop)?,
            len: u32::try_from(frame.len).map_err(drop)?,
        };
        let record = Record::decode(frame).map_err(drop)?;
        if let Record::Retire(seqs) = &record {
            self.retired.extend(seqs);
        }
        let effects = effects(&mut self.index, frame.seq, location, &record).map_err(drop)?;
        for effect in effects {
            effect.apply(&mut self.index);
        }
        Ok(())
    }

    fn find(&mut self, damage: Damage, remedy: Remedy) {
        self.findings.push(Finding { damage, remedy });
    }

    /// Notes that the segment which belongs at `path` is missing; one whose header is damaged has
    /// been found already, and now it is known what was in it.
    fn miss(&mut self, path: &Path, first: u64, lost: u64, uncertain: bool) {
        let lost = lost.max(1);
        let found = self.findings.iter_mut().map(|finding| &mut finding.damage);
        match found.into_iter().find(|damage| damage.segment == path) {
            Some(damage) => {
                let damage_then = std::mem::replace(damage, Damage::found(damage.kind, path, 0..0));
                *damage = damage_then.losing(first, lost, uncertain);
            }
            None => self.find(
                Damage::found(DamageKind::Missing, path, 0..0).losing(first, lost, uncertain),
                Remedy::None,
            ),
        }
    }
}

pub(crate) fn io_error(action: &'static str, place: &Path, source: io::Error) -> OpenError {
    OpenError::Io {
        action,
        place: place.to_owned(),
        source,
    }
}
