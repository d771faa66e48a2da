use std::num::NonZeroU32;

use bridge_core::Topic;

use super::*;
use crate::Bounds;

const SECOND: Duration = Duration::from_secs(1);
const WALL: Timestamp = Timestamp::from_millis(1_000_000);
const ME: Consumer = Consumer(7);

fn options() -> Options {
    Options {
        redelivery_delay: SECOND,
        stale_after: 30 * SECOND,
        max_deliveries: NonZeroU32::new(3).unwrap(),
        ..Options::default()
    }
}

fn message(payload: &str) -> Arc<Message> {
    Arc::new(Message::new(Topic::parse("t").unwrap(), payload.to_owned()))
}

fn with(payloads: &[&str]) -> Backlog {
    let mut backlog = Backlog::default();
    for (number, payload) in (1..).zip(payloads) {
        backlog.push(number, message(payload), WALL);
    }
    backlog
}

/// Takes the first message at `now` under `ticket`, and says its number.
fn take(backlog: &mut Backlog, ticket: u64, now: Duration) -> Option<(u64, Taken)> {
    let number = backlog.first_ready(WALL)?;
    let until = now + options().stale_after;
    let by = (ME, Ticket(ticket));
    let taken = backlog.take(number, QoS::AtLeastOnce, by, until)?;
    Some((number, taken))
}

/// Nothing is kept about a message but its entry and its place in one line.
fn is_consistent(backlog: &Backlog) -> bool {
    let lines = backlog.ready.len() + backlog.resting.len() + backlog.in_flight.len();
    lines == backlog.entries.len() && lines as u64 == backlog.standing.held.entries
}

#[test]
fn consumed_directly_a_message_that_is_always_left_ends_at_the_ceiling() {
    let mut backlog = with(&["a", "b"]);
    let mut now = Duration::ZERO;
    for round in 1..=3 {
        let (number, taken) = take(&mut backlog, round, now).unwrap();
        assert_eq!((number, taken.redelivered), (1, round > 1));
        assert_eq!(
            backlog.leave(1, Ticket(round), now, &options()),
            Some(ME),
            "its place in the window is free"
        );
        assert!(is_consistent(&backlog));
        now += SECOND;
        backlog.sweep(now, &options());
    }
    let dead: Vec<_> = backlog.dead_letters().collect();
    assert_eq!(
        (&dead[0].message.payload[..], dead[0].failures),
        (&b"a"[..], 3)
    );
    assert_eq!((dead.len(), backlog.standing().held.entries), (1, 1));
    assert_eq!(take(&mut backlog, 9, now).unwrap().0, 2);
}

#[test]
fn what_was_left_rests_before_it_is_delivered_again() {
    let mut backlog = with(&["a"]);
    take(&mut backlog, 1, Duration::ZERO).unwrap();
    backlog.leave(1, Ticket(1), Duration::ZERO, &options());
    assert_eq!(backlog.next_sweep(), Some(SECOND));
    backlog.sweep(Duration::from_millis(999), &options());
    assert!(take(&mut backlog, 2, SECOND).is_none());
    backlog.sweep(SECOND, &options());
    assert!(take(&mut backlog, 2, SECOND).unwrap().1.redelivered);
}

#[test]
fn consumed_directly_a_stale_message_counts_and_its_late_acknowledgement_is_void() {
    let mut backlog = with(&["a"]);
    take(&mut backlog, 1, Duration::ZERO).unwrap();
    assert_eq!(backlog.next_sweep(), Some(30 * SECOND));
    let (swept, freed) = backlog.sweep(30 * SECOND, &options());
    assert_eq!((swept.redelivered, freed), (1, vec![ME]));
    assert_eq!(backlog.settle(1, Ticket(1)), None, "no longer its own");
    take(&mut backlog, 2, 30 * SECOND).unwrap();
    backlog.sweep(60 * SECOND, &options());
    take(&mut backlog, 3, 60 * SECOND).unwrap();
    let (swept, _) = backlog.sweep(90 * SECOND, &options());
    assert_eq!(swept.dead_lettered, 1);
    assert_eq!(backlog.standing().held, Quantity::default());
    assert!(is_consistent(&backlog));
}

