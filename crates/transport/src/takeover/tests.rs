use std::ops::Range;

use bridge_core::Backoff;

use super::*;
use crate::reconnect::Reconnect;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// The longest delay of a session whose `reconnect` is left out.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

fn collisions() -> Collisions {
    Collisions::new(LONGEST_BACKOFF)
}

/// Connections that stand for `lived` each and end so, with a back-off of nothing: what is found,
/// and the delays.
fn ends(collisions: &mut Collisions, end: End, lived: Duration, times: u32) -> Vec<(Finding, u64)> {
    let mut now = SECOND * 10_000;
    let mut seen = Vec::new();
    for _ in 0..times {
        collisions.connected(now);
        now += lived;
        let (finding, delay) = collisions.ended(end, Duration::ZERO, now, 0);
        seen.push((finding, delay.as_secs()));
        now += delay;
    }
    seen
}

#[test]
fn i17_the_first_takeover_costs_nothing_and_each_further_one_doubles_up_to_64_seconds() {
    let seen = ends(&mut collisions(), End::TakenOver, SECOND * 29, 10);
    let delays: Vec<u64> = seen.iter().map(|(_, delay)| *delay).collect();
    assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    for (number, (finding, _)) in (1..).zip(seen) {
        assert_eq!(finding, Finding::Takeover { row: number });
    }
}

#[test]
fn i17_thirty_seconds_of_connection_end_the_row_and_less_does_not() {
    let mut collisions = collisions();
    ends(&mut collisions, End::TakenOver, SECOND, 5);
    collisions.connected(Duration::ZERO);
    collisions.ended_by_us(MILLISECOND * 29_999);
    let next = ends(&mut collisions, End::TakenOver, SECOND, 1);
    assert_eq!(next, [(Finding::Takeover { row: 6 }, 16)]);
    for by_us in [true, false] {
        let mut collisions = collisions.clone();
        collisions.connected(Duration::ZERO);
        if by_us {
            collisions.ended_by_us(STABLE_AFTER);
        } else {
            collisions.ended(End::Otherwise, SECOND, STABLE_AFTER, 0);
        }
        let next = ends(&mut collisions, End::TakenOver, SECOND, 1);
        assert_eq!(next[0].0, Finding::Takeover { row: 1 }, "{by_us}");
    }
}

#[test]
fn i17_the_delay_is_the_greater_of_penalty_and_back_off_but_at_the_first() {
    let mut collisions = collisions();
    let mut delay = |backoff| {
        collisions.connected(Duration::ZERO);
        let ended = collisions.ended(End::TakenOver, backoff, SECOND, 0);
        ended.1
    };
    assert_eq!(delay(SECOND), Duration::ZERO);
    assert_eq!(delay(SECOND * 3), SECOND * 3);
    assert_eq!(delay(SECOND), SECOND * 2);
}

#[test]
fn a_takeover_minutes_after_another_is_one_more_of_it_and_hours_after_is_the_first() {
    let mut collisions = collisions();
    let mut taken_over = |at: Duration| {
        collisions.connected(at.saturating_sub(STABLE_AFTER));
        collisions.ended(End::TakenOver, SECOND, at, 0)
    };
    let first = Finding::Takeover { row: 1 };
    assert_eq!(taken_over(SECOND * 1_000), (first, Duration::ZERO));
    // The other one has come back from its penalty: it is let through for a moment, so that it
    // gets something done.
    assert_eq!(taken_over(SECOND * 1_064), (first, SECOND));
    assert_eq!(taken_over(SECOND * 5_000), (first, Duration::ZERO));
}

#[test]
fn chance_shortens_a_penalty_by_a_fifth_at_most_and_never_under_a_second() {
    for row in 2..40 {
        let (longest, shortest) = (penalty(row, 0), penalty(row, u32::MAX));
        assert!(longest <= LONGEST && shortest >= SHORTEST);
        assert!(shortest >= longest * 4 / 5, "{row}: {shortest:?}");
        assert!(row == 2 || shortest < longest, "{row}");
    }
    assert_eq!(penalty(1, 0), Duration::ZERO);
    assert_eq!(penalty(u32::MAX, 0), LONGEST);
}

#[test]
fn i17_closes_without_a_word_are_a_suspicion_from_the_third_in_a_row_and_are_damped_the_same() {
    let seen = ends(&mut collisions(), End::Wordless, SECOND * 29, 9);
    let (none, suspected) = (Finding::Nothing, |row| Finding::Suspected { row });
    assert_eq!(seen[..2], [(none, 0), (none, 0)]);
    let expected = [2, 4, 8, 16, 32, 60, 60].into_iter().zip(3..);
    let expected: Vec<_> = expected
        .map(|(delay, row)| (suspected(row), delay))
        .collect();
    assert_eq!(seen[2..], expected);
}

