//! The segment files of a folder, with their headers, in the order of what these say.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::{Remedy, Scan, io_error};
use crate::OpenError;
use crate::disk::{Access, Disk, Layout};
use crate::frame;
use crate::head::Head;
use crate::report::{Damage, DamageKind};
use crate::segment::{self, BadHeader, FRAMES_AT, Header};

/// A file whose header could be read.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) header: Header,
}

/// Opens every segment file, in the order of what their headers say.
pub(super) fn open_all(
    disk: &dyn Disk,
    layout: &Layout,
    head: Option<&Head>,
    scan: &mut Scan,
) -> Result<Vec<SegmentFile>, OpenError> {
    let folder = layout.journal();
    let entries = disk
        .list(&folder)
        .map_err(|source| io_error("list", &folder, source))?;
    // A file that was being renamed when the power went still bears its name of passage.
    let number = |name: &String| Some((segment::seq_of_name(name)?, folder.join(name)));
    let mut named: Vec<(u64, PathBuf)> = entries.iter().filter_map(number).collect();
    named.sort_unstable();
    let older = named.len().saturating_sub(1);
    let last = named.last().map(|(first_seq, _)| *first_seq);
    let mut files: Vec<SegmentFile> = Vec::new();
    for (first_seq, path) in named {
        let (len, bytes) = read_head(disk, &path, older)?;
        // What may have been cut short while it was created.
        let young = last == Some(first_seq)
            && is_torn_creation(len, older)
            && head.is_none_or(|head| head.segment < first_seq);
        let header = match Header::find(&bytes) {
            // Nothing else was written to it yet.
            Ok((header, both)) if young && !(both && has_list(&bytes, &header)) => {
                scan.find(
                    Damage::found(DamageKind::TornTail, &path, 0..len),
                    Remedy::MoveAway,
                );
                scan.next_seq = scan.next_seq.max(first_seq);
                continue;
            }
            Ok((header, both)) => {
                if !both {
                    let range = 0..FRAMES_AT as u64;
                    scan.find(
                        Damage::found(DamageKind::HeaderCopy, &path, range),
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
            Err(BadHeader::Damaged) if young => {
                scan.find(
                    Damage::found(DamageKind::TornTail, &path, 0..len),
                    Remedy::MoveAway,
                );
                scan.next_seq = scan.next_seq.max(first_seq);
                continue;
            }
            Err(BadHeader::Damaged) => {
                // At least the list that every segment begins with.
                let damage = Damage::found(DamageKind::Header, &path, 0..len);
                scan.find(damage.losing(first_seq, 1, true), Remedy::MoveAway);
                // Numbers that it may have used are not used again.
                let used = len / frame::OVERHEAD as u64;
                scan.next_seq = scan.next_seq.max(first_seq.saturating_add(used));
                continue;
            }
        };
        let right = segment::path(&folder, header.first_seq);
        if right != path {
            scan.find(
                Damage::found(DamageKind::Misnamed, &path, 0..0),
                Remedy::None,
            );
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
    let misnamed: BTreeSet<&PathBuf> = scan.renames.iter().map(|(from, _)| from).collect();
    files.sort_by_key(|file| (file.header.first_seq, misnamed.contains(&file.path)));
    let doubles = files.extract_if(.., |file| !seen.insert(file.header.first_seq));
    let doubles: Vec<SegmentFile> = doubles.collect();
    leave_names(scan, &doubles);
    for double in doubles {
        let damage = Damage::found(DamageKind::Misnamed, &double.path, 0..double.len);
        scan.find(damage, Remedy::MoveAway);
    }
}

/// Forgets that `files`, which do not stay, bear wrong names.
pub(super) fn leave_names(scan: &mut Scan, files: &[SegmentFile]) {
    let paths: BTreeSet<&PathBuf> = files.iter().map(|file| &file.path).collect();
    scan.renames.retain(|(from, _)| !paths.contains(from));
    scan.findings.retain(|finding| {
        let damage = &finding.damage;
        damage.kind != DamageKind::Misnamed || !paths.contains(&damage.segment)
    });
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