#[test]
fn i19_once_owned_no_number_of_nacks_reaches_a_ceiling() {
    let mut backlog = with(&["a"]);
    // Two of three are counted before someone else takes over.
    let mut now = Duration::ZERO;
    for round in 1..=2 {
        take(&mut backlog, round, now).unwrap();
        backlog.leave(1, Ticket(round), now, &options());
        now += SECOND;
        backlog.sweep(now, &options());
    }
    backlog.own();
    for round in 3..10_003 {
        take(&mut backlog, round, now).unwrap();
        backlog.leave(1, Ticket(round), now, &options());
        now += SECOND;
        assert_eq!(backlog.sweep(now, &options()).0.redelivered, 1);
        assert!(is_consistent(&backlog));
    }
    assert_eq!(backlog.entries[&1].failures, 0, "nothing is counted");
    assert_eq!(backlog.standing().held.entries, 1);
    assert_eq!(backlog.standing().dead_letters, 0);
}

#[test]
fn i19_once_owned_a_stale_message_is_held_for_who_has_it() {
    let mut backlog = with(&["a"]);
    backlog.own();
    take(&mut backlog, 1, Duration::ZERO).unwrap();
    for round in 1..=10_000 {
        let (swept, freed) = backlog.sweep(30 * SECOND * round, &options());
        assert_eq!((swept.held, freed.len()), (1, 0));
        assert!(take(&mut backlog, 2, SECOND).is_none(), "delivered twice");
    }
    assert_eq!(backlog.settle(1, Ticket(1)), Some(ME), "still its own");
    assert!(backlog.entries.is_empty() && is_consistent(&backlog));
}

#[test]
fn a_sweep_ends_though_nothing_may_ever_be_stale() {
    let at_once = Options {
        stale_after: Duration::ZERO,
        ..options()
    };
    let mut backlog = with(&["a"]);
    backlog.own();
    let by = (ME, Ticket(1));
    backlog
        .take(1, QoS::AtLeastOnce, by, Duration::ZERO)
        .unwrap();
    assert_eq!(backlog.sweep(SECOND, &at_once).0.held, 1);
}

#[test]
fn a_source_that_closes_costs_no_message_an_attempt() {
    let mut backlog = with(&["a", "b"]);
    for round in 0..10 {
        take(&mut backlog, 2 * round, Duration::ZERO).unwrap();
        take(&mut backlog, 2 * round + 1, Duration::ZERO).unwrap();
        backlog.release(ME);
    }
    assert_eq!(backlog.entries[&1].failures, 0);
    assert_eq!(backlog.settle(1, Ticket(18)), None, "the source is gone");
    let (number, taken) = take(&mut backlog, 99, Duration::ZERO).unwrap();
    assert_eq!((number, taken.redelivered), (1, true));
}

#[test]
fn i13_native_dead_letters_have_a_bound() {
    let narrow = Options {
        max_deliveries: NonZeroU32::MIN,
        dead_letters: Bounds {
            max_entries: 2,
            max_bytes: 1 << 20,
        },
        ..options()
    };
    let mut backlog = with(&["a", "b", "c", "d"]);
    for ticket in 1..=4 {
        take(&mut backlog, ticket, Duration::ZERO).unwrap();
        backlog.leave(ticket, Ticket(ticket), Duration::ZERO, &narrow);
    }
    let standing = backlog.standing();
    assert_eq!((standing.dead_letters, standing.discarded), (2, 2));
    assert_eq!(backlog.dead_letters().next().unwrap().message.payload, "a");
    assert_eq!(standing.held, Quantity::default());
}

#[test]
fn an_expired_message_goes_unless_someone_else_decides() {
    for owned in [false, true] {
        let mut backlog = Backlog::default();
        let mut short = (*message("a")).clone();
        short.properties.message_expiry = Some(10);
        backlog.push(1, Arc::new(short), WALL);
        if owned {
            backlog.own();
        }
        let later = WALL.after(11 * SECOND);
        assert_eq!(backlog.first_ready(later).is_some(), owned);
        assert_eq!(backlog.standing().expired, u64::from(!owned));
        assert!(is_consistent(&backlog));
    }
}

#[test]
fn at_qos_0_a_message_is_gone_when_it_is_delivered() {
    let mut backlog = with(&["a"]);
    let by = (ME, Ticket(1));
    backlog.take(1, QoS::AtMostOnce, by, SECOND).unwrap();
    assert_eq!(backlog.settle(1, Ticket(1)), None);
    assert!(backlog.entries.is_empty() && is_consistent(&backlog));
}
