use bridge_core::{Clock, ManualClock, ReasonCode};

use super::*;

const DENIED: Reason = Reason::Broker(ReasonCode::NOT_AUTHORIZED);
const WINDOW: Duration = Duration::from_secs(900);
const PACING: Duration = Duration::from_secs(120);
const MINUTE: Duration = Duration::from_secs(60);

/// Deferred messages with a clock; each message has 10 bytes.
struct Deferred {
    deferral: Deferral,
    clock: ManualClock,
}

impl Deferred {
    fn new() -> Self {
        Self::at(1_000_000_000)
    }

    fn at(wall_ms: u64) -> Self {
        Self {
            deferral: Deferral::new(DeferralSpec {
                window: WINDOW,
                retry_interval: PACING,
                max_entries: 5,
                max_bytes: 1_000,
            }),
            clock: ManualClock::new(Timestamp::from_millis(wall_ms)),
        }
    }

    fn now(&self) -> (Timestamp, Duration) {
        (self.clock.wall(), self.clock.monotonic())
    }

    fn info(&self, attempts: u32) -> DeferInfo {
        DeferInfo {
            reason: DENIED,
            first_refusal: self.clock.wall(),
            last_refusal: self.clock.wall(),
            attempts,
            overtaken: false,
        }
    }

    /// A message is refused in the queue and has reached its line.
    fn refused_in_queue(&mut self, seq: u64, topic: &str) {
        self.comes(seq, topic, 1);
    }

    fn lines_up(&mut self, seq: u64, topic: &str) {
        self.comes(seq, topic, 0);
    }

    fn comes(&mut self, seq: u64, topic: &str, attempts: u32) {
        let info = self.info(attempts);
        let now = self.now().1;
        self.deferral
            .begin(Seq::new(seq), &self::topic(topic), 10, info, now);
        self.deferral.moved(Seq::new(seq), now);
    }

    /// Offers everything that may be offered, without answers.
    fn offers(&mut self) -> Vec<u64> {
        let now = self.now().1;
        self.deferral.wake(now);
        let mut offered = Vec::new();
        while let Some(seq) = self.deferral.next() {
            self.deferral.offer(seq, now);
            offered.push(seq.get());
        }
        offered
    }

    fn accepted(&mut self, seq: u64) {
        let now = self.now().1;
        self.deferral.accepted(Seq::new(seq), true, now);
    }

    fn refused(&mut self, seq: u64) -> Refusal {
        let now = self.now();
        let refusal = self.deferral.refused(Seq::new(seq), DENIED, now).unwrap();
        self.deferral.moved(Seq::new(seq), now.1);
        refusal
    }
}

fn topic(text: &str) -> Topic {
    Topic::parse(text).unwrap()
}

#[test]
fn i08_the_first_of_each_line_is_offered_and_the_rest_follows_when_it_is_accepted() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.refused_in_queue(2, "b");
    deferred.lines_up(3, "a");
    deferred.lines_up(4, "a");
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [1, 2]);
    deferred.refused(2);
    assert_eq!(deferred.offers(), []);
    deferred.accepted(1);
    assert_eq!(deferred.offers(), [3, 4]);
    assert!(deferred.deferral.is_sweeping());
    deferred.accepted(3);
    deferred.accepted(4);
    assert!(!deferred.deferral.is_sweeping());
    assert!(!deferred.deferral.holds(&topic("a")));
    assert!(deferred.deferral.holds(&topic("b")));
}

#[test]
fn i08_a_topic_that_stays_refused_costs_one_offer_a_sweep_and_keeps_its_order() {
    let mut deferred = Deferred::new();
    for seq in 1..=5 {
        deferred.comes(seq, "a", u32::from(seq == 1));
    }
    for _ in 0..7 {
        deferred.clock.advance(PACING);
        assert_eq!(deferred.offers(), [1]);
        assert!(matches!(deferred.refused(1), Refusal::Stays(_)));
        assert_eq!(deferred.offers(), []);
    }
}

