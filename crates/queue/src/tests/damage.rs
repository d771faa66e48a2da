//! Damaged folders: exactly what was damaged is missing and reported, the rest lives.

use super::*;
use crate::DamageKind;
use crate::frame;
use crate::segment::{FRAMES_AT, Header, SECOND_HEADER_AT, VERSION};

/// A journal of one segment with ten messages, and where its frames lie: the first is the list of
/// segments, then one for each message.
fn ten() -> (SimDisk, PathBuf, Vec<u8>, Vec<std::ops::Range<usize>>) {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    for number in 0..10 {
        put(&journal, number);
    }
    drop(journal);
    let (path, bytes) = segments(&disk).pop_first().unwrap();
    let (header, _) = Header::find(&bytes).unwrap();
    let mut frames = Vec::new();
    let mut at = FRAMES_AT;
    while let Some(frame) = frame::parse(&bytes[at..], &header.salt) {
        frames.push(at..at + frame.len);
        at += frame.len;
    }
    assert_eq!((frames.len(), at), (11, bytes.len()));
    (disk, path, bytes, frames)
}

fn reopened(disk: &SimDisk, path: &Path, bytes: Vec<u8>) -> (Vec<u64>, RecoveryReport) {
    let disk = disk.copy();
    disk.put(path, bytes);
    let (journal, report) = open(&disk);
    let found = numbers(&journal, 0, View::Queue);
    // It goes on, and the next opening finds the same.
    put(&journal, 100);
    drop(journal);
    let (journal, again) = open(&disk);
    let mut expected = found.clone();
    expected.push(100);
    assert_eq!(numbers(&journal, 0, View::Queue), expected);
    assert_eq!(again.lost_records(), 0, "it is counted once: {again:?}");
    (found, report)
}

#[test]
fn i14_truncated_at_every_byte_of_its_last_frames_it_loses_just_those() {
    let (disk, path, bytes, frames) = ten();
    for len in frames[8].start..bytes.len() {
        let (found, report) = reopened(&disk, &path, bytes[..len].to_vec());
        let whole = frames.iter().filter(|frame| frame.end <= len).count() as u64 - 1;
        assert_eq!(found, (0..whole).collect::<Vec<_>>(), "cut to {len}");
        // The journal had been closed: what is missing had been whole.
        assert_eq!(report.damage.len(), 1, "cut to {len}");
        assert_eq!(report.damage[0].kind, DamageKind::Records, "cut to {len}");
        assert_eq!(report.lost_records(), 10 - whole, "cut to {len}");
    }
}

#[test]
fn i14_a_tail_that_a_crash_tore_is_no_loss() {
    let (disk, path, bytes, frames) = ten();
    // As if the journal had not been closed.
    disk.take(&crate::disk::Layout::new(&folder()).head());
    for len in frames[8].start..bytes.len() {
        let (_, report) = reopened(&disk, &path, bytes[..len].to_vec());
        let torn = frames
            .iter()
            .any(|frame| frame.start < len && len < frame.end);
        let kinds: Vec<_> = report.damage.iter().map(|damage| damage.kind).collect();
        assert_eq!(
            kinds,
            vec![DamageKind::TornTail; usize::from(torn)],
            "cut to {len}"
        );
        assert_eq!(report.lost_records(), 0);
    }
}

#[test]
fn i14_a_flipped_byte_costs_its_record_and_no_other() {
    let (disk, path, bytes, frames) = ten();
    for at in frames[4].clone() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x41;
        let (found, report) = reopened(&disk, &path, bad);
        assert_eq!(found, [0, 1, 2, 4, 5, 6, 7, 8, 9], "byte {at}");
        assert_eq!(report.damage.len(), 1);
        let damage = &report.damage[0];
        assert_eq!(damage.kind, DamageKind::Records);
        assert_eq!(damage.lost_records, 1);
        assert_eq!(damage.offset as usize, frames[4].start);
        assert_eq!(damage.bytes as usize, frames[4].len());
        assert!(damage.quarantine.is_some());
        assert_eq!(damage.first_lost, Some(5));
        // What the record was can be seen, unless it is the number or the kind that is damaged.
        let within = at - frames[4].start;
        if !(8..17).contains(&within) {
            assert_eq!(damage.remains[0].seq, 5, "byte {at}");
            assert_eq!(damage.remains[0].kind, "Put");
        }
        if within > 150 {
            assert_eq!(damage.remains[0].bindings, [key(0).to_string()]);
            assert_eq!(damage.remains[0].id, Some(id(3)));
            assert!(
                damage
                    .to_string()
                    .contains("1 record lost from number 5 on")
            );
        }
    }
}

