//! A real process that is killed at random moments: what it had been told is stored is there.
//!
//! The process is this test binary itself, told by its environment what to be. It says what it asks
//! for and what it was answered, a line each, to a pipe; what is in the journal afterwards is
//! compared with these lines. `cargo xtask crash --journal` runs many more rounds of the same.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bridge_core::{
    BindingKey, DeadLetterInfo, DeferInfo, Destination, Message, MessageId, Move, Moved, Name,
    Placement, ReadLimit, Reason, ReasonCode, Seated, Seq, Store, StoredMessage, Timestamp, Topic,
    View,
};
use bridge_queue::{Holder, Journal, JournalOptions, Snapshot};
use futures_executor::block_on;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FOLDER: &str = "BRIDGE_QUEUE_KILL_TEST_FOLDER";
const SEED: &str = "BRIDGE_QUEUE_KILL_TEST_SEED";
const ROUNDS: &str = "BRIDGE_QUEUE_KILL_TEST_ROUNDS";
const THIS: &str = "i07_a_killed_process_has_lost_nothing_that_it_was_told_is_stored";
const BINDINGS: usize = 3;
const VIEWS: [(View, &str); 3] = [
    (View::Queue, "queue"),
    (View::Deferred, "deferred"),
    (View::DeadLetters, "dead"),
];

fn key(number: usize) -> BindingKey {
    format!("route/binding-{number}").parse().unwrap()
}

fn id(number: u64) -> MessageId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    MessageId::from_bytes(bytes)
}

fn open(folder: &Path) -> Journal {
    let options = JournalOptions {
        segment_bytes: 64 << 10,
        slack_bytes: 64 << 10,
        ..JournalOptions::default()
    };
    let (journal, report) = Journal::open(folder, options).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.lost_records(), 0);
    journal
}