#[test]
fn a_suspicion_waits_no_longer_than_the_session_ever_does() {
    let mut collisions = Collisions::new(SECOND * 3);
    let seen = ends(&mut collisions, End::Wordless, SECOND, 9);
    assert!(seen.iter().all(|(_, delay)| *delay <= 3), "{seen:?}");
    let mut certain = Collisions::new(SECOND * 3);
    let seen = ends(&mut certain, End::TakenOver, SECOND, 9);
    assert_eq!(seen[8].1, 64);
}

#[test]
fn i17_a_takeover_whose_word_was_lost_is_one_more_of_the_row() {
    let mut collisions = collisions();
    ends(&mut collisions, End::TakenOver, SECOND, 2);
    let hidden = ends(&mut collisions, End::Wordless, SECOND, 2);
    assert_eq!(
        hidden,
        [(Finding::Nothing, 0), (Finding::Suspected { row: 4 }, 4)]
    );
    let again = ends(&mut collisions, End::TakenOver, SECOND, 1);
    assert_eq!(again, [(Finding::Takeover { row: 5 }, 8)]);
}

#[test]
fn i17_two_connections_that_were_cut_do_not_make_a_first_takeover_cost_anything() {
    let mut collisions = collisions();
    ends(&mut collisions, End::Wordless, SECOND, 2);
    let first = ends(&mut collisions, End::TakenOver, SECOND, 1);
    assert_eq!(first, [(Finding::Takeover { row: 1 }, 0)]);
}

#[test]
fn a_broker_that_restarts_or_a_network_that_is_cut_now_and_then_is_no_collision() {
    let mut collisions = collisions();
    // A broker in a loop of crashes: it is away between the connections.
    for _ in 0..20 {
        let seen = ends(&mut collisions, End::Wordless, SECOND, 1);
        assert_eq!(seen, [(Finding::Nothing, 0)]);
        collisions.failed();
    }
    // A network that is cut, though never twice in half a minute.
    let seen = ends(&mut collisions, End::Wordless, STABLE_AFTER, 100);
    assert!(seen.iter().all(|seen| *seen == (Finding::Nothing, 0)));
}

#[test]
fn i06_connections_that_end_on_a_message_alone_are_no_collision_however_many_messages_do_so() {
    let mut collisions = collisions();
    for _ in 0..20 {
        // The first time it is amid others; then it goes alone, three times.
        for end in [
            End::Wordless,
            End::Otherwise,
            End::Otherwise,
            End::Otherwise,
        ] {
            let seen = ends(&mut collisions, end, SECOND, 1);
            assert_eq!(seen, [(Finding::Nothing, 0)]);
        }
    }
}

// === two replicas with one client id ===

/// xorshift
struct Chance(u32);

impl Chance {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// One of them, with the default delays.
struct Replica {
    reconnect: Reconnect,
    collisions: Collisions,
    /// When it connects next; `None` while it is connected, or when it has been stopped.
    due: Option<Duration>,
    connects: Vec<Duration>,
    /// How long it was connected in all.
    held: Duration,
    findings: Vec<Finding>,
    longest_delay: Duration,
}

impl Replica {
    fn new(due: Duration) -> Self {
        let backoff = Backoff::try_new(SECOND, LONGEST_BACKOFF).unwrap();
        Self {
            reconnect: Reconnect::new(backoff),
            collisions: Collisions::new(backoff.longest()),
            due: Some(due),
            connects: Vec::new(),
            held: Duration::ZERO,
            findings: Vec::new(),
            longest_delay: Duration::ZERO,
        }
    }

    fn connects(&mut self, now: Duration) {
        self.due = None;
        self.connects.push(now);
        self.reconnect.connected(now);
        self.collisions.connected(now);
    }

    fn thrown_out(&mut self, end: End, now: Duration, chance: &mut Chance) {
        let since = *self.connects.last().unwrap();
        self.held += now.saturating_sub(since);
        let backoff = self.reconnect.ended(now, chance.next());
        let (finding, delay) = self.collisions.ended(end, backoff, now, chance.next());
        self.findings.push(finding);
        self.longest_delay = self.longest_delay.max(delay);
        // A connect takes a moment.
        self.due = Some(now + delay + MILLISECOND * 5);
    }