#[test]
fn a_flipped_byte_in_a_header_costs_nothing() {
    let (disk, path, bytes, _) = ten();
    // Magic, version, number, salt and checksum, of both copies.
    let headers = [0, SECOND_HEADER_AT].map(|at| at..at + crate::segment::HEADER);
    for at in headers.into_iter().flatten() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x41;
        let (found, report) = reopened(&disk, &path, bad);
        assert_eq!(found.len(), 10, "byte {at}");
        assert_eq!(report.damage[0].kind, DamageKind::HeaderCopy);
        assert_eq!(report.lost_records(), 0);
    }
}

#[test]
fn a_segment_without_any_header_is_set_aside_whole() {
    let (disk, path, mut bytes, _) = ten();
    bytes[..FRAMES_AT].fill(0);
    let (found, report) = reopened(&disk, &path, bytes);
    assert_eq!(found, [0; 0]);
    assert_eq!(report.damage[0].kind, DamageKind::Header);
    assert!(report.damage[0].quarantine.is_some());
}

#[test]
fn a_zeroed_page_costs_what_was_in_it() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    for number in 0..40 {
        put(&journal, number);
    }
    drop(journal);
    let (path, mut bytes) = segments(&disk).pop_first().unwrap();
    let page = FRAMES_AT + 512..FRAMES_AT + 2560;
    bytes[page].fill(0);
    let (found, report) = reopened(&disk, &path, bytes);
    assert_eq!(found.len() as u64 + report.lost_records(), 40);
    assert!(report.lost_records() < 20, "{report:?}");
    assert!(found.ends_with(&[38, 39]));
}

#[test]
fn each_page_of_a_segment_may_be_zeroed() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    for number in 0..90 {
        put(&journal, number);
    }
    drop(journal);
    let (path, bytes) = segments(&disk).pop_first().unwrap();
    for page in (0..bytes.len()).step_by(4096) {
        let mut bad = bytes.clone();
        let end = bad.len().min(page + 4096);
        bad[page..end].fill(0);
        let (found, report) = reopened(&disk, &path, bad);
        assert_eq!(report.damage.len(), 1, "page at {page}: {report:?}");
        if page < FRAMES_AT {
            assert_eq!(found.len(), 90, "page at {page}");
            continue;
        }
        // The list of segments is in the first page of frames, and is no message.
        let lost = report.lost_records() - u64::from(page == FRAMES_AT);
        assert_eq!(found.len() as u64 + lost, 90, "page at {page}");
        assert!((1..40).contains(&lost), "page at {page}: {report:?}");
    }
}

#[test]
fn a_payload_that_holds_a_frame_is_no_frame() {
    let (disk, path, bytes, frames) = ten();
    // A frame of this very segment and one of another, each in a payload that is then damaged.
    let (journal, _) = open(&disk);
    let ours = bytes[frames[3].clone()].to_vec();
    let mut theirs = Vec::new();
    frame::append(
        &mut theirs,
        &crate::segment::Salt::new([5; 16]),
        13,
        frame::Kind::Put,
        false,
        |out| out.extend_from_slice(b"evil"),
    );
    let evil = [ours, theirs].concat();
    block_on(journal.put(message_of(50, evil.clone()), vec![queue(0)])).unwrap();
    put(&journal, 51);
    drop(journal);
    let mut bad = segments(&disk)[&path].clone();
    let at = bad.windows(evil.len()).rposition(|w| w == evil).unwrap();
    bad[at - 1] ^= 1;
    let (found, report) = reopened(&disk, &path, bad);
    assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 51]);
    assert_eq!(report.lost_records(), 1);
}

