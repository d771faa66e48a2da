//! Which binding of a job has its turn, and for how long one that gets no further is waited for:
//! the pure part, with the time passed in.

use std::time::Duration;

use super::HeldUpBy;

/// Between two looks at a queue that is to become shorter.
const PACE: Duration = Duration::from_millis(2);
/// A queue that does not become short for so long is lengthened all the same: a binding that what
/// arrives keeps busy does not hold up a job for ever.
const LONGEST_BEHIND: Duration = Duration::from_secs(1);
/// Between two looks at a full queue.
const FULL_PACE: Duration = Duration::from_millis(100);
/// Between two tries of a store that fails: it doubles.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// How long a binding at which nothing moves is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a job is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Go on at that binding.
    Work(usize),
    /// Nothing until that monotonic instant.
    Rest(Duration),
    /// There is nothing left to do.
    End,
}

/// Whether a binding that is held up is waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Left,
    Over,
}

/// The bindings of a job, by their place among them.
#[derive(Debug)]
pub(super) struct Turns {
    all: Vec<Turn>,
    /// Whose turn is next, if it is due.
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    /// From when on it may have its turn; `None` when nothing is left to do there.
    due: Option<Duration>,
    /// Since when its queue has not been short.
    behind: Option<Duration>,
    held: Option<Held>,
}

/// A binding at which nothing moves.
#[derive(Debug, Clone, Copy)]
struct Held {
    since: Duration,
    /// How often it was tried in vain.
    times: u32,
}

impl Turns {
    /// So many bindings, all of them due.
    pub(super) fn new(bindings: usize) -> Self {
        let turn = Turn {
            due: Some(Duration::ZERO),
            behind: None,
            held: None,
        };
        Self {
            all: vec![turn; bindings],
            next: 0,
        }
    }

    /// What is to be done now: the bindings that are due take turns.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        let all = self.all.len();
        let in_turn = (self.next..all).chain(0..self.next.min(all));
        let mut soonest: Option<Duration> = None;
        for n in in_turn {
            let Some(due) = self.all.get(n).and_then(|turn| turn.due) else {
                continue;
            };
            if due <= now {
                self.next = n + 1;
                return Next::Work(n);
            }
            soonest = Some(soonest.map_or(due, |soonest| soonest.min(due)));
        }
        soonest.map_or(Next::End, Next::Rest)
    }

    /// Something has come of its turn.
    pub(super) fn moved(&mut self, n: usize) {
        if let Some(turn) = self.all.get_mut(n) {
            turn.behind = None;
            turn.held = None;
        }
    }

    /// Its queue is being sent and is not short; says whether it has been waited for long enough.
    pub(super) fn is_behind(&mut self, n: usize, now: Duration) -> bool {
        let Some(turn) = self.all.get_mut(n) else {
            return false;
        };
        let since = *turn.behind.get_or_insert(now);
        let waited = now.saturating_sub(since) >= LONGEST_BEHIND;
        if !waited {
            turn.due = Some(now + PACE);
        }
        waited
    }

    /// Nothing moves there for that reason.
    pub(super) fn is_held_up(&mut self, n: usize, by: HeldUpBy, now: Duration) -> Patience {
        let Some(turn) = self.all.get_mut(n) else {
            return Patience::Over;
        };
        let held = turn.held.get_or_insert(Held {
            since: now,
            times: 0,
        });
        if now.saturating_sub(held.since) >= PATIENCE {
            return Patience::Over;
        }
        let doubled = FIRST_RETRY.saturating_mul(1 << held.times.min(16));
        held.times = held.times.saturating_add(1);
        turn.due = Some(match by {
            HeldUpBy::QueueFull => now + FULL_PACE,
            HeldUpBy::StoreFailed => now + doubled.min(LONGEST_RETRY),
        });
        Patience::Left
    }

    /// Nothing is left to do there.
    pub(super) fn is_over(&mut self, n: usize) {
        if let Some(turn) = self.all.get_mut(n) {
            turn.due = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn bindings_take_turns_until_nothing_is_left_to_do() {
        let mut turns = Turns::new(3);
        let mut told = Vec::new();
        for step in 0..8 {
            let next = turns.next(START);
            told.push(next);
            if step == 3 {
                turns.is_over(0);
            }
        }
        let worked = [0, 1, 2, 0, 1, 2, 1, 2].map(Next::Work);
        assert_eq!(told, worked);
        turns.is_over(1);
        assert_eq!(turns.next(START), Next::Work(2));
        turns.is_over(2);
        assert_eq!(turns.next(START), Next::End);
        assert_eq!(Turns::new(0).next(START), Next::End);
    }

    #[test]
    fn one_that_is_held_up_holds_up_no_other_and_is_tried_again() {
        let mut turns = Turns::new(2);
        assert_eq!(turns.next(START), Next::Work(0));
        let held = turns.is_held_up(0, HeldUpBy::QueueFull, START);
        assert_eq!(held, Patience::Left);
        for _ in 0..5 {
            assert_eq!(turns.next(START), Next::Work(1));
        }
        assert_eq!(turns.next(START + FULL_PACE), Next::Work(0));
        turns.moved(0);
        turns.is_held_up(0, HeldUpBy::QueueFull, START + FULL_PACE);
        turns.is_over(1);
        let due = START + 2 * FULL_PACE;
        assert_eq!(turns.next(START + FULL_PACE), Next::Rest(due));
        assert_eq!(turns.next(due), Next::Work(0));
    }

    #[test]
    fn a_store_that_fails_is_tried_more_and_more_seldom() {
        let mut turns = Turns::new(1);
        let mut now = START;
        let mut waits = Vec::new();
        for _ in 0..8 {
            turns.is_held_up(0, HeldUpBy::StoreFailed, now);
            let Next::Rest(due) = turns.next(now) else {
                panic!("it is not waited for");
            };
            waits.push(due.saturating_sub(now).as_millis());
            now = due;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        turns.moved(0);
        turns.is_held_up(0, HeldUpBy::StoreFailed, now);
        assert_eq!(turns.next(now), Next::Rest(now + FIRST_RETRY));
    }

    #[test]
    fn patience_is_counted_from_when_something_moved_last_and_ends() {
        for by in [HeldUpBy::QueueFull, HeldUpBy::StoreFailed] {
            let mut turns = Turns::new(1);
            assert_eq!(turns.is_held_up(0, by, START), Patience::Left);
            let almost = (START + PATIENCE).saturating_sub(MS);
            assert_eq!(turns.is_held_up(0, by, almost), Patience::Left);
            turns.moved(0);
            assert_eq!(turns.is_held_up(0, by, almost + MS), Patience::Left);
            let later = almost + MS + PATIENCE;
            assert_eq!(turns.is_held_up(0, by, later), Patience::Over, "{by:?}");
        }
    }

    #[test]
    fn a_queue_that_is_always_long_is_lengthened_now_and_then() {
        let mut turns = Turns::new(1);
        assert!(!turns.is_behind(0, START));
        assert_eq!(turns.next(START), Next::Rest(START + PACE));
        let almost = (START + LONGEST_BEHIND).saturating_sub(MS);
        assert!(!turns.is_behind(0, almost));
        assert!(turns.is_behind(0, START + LONGEST_BEHIND));
        turns.moved(0);
        assert!(!turns.is_behind(0, START + LONGEST_BEHIND));
    }
}