    fn within(&self, span: &Range<Duration>) -> usize {
        self.connects.iter().filter(|at| span.contains(*at)).count()
    }
}

/// What a broker does when it throws out.
type Manner = fn(&mut Chance) -> End;

/// Two replicas at a broker from the second `start` of the second replica on until `until`.
fn collide(seed: u32, start: Duration, until: Duration, manner: Manner) -> [Replica; 2] {
    let mut replicas = [Replica::new(Duration::ZERO), Replica::new(start)];
    let mut chance = Chance(seed.wrapping_mul(2_654_435_761) | 1);
    loop {
        let first = |replica: &Replica| replica.due.unwrap_or(Duration::MAX);
        let comes = usize::from(first(&replicas[1]) < first(&replicas[0]));
        let now = first(&replicas[comes]);
        if now >= until {
            for replica in replicas.iter_mut().filter(|replica| replica.due.is_none()) {
                replica.held += until.saturating_sub(*replica.connects.last().unwrap());
            }
            return replicas;
        }
        replicas[comes].connects(now);
        let other = &mut replicas[1 - comes];
        if other.due.is_none() {
            other.thrown_out(manner(&mut chance), now, &mut chance);
        }
    }
}

const MANNERS: [(&str, Manner); 3] = [
    ("says it", |_| End::TakenOver),
    ("only closes", |_| End::Wordless),
    ("is heard now and then", |chance| {
        if chance.next().is_multiple_of(3) {
            End::TakenOver
        } else {
            End::Wordless
        }
    }),
];

#[test]
fn i17_two_replicas_that_collide_for_five_minutes_reconnect_seldom_and_both_go_on() {
    const FIVE_MINUTES: Duration = Duration::from_secs(300);
    for (what, manner) in MANNERS {
        let (mut most, mut least_held) = (0, FIVE_MINUTES);
        for seed in 0..500 {
            let start = SECOND * (seed % 90);
            let end = start + FIVE_MINUTES;
            let replicas = collide(seed, start, end, manner);
            let mut held = Duration::ZERO;
            for replica in &replicas {
                let connects = replica.within(&(start..end));
                assert!(connects <= 12, "{what}, {seed}: {connects}");
                most = most.max(connects);
                least_held = least_held.min(replica.held);
                held += replica.held;
                for at in &replica.connects {
                    let minute = replica.within(&(*at..*at + SECOND * 60));
                    assert!(minute <= 8, "{what}, {seed}: {minute} from {at:?}");
                }
                assert!(replica.longest_delay <= LONGEST, "{what}, {seed}");
            }
            let findings = replicas.iter().flat_map(|replica| &replica.findings);
            let told = findings.filter(|finding| **finding != Finding::Nothing);
            let told = told.count();
            assert!(told >= 5, "{what}, {seed}: {told}");
            // There is nearly always one that is connected.
            assert!(
                held >= start + FIVE_MINUTES * 8 / 10,
                "{what}, {seed}: {held:?}"
            );
        }
        println!("{what}: at most {most} connects of one; connected for {least_held:?} at least");
        assert!(least_held >= SECOND * 10, "{what}: {least_held:?}");
    }
}

/// When a session connects in an hour to a broker that ends each connection after 50 ms, so.
fn connects(end: End, backoff: Backoff, random: fn(u32) -> u32) -> Vec<Duration> {
    let mut reconnect = Reconnect::new(backoff);
    let mut collisions = Collisions::new(backoff.longest());
    let (mut now, mut connects) = (Duration::ZERO, Vec::new());
    while now < SECOND * 3_600 {
        reconnect.connected(now);
        collisions.connected(now);
        connects.push(now);
        now += MILLISECOND * 50;
        let random = random(u32::try_from(connects.len()).unwrap());
        let delay = reconnect.ended(now, random);
        now += collisions.ended(end, delay, now, random).1;
    }
    connects
}

#[test]
fn case_21_however_soon_the_first_comes_there_are_at_most_8_connects_a_minute() {
    let patient = Backoff::try_new(SECOND, LONGEST_BACKOFF).unwrap();
    let hasty = Backoff::try_new(MILLISECOND * 20, MILLISECOND * 200).unwrap();
    let cases = [
        (End::TakenOver, patient),
        // Whatever back-off the session has been given.
        (End::TakenOver, hasty),
        (End::Wordless, patient),
    ];
    // The shortest delays that chance can make, the longest, and some.
    let chances: [fn(u32) -> u32; 3] = [|_| 0, |_| u32::MAX, |n| n.wrapping_mul(2_654_435_761)];
    for (end, backoff) in cases {
        for random in chances {
            let connects = connects(end, backoff, random);
            for (first, at) in connects.iter().enumerate() {
                let minute = |other: &&Duration| **other < *at + SECOND * 60;
                let count = connects[first..].iter().take_while(minute).count();
                assert!(count <= 8, "{end:?}, {backoff:?}: {count} from {at:?} on");
            }
        }
    }
}

#[test]
fn i17_when_one_replica_stops_the_other_is_there_within_its_penalty() {
    for (what, manner) in MANNERS {
        for seed in 0..200 {
            let until = SECOND * (20 + seed);
            let [a, b] = collide(seed, SECOND * 5, until, manner);
            for replica in [a, b] {
                let waits = replica.due.map(|due| due.saturating_sub(until));
                assert!(waits <= Some(LONGEST), "{what}, {seed}: {waits:?}");
            }
        }
    }
}