fn several() -> (SimDisk, Vec<(PathBuf, Vec<u8>)>, u64) {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let mut total = 0;
    while segments(&disk).len() < 4 {
        put(&journal, total);
        total += 1;
    }
    drop(journal);
    (disk.clone(), segments(&disk).into_iter().collect(), total)
}

#[test]
fn a_missing_segment_is_reported_and_the_rest_lives() {
    let (disk, files, total) = several();
    for (missing, _) in &files[..3] {
        let disk = disk.copy();
        disk.take(missing);
        let (journal, report) = open(&disk);
        assert_eq!(report.damage.len(), 1);
        assert_eq!(report.damage[0].kind, DamageKind::Missing);
        assert_eq!(&report.damage[0].segment, missing);
        // Each segment begins with a record that is no message.
        let found = numbers(&journal, 0, View::Queue).len() as u64;
        assert_eq!(found + report.lost_records() - 1, total);
    }
}

#[test]
fn swapped_segments_are_read_in_their_order_and_named_right_again() {
    let (disk, files, total) = several();
    disk.put(&files[0].0, files[2].1.clone());
    disk.put(&files[2].0, files[0].1.clone());
    let (journal, report) = open(&disk);
    let kinds: Vec<_> = report.damage.iter().map(|damage| damage.kind).collect();
    assert_eq!(kinds, [DamageKind::Misnamed; 2]);
    let expected: Vec<u64> = (0..total).collect();
    assert_eq!(numbers(&journal, 0, View::Queue), expected);
    drop(journal);
    assert_eq!(segments(&disk)[&files[0].0], files[0].1);
    assert_eq!(open(&disk).1.damage, []);
}

