//! Reading a journal folder: what is in it, and what is wrong with it. Changes nothing; what is
//! to be done about it is a list that [`crate::repair`] carries out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::disk::{Access, Disk, Layout};
use crate::effect::effects;
use crate::frame::{self, Frame};
use crate::index::Index;
use crate::record::Record;
use crate::report::{Damage, DamageKind};
use crate::run::Location;
use crate::segment::{self, BadHeader, FRAMES_AT, Header, Salt};
use crate::walk::{Step, walk};

/// Files beyond this are not segments of ours: the largest segment and the largest message.
const MAX_FILE: u64 = (2 << 30) + (64 << 20);

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
    /// Files whose header says another number than their name.
    pub(crate) renames: Vec<(PathBuf, PathBuf)>,
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

/// A file whose header could be read.
#[derive(Debug)]
struct SegmentFile {
    path: PathBuf,
    len: u64,
    header: Header,
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
    let mut files = open_all(disk, layout, &mut scan)?;
    let listed = newest_list(disk, &files)?;
    if let Some(listed) = &listed {
        let retired = |file: &SegmentFile| !listed.contains_key(&file.header.first_seq);
        let leftovers = files.extract_if(.., |file| retired(file));
        scan.leftovers.extend(leftovers.map(|file| file.path));
        report_missing(layout, &files, listed, &mut scan);
    }
    let starts: Vec<u64> = files.iter().map(|file| file.header.first_seq).collect();
    for (number, file) in files.iter().enumerate() {
        let end = listed
            .as_ref()
            .and_then(|listed| *listed.get(&file.header.first_seq)?);
        let end = match (end, starts.get(number + 1)) {
            (Some(end), _) => End::Known(end),
            (None, Some(next)) => End::Before(*next),
            (None, None) => End::Open,
        };
        read_segment(disk, file, end, &mut scan)?;
    }
    Ok(scan)
}

/// Opens every segment file, in the order of what their headers say.
fn open_all(
    disk: &dyn Disk,
    layout: &Layout,
    scan: &mut Scan,
) -> Result<Vec<SegmentFile>, OpenError> {
    let folder = layout.journal();
    let entries = disk
        .list(&folder)
        .map_err(|source| io_error("list", &folder, source))?;
    // A file that was being renamed when the power went still bears its name of passage.
    let number = |name: &String| {
        let plain = name.replace(".misnamed", ".log");
        Some((segment::seq_of_name(&plain)?, folder.join(name)))
    };
    let mut named: Vec<(u64, PathBuf)> = entries.iter().filter_map(number).collect();
    named.sort_unstable();
    let older = named.len().saturating_sub(1);
    let last = named.last().map(|(first_seq, _)| *first_seq);
    let mut files: Vec<SegmentFile> = Vec::new();
    for (first_seq, path) in named {
        let (len, head) = read_head(disk, &path, older)?;
        let is_last = last == Some(first_seq);
        let header = match Header::find(&head) {
            // Its creation was cut short, before anything else was written to it.
            Ok((header, both))
                if is_last
                    && is_torn_creation(len, older)
                    && !(both && has_list(&head, &header)) =>
            {
                scan.finding(DamageKind::TornTail, &path, 0..len, 0, Remedy::MoveAway);
                scan.next_seq = scan.next_seq.max(first_seq);
                continue;
            }
            Ok((header, both)) => {
                if !both {
                    scan.finding(
                        DamageKind::HeaderCopy,
                        &path,
                        0..FRAMES_AT as u64,
                        0,
                        Remedy::None,
                    );
                }
                header
            }
            Err(BadHeader::Version(found)) => {
                return Err(OpenError::NewerFormat {
                    place: path,
                    found,
                    known: segment::VERSION,
                });
            }
            Err(BadHeader::Damaged) => {
                let torn = is_last && is_torn_creation(len, older);
                let kind = if torn {
                    DamageKind::TornTail
                } else {
                    DamageKind::Header
                };
                scan.finding(kind, &path, 0..len, 0, Remedy::MoveAway);
                // Numbers that it may have used are not used again.
                let used = if torn {
                    0
                } else {
                    len / frame::OVERHEAD as u64
                };
                scan.next_seq = scan.next_seq.max(first_seq.saturating_add(used));
                continue;
            }
        };
        let right = segment::path(&folder, header.first_seq);
        if right != path {
            scan.finding(DamageKind::Misnamed, &path, 0..0, 0, Remedy::None);
            scan.renames.push((path.clone(), right));
        }
        files.push(SegmentFile { path, len, header });
    }
    files.sort_by_key(|file| file.header.first_seq);
    set_duplicates_aside(&mut files, scan);
    Ok(files)
}

