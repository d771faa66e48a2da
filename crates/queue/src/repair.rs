//! Carrying out what a scan found to be necessary: damaged bytes are set aside, a torn tail is
//! cut, leftovers go. Each step may be cut short by a crash and is done again at the next opening.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{error, info, warn};

use crate::OpenError;
use crate::disk::{Access, Disk, DiskFile, Layout, is_full};
use crate::frame::{self, Kind};
use crate::head::Head;
use crate::recovery::{Finding, Remedy, Scan, io_error};
use crate::report::{Damage, DamageKind, RecoveryReport};
use crate::segment::{self, Salt};

/// Repairs the folder, and says what was found.
pub(crate) fn repair(
    disk: &dyn Disk,
    layout: &Layout,
    scan: &mut Scan,
) -> Result<RecoveryReport, OpenError> {
    let folder = layout.journal();
    for path in &scan.leftovers {
        remove(disk, path).map_err(|source| io_error("remove", path, source))?;
    }
    let mut report = RecoveryReport {
        segments: scan.index.segments.iter().len(),
        records: scan.records,
        damage: Vec::new(),
    };
    let mut quarantine = Quarantine::new(disk, layout);
    for finding in scan.findings.drain(..) {
        let place = finding.damage.segment.clone();
        let damage = remedy(disk, &mut quarantine, finding, &scan.renames)
            .map_err(|source| io_error("set aside what is damaged in", &place, source))?;
        announce(&damage);
        report.damage.push(damage);
    }
    quarantine
        .sync()
        .map_err(|source| io_error("sync", &layout.quarantine(), source))?;
    rename_all(disk, &folder, &scan.renames)?;
    if !(scan.leftovers.is_empty() && report.damage.is_empty() && scan.renames.is_empty()) {
        disk.sync_folder(&folder)
            .map_err(|source| io_error("sync", &folder, source))?;
    }
    remember(disk, layout, scan, &report);
    info!(
        event = "journal_opened",
        folder = %folder.display(),
        segments = report.segments,
        records = report.records,
        "the journal is open"
    );
    Ok(report)
}

/// Notes which pieces are missing, so that the next opening does not tell of them as if they were
/// new. Where the head is gone too, a new one begins.
fn remember(disk: &dyn Disk, layout: &Layout, scan: &Scan, report: &RecoveryReport) {
    let missing = report
        .damage
        .iter()
        .filter(|damage| damage.lost_records > 0);
    let told: Vec<u64> = missing.filter_map(|damage| damage.first_lost).collect();
    let newest = scan.index.segments.last().map(|segment| segment.first_seq);
    let head = scan.head.clone().unwrap_or_default();
    let new = Head {
        segment: head.segment.max(newest.unwrap_or_default()),
        next: head.next.max(newest.unwrap_or_default()),
        told,
    };
    if Some(&new) != scan.head.as_ref() && (!new.told.is_empty() || newest > Some(head.segment)) {
        new.write_or_say(disk, layout);
    }
}

/// Two files may bear each other's names: all step aside before any takes its place.
fn rename_all(
    disk: &dyn Disk,
    folder: &Path,
    renames: &[(PathBuf, PathBuf)],
) -> Result<(), OpenError> {
    if renames.is_empty() {
        return Ok(());
    }
    let names = disk
        .list(folder)
        .map_err(|source| io_error("list", folder, source))?;
    let mut taken: BTreeSet<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    let mut moves = Vec::with_capacity(renames.len());
    for (from, to) in renames {
        let aside = segment::aside(from, &taken);
        disk.rename(from, &aside)
            .map_err(|source| io_error("rename", from, source))?;
        taken.insert(aside.clone());
        moves.push((aside, to));
    }
    for (aside, to) in moves {
        disk.rename(&aside, to)
            .map_err(|source| io_error("rename", to, source))?;
    }
    Ok(())
}

fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The folder in which damaged bytes are kept, listed once however many there are.
struct Quarantine<'a> {
    disk: &'a dyn Disk,
    root: &'a Path,
    folder: PathBuf,
    /// What is in it, once that is known.
    names: Option<BTreeSet<String>>,
    /// Files were moved here, and that is not durable yet.
    moved: bool,
}

impl<'a> Quarantine<'a> {
    fn new(disk: &'a dyn Disk, layout: &'a Layout) -> Self {
        Self {
            disk,
            root: layout.root(),
            folder: layout.quarantine(),
            names: None,
            moved: false,
        }
    }

    /// The names in the folder, which is made if it is not there.
    fn names(&mut self) -> io::Result<&mut BTreeSet<String>> {
        let names = if let Some(names) = self.names.take() {
            names
        } else {
            self.disk.create_folder(&self.folder)?;
            self.disk.sync_folder(self.root)?;
            self.disk.list(&self.folder)?.into_iter().collect()
        };
        Ok(self.names.insert(names))
    }

    /// Moves a whole file here.
    fn take(&mut self, file: &Path, stem: &str) -> io::Result<PathBuf> {
        let names = self.names()?;
        let name = (0..=names.len())
            .map(|number| format!("{stem}-whole-{number}.bad"))
            .find(|name| !names.contains(name))
            .unwrap_or_else(|| stem.to_owned());
        names.insert(name.clone());
        let place = self.folder.join(name);
        self.disk.rename(file, &place)?;
        self.moved = true;
        Ok(place)
    }

    /// Keeps bytes under a name. Says whether they were here already, and whether they are now.
    fn keep(&mut self, name: &str, piece: &Piece) -> io::Result<(bool, bool)> {
        if self.names()?.contains(name) {
            return Ok((true, true));
        }
        match set_aside(self.disk, &self.folder, &self.folder.join(name), piece) {
            Ok(()) => {
                self.names()?.insert(name.to_owned());
                Ok((false, true))
            }
            // A full disk must not keep the bridge from starting, which alone can drain it.
            Err(error) if is_full(&error) => Ok((false, false)),
            Err(error) => Err(error),
        }
    }

    /// Makes durable that files were moved here.
    fn sync(&self) -> io::Result<()> {
        if self.moved {
            self.disk.sync_folder(&self.folder)?;
        }
        Ok(())
    }
}

fn remedy(
    disk: &dyn Disk,
    quarantine: &mut Quarantine<'_>,
    finding: Finding,
    renames: &[(PathBuf, PathBuf)],
) -> io::Result<Damage> {
    let Finding { mut damage, remedy } = finding;
    if remedy == Remedy::None {
        return Ok(damage);
    }
    // By the name that the segment will have: the next opening is to know it again.
    let moving = renames.iter().find(|(from, _)| *from == damage.segment);
    let stem = moving
        .map_or(&damage.segment, |(_, to)| to)
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if remedy == Remedy::MoveAway {
        damage.quarantine = Some(quarantine.take(&damage.segment, &stem)?);
        return Ok(damage);
    }
    let piece = Piece::of(disk, &damage)?;
    let crc = piece.checksum()?;
    let name = format!("{stem}-{}-{}-{crc:08x}.bad", damage.offset, damage.bytes);
    let (known, kept) = quarantine.keep(&name, &piece)?;
    damage.known |= known;
    if let Remedy::Fill { seq, salt } = remedy {
        fill(disk, &damage, seq, &salt)?;
    }
    if remedy == Remedy::Cut {
        let file = disk.open(&damage.segment, Access::Write)?;
        file.cut(damage.offset)?;
        file.sync()?;
    }
    damage.quarantine = kept.then(|| quarantine.folder.join(name));
    Ok(damage)
}

/// Damaged bytes, which are never in memory all at once: a file may be huge. A hole at their end is
/// left out.
struct Piece {
    file: Arc<dyn DiskFile>,
    range: Range<u64>,
}

