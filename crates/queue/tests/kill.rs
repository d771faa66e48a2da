//! A real process that is killed at random moments: what it had been told is stored is there.
//!
//! The process is this test binary itself, told by its environment what to be.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bridge_core::{
    BindingKey, DeadLetterInfo, Destination, Message, MessageId, Move, Moved, Name, Placement,
    ReadLimit, Reason, Seq, Store, StoredMessage, Timestamp, Topic, View,
};
use bridge_queue::{Journal, JournalOptions};
use futures_executor::block_on;

const FOLDER: &str = "BRIDGE_QUEUE_KILL_TEST_FOLDER";
const START: &str = "BRIDGE_QUEUE_KILL_TEST_START";
const ROUNDS: u64 = 20;

fn key() -> BindingKey {
    "route/binding".parse().unwrap()
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
    journal
}

fn numbers(journal: &Journal, view: View) -> BTreeMap<u64, Seq> {
    let limit = ReadLimit {
        entries: usize::MAX,
        bytes: u64::MAX,
    };
    let page = block_on(journal.read(&key(), view, None, limit)).unwrap();
    let number = |id: MessageId| u64::from_be_bytes(*id.to_bytes().last_chunk().unwrap());
    page.into_iter()
        .map(|seated| (number(seated.message.unwrap().id), seated.seq))
        .collect()
}

/// What the child does until it is killed: puts in bursts, each third one given up on, each fourth
/// dead letter deleted, the rest settled. It says what it was told, a line for each.
fn work(folder: &Path, start: u64) {
    let journal = open(folder);
    let mut out = std::io::stdout().lock();
    let mut say = |what: &str, number: u64| writeln!(out, "{what} {number}").unwrap();
    let mut number = start;
    loop {
        let burst: Vec<_> = (number..number + 20)
            .map(|number| {
                let message = StoredMessage {
                    id: id(number),
                    cause: None,
                    session: Name::parse("plant").unwrap(),
                    received: Timestamp::from_millis(number),
                    message: Message::new(Topic::parse("t").unwrap(), vec![1; 200]),
                };
                let to = Destination {
                    binding: key(),
                    placement: Placement::Queue,
                };
                (number, journal.put(Arc::new(message), vec![to]))
            })
            .collect();
        for (number, pending) in burst {
            let seq = block_on(pending).unwrap();
            say("put", number);
            let binding = key();
            if number.is_multiple_of(3) {
                let info = DeadLetterInfo {
                    reason: Reason::Expired,
                    reason_string: None,
                    first_refusal: Timestamp::default(),
                    last_refusal: Timestamp::default(),
                    attempts: 1,
                };
                let dead = Move::DeadLetter { binding, seq, info };
                let moved = block_on(journal.apply(dead)).unwrap();
                assert_eq!(moved, Moved::Done { seq });
                say("dead", number);
                if number.is_multiple_of(4) {
                    say("delete?", number);
                    let binding = key();
                    block_on(journal.apply(Move::Delete { binding, seq })).unwrap();
                    say("deleted", number);
                }
            } else if number.is_multiple_of(2) {
                say("settle?", number);
                journal.settle(&binding, &[seq]);
            }
        }
        number += 20;
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
    if let Some(folder) = std::env::var_os(FOLDER) {
        let start = std::env::var(START).unwrap().parse().unwrap();
        return work(Path::new(&folder), start);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut said: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("i07_a_killed_process_has_lost_nothing_that_it_was_told_is_stored")
            .env(FOLDER, folder.path())
            .env(START, (round * 1_000_000).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Killed(child);
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        // Killed once it has said so much: at another point of its work in each round.
        let enough = 40 + usize::try_from(round * 37 % 211).unwrap();
        let mut heard = 0;
        for line in lines {
            let line = line.unwrap();
            let words = line
                .split_once(' ')
                .map(|(what, number)| (what, number.parse()));
            let Some((what, Ok(number))) = words else {
                continue;
            };
            said.entry(what.to_owned()).or_default().insert(number);
            heard += 1;
            if heard == enough {
                child.0.kill().unwrap();
            }
        }
        drop(child);
        assert!(
            heard >= enough,
            "the process ended by itself after {heard} lines"
        );
    }
    let journal = open(folder.path());
    let queue = numbers(&journal, View::Queue);
    let dead = numbers(&journal, View::DeadLetters);
    let none = BTreeSet::new();
    let told = |what: &str| said.get(what).unwrap_or(&none);
    for number in told("put") {
        let places = [queue.contains_key(number), dead.contains_key(number)];
        assert!(places != [true; 2], "i09: {number} is in two views");
        if told("deleted").contains(number) {
            assert_eq!(places, [false; 2], "{number} was deleted");
        } else if told("dead").contains(number) && !told("delete?").contains(number) {
            assert_eq!(places, [false, true], "{number} was given up on");
        } else if !told("settle?").contains(number) && !told("delete?").contains(number) {
            assert!(places != [false; 2], "{number} was stored and is gone");
        }
    }
    assert!(told("deleted").len() > 10 && told("put").len() > 500);
}