#[test]
fn a_segment_that_was_cut_off_between_two_records_is_noticed() {
    let (disk, files, total) = several();
    let (path, bytes) = &files[1];
    let (header, _) = Header::find(bytes).unwrap();
    let list = frame::parse(&bytes[FRAMES_AT..], &header.salt).unwrap().len;
    let first = frame::parse(&bytes[FRAMES_AT + list..], &header.salt)
        .unwrap()
        .len;
    disk.put(path, bytes[..FRAMES_AT + list + first].to_vec());
    let (journal, report) = open(&disk);
    assert_eq!(report.damage.len(), 1);
    let found = numbers(&journal, 0, View::Queue).len() as u64;
    assert_eq!(found + report.lost_records(), total);
    // It is told once, also when new segments begin before the next opening.
    let mut number = total;
    while segments(&disk).len() < 6 {
        put(&journal, number);
        number += 1;
    }
    drop(journal);
    let (_, again) = open(&disk);
    assert_eq!(again.damage.len(), 1, "{again:?}");
    assert_eq!((again.new_damage(), again.lost_records()), (0, 0));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let (disk, path, mut bytes, _) = ten();
    for at in [0, SECOND_HEADER_AT] {
        let header = &mut bytes[at..at + crate::segment::HEADER];
        header[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let end = header.len() - 4;
        let crc = crc32c::crc32c(&header[..end]);
        header[end..].copy_from_slice(&crc.to_le_bytes());
    }
    disk.put(&path, bytes.clone());
    let error = try_open(&disk).unwrap_err();
    assert!(
        matches!(error, OpenError::NewerFormat { found: 2, .. }),
        "{error}"
    );
    assert_eq!(segments(&disk)[&path], bytes);
}

#[test]
fn hostile_folders_open_without_a_panic() {
    let (disk, path, bytes, frames) = ten();
    let mut random = crate::sim::Random::new(7);
    for _ in 0..400 {
        let disk = disk.copy();
        let mut bad = bytes.clone();
        for _ in 0..=random.below(6) {
            let from = random.below(bad.len() as u64) as usize;
            let to = bad.len().min(from + random.below(300) as usize);
            match random.below(4) {
                0 => bad[from..to].fill(0),
                1 => bad[from..to]
                    .iter_mut()
                    .for_each(|byte| *byte = random.below(256) as u8),
                2 => drop(bad.drain(from..to)),
                _ => {
                    let frame = bytes[frames[random.below(11) as usize].clone()].to_vec();
                    bad.splice(from..from, frame);
                }
            }
            if bad.is_empty() {
                break;
            }
        }
        disk.put(&path, bad);
        if let Ok((journal, _)) = try_open(&disk) {
            journal.resume(&key(0));
            put(&journal, 100);
            read(&journal, 0, View::Queue);
        }
    }
}

#[test]
fn verifying_finds_what_is_damaged_and_changes_nothing() {
    let (disk, path, mut bytes, frames) = ten();
    let verify = |disk: &SimDisk| {
        let disk = Arc::new(disk.clone());
        let snapshot = crate::Snapshot::on(disk, &folder(), crate::Holder::Nobody);
        snapshot.unwrap().verify()
    };
    let sound = verify(&disk);
    assert!(sound.is_clean());
    assert_eq!(sound.sound, 10);
    assert_eq!(sound.inspection.bindings[0].binding, key(0));
    assert_eq!(sound.inspection.bindings[0].queue.quantity.entries, 10);
    assert_eq!(sound.inspection.segments[0].file, path);
    bytes[frames[4].start + 30] ^= 1;
    disk.put(&path, bytes);
    let before = disk.files();
    let damaged = verify(&disk);
    assert!(!damaged.is_clean());
    assert_eq!(damaged.sound, 9);
    let report = &damaged.inspection.report;
    assert_eq!(report.damage[0].offset as usize, frames[4].start);
    assert_eq!(report.lost_records(), 1);
    assert_eq!(disk.files(), before);
}

#[test]
fn i25_a_batch_that_is_being_written_while_someone_looks_is_a_torn_tail() {
    let (disk, path, bytes, frames) = ten();
    disk.take(&crate::disk::Layout::new(&folder()).head());
    disk.put(&path, bytes[..frames[4].end].to_vec());
    // Of the next records, all but the end of the last one are there when the frames are read.
    let torn = frames[9].end - 3;
    disk.grow_once_opened(&path, bytes[..torn].to_vec());
    let holder = crate::Holder::Process("another".to_owned());
    let snapshot = crate::Snapshot::on(Arc::new(disk), &folder(), holder).unwrap();
    let report = snapshot.report();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let tail = &report.damage[0];
    assert_eq!(tail.kind, DamageKind::TornTail);
    let (at, len) = (frames[9].start, torn - frames[9].start);
    assert_eq!((tail.offset, tail.bytes), (at as u64, len as u64));
    assert_eq!(snapshot.entries(&key(0), View::Queue).len(), 8);
    let segment = &snapshot.inspection().segments[0];
    assert_eq!(segment.bytes, at as u64);
}

#[test]
fn a_hole_too_small_for_what_is_missing_hides_nothing_later() {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    for number in 0..40 {
        put(&journal, number);
    }
    drop(journal);
    disk.take(&crate::disk::Layout::new(&folder()).head());
    let (path, bytes) = segments(&disk).pop_first().unwrap();
    let (header, _) = Header::find(&bytes).unwrap();
    let mut at = FRAMES_AT;
    let mut starts = Vec::new();
    while let Some(frame) = frame::parse(&bytes[at..], &header.salt) {
        starts.push(at);
        at += frame.len;
    }
    // Of forty-one records one is left, behind six bytes of noise and in front of a long tail.
    let mut bad = bytes[..FRAMES_AT].to_vec();
    bad.extend_from_slice(&[0xAA; 6]);
    bad.extend_from_slice(&bytes[starts[31]..starts[32]]);
    bad.extend_from_slice(&[0xAA; 4000]);
    // `reopened` puts one more, and finds it and what was found before.
    let (found, _) = reopened(&disk, &path, bad);
    assert_eq!(found, [30]);
}
