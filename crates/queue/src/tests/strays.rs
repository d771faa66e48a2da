//! What an operator may have put into a data folder, or made of its files: nothing of it is
//! deleted, and nothing of it keeps the journal from opening.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::mpsc;

use bridge_core::Move;

use super::*;
use crate::{DamageKind, Snapshot};

const PATIENCE: Duration = Duration::from_secs(20);

fn journal_folder() -> PathBuf {
    folder().join("journal")
}

/// A journal that was closed with `count` messages.
fn filled(count: u64) -> SimDisk {
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    for number in 0..count {
        put(&journal, number);
    }
    drop(journal);
    disk
}

fn kinds(report: &RecoveryReport) -> Vec<DamageKind> {
    report.damage.iter().map(|damage| damage.kind).collect()
}

#[test]
fn i14_segments_of_another_folder_cost_nothing_of_either() {
    let (ours, _, _) = with_a_retired_one();
    let theirs = filled(400);
    let (newest, bytes) = segments(&theirs).into_iter().next_back().unwrap();
    let (mine, of_mine) = segments(&ours).into_iter().next_back().unwrap();
    assert!(newest > mine, "it hides what is listed here");
    ours.put(&newest, bytes);
    let (journal, report) = open(&ours);
    assert!(kinds(&report).contains(&DamageKind::Stray), "{report:?}");
    assert!(!report.is_clean());
    drop(journal);
    let kept = ours.files().into_values().any(|bytes| bytes == of_mine);
    assert!(kept, "a segment that was not retired was deleted");
    let (_, again) = open(&ours);
    assert_eq!(again.new_damage(), 0, "{again:?}");
}

/// A journal in which the first segments were retired, and the first of them.
fn with_a_retired_one() -> (SimDisk, PathBuf, Vec<u8>) {
    let disk = filled(1);
    let (journal, _) = open(&disk);
    let (first, bytes) = segments(&disk).into_iter().next().unwrap();
    let mut number = 1;
    while segments(&disk).contains_key(&first) {
        let seq = put(&journal, number);
        journal.settle(&key(0), &[Seq::new(2), seq]);
        number += 1;
        assert!(number < 10_000, "it is never retired");
    }
    drop(journal);
    (disk, first, bytes)
}

#[test]
fn i14_an_old_copy_of_a_retired_segment_does_not_keep_the_journal_from_opening() {
    let (disk, first, bytes) = with_a_retired_one();
    for name in ["00000000000000ff.log", "0000000000000001.log"] {
        disk.put(&journal_folder().join(name), bytes.clone());
        let (journal, _) = open(&disk);
        assert_eq!(numbers(&journal, 0, View::Queue), [0_u64; 0], "{name}");
        drop(journal);
        assert!(!segments(&disk).contains_key(&first), "{name}");
    }
}

#[test]
fn i14_a_name_of_passage_that_is_taken_costs_no_segment() {
    let disk = filled(400);
    let files: Vec<(PathBuf, Vec<u8>)> = segments(&disk).into_iter().collect();
    let [(a, of_a), (b, of_b), (c, of_c), ..] = &files[..] else {
        panic!("too few segments");
    };
    // `a` has to step aside, and the name that it would bear meanwhile is that of another one.
    disk.put(a, of_b.clone());
    disk.put(&a.with_extension("misnamed"), of_c.clone());
    disk.put(b, of_a.clone());
    disk.take(c);
    let (journal, report) = open(&disk);
    assert_eq!(kinds(&report), [DamageKind::Misnamed; 3]);
    let found = numbers(&journal, 0, View::Queue);
    assert!(found.iter().copied().eq(0..400), "{found:?}");
    drop(journal);
    let after: Vec<PathBuf> = segments(&disk).into_keys().collect();
    assert!(after.iter().eq(files.iter().map(|(path, _)| path)));
}

#[test]
fn i14_what_damaged_files_cost_at_opening_grows_with_their_number() {
    let operations = |files: u64| {
        let disk = SimDisk::default();
        for number in 1..=files {
            let name = format!("{:016x}.log", number * 64);
            disk.put(&journal_folder().join(name), vec![7; 40]);
        }
        let before = disk.operations();
        let (journal, report) = open(&disk);
        let operations = disk.operations() - before;
        assert_eq!(report.damage.len() as u64, files);
        drop(journal);
        operations
    };
    let (few, many) = (operations(10), operations(510));
    assert_eq!(
        many - few,
        500,
        "one rename each, and nothing is synced for each"
    );
}