impl Piece {
    fn of(disk: &dyn Disk, damage: &Damage) -> io::Result<Self> {
        let file = disk.open(&damage.segment, Access::Read)?;
        let end = damage.offset.saturating_add(damage.bytes);
        let data = file.data_end(end)?.max(damage.offset);
        Ok(Self {
            file,
            range: damage.offset..data,
        })
    }

    fn checksum(&self) -> io::Result<u32> {
        let mut crc = 0;
        self.visit(|_, bytes| {
            crc = crc32c::crc32c_append(crc, bytes);
            Ok(())
        })?;
        Ok(crc)
    }

    /// Hands out the bytes in turn, with their place among them.
    fn visit(&self, mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        const CHUNK: u64 = 1 << 20;
        let mut bytes = Vec::new();
        let mut at = self.range.start;
        while at < self.range.end {
            let count = (self.range.end - at).min(CHUNK);
            bytes.resize(usize::try_from(count).map_err(io::Error::other)?, 0);
            self.file.read_at(&mut bytes, at)?;
            visit(at - self.range.start, &bytes)?;
            at += count;
        }
        Ok(())
    }
}

/// Makes a gap of damaged bytes, by its front: its body is what is there. Too few bytes stay as they
/// are.
fn fill(disk: &dyn Disk, damage: &Damage, seq: u64, salt: &Salt) -> io::Result<()> {
    const FRONT: u64 = frame::OVERHEAD as u64;
    let Some(len) = damage.bytes.checked_sub(FRONT) else {
        return Ok(());
    };
    let file = disk.open(&damage.segment, Access::Write)?;
    let start = damage.offset + FRONT;
    let body = Piece {
        file: file.clone(),
        range: start..start + len,
    };
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let front = frame::front(salt, seq, Kind::Gap, len, body.checksum()?);
    file.write_at(&front, damage.offset)?;
    file.sync()
}

/// Written under another name first: what bears the final name is whole.
fn set_aside(disk: &dyn Disk, folder: &Path, place: &Path, piece: &Piece) -> io::Result<()> {
    let draft = place.with_extension("draft");
    remove(disk, &draft)?;
    let file = disk.create(&draft)?;
    piece.visit(|at, bytes| file.write_at(bytes, at))?;
    file.sync()?;
    disk.rename(&draft, place)?;
    disk.sync_folder(folder)
}

fn announce(damage: &Damage) {
    match damage.kind {
        DamageKind::TornTail | DamageKind::Abandoned => info!(
            event = "journal_tail_dropped",
            damage = %damage,
            "the end of a segment was not whole; nothing of it had been acknowledged"
        ),
        _ if damage.known => info!(
            event = "journal_damage_known",
            damage = %damage,
            "damage that was set aside at an earlier start is still in its segment"
        ),
        DamageKind::TornBatch => warn!(
            event = "journal_batch_torn",
            damage = %damage,
            lost_records = damage.lost_records,
            "the last batch before the crash is not whole; nothing of it had been acknowledged, \
             unless the disk itself damaged it"
        ),
        DamageKind::HeaderCopy | DamageKind::Misnamed => warn!(
            event = "journal_repaired",
            damage = %damage,
            "the journal was damaged and nothing is lost; check the disk"
        ),
        DamageKind::Stray => error!(
            event = "journal_stray_segment",
            damage = %damage,
            "a segment that this journal does not list is set aside; was it copied here from \
             another data folder or from a backup?"
        ),
        _ => error!(
            event = "journal_damaged",
            damage = %damage,
            lost_records = damage.lost_records,
            looks_like = looks(damage),
            "the journal is damaged; what could not be read is set aside, the rest goes on; \
             check the disk"
        ),
    }
}

/// The first few records that the damaged bytes look like.
fn looks(damage: &Damage) -> Option<String> {
    let first = damage.remains.iter().take(4);
    let looks: Vec<String> = first.map(ToString::to_string).collect();
    (!looks.is_empty()).then(|| looks.join(", "))
}
