//! Random operations against a model, with reopening and power cuts at random points.

use std::collections::{BTreeMap, BTreeSet};

use bridge_core::{GivenUp, Move, Moved, Pending, Quantity, ReadFrom};

use super::*;
use crate::sim::Random;

pub(super) const BINDINGS: usize = 3;

/// Where a message may be found at a binding; `None` is nowhere.
pub(super) type Places = BTreeSet<Option<u8>>;

const QUEUE: u8 = 0;
const DEFERRED: u8 = 1;
const DEAD: u8 = 2;
pub(super) const VIEWS: [View; 3] = [View::Queue, View::Deferred, View::DeadLetters];

#[derive(Debug, Default)]
pub(super) struct Model {
    next: u64,
    /// By binding and message: where it may be.
    pub(super) places: BTreeMap<(usize, u64), Places>,
    seqs: BTreeMap<(usize, u64), Seq>,
    /// Those that were settled, which the disk may not know yet.
    settled: BTreeSet<(usize, u64)>,
    /// Places of which all are true or none is.
    together: Vec<Vec<(usize, u64)>>,
    /// Redrives that may have happened: exactly one of the two messages is there.
    either: Vec<(usize, u64, u64)>,
    /// Every put of the latest burst, and every redrive, however it was answered.
    pub(super) asked_together: Vec<Vec<(usize, u64)>>,
    pub(super) asked_either: Vec<(usize, u64, u64)>,
}

enum Asked {
    Put(Vec<(usize, u64)>, Pending<Seq>),
    Move(usize, u64, u8, Pending<Moved>),
    Redrive(usize, u64, u64, Pending<Moved>),
    Delete(usize, u64, Pending<Moved>),
}

impl Model {
    /// Asks for several things at once, and waits for the answers.
    pub(super) fn burst(&mut self, journal: &Journal, random: &mut Random) {
        self.asked_together.clear();
        self.asked_either.clear();
        let mut asked = Vec::new();
        let mut busy = BTreeSet::new();
        for _ in 0..=random.below(8) {
            match random.below(10) {
                0..=4 => asked.push(self.ask_put(journal, random)),
                5 | 6 => self.settle(journal, random, &mut busy),
                _ => asked.extend(self.ask_move(journal, random, &mut busy)),
            }
        }
        for asked in asked {
            self.hear(asked);
        }
        if random.one_in(12) && block_on(journal.flush()).is_ok() {
            self.settles_are_durable();
        }
    }

    /// Notes that the journal was closed in an orderly way.
    pub(super) fn closed(&mut self) {
        self.asked_together.clear();
        self.asked_either.clear();
        self.settles_are_durable();
    }

    fn settles_are_durable(&mut self) {
        for at in std::mem::take(&mut self.settled) {
            self.places.insert(at, [None].into());
        }
    }

    fn ask_put(&mut self, journal: &Journal, random: &mut Random) -> Asked {
        let number = self.next;
        self.next += 1;
        let mut to = Vec::new();
        let mut at = Vec::new();
        for binding in 0..BINDINGS {
            if random.one_in(2) || (binding == BINDINGS - 1 && at.is_empty()) {
                let dead = random.one_in(6);
                to.push(Destination {
                    binding: key(binding),
                    placement: if dead {
                        Placement::DeadLetter(given_up_on(number))
                    } else {
                        Placement::Queue
                    },
                });
                let place = if dead { DEAD } else { QUEUE };
                self.places
                    .insert((binding, number), [None, Some(place)].into());
                at.push((binding, number));
            }
        }
        self.asked_together.push(at.clone());
        let payload = vec![number as u8; random.below(900) as usize];
        Asked::Put(at, journal.put(message_of(number, payload), to))
    }

    /// Some message that surely is in one of `views`.
    fn some(
        &self,
        random: &mut Random,
        busy: &mut BTreeSet<(usize, u64)>,
        views: &[u8],
    ) -> Option<(usize, u64)> {
        let sure = |places: &Places| {
            let place = places.first().copied().flatten();
            places.len() == 1 && place.is_some_and(|place| views.contains(&place))
        };
        let fitting: Vec<_> = self
            .places
            .iter()
            .filter(|(at, places)| sure(places) && !busy.contains(at))
            .map(|(at, _)| *at)
            .collect();
        let at = *fitting.get(random.below(fitting.len() as u64) as usize)?;
        busy.insert(at);
        Some(at)
    }

    fn settle(
        &mut self,
        journal: &Journal,
        random: &mut Random,
        busy: &mut BTreeSet<(usize, u64)>,
    ) {
        for _ in 0..3 {
            let Some(at) = self.some(random, busy, &[QUEUE, DEFERRED]) else {
                return;
            };
            journal.settle(&key(at.0), &[self.seqs[&at]]);
            self.places.get_mut(&at).unwrap().insert(None);
            self.settled.insert(at);
        }
    }