#[test]
fn i10_sweeps_are_paced_by_the_monotonic_clock_and_a_reconnect_skips_that() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    assert_eq!(deferred.offers(), [], "it has only just been refused");
    deferred.clock.set_wall(Timestamp::from_millis(u64::MAX));
    assert_eq!(deferred.offers(), [], "no one sets the monotonic clock");
    deferred.clock.advance(Duration::from_secs(119));
    assert_eq!(deferred.offers(), []);
    deferred.clock.advance(Duration::from_secs(1));
    assert_eq!(deferred.offers(), [1]);
    deferred.refused(1);
    assert_eq!(deferred.offers(), []);
    deferred.deferral.reconnected();
    assert_eq!(deferred.offers(), [1]);
    deferred.refused(1);
    assert_eq!(deferred.offers(), [], "skipped once");
    deferred.clock.set_wall(Timestamp::from_millis(0));
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [1]);
}

#[test]
fn i10_only_an_offer_that_is_refused_after_the_window_gives_up() {
    let mut deferred = Deferred::new();
    let first = deferred.clock.wall();
    deferred.refused_in_queue(1, "a");
    for attempts in 2..=8 {
        deferred.clock.advance(PACING);
        assert_eq!(deferred.offers(), [1]);
        let Refusal::Stays(info) = deferred.refused(1) else {
            panic!("given up after {attempts} attempts");
        };
        assert_eq!((info.attempts, info.first_refusal), (attempts, first));
        assert_eq!(info.last_refusal, deferred.clock.wall());
    }
    // The window is over, and that alone gives up nothing.
    deferred.clock.advance(MINUTE * 60 * 24);
    assert_eq!(deferred.offers(), [1]);
    deferred.deferral.put_back(Seq::new(1));
    deferred.deferral.reconnected();
    assert_eq!(deferred.offers(), [1], "unanswered, it is as it was");
    let Refusal::Over(info) = deferred.refused(1) else {
        panic!("still deferred");
    };
    assert_eq!((info.attempts, info.first_refusal), (9, first));
    assert!(deferred.deferral.lines.is_empty());
}

#[test]
fn i10_the_window_goes_on_from_the_stored_instant_after_a_restart() {
    for (minutes_down, over) in [(5, false), (8, true), (100_000, true)] {
        let mut before = Deferred::new();
        before.refused_in_queue(1, "a");
        let info = before.info(3);
        before.clock.advance(MINUTE * 7);
        before.clock.advance(MINUTE * minutes_down);

        let mut after = Deferred::at(before.clock.wall().as_millis());
        let now = after.now();
        after.deferral.load(Seq::new(1), topic("a"), 10, info, now);
        after.deferral.reconnected();
        assert_eq!(after.offers(), [1]);
        let refusal = after.refused(1);
        assert_eq!(matches!(refusal, Refusal::Over(_)), over, "{minutes_down}");
    }
}

#[test]
fn i10_a_wall_clock_that_jumps_neither_shortens_nor_stops_the_window() {
    for jump in [0, 500_000, 1_764_486_000_000, u64::MAX] {
        let mut deferred = Deferred::new();
        deferred.refused_in_queue(1, "a");
        deferred.clock.set_wall(Timestamp::from_millis(jump));
        deferred.clock.advance(MINUTE * 14);
        assert_eq!(deferred.offers(), [1]);
        assert!(matches!(deferred.refused(1), Refusal::Stays(_)), "{jump}");
        deferred.clock.set_wall(Timestamp::from_millis(jump / 2));
        deferred.clock.advance(MINUTE * 2);
        assert_eq!(deferred.offers(), [1]);
        assert!(matches!(deferred.refused(1), Refusal::Over(_)), "{jump}");
    }
}