#[test]
fn i14_a_batch_of_redrives_is_bounded_by_its_bytes() {
    const LARGE: usize = 30 << 10;
    let disk = SimDisk::default();
    let (journal, _) = open(&disk);
    let mut seqs = Vec::new();
    for number in 0..12 {
        let to = Destination {
            binding: key(0),
            placement: Placement::DeadLetter(given_up()),
        };
        let message = message_of(number, vec![1; LARGE]);
        seqs.push(block_on(journal.put(message, vec![to])).unwrap());
    }
    let redrive = |(number, seq): (u64, Seq)| {
        journal.apply(Move::Redrive {
            binding: key(0),
            seq,
            id: id(100 + number),
        })
    };
    let moves: Vec<_> = (0..).zip(seqs).map(redrive).collect();
    for moved in moves {
        block_on(moved).unwrap();
    }
    let most = small().segment_bytes as usize + LARGE + 1024;
    for (path, bytes) in segments(&disk) {
        assert!(bytes.len() <= most, "{}: {}", path.display(), bytes.len());
    }
    assert_eq!(numbers(&journal, 0, View::Queue).len(), 12);
}

/// Runs `work`, which must end by itself.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || drop(done.send(work())));
    result.recv_timeout(PATIENCE).expect("it hangs")
}

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// A data folder on the real disk with a message in it.
fn real() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(folder.path(), small()).unwrap();
    put(&journal, 7);
    folder
}

#[test]
fn i25_a_pipe_in_place_of_a_file_is_not_waited_for() {
    for (name, opens) in [("head", true), ("reserve", true), ("lock", false)] {
        let folder = real();
        fs::remove_file(folder.path().join(name)).unwrap();
        pipe(&folder.path().join(name));
        let path = folder.path().to_owned();
        let snapshot = in_time(move || Snapshot::of(&path)).unwrap();
        assert_eq!(snapshot.entries(&key(0), View::Queue).len(), 1, "{name}");
        let path = folder.path().to_owned();
        let opened = in_time(move || Journal::open(&path, small()).map(drop));
        assert_eq!(opened.is_ok(), opens, "{name}: {opened:?}");
    }
}

#[test]
fn i14_a_segment_that_a_link_leads_to_is_read() {
    let folder = real();
    let (elsewhere, name) = (tempfile::tempdir().unwrap(), "journal/0000000000000001.log");
    let moved = elsewhere.path().join("moved");
    fs::copy(folder.path().join(name), &moved).unwrap();
    fs::remove_file(folder.path().join(name)).unwrap();
    symlink(&moved, folder.path().join(name)).unwrap();
    let (journal, report) = Journal::open(folder.path(), small()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    put(&journal, 8);
    assert_eq!(numbers(&journal, 0, View::Queue), [7, 8]);
}

#[test]
fn i13_a_reserve_that_cannot_be_made_is_not_called_a_full_disk() {
    let folder = real();
    fs::remove_file(folder.path().join("reserve")).unwrap();
    fs::create_dir(folder.path().join("reserve")).unwrap();
    let (journal, _) = Journal::open(folder.path(), small()).unwrap();
    let error = try_put(&journal, 8).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("reserve"), "{error}");
}

#[test]
fn what_is_in_a_data_folder_is_for_no_one_else_to_read() {
    let parent = tempfile::tempdir().unwrap();
    let above = parent.path().join("above");
    let root = above.join("data");
    let (journal, _) = Journal::open(&root, small()).unwrap();
    put(&journal, 1);
    drop(journal);
    let segment = root.join("journal/0000000000000001.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes.extend_from_slice(&[7; 100]);
    fs::write(&segment, bytes).unwrap();
    let (_journal, report) = Journal::open(&root, small()).unwrap();
    assert!(report.damage.iter().any(|it| it.quarantine.is_some()));
    let mut folders = vec![above];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let mode = fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & !0o750, 0, "{}: {mode:o}", folder.display());
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, data) = (entry.path(), entry.metadata().unwrap());
            let mode = data.permissions().mode() & 0o777;
            if data.is_dir() {
                folders.push(path);
            } else {
                seen += 1;
                assert_eq!(mode & !0o640, 0, "{}: {mode:o}", path.display());
            }
        }
    }
    assert!(
        seen >= 5,
        "lock, head, reserve, a segment and what is set aside"
    );
}

#[test]
fn i14_a_segment_that_became_huge_costs_neither_time_nor_space() {
    const HUGE: u64 = 10 << 30;
    for name in ["0000000000000001.log", "00000000000000ff.log"] {
        let folder = real();
        let segment = folder.path().join("journal").join(name);
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false);
        file.open(&segment).unwrap().set_len(HUGE).unwrap();
        let path = folder.path().to_owned();
        let snapshot = in_time(move || Snapshot::of(&path)).unwrap();
        assert_eq!(snapshot.entries(&key(0), View::Queue).len(), 1, "{name}");
        let path = folder.path().to_owned();
        let (journal, report) = in_time(move || Journal::open(&path, small())).unwrap();
        let [damage] = &report.damage[..] else {
            panic!("{name}: {report:?}");
        };
        assert_eq!(damage.offset + damage.bytes, HUGE, "{name}");
        let kept = fs::metadata(damage.quarantine.as_ref().unwrap()).unwrap();
        assert!(
            kept.blocks() * 512 <= 1 << 20,
            "{name}: holes are kept as holes"
        );
        put(&journal, 8);
        assert_eq!(numbers(&journal, 0, View::Queue), [7, 8], "{name}");
    }
}