    fn ask_move(
        &mut self,
        journal: &Journal,
        random: &mut Random,
        busy: &mut BTreeSet<(usize, u64)>,
    ) -> Option<Asked> {
        let back = random.one_in(2);
        let from: &[u8] = if back { &[DEAD] } else { &[QUEUE, DEFERRED] };
        let at = self.some(random, busy, from)?;
        let (binding, number) = at;
        let (seq, binding_key) = (self.seqs[&at], key(binding));
        let info = given_up_on(number);
        Some(match (back, random.one_in(2)) {
            (false, true) => {
                self.places.get_mut(&at).unwrap().insert(Some(DEAD));
                let binding = binding_key;
                let pending = journal.apply(Move::DeadLetter { binding, seq, info });
                Asked::Move(at.0, number, DEAD, pending)
            }
            (false, false) => {
                self.places.get_mut(&at).unwrap().insert(Some(DEFERRED));
                let info = refused();
                let binding = binding_key;
                let pending = journal.apply(Move::Defer { binding, seq, info });
                Asked::Move(at.0, number, DEFERRED, pending)
            }
            (true, true) => {
                let new = self.next;
                self.next += 1;
                self.places.get_mut(&at).unwrap().insert(None);
                self.places
                    .insert((binding, new), [None, Some(QUEUE)].into());
                self.asked_either.push((binding, number, new));
                let id = id(new);
                let pending = journal.apply(Move::Redrive {
                    binding: binding_key,
                    seq,
                    id,
                });
                Asked::Redrive(binding, number, new, pending)
            }
            (true, false) => {
                self.places.get_mut(&at).unwrap().insert(None);
                let pending = journal.apply(Move::Delete {
                    binding: binding_key,
                    seq,
                });
                Asked::Delete(binding, number, pending)
            }
        })
    }

    /// Takes an answer for what it is worth: a failure says nothing of what is on the disk.
    fn hear(&mut self, asked: Asked) {
        match asked {
            Asked::Put(at, pending) => match block_on(pending) {
                Ok(seq) => {
                    for at in at {
                        self.places.get_mut(&at).unwrap().remove(&None);
                        self.seqs.insert(at, seq);
                    }
                }
                Err(_) => self.together.push(at),
            },
            Asked::Move(binding, number, place, pending) => {
                if let Ok(moved) = block_on(pending) {
                    let seq = self.seqs[&(binding, number)];
                    assert_eq!(moved, Moved::Done { seq });
                    self.places.insert((binding, number), [Some(place)].into());
                }
            }
            Asked::Redrive(binding, old, new, pending) => match block_on(pending) {
                Ok(Moved::Done { seq }) => {
                    self.seqs.insert((binding, new), seq);
                    self.places.insert((binding, old), [None].into());
                    self.places.insert((binding, new), [Some(QUEUE)].into());
                }
                Ok(Moved::NotThere) => panic!("a dead letter was not there"),
                Err(_) => self.either.push((binding, old, new)),
            },
            Asked::Delete(binding, number, pending) => {
                if let Ok(moved) = block_on(pending) {
                    assert!(matches!(moved, Moved::Done { .. }));
                    self.places.insert((binding, number), [None].into());
                }
            }
        }
    }

    /// Compares with what is there, and goes on from that.
    fn check(&mut self, journal: &Journal, seed: u64) {
        let mut found: BTreeMap<(usize, u64), u8> = BTreeMap::new();
        for binding in 0..BINDINGS {
            for (place, view) in VIEWS.into_iter().enumerate() {
                let page = read(journal, binding, view);
                assert!(
                    page.is_sorted_by_key(|seated| seated.seq),
                    "order, seed {seed}"
                );
                let usage = journal.usage(&key(binding));
                let usage = [usage.queue, usage.deferred, usage.dead_letters][place];
                let size = |seated: &Seated| seated.message.as_ref().unwrap().message.size();
                let counted = Quantity {
                    entries: page.len() as u64,
                    bytes: page.iter().map(size).sum(),
                };
                assert_eq!(usage, counted, "seed {seed}: i24: usage of {view:?}");
                if view == View::DeadLetters {
                    compare_counts(journal, binding, &page, seed);
                }
                for seated in page {
                    let at = (binding, number(&seated));
                    let twice = found.insert(at, place as u8);
                    assert_eq!(twice, None, "seed {seed}: i09: {at:?} is in two views");
                    if let Some(seq) = self.seqs.get(&at) {
                        assert_eq!(*seq, seated.seq, "{at:?} has another number");
                    }
                    self.seqs.insert(at, seated.seq);
                    assert_eq!(seated.deferred.is_some(), view == View::Deferred);
                    let dead = (view == View::DeadLetters).then(|| given_up_on(at.1));
                    assert_eq!(seated.dead_letter, dead);
                }
            }
        }
        for (at, places) in &self.places {
            let place = found.get(at).copied();
            assert!(
                places.contains(&place),
                "seed {seed}: {at:?} is {place:?}, not {places:?}"
            );
        }
        for at in found.keys() {
            assert!(
                self.places.contains_key(at),
                "seed {seed}: {at:?} was invented"
            );
        }
        for group in self.together.drain(..) {
            let there = group.iter().filter(|at| found.contains_key(at)).count();
            assert!(
                there == 0 || there == group.len(),
                "seed {seed}: i09: {group:?} in part"
            );
        }
        for (binding, old, new) in self.either.drain(..) {
            let there = [old, new].map(|number| found.contains_key(&(binding, number)));
            assert!(
                there[0] != there[1],
                "seed {seed}: i21: {old} became {new}: {there:?}"
            );
        }
        self.settled.clear();
        for (at, places) in &mut self.places {
            *places = [found.get(at).copied()].into();
        }
    }
}

