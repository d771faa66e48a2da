//! Never two at once: proved from what went over the wire, and from what both instances say.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::record::{Broker, Event, What, Who};

/// What is wrong with what was seen on the wire to the brokers that the exclusive sessions are at.
///
/// - Nobody connects while the other is connected, unless that one is halted or dead: it can
///   neither know nor help it.
/// - Once another has connected, nothing more is written on the connection before.
pub(crate) fn on_the_wire(events: &[Event], brokers: &[Broker]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut open: HashMap<(Broker, u64), Who> = HashMap::new();
    let mut latest: HashMap<Broker, u64> = HashMap::new();
    let mut halted = BTreeSet::new();
    for Event { at, who, what } in events {
        match what {
            What::Halted => drop(halted.insert(*who)),
            What::Resumed => drop(halted.remove(who)),
            What::Ended => {
                halted.remove(who);
                open.retain(|_, of| of != who);
            }
            What::Wrote(broker, ..) if !brokers.contains(broker) => {}
            What::Closed(broker, number) => drop(open.remove(&(*broker, *number))),
            What::Wrote(broker, number, bytes) => {
                let known = latest.get(broker).copied().unwrap_or_default();
                if *number < known {
                    wrong.push(format!(
                        "{at}: {who:?} wrote {bytes} bytes to {broker} when another had connected"
                    ));
                } else if *number > known {
                    latest.insert(broker, *number);
                    let others = open.iter().filter(|((other, _), of)| {
                        other == broker && *of != who && !halted.contains(of)
                    });
                    for ((_, other), of) in others {
                        wrong.push(format!(
                            "{at}: {who:?} connects to {broker} ({number}), and {of:?} is \
                             connected ({other})"
                        ));
                    }
                    open.insert((*broker, *number), *who);
                }
            }
        }
    }
    wrong
}

/// One line of an instance's log.
#[derive(Debug, Clone)]
struct Line {
    at: String,
    event: String,
    fields: Value,
}

impl Line {
    /// Which connection it is about.
    fn connection(&self) -> String {
        format!("{} {}", self.fields["session"], self.fields["role"])
    }
}

/// The lines of a log in JSON that have an event.
fn lines(log: &str) -> Vec<Line> {
    let values = log.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    values
        .filter_map(|fields| {
            Some(Line {
                at: fields["timestamp"].as_str()?.to_owned(),
                event: fields["event"].as_str()?.to_owned(),
                fields,
            })
        })
        .collect()
}

enum Said {
    Line(Line),
    Fault(What),
}