#[test]
fn a_first_refusal_in_the_future_begins_the_window_anew_and_ends_it() {
    let mut deferred = Deferred::at(1_000);
    let mut info = deferred.info(1);
    info.first_refusal = Timestamp::from_millis(1_764_486_000_000);
    let now = deferred.now();
    deferred
        .deferral
        .load(Seq::new(1), topic("a"), 10, info, now);
    assert!(matches!(
        {
            deferred.deferral.reconnected();
            deferred.offers();
            deferred.refused(1)
        },
        Refusal::Stays(_)
    ));
    deferred.clock.advance(WINDOW);
    deferred.offers();
    assert!(matches!(deferred.refused(1), Refusal::Over(_)));
}

#[test]
fn what_lined_up_is_given_up_on_in_the_same_sweep_once_its_own_window_is_over() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.lines_up(2, "a");
    deferred.clock.advance(MINUTE * 10);
    deferred.lines_up(3, "a");
    deferred.clock.advance(MINUTE * 5);
    // The refusal of the first two is final, so they need not wait for each other.
    assert_eq!(deferred.offers(), [1, 2, 3]);
    assert!(matches!(deferred.refused(1), Refusal::Over(_)));
    assert!(matches!(deferred.refused(2), Refusal::Over(_)));
    assert!(matches!(deferred.refused(3), Refusal::Stays(_)));
}

#[test]
fn a_granted_line_lets_new_messages_through_once_all_of_it_is_on_its_way() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.lines_up(2, "a");
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [1]);
    assert!(deferred.deferral.holds(&topic("a")), "1 may be refused");
    deferred.accepted(1);
    assert!(deferred.deferral.holds(&topic("a")), "2 is not on its way");
    assert_eq!(deferred.offers(), [2]);
    assert!(!deferred.deferral.holds(&topic("a")));
    // One whose number is not known yet holds what follows as well.
    deferred.deferral.placing(&topic("a"), 10);
    assert!(deferred.deferral.holds(&topic("a")));
    deferred.accepted(2);
    assert!(deferred.deferral.holds(&topic("a")));
    let (info, now) = (deferred.info(0), deferred.now().1);
    deferred
        .deferral
        .placed(Some(Seq::new(9)), &topic("a"), 10, info, now);
    assert_eq!(deferred.offers(), [9], "without waiting for the next sweep");
    deferred.accepted(9);
    assert!(deferred.deferral.lines.is_empty());
}

#[test]
fn what_can_never_be_stored_holds_up_nothing() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.deferral.placing(&topic("a"), 10);
    deferred.deferral.remove(Seq::new(1));
    assert!(deferred.deferral.holds(&topic("a")));
    let (info, now) = (deferred.info(0), deferred.now().1);
    deferred.deferral.placed(None, &topic("a"), 10, info, now);
    assert!(deferred.deferral.lines.is_empty());
    assert!(deferred.deferral.has_room(1_000));
}

#[test]
fn i08_what_a_newer_message_has_overtaken_is_no_longer_the_retained_value() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.refused_in_queue(3, "a");
    // 2 was under way with 1 and 3, and accepted.
    let noted = deferred.deferral.overtaken(&topic("a"), Some(Seq::new(2)));
    let info = DeferInfo {
        overtaken: true,
        ..deferred.info(1)
    };
    assert_eq!(noted, [(Seq::new(1), info)], "and that is stored");
    let again = deferred.deferral.overtaken(&topic("a"), Some(Seq::new(2)));
    assert_eq!(again, [], "once");
    deferred.deferral.reconnected();
    let now = deferred.now().1;
    deferred.deferral.wake(now);
    assert!(deferred.deferral.offer(Seq::new(1), now));
    assert!(
        deferred
            .deferral
            .accepted(Seq::new(1), true, now)
            .is_empty(),
        "it went without its retain flag"
    );
    assert!(!deferred.deferral.offer(Seq::new(3), now));
    // One that has just arrived is newer than all.
    deferred.deferral.overtaken(&topic("a"), None);
    deferred.deferral.put_back(Seq::new(3));
    assert!(deferred.deferral.offer(Seq::new(3), now));
}