/// Two files of one header: a copy that someone made. The one of the right name counts.
fn set_duplicates_aside(files: &mut Vec<SegmentFile>, scan: &mut Scan) {
    let mut seen = BTreeSet::new();
    files.sort_by_key(|file| {
        let misnamed = scan.renames.iter().any(|(from, _)| *from == file.path);
        (file.header.first_seq, misnamed)
    });
    let doubles = files.extract_if(.., |file| !seen.insert(file.header.first_seq));
    let doubles: Vec<SegmentFile> = doubles.collect();
    for double in doubles {
        scan.renames.retain(|(from, _)| *from != double.path);
        scan.findings.retain(|finding| {
            finding.damage.kind != DamageKind::Misnamed || finding.damage.segment != double.path
        });
        let whole = 0..double.len;
        scan.finding(
            DamageKind::Misnamed,
            &double.path,
            whole,
            0,
            Remedy::MoveAway,
        );
    }
}

/// Whether a file of `len` bytes may be what a crash leaves of the creation of a segment: it is
/// no longer than its header and the list of the `older` segments, so nothing else was in it.
fn is_torn_creation(len: u64, older: usize) -> bool {
    let list = frame::OVERHEAD + 4 + 16 * older;
    len <= (FRAMES_AT + list) as u64
}

/// Whether the first frame is whole: the list of segments.
fn has_list(head: &[u8], header: &Header) -> bool {
    let frames = head.get(FRAMES_AT..).unwrap_or_default();
    frame::parse(frames, &header.salt).is_some()
}

/// The length of a segment, its header and, where nothing else is in it, its list of segments.
fn read_head(disk: &dyn Disk, path: &Path, older: usize) -> Result<(u64, Vec<u8>), OpenError> {
    let read = || -> io::Result<(u64, Vec<u8>)> {
        let file = disk.open(path, Access::Read)?;
        let len = file.len()?;
        let wanted = usize::try_from(len).unwrap_or(usize::MAX);
        let mut head = vec![0; wanted.min(FRAMES_AT + frame::OVERHEAD + 4 + 16 * older)];
        file.read_at(&mut head, 0)?;
        Ok((len, head))
    };
    read().map_err(|source| io_error("read", path, source))
}

fn read_all(disk: &dyn Disk, file: &SegmentFile) -> Result<Vec<u8>, OpenError> {
    let read = || -> io::Result<Vec<u8>> {
        let len = usize::try_from(file.len.min(MAX_FILE)).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        disk.open(&file.path, Access::Read)?
            .read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|source| io_error("read", &file.path, source))
}

/// The segments that there should be, from the newest list that can be read: the list of a
/// segment, itself, what came after it, less what was retired since.
fn newest_list(disk: &dyn Disk, files: &[SegmentFile]) -> Result<Option<Listed>, OpenError> {
    let mut retired = Vec::new();
    let mut newer = Listed::new();
    let mut next = None;
    for file in files.iter().rev() {
        let bytes = read_all(disk, file)?;
        let mut list = None;
        walk(&bytes, &file.header, next.unwrap_or(u64::MAX), |step| {
            let Step::Frame(_, frame) = step else { return };
            match Record::decode(&frame) {
                Ok(Record::Segments(ranges)) => list = Some(ranges),
                Ok(Record::Retire(seqs)) => retired.extend(seqs),
                _ => {}
            }
        });
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
        // A damaged header has been reported as that.
        let known = scan.findings.iter_mut().map(|finding| &mut finding.damage);
        match known.into_iter().find(|damage| damage.segment == path) {
            Some(damage) => damage.lost_records = lost,
            None => scan.finding(DamageKind::Missing, &path, 0..0, lost, Remedy::None),
        }
    }
}

