//! What a destination received, connection by connection, by its own log.
//!
//! Every message of these tests has a topic of its own, so a topic that comes twice is a message
//! that came twice.

use std::collections::BTreeSet;

/// What one client sent to a Mosquitto.
#[derive(Debug)]
pub(crate) struct Sent {
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    /// Where in the log it began.
    began: usize,
    topics: Vec<String>,
}

impl Sent {
    /// Reads the log of what clients whose id begins like that sent; what was refused is not in it.
    pub(crate) fn read(log: &str, client_id: &str) -> Self {
        let opened = format!(" as {client_id}");
        let received = format!("Received PUBLISH from {client_id}");
        let mut connections: Vec<Connection> = Vec::new();
        let mut place = 0;
        for line in log.split_inclusive('\n') {
            if line.contains("New client connected") && line.contains(&opened) {
                connections.push(Connection {
                    began: place,
                    topics: Vec::new(),
                });
            } else if line.contains(&received) {
                let topic = line.split('\'').nth(1).expect("a topic in quotes");
                let latest = connections.last_mut().expect("connected before it sends");
                latest.topics.push(topic.to_owned());
            }
            place += line.len();
        }
        Self { connections }
    }

    /// The topics that came.
    pub(crate) fn topics(&self) -> BTreeSet<&str> {
        let all = self.connections.iter().flat_map(|c| &c.topics);
        all.map(String::as_str).collect()
    }

    /// How many came that had come before.
    pub(crate) fn again(&self) -> usize {
        let all: usize = self.connections.iter().map(|c| c.topics.len()).sum();
        all - self.topics().len()
    }

    /// A message may come again for two causes only, and then it was among the last ones that were
    /// sent before: its connection broke before it was answered, of which there are at most
    /// `window`; or the process was killed before it had written down that it was. `killed` says
    /// where the log was at each kill.
    pub(crate) fn every_repetition_has_a_cause(&self, killed: &[usize], window: usize) {
        let life = |connection: &Connection| {
            let ended = killed.iter().filter(|place| **place <= connection.began);
            ended.count()
        };
        for (place, connection) in self.connections.iter().enumerate() {
            let once: BTreeSet<_> = connection.topics.iter().collect();
            let sent = connection.topics.len();
            assert_eq!(once.len(), sent, "twice on one connection: {connection:?}");
            let later = self.connections[place + 1..].iter();
            let of_same = later.filter(|later| life(later) == life(connection));
            let later: BTreeSet<_> = of_same.flat_map(|later| &later.topics).collect();
            let again = are_the_last(&connection.topics, &later);
            assert!(again <= window, "{again} of {sent} came again after a cut");
        }
        for ended in 0..killed.len() {
            let lived = |c: &&Connection| life(c) == ended;
            let mut met = BTreeSet::new();
            let topics = self
                .connections
                .iter()
                .filter(lived)
                .flat_map(|c| &c.topics);
            let topics: Vec<_> = topics.filter(|topic| met.insert(*topic)).cloned().collect();
            let later = self.connections.iter().filter(|c| life(c) > ended);
            are_the_last(&topics, &later.flat_map(|c| &c.topics).collect());
        }
    }
}

/// How many of `sent` are among those that came `later`: all of them are at the end.
fn are_the_last(sent: &[String], later: &BTreeSet<&String>) -> usize {
    let first = sent.iter().position(|topic| later.contains(topic));
    let tail = &sent[first.unwrap_or(sent.len())..];
    let not: Vec<_> = tail.iter().filter(|topic| !later.contains(topic)).collect();
    assert!(
        not.is_empty(),
        "{:?} was answered before {not:?}, and came again all the same",
        tail.first()
    );
    tail.len()
}

/// A log of connections, and of what came on each.
fn log(connections: &[&[&str]]) -> String {
    let received = |from: &str, topic: &str| {
        format!("1: Received PUBLISH from {from} (d0, q1, r0, m1, '{topic}', ... (1 bytes))\n")
    };
    let mut log = String::new();
    for topics in connections {
        log.push_str("1: New client connected from 127.0.0.1:9 as me (p5, c1, k60).\n");
        for topic in *topics {
            log.push_str(&received("me", topic));
            log.push_str(&received("other", "x"));
        }
    }
    log
}

#[test]
fn the_last_of_a_broken_connection_may_come_again() {
    let log = log(&[&["a", "b", "c"], &["b", "c", "d"]]);
    let sent = Sent::read(&log, "me");
    assert_eq!((sent.topics().len(), sent.again()), (4, 2));
    sent.every_repetition_has_a_cause(&[], 2);
}

#[test]
fn after_a_kill_the_last_of_a_life_may_come_again() {
    let before = log(&[&["a", "b"], &["b", "c", "d"]]);
    let after = log(&[&["c", "d", "e"]]);
    let sent = Sent::read(&(before.clone() + &after), "me");
    sent.every_repetition_has_a_cause(&[before.len()], 1);
}

#[test]
#[should_panic(expected = "twice on one connection")]
fn one_connection_does_not_bring_the_same_twice() {
    Sent::read(&log(&[&["a", "b", "a"]]), "me").every_repetition_has_a_cause(&[], 8);
}

#[test]
#[should_panic(expected = "came again all the same")]
fn what_was_answered_before_does_not_come_again() {
    Sent::read(&log(&[&["a", "b"], &["a"]]), "me").every_repetition_has_a_cause(&[], 8);
}

#[test]
#[should_panic(expected = "came again after a cut")]
fn no_more_comes_again_than_could_be_unanswered() {
    Sent::read(&log(&[&["a", "b"], &["a", "b"]]), "me").every_repetition_has_a_cause(&[], 1);
}