#[test]
fn i08_what_is_noted_of_a_message_while_it_is_offered_does_not_make_it_wait() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [1]);
    assert_eq!(deferred.deferral.overtaken(&topic("a"), None).len(), 1);
    let now = deferred.now().1;
    deferred.deferral.moved(Seq::new(1), now);
    assert_eq!(deferred.offers(), [], "it is under way");
    assert!(deferred.deferral.is_sweeping());
}

#[test]
fn a_sweep_that_a_lost_connection_interrupts_begins_again_on_the_next() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    deferred.refused_in_queue(2, "b");
    deferred.lines_up(3, "a");
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [1, 2]);
    deferred.accepted(1);
    for seq in [2, 3] {
        deferred.deferral.put_back(Seq::new(seq));
    }
    deferred.deferral.interrupt();
    assert!(!deferred.deferral.is_sweeping());
    assert_eq!(deferred.deferral.next(), None);
    assert!(deferred.deferral.holds(&topic("a")));
    deferred.deferral.reconnected();
    assert_eq!(deferred.offers(), [2, 3]);
}

#[test]
fn i13_the_deferred_are_bounded_in_entries_and_bytes() {
    let mut deferred = Deferred::new();
    assert!(deferred.deferral.has_room(5_000), "alone, however large");
    deferred.refused_in_queue(1, "a");
    assert!(deferred.deferral.has_room(990));
    assert!(!deferred.deferral.has_room(991));
    for seq in 2..=4 {
        deferred.lines_up(seq, "a");
    }
    deferred.deferral.placing(&topic("a"), 10);
    assert!(!deferred.deferral.has_room(1));
    deferred.deferral.remove(Seq::new(2));
    assert!(deferred.deferral.has_room(960));
}

#[test]
fn an_entry_that_the_store_has_not_confirmed_is_not_offered_and_nothing_overtakes_it() {
    let mut deferred = Deferred::new();
    deferred.refused_in_queue(1, "a");
    let (info, now) = (deferred.info(0), deferred.now().1);
    deferred
        .deferral
        .begin(Seq::new(2), &topic("a"), 10, info, now);
    deferred.lines_up(3, "a");
    deferred.deferral.reconnected();
    assert_eq!(deferred.offers(), [1]);
    deferred.accepted(1);
    assert_eq!(deferred.offers(), []);
    deferred.deferral.moved(Seq::new(2), now);
    assert_eq!(deferred.offers(), [2, 3]);
}

#[test]
fn i06_suspected_lines_take_turns_one_each_interval_and_no_reconnect_skips_that() {
    let mut deferred = Deferred::new();
    for (seq, topic) in [(1, "a"), (2, "b")] {
        let mut info = deferred.info(1);
        info.reason = Reason::SuspectedRefusal;
        let now = deferred.now().1;
        let seq = Seq::new(seq);
        let deferral = &mut deferred.deferral;
        deferral.begin(seq, &self::topic(topic), 10, info, now);
        deferral.moved(seq, now);
    }
    deferred.lines_up(3, "a");
    assert!(deferred.deferral.is_suspected(Seq::new(3)));
    deferred.deferral.reconnected();
    assert_eq!(deferred.offers(), []);
    for expected in [1, 2, 1] {
        deferred.clock.advance(PACING);
        deferred.deferral.wake(deferred.clock.monotonic());
        assert!(!deferred.deferral.is_sweeping(), "the queue goes on");
        assert_eq!(deferred.offers(), [expected]);
        let now = deferred.now();
        let (seq, reason) = (Seq::new(expected), Reason::SuspectedRefusal);
        deferred.deferral.refused(seq, reason, now).unwrap();
        deferred.deferral.moved(seq, now.1);
        // The connection ended on it.
        deferred.deferral.interrupt();
        deferred.deferral.reconnected();
        assert_eq!(deferred.offers(), []);
    }
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [2]);
    deferred.accepted(2);
    deferred.clock.advance(PACING);
    assert_eq!(deferred.offers(), [1]);
    deferred.accepted(1);
    assert_eq!(deferred.offers(), [3], "the rest of its line follows");
}