/// What is wrong with what the instances say of themselves and of these sessions, which are
/// exclusive; and how many tenures there were.
///
/// - A token is given once, and each is greater than those before.
/// - Who is connected holds the lease.
/// - When the lease is acquired, the other is not connected, unless it is halted or dead.
pub(crate) fn in_the_logs(
    logs: &BTreeMap<Who, String>,
    events: &[Event],
    sessions: &[&str],
) -> (Vec<String>, usize) {
    let mut all: Vec<(String, Who, Said)> = Vec::new();
    for Event { at, who, what } in events {
        if matches!(what, What::Halted | What::Resumed | What::Ended) {
            all.push((at.to_string(), *who, Said::Fault(*what)));
        }
    }
    for (who, log) in logs {
        for line in lines(log) {
            all.push((line.at.clone(), *who, Said::Line(line)));
        }
    }
    // RFC 3339 in UTC with milliseconds: the order of texts is that of time.
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let mut wrong = Vec::new();
    let mut tenures = 0;
    let mut last_token = 0;
    let mut holds: BTreeMap<Who, u64> = BTreeMap::new();
    let mut connected: BTreeMap<Who, BTreeSet<String>> = BTreeMap::new();
    let mut excused = BTreeSet::new();
    for (at, who, said) in &all {
        let line = match said {
            Said::Fault(What::Halted) => {
                excused.insert(*who);
                continue;
            }
            Said::Fault(What::Resumed) => {
                excused.remove(who);
                continue;
            }
            Said::Fault(_) => {
                excused.remove(who);
                connected.remove(who);
                holds.remove(who);
                continue;
            }
            Said::Line(line) => line,
        };
        let exclusive = line.fields["session"]
            .as_str()
            .is_none_or(|name| sessions.contains(&name));
        match line.event.as_str() {
            _ if !exclusive => {}
            "lease_acquired" => {
                tenures += 1;
                let token = line.fields["token"].as_u64().unwrap();
                if token <= last_token {
                    wrong.push(format!(
                        "{at}: {who:?} has token {token} after {last_token}"
                    ));
                }
                last_token = last_token.max(token);
                holds.insert(*who, token);
                let other = who.other();
                let still = connected.get(&other).filter(|still| !still.is_empty());
                if let Some(still) = still.filter(|_| !excused.contains(&other)) {
                    wrong.push(format!(
                        "{at}: {who:?} acquires the lease, and {other:?} is connected: {still:?}"
                    ));
                }
            }
            "lease_lost" | "lease_released" => drop(holds.remove(who)),
            "session_connected" => {
                if !holds.contains_key(who) {
                    wrong.push(format!("{at}: {who:?} connects without the lease"));
                }
                connected.entry(*who).or_default().insert(line.connection());
            }
            "session_stepped_down"
            | "session_closed"
            | "session_connection_lost"
            | "session_taken_over"
            | "session_collision_suspected" => {
                if let Some(connected) = connected.get_mut(who) {
                    connected.remove(&line.connection());
                }
            }
            _ => {}
        }
    }
    (wrong, tenures)
}

#[test]
fn the_checker_sees_two_at_once() {
    let at = bridge_core::Timestamp::default();
    let event = |who, what| Event { at, who, what };
    let (a, b) = (Who::A, Who::B);
    let handover = [
        event(a, What::Wrote("s", 1, 20)),
        event(a, What::Closed("s", 1)),
        event(b, What::Wrote("s", 2, 20)),
    ];
    assert_eq!(on_the_wire(&handover, &["s"]), Vec::<String>::new());
    let both = [handover[0], handover[2]];
    assert_eq!(on_the_wire(&both, &["s"]).len(), 1, "both are connected");
    let halted = [
        handover[0],
        event(a, What::Halted),
        handover[2],
        event(a, What::Resumed),
    ];
    assert_eq!(on_the_wire(&halted, &["s"]), Vec::<String>::new());
    let late = [&halted[..], &[event(a, What::Wrote("s", 1, 4))]].concat();
    assert_eq!(
        on_the_wire(&late, &["s"]).len(),
        1,
        "it writes behind the fence"
    );

    let line =
        |at, rest: &str| format!("{{\"timestamp\":\"1970-01-01T00:00:0{at}.000Z\",{rest}}}\n");
    let acquired = |at, token| {
        line(
            at,
            &format!("\"event\":\"lease_acquired\",\"token\":{token}"),
        )
    };
    let connected = |at| {
        line(
            at,
            "\"event\":\"session_connected\",\"session\":\"s\",\"role\":\"r\"",
        )
    };
    let stepped_down = |at| {
        line(
            at,
            "\"event\":\"session_stepped_down\",\"session\":\"s\",\"role\":\"r\"",
        )
    };
    let check = |one: String, other: String| {
        in_the_logs(&BTreeMap::from([(a, one), (b, other)]), &[], &["s"])
            .0
            .len()
    };
    let in_order = acquired(1, 1) + &connected(2) + &stepped_down(3);
    assert_eq!(check(in_order.clone(), acquired(4, 2) + &connected(5)), 0);
    assert_eq!(check(in_order.clone(), acquired(2, 2)), 1, "A is connected");
    assert_eq!(check(in_order.clone(), acquired(4, 1)), 1, "a token twice");
    assert_eq!(check(in_order, connected(5)), 1, "without the lease");
}