fn read_segment(
    disk: &dyn Disk,
    file: &SegmentFile,
    bound: End,
    scan: &mut Scan,
) -> Result<(), OpenError> {
    let bytes = read_all(disk, file)?;
    let header = &file.header;
    let segments = &mut scan.index.segments;
    let id = segments.add(header.first_seq, header.salt, file.len);
    let path = &file.path;
    // Where more may be written.
    let mut clean_end = Some(file.len);
    let mut whole = true;
    let mut holes: Vec<(Range<usize>, u64, u64)> = Vec::new();
    let mut last_batch = 0;
    let end = walk(&bytes, header, bound.limit(), |step| match step {
        Step::Frame(at, frame) => {
            scan.records += 1;
            if frame.first {
                last_batch = at;
            }
            if scan.apply(id, at, &frame).is_err() {
                let range = at as u64..(at + frame.len) as u64;
                scan.finding(DamageKind::Unreadable, path, range, 1, Remedy::SetAside);
            }
        }
        Step::Bad(range, seq, lost) => holes.push((range, seq, lost)),
        Step::Void(at) => {
            clean_end = None;
            let range = at as u64..file.len;
            scan.finding(DamageKind::Abandoned, path, range, 0, Remedy::None);
        }
        Step::BadTail(at, expected) => {
            let range = at as u64..file.len;
            let possible = (range.end - range.start).div_ceil(frame::OVERHEAD as u64);
            whole = false;
            clean_end = (bound == End::Open).then_some(at as u64);
            let (kind, lost, remedy) = match bound {
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
            scan.finding(kind, path, range, lost, remedy);
        }
    });
    for (range, seq, lost) in holes {
        let torn = bound == End::Open && range.start > last_batch && !range.is_empty();
        let range = range.start as u64..range.end as u64;
        if torn {
            let salt = header.salt;
            let remedy = Remedy::Fill { seq, salt };
            scan.finding(DamageKind::TornBatch, path, range, lost, remedy);
        } else {
            scan.finding(DamageKind::Records, path, range, lost, Remedy::SetAside);
        }
    }
    scan.next_seq = scan.next_seq.max(end);
    match bound {
        End::Known(limit) => {
            if whole && end < limit {
                // Cut off by someone, between two frames.
                let range = file.len..file.len;
                scan.finding(DamageKind::Records, path, range, limit - end, Remedy::None);
            }
            scan.index.segments.seal(limit);
        }
        End::Before(_) => scan.index.segments.seal(end),
        End::Open => {
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

impl Scan {
    fn apply(&mut self, id: u32, at: usize, frame: &Frame<'_>) -> Result<(), ()> {
        let location = Location {
            segment: id,
            offset: u32::try_from(at).map_err(drop)?,
            len: u32::try_from(frame.len).map_err(drop)?,
        };
        let record = Record::decode(frame).map_err(drop)?;
        let effects = effects(&mut self.index, frame.seq, location, &record).map_err(drop)?;
        for effect in effects {
            effect.apply(&mut self.index);
        }
        Ok(())
    }

    fn finding(
        &mut self,
        kind: DamageKind,
        segment: &Path,
        range: Range<u64>,
        lost_records: u64,
        remedy: Remedy,
    ) {
        self.findings.push(Finding {
            damage: Damage {
                kind,
                segment: segment.to_owned(),
                offset: range.start,
                bytes: range.end.saturating_sub(range.start),
                lost_records,
                quarantine: None,
                known: false,
            },
            remedy,
        });
    }
}

pub(crate) fn io_error(action: &'static str, place: &Path, source: io::Error) -> OpenError {
    OpenError::Io {
        action,
        place: place.to_owned(),
        source,
    }
}