/// Of one of a few reasons, at one of a few instants.
fn given_up_on(number: u64) -> DeadLetterInfo {
    DeadLetterInfo {
        reason: Reason::Broker(ReasonCode::new(0x95 + (number % 3) as u8)),
        last_refusal: Timestamp::from_millis(number % 7 * 1_000_000_000),
        ..given_up()
    }
}

/// What is counted and found of a reason and a time is what a look at all of the dead letters finds.
fn compare_counts(journal: &Journal, binding: usize, page: &[Seated], seed: u64) {
    for number in 0..7 {
        let which = GivenUp {
            reason: (number % 2 == 0).then(|| given_up_on(number).reason),
            since: Some(given_up_on(number).last_refusal),
            until: Some(given_up_on(number + 2).last_refusal),
        };
        let taken = page.iter().filter(|seated| {
            let info = seated.dead_letter.as_ref();
            info.is_some_and(|info| which.takes(info))
        });
        let taken: Vec<Seq> = taken.map(|seated| seated.seq).collect();
        let key = key(binding);
        let count = block_on(journal.count_dead_letters(&key, which));
        assert_eq!(count, Ok(taken.len() as u64), "seed {seed}: {which:?}");
        let found = journal.read_dead_letters(&key, which, ReadFrom::After(None), ALL);
        let found = block_on(found).unwrap();
        assert!(
            found.iter().map(|seated| seated.seq).eq(taken),
            "seed {seed}: {which:?}"
        );
    }
}

#[test]
fn i24_random_operations_with_reopening_agree_with_a_model() {
    for seed in 0..25 {
        let mut random = Random::new(seed);
        let disk = SimDisk::default();
        let mut model = Model::default();
        for _ in 0..6 {
            let (journal, report) = open(&disk);
            assert_eq!(report.damage, [], "seed {seed}");
            model.check(&journal, seed);
            for _ in 0..random.below(40) {
                model.burst(&journal, &mut random);
            }
            // Settles of a journal that is closed in an orderly way are never lost.
            journal.close();
            model.settles_are_durable();
        }
    }
}

#[test]
fn i07_a_power_cut_at_any_point_loses_nothing_that_was_acknowledged() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::default();
        let mut model = Model::default();
        // Three lives, each of which ends by a power cut; some while the journal opens.
        for _ in 0..3 {
            disk.power_off_at(disk.operations() + 1 + random.below(120));
            if let Ok((journal, report)) = try_open(&disk) {
                assert!(report.is_clean(), "seed {seed}: {report:?}");
                for _ in 0..random.below(30) {
                    model.burst(&journal, &mut random);
                }
            }
            disk = disk.after_power_cut(seed);
            let (journal, report) = open(&disk.copy());
            assert!(report.is_clean(), "seed {seed}: {report:?}");
            model.check(&journal, seed);
        }
    }
}

#[test]
fn i14_failing_disks_and_power_cuts_together_lose_nothing_that_was_acknowledged() {
    let mut failures = 0;
    let mut sealed = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut disk = SimDisk::default();
        let mut model = Model::default();
        for _ in 0..3 {
            let (journal, report) = open(&disk);
            assert!(report.is_clean(), "seed {seed}: {report:?}");
            model.check(&journal, seed);
            if random.one_in(2) {
                disk.power_off_at(disk.operations() + 1 + random.below(200));
            }
            for _ in 0..random.below(40) {
                match random.below(12) {
                    0 => disk.fail_syncs(1 + random.below(3) as u32),
                    1 => disk.fail_cuts(1),
                    2 | 3 => disk.set_capacity(Some(disk.used() + random.below(9_000))),
                    _ => disk.set_capacity(None),
                }
                model.burst(&journal, &mut random);
                for binding in 0..BINDINGS {
                    journal.resume(&key(binding));
                }
            }
            let stats = journal.stats();
            failures += stats.write_failures;
            sealed += stats.sealed_segments;
            if random.one_in(2) {
                drop(journal);
                disk = disk.copy();
            } else {
                disk = disk.after_power_cut(seed);
            }
        }
    }
    assert!(failures > 1_000, "only {failures} writes failed");
    assert!(sealed > 300, "only {sealed} segments were sealed");
}
