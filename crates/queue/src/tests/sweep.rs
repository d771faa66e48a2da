//! A power cut behind every single write and sync of many runs.

use std::collections::{BTreeMap, BTreeSet};

use super::random::{BINDINGS, Model, Places, VIEWS};
use super::*;
use crate::disk::{Disk, Layout};
use crate::sim::{Cut, Op, Random, Replay};
use crate::{Holder, Snapshot};

type At = (usize, u64);
/// In which view each message is, by the number of the view.
type Found = BTreeMap<At, u8>;
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What is known between two bursts of requests.
#[derive(Debug, Default)]
struct Moment {
    /// So many operations were done when it was known.
    operations: usize,
    places: BTreeMap<At, Places>,
    /// What the burst before asked for: all of each, or nothing.
    together: Vec<Vec<At>>,
    /// What the burst before redrove: the old one or the new one.
    either: Vec<(usize, u64, u64)>,
}

impl Moment {
    fn of(model: &Model, disk: &SimDisk) -> Self {
        Self {
            operations: disk.recorded(),
            places: model.places.clone(),
            together: model.asked_together.clone(),
            either: model.asked_either.clone(),
        }
    }
}

/// Two lives of a journal, with what was done to its disk and what was told when.
fn run(seed: u64) -> (Vec<Op>, Vec<Moment>) {
    let mut random = Random::new(seed);
    let disk = SimDisk::default();
    disk.record();
    let mut model = Model::default();
    let mut moments = vec![Moment::default()];
    let options = JournalOptions {
        // In half of the runs settles are written only with something else.
        settle_delay: Duration::from_millis(1 + 3_600_000 * (seed % 2)),
        ..small()
    };
    for _ in 0..2 {
        let journal = Journal::open_on(Arc::new(disk.clone()), &folder(), options, None);
        let (journal, _) = journal.unwrap();
        for _ in 0..16 {
            model.burst(&journal, &mut random);
            moments.push(Moment::of(&model, &disk));
        }
        journal.close();
        model.closed();
        moments.push(Moment::of(&model, &disk));
    }
    (disk.recording(), moments)
}

/// What is in a folder, after repairs if it needs any: where each message is.
fn found(disk: &SimDisk, what: &str) -> Found {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let look = || Snapshot::on(shared.clone(), &folder(), Holder::Nobody).unwrap();
    let mut snapshot = look();
    if !snapshot.inspection().report.damage.is_empty() {
        let layout = Layout::new(&folder());
        let mut scan = crate::recovery::scan(disk, &layout).unwrap();
        let report = crate::repair::repair(disk, &layout, &mut scan).unwrap();
        assert!(report.is_clean(), "{what}: {report:?}");
        assert_eq!(report.lost_records(), 0, "{what}");
        snapshot = look();
        assert!(snapshot.inspection().report.is_clean(), "{what}: repaired");
    }
    let mut found = Found::new();
    for binding in 0..BINDINGS {
        for (place, view) in VIEWS.into_iter().enumerate() {
            for seq in snapshot.entries(&key(binding), view) {
                let seated = snapshot.read(&key(binding), seq).unwrap();
                let at = (binding, number(&seated));
                let payload = &seated.message.as_ref().unwrap().message.payload;
                let whole = |byte: &u8| payload.first() == Some(byte);
                assert!(payload.iter().all(whole), "{what}: {at:?} is not whole");
                assert_eq!(seated.deferred.is_some(), view == View::Deferred);
                assert_eq!(seated.dead_letter.is_some(), view == View::DeadLetters);
                let twice = found.insert(at, place as u8);
                assert_eq!(twice, None, "{what}: i09: {at:?} is in two views");
            }
        }
    }
    found
}

/// Compares what is there with what was known before and after the burst that was under way.
fn check(found: &Found, before: &Moment, after: &Moment, what: &str) {
    let nowhere: Places = [None].into();
    let all: BTreeSet<&At> = before.places.keys().chain(after.places.keys()).collect();
    for at in all {
        let place = found.get(at).copied();
        let may = |moment: &Moment| {
            let places = moment.places.get(at).unwrap_or(&nowhere);
            places.contains(&place)
        };
        assert!(
            may(before) || may(after),
            "{what}: {at:?} is {place:?}, not {:?} or {:?}",
            before.places.get(at),
            after.places.get(at)
        );
    }
    for at in found.keys() {
        assert!(after.places.contains_key(at), "{what}: {at:?} was invented");
    }
    for group in &after.together {
        let there = group.iter().filter(|at| found.contains_key(at)).count();
        assert!(
            there == 0 || there == group.len(),
            "{what}: i09: {group:?} in part"
        );
    }
    for (binding, old, new) in &after.either {
        let there = [*old, *new].map(|number| found.contains_key(&(*binding, number)));
        assert!(there[0] != there[1], "{what}: i21: {old}, {new}: {there:?}");
    }
}

/// So many runs, each with a power cut at each of its points.
const RUNS: u64 = 9;

#[test]
fn i07_a_power_cut_behind_every_single_write_and_sync_loses_nothing_that_was_acknowledged() {
    let mut points = 0;
    for seed in 0..RUNS {
        let (operations, moments) = run(seed);
        let mut replay = Replay::default();
        // Many operations change nothing of what one kind of power cut leaves.
        let mut latest: [Option<(Files, Found)>; 3] = Default::default();
        for (number, operation) in operations.iter().enumerate() {
            replay.perform(operation);
            let done = number + 1;
            let next = moments.partition_point(|moment| moment.operations <= done);
            let before = &moments[next - 1];
            let after = moments.get(next).unwrap_or(before);
            let torn = Cut::Torn(seed ^ (done as u64) << 20);
            for (kind, cut) in [Cut::Nothing, Cut::Everything, torn]
                .into_iter()
                .enumerate()
            {
                let what = format!("seed {seed}, operation {done}, {cut:?}");
                let disk = replay.after(cut);
                let files = disk.files();
                let same = latest[kind].take().filter(|(before, _)| *before == files);
                let (files, found) = same.unwrap_or_else(|| (files, found(&disk, &what)));
                check(&found, before, after, &what);
                latest[kind] = Some((files, found));
                points += 1;
            }
        }
    }
    assert!(points > 4_000, "only {points} points");
}