/// Where each message is, by binding and number, with the number of its entry.
type Found = BTreeMap<(usize, u64), (&'static str, Seq)>;

fn places_by(mut read: impl FnMut(&BindingKey, View) -> Vec<Seated>) -> Found {
    let number = |id: MessageId| u64::from_be_bytes(*id.to_bytes().last_chunk().unwrap());
    let mut places = Found::new();
    for binding in 0..BINDINGS {
        for (view, name) in VIEWS {
            for seated in read(&key(binding), view) {
                let message = seated.message.unwrap();
                let at = (binding, number(message.id));
                let payload = &message.message.payload;
                let whole = |byte: &u8| Some(byte) == payload.first();
                assert!(payload.iter().all(whole), "{at:?} is not as it was stored");
                let twice = places.insert(at, (name, seated.seq));
                assert_eq!(twice, None, "i09: {at:?} is in two views");
            }
        }
    }
    places
}

fn places(journal: &Journal) -> Found {
    let limit = ReadLimit {
        entries: usize::MAX,
        bytes: u64::MAX,
    };
    places_by(|binding, view| block_on(journal.read(binding, view, None, limit)).unwrap())
}

/// The same without opening the journal, so that nothing is repaired.
fn places_as_they_lie(folder: &Path) -> Found {
    let mut snapshot = Snapshot::of(folder).unwrap();
    assert_eq!(snapshot.holder(), &Holder::Nobody);
    let report = snapshot.inspection().report;
    assert!(report.is_clean(), "{report:?}");
    places_by(|binding, view| {
        let seqs = snapshot.entries(binding, view);
        let mut read = |seq| snapshot.read(binding, seq).unwrap();
        seqs.into_iter().map(&mut read).collect()
    })
}

fn given_up() -> DeadLetterInfo {
    DeadLetterInfo {
        reason: Reason::Expired,
        reason_string: None,
        first_refusal: Timestamp::default(),
        last_refusal: Timestamp::default(),
        attempts: 1,
    }
}

fn refused() -> DeferInfo {
    DeferInfo {
        reason: Reason::Broker(ReasonCode::NOT_AUTHORIZED),
        first_refusal: Timestamp::default(),
        last_refusal: Timestamp::default(),
        attempts: 1,
        overtaken: false,
    }
}

/// What the child does until it is killed: bursts of puts for one binding or several, and for what
/// is there, from this life and earlier ones, settles, deferrals, dead letters, redrives, deletes.
fn work(folder: &Path, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let journal = open(folder);
    let mut out = std::io::stdout().lock();
    let mut say = |line: String| writeln!(out, "{line}").unwrap();
    let mut places = places(&journal);
    let mut next = seed * 1_000_000;
    loop {
        let mut burst = Vec::new();
        for _ in 0..random.random_range(1..20) {
            let number = next;
            next += 1;
            let to: BTreeSet<usize> = (0..random.random_range(1..=BINDINGS))
                .map(|_| random.random_range(0..BINDINGS))
                .collect();
            let dead = random.random_ratio(1, 8);
            let view = if dead { "dead" } else { "queue" };
            let names: Vec<String> = to.iter().map(ToString::to_string).collect();
            say(format!("put? {number} {view} {}", names.join(",")));
            let message = StoredMessage {
                id: id(number),
                cause: None,
                session: Name::parse("plant").unwrap(),
                received: Timestamp::from_millis(number),
                message: Message::new(
                    Topic::parse("t").unwrap(),
                    vec![number.to_le_bytes()[0]; random.random_range(0..600)],
                ),
            };
            let destination = |binding: &usize| Destination {
                binding: key(*binding),
                placement: if dead {
                    Placement::DeadLetter(given_up())
                } else {
                    Placement::Queue
                },
            };
            let to_all = to.iter().map(destination).collect();
            burst.push((number, view, to, journal.put(Arc::new(message), to_all)));
        }
        for (number, view, to, pending) in burst {
            let seq = block_on(pending).unwrap();
            say(format!("put {number}"));
            for binding in to {
                places.insert((binding, number), (view, seq));
            }
        }
        for _ in 0..random.random_range(0..60) {
            let all: Vec<_> = places.iter().map(|(at, place)| (*at, *place)).collect();
            if all.is_empty() {
                break;
            }
            let (at, (view, seq)) = all[random.random_range(0..all.len())];
            let what = format!("{} {}", at.0, at.1);
            let binding = key(at.0);
            match (view, random.random_range(0..4)) {
                ("dead", 0 | 1) => {
                    let new = next;
                    next += 1;
                    say(format!("redrive? {what} {new}"));
                    let id = id(new);
                    let moved = journal.apply(Move::Redrive { binding, seq, id });
                    let Moved::Done { seq } = block_on(moved).unwrap() else {
                        panic!("a dead letter was not there");
                    };
                    say(format!("redrive {what} {new}"));
                    places.remove(&at);
                    // Its payload keeps the old number.
                    places.insert((at.0, new), ("redriven", seq));
                }
                ("dead", _) => {
                    say(format!("delete? {what}"));
                    let moved = journal.apply(Move::Delete { binding, seq });
                    assert_eq!(block_on(moved).unwrap(), Moved::Done { seq });
                    say(format!("delete {what}"));
                    places.remove(&at);
                }
                (_, 0) => {
                    say(format!("defer? {what}"));
                    let info = refused();
                    let moved = journal.apply(Move::Defer { binding, seq, info });
                    assert_eq!(block_on(moved).unwrap(), Moved::Done { seq });
                    say(format!("defer {what}"));
                    places.insert(at, ("deferred", seq));
                }
                (_, 1) => {
                    say(format!("dead? {what}"));
                    let info = given_up();
                    let moved = journal.apply(Move::DeadLetter { binding, seq, info });
                    assert_eq!(block_on(moved).unwrap(), Moved::Done { seq });
                    say(format!("dead {what}"));
                    places.insert(at, ("dead", seq));
                }
                _ => {
                    say(format!("settle? {what}"));
                    journal.settle(&binding, &[seq]);
                    places.remove(&at);
                }
            }
        }
    }
}

/// Where a message may be; `None` is nowhere.
type Places = BTreeSet<Option<&'static str>>;

/// What the lines of the killed processes add up to.
#[derive(Debug, Default)]
struct Said {
    places: BTreeMap<(usize, u64), Places>,
    /// What was asked for last and not answered: all of it or nothing.
    puts: BTreeMap<u64, (&'static str, Vec<usize>)>,
    redrives: BTreeMap<(usize, u64), u64>,
    counts: BTreeMap<String, u64>,
}

impl Said {
    fn hear(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let view = |name: &str| VIEWS.iter().map(|(_, known)| *known).find(|v| *v == name);
        let known = match (words[0], number(1), number(2)) {
            ("put?", Some(message), None) if words.len() == 4 => {
                let to = words[3].split(',').map(|word| word.parse().unwrap());
                self.puts
                    .insert(message, (view(words[2]).unwrap(), to.collect()));
                true
            }
            ("put", Some(message), None) => {
                let (view, to) = self.puts.remove(&message).unwrap();
                for binding in to {
                    self.places.insert((binding, message), [Some(view)].into());
                }
                true
            }
            (what, Some(binding), Some(message)) => {
                let at = (usize::try_from(binding).unwrap(), message);
                self.hear_of(what, at, number(3))
            }
            _ => false,
        };
        if known {
            *self.counts.entry(words[0].to_owned()).or_default() += 1;
        }
        known
    }

    fn hear_of(&mut self, what: &str, at: (usize, u64), new: Option<u64>) -> bool {
        let places = self.places.entry(at).or_default();
        match what {
            "defer?" => drop(places.insert(Some("deferred"))),
            "defer" => *places = [Some("deferred")].into(),
            "dead?" => drop(places.insert(Some("dead"))),
            "dead" => *places = [Some("dead")].into(),
            // Never answered, and on disk soon.
            "settle?" | "delete?" => drop(places.insert(None)),
            "delete" => *places = [None].into(),
            "redrive?" => {
                places.insert(None);
                self.redrives.insert(at, new.unwrap());
            }
            "redrive" => {
                *places = [None].into();
                self.redrives.remove(&at);
                self.places
                    .insert((at.0, new.unwrap()), [Some("queue")].into());
            }
            _ => return false,
        }
        true
    }

    /// Compares with what is there, and goes on from that.
    fn check(&mut self, found: &Found, round: u64) {
        for (message, (view, to)) in std::mem::take(&mut self.puts) {
            let there = to
                .iter()
                .filter(|binding| found.contains_key(&(**binding, message)));
            let there = there.count();
            assert!(
                there == 0 || there == to.len(),
                "round {round}: i09: {message} is at {there} of {to:?}"
            );
            for binding in to {
                self.places
                    .insert((binding, message), [None, Some(view)].into());
            }
        }
        for ((binding, old), new) in std::mem::take(&mut self.redrives) {
            let there = [old, new].map(|message| found.contains_key(&(binding, message)));
            assert!(
                there[0] != there[1],
                "round {round}: i21: {old} became {new}: {there:?}"
            );
            self.places
                .insert((binding, new), [None, Some("queue")].into());
        }
        for (at, places) in &mut self.places {
            let place = found.get(at).map(|(view, _)| *view);
            assert!(
                places.contains(&place),
                "round {round}: {at:?} is {place:?}, not {places:?}"
            );
            *places = [place].into();
        }
        for at in found.keys() {
            assert!(
                self.places.contains_key(at),
                "round {round}: {at:?} was invented"
            );
        }
        self.places.retain(|_, places| !places.contains(&None));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Gone already where the test got as far.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn i07_a_killed_process_has_lost_nothing_that_it_was_told_is_stored() {
    let variable = |name| std::env::var(name).ok();
    if let Some(folder) = std::env::var_os(FOLDER) {
        let seed = variable(SEED).unwrap().parse().unwrap();
        return work(Path::new(&folder), seed);
    }
    let rounds: u64 = variable(ROUNDS).map_or(20, |rounds| rounds.parse().unwrap());
    let mut random = StdRng::seed_from_u64(rounds);
    let folder = tempfile::tempdir().unwrap();
    let mut said = Said::default();
    for round in 1..=rounds {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", THIS])
            .env(FOLDER, folder.path())
            .env(SEED, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Killed(child);
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        // Killed once it has said so much: at another point of its work in each round.
        let enough = random.random_range(1..900);
        let mut heard = 0;
        for line in lines {
            // The last line may be cut off.
            let Ok(line) = line else { break };
            if said.hear(&line) {
                heard += 1;
            }
            if heard == enough {
                child.0.kill().unwrap();
            }
        }
        drop(child);
        assert!(
            heard >= enough,
            "round {round}: the process ended by itself after {heard} lines"
        );
        // The next life repairs what this one left, or finds it repaired and closed in order.
        let found = if round % 2 == 0 {
            places(&open(folder.path()))
        } else {
            places_as_they_lie(folder.path())
        };
        said.check(&found, round);
        if round % 20 == 0 {
            println!("round {round}: {} entries wait", found.len());
        }
    }
    println!("{rounds} rounds: {:?}", said.counts);
    for what in ["put", "defer", "dead", "redrive", "delete", "settle?"] {
        let count = said.counts.get(what).copied().unwrap_or_default();
        assert!(count >= rounds, "only {count} of {what}");
    }
}
