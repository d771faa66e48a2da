//! The story that the demo tells, as a state machine: it is shown how things are, moves on when
//! a chapter is over, and says what is to happen next.

use std::time::Duration;

use super::arrivals::Tally;
use super::ledger::Ledger;
use super::text::{counted, grouped};
use super::traffic::Count;

/// How many messages the destination is made to refuse.
pub(super) const PROVOCATIONS: u32 = 5;

/// How things are at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    /// Since the story began.
    pub(crate) at: Duration,
    /// Whether the sensors still publish.
    pub(crate) publishing: bool,
    pub(crate) published: Count,
    pub(crate) arrived: Tally,
    pub(crate) ledger: Ledger,
    /// What the binding is about: `live`, `replaying`, `blocked`, `link_down` or `recalling`.
    pub(crate) state: &'static str,
    /// Whether the head of its queue could not be published at the latest attempt.
    pub(crate) blocked: bool,
    /// Whether the bridge is connected to the destination.
    pub(crate) link_up: bool,
}

/// The chapters, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chapter {
    Live,
    Away,
    Restart,
    Back,
    Refused,
    Balance,
    End,
}

impl Chapter {
    /// All that are told.
    pub(crate) const ALL: [Self; 6] = [
        Self::Live,
        Self::Away,
        Self::Restart,
        Self::Back,
        Self::Refused,
        Self::Balance,
    ];

    /// Its name.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Live => "Live",
            Self::Away => "Away",
            Self::Restart => "Restart",
            Self::Back => "Back",
            Self::Refused => "Refused",
            Self::Balance | Self::End => "Balance",
        }
    }

    /// What goes on in it.
    pub(crate) const fn telling(self) -> &'static str {
        match self {
            Self::Live => "each message crosses as it comes",
            Self::Away => "the cloud is gone: what comes waits on disk",
            Self::Restart => "the bridge was restarted: the queue is there",
            Self::Back => "the cloud is back: the queue drains in order",
            Self::Refused => "audit/login is refused: the others go on",
            Self::Balance | Self::End => "the sensors rest: where is every message?",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Live => Self::Away,
            Self::Away => Self::Restart,
            Self::Restart => Self::Back,
            Self::Back => Self::Refused,
            Self::Refused => Self::Balance,
            Self::Balance | Self::End => Self::End,
        }
    }
}

/// What is to happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cue {
    /// Take the destination away.
    TakeAway,
    /// Stop the bridge, and start it again on what it has on disk.
    Restart,
    /// Give it back.
    GiveBack,
    /// Publish what the destination refuses.
    Provoke,
    /// No more messages.
    StopPublishing,
    /// It is over.
    End,
}

/// From here on nothing is waited for: the whole must end within a minute, whatever happens.
const LATEST: Duration = Duration::from_secs(45);

/// How long the chapters take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) live: Duration,
    pub(crate) away: Duration,
    pub(crate) restart: Duration,
    /// At least: it ends when the queue is empty.
    pub(crate) back: Duration,
    /// At least: it ends when every refused message is a dead letter.
    pub(crate) refused: Duration,
    /// At least: it ends when everything has come to rest.
    pub(crate) balance: Duration,
    /// How much longer a chapter may take that waits for something.
    pub(crate) patience: Duration,
}

impl Pace {
    /// For people.
    pub(crate) const CALM: Self = Self {
        live: Duration::from_secs(5),
        away: Duration::from_secs(6),
        restart: Duration::from_secs(3),
        back: Duration::from_secs(4),
        refused: Duration::from_secs(5),
        balance: Duration::from_secs(2),
        patience: Duration::from_secs(12),
    };
    /// For those in a hurry.
    pub(crate) const FAST: Self = Self {
        live: Duration::from_millis(700),
        away: Duration::from_millis(900),
        restart: Duration::from_millis(500),
        back: Duration::from_millis(300),
        refused: Duration::from_millis(900),
        balance: Duration::from_millis(200),
        patience: Duration::from_secs(12),
    };

    /// How long the whole of it takes, about.
    pub(crate) fn total(&self) -> Duration {
        self.live + self.away + self.restart + self.back + self.refused + self.balance
    }

    const fn of(&self, chapter: Chapter) -> Duration {
        match chapter {
            Chapter::Live => self.live,
            Chapter::Away => self.away,
            Chapter::Restart => self.restart,
            Chapter::Back => self.back,
            Chapter::Refused => self.refused,
            Chapter::Balance | Chapter::End => self.balance,
        }
    }
}

/// The story so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Story {
    pace: Pace,
    chapter: Chapter,
    /// How things were when the chapter began.
    opening: Snapshot,
    outcomes: Vec<String>,
    /// The longest that the queue was.
    pub(crate) waited: u64,
    /// Since when nothing waits, in the chapter that drains.
    drained: Option<Duration>,
}

impl Story {
    /// A story at its beginning.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            chapter: Chapter::Live,
            opening: Snapshot::default(),
            outcomes: Vec::new(),
            waited: 0,
            drained: None,
        }
    }

    /// The chapter that is being told.
    pub(crate) const fn chapter(&self) -> Chapter {
        self.chapter
    }

    /// How the chapters so far came out.
    pub(crate) fn outcomes(&self) -> &[String] {
        &self.outcomes
    }

    /// How long the whole of it takes, about.
    pub(crate) fn total(&self) -> Duration {
        self.pace.total()
    }

    /// Hears how things are. Moves on when the chapter is over; a chapter that waits in vain ends
    /// with the patience, and the reckoning at the end says what is wrong.
    pub(crate) fn on_snapshot(&mut self, now: &Snapshot) -> Option<Cue> {
        self.waited = self.waited.max(now.ledger.queued);
        let drains = self.chapter == Chapter::Back && now.ledger.queued == 0 && now.link_up;
        if drains && self.drained.is_none() {
            self.drained = Some(now.at);
        }
        let lasted = now.at.saturating_sub(self.opening.at);
        let least = self.pace.of(self.chapter);
        let waits =
            lasted < least || (!self.is_fulfilled(now) && lasted < least + self.pace.patience);
        if waits && now.at < LATEST {
            return None;
        }
        let cue = match self.chapter {
            Chapter::Live => Cue::TakeAway,
            Chapter::Away => Cue::Restart,
            Chapter::Restart => Cue::GiveBack,
            Chapter::Back => Cue::Provoke,
            Chapter::Refused => Cue::StopPublishing,
            Chapter::Balance => Cue::End,
            Chapter::End => return None,
        };
        self.outcomes.push(self.outcome(now));
        self.chapter = self.chapter.next();
        self.opening = *now;
        Some(cue)
    }

    /// Whether what the chapter waits for has come.
    fn is_fulfilled(&self, now: &Snapshot) -> bool {
        let ledger = &now.ledger;
        match self.chapter {
            Chapter::Live => ledger.delivered > 0,
            Chapter::Away => ledger.queued > 0,
            Chapter::Restart => {
                ledger.carried_over >= self.opening.ledger.queued
                    && ledger.queued > ledger.carried_over
            }
            Chapter::Back => now.link_up && now.state == "live" && ledger.queued == 0,
            Chapter::Refused => {
                now.published.audits >= u64::from(PROVOCATIONS)
                    && ledger.refused() >= now.published.audits
            }
            Chapter::Balance => {
                !now.publishing
                    && ledger.received >= now.published.all()
                    && ledger.under_way == 0
                    && ledger.queued == 0
                    && now.arrived.distinct >= now.published.readings
            }
            Chapter::End => true,
        }
    }

    fn outcome(&self, now: &Snapshot) -> String {
        let opening = &self.opening;
        match self.chapter {
            Chapter::Live => {
                format!(
                    "{} crossed as they came",
                    counted(now.ledger.delivered, "message")
                )
            }
            Chapter::Away => format!("{} wait on disk", counted(now.ledger.queued, "message")),
            Chapter::Restart => format!(
                "{} came back from disk, {} joined them",
                grouped(now.ledger.carried_over),
                grouped(now.ledger.queued.saturating_sub(now.ledger.carried_over))
            ),
            Chapter::Back => match self.drained {
                Some(at) => format!(
                    "{} drained in {:.1} s, new ones behind them",
                    grouped(self.waited),
                    at.saturating_sub(opening.at).as_secs_f64()
                ),
                None => "the queue has not drained".to_owned(),
            },
            Chapter::Refused => format!(
                "{}; {} others went on",
                counted(now.ledger.dead_lettered, "dead letter"),
                grouped(
                    now.ledger
                        .delivered
                        .saturating_sub(opening.ledger.delivered)
                )
            ),
            Chapter::Balance | Chapter::End => {
                format!(
                    "{} accounted for",
                    counted(now.ledger.accounted(), "message")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        live: Duration::from_secs(1),
        away: Duration::from_secs(1),
        restart: Duration::from_secs(1),
        back: Duration::from_secs(1),
        refused: Duration::from_secs(1),
        balance: Duration::from_secs(1),
        patience: Duration::from_secs(10),
    };

    fn at(seconds: u64, change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let mut snapshot = Snapshot {
            at: Duration::from_secs(seconds),
            publishing: true,
            state: "live",
            link_up: true,
            ..Snapshot::default()
        };
        snapshot.ledger.delivered = 100 * seconds;
        change(&mut snapshot);
        snapshot
    }

    #[test]
    fn the_story_waits_for_what_each_chapter_is_about() {
        let mut story = Story::new(PACE);
        assert_eq!(story.on_snapshot(&at(0, |_| ())), None);
        assert_eq!(story.on_snapshot(&at(1, |_| ())), Some(Cue::TakeAway));

        let away = at(2, |now| now.link_up = false);
        assert_eq!(story.on_snapshot(&away), None, "nothing has been queued");
        let queueing = at(3, |now| {
            now.link_up = false;
            now.ledger.queued = 200;
        });
        assert_eq!(story.on_snapshot(&queueing), Some(Cue::Restart));

        let nothing_back = at(4, |now| {
            now.link_up = false;
            now.ledger.queued = 50;
        });
        assert_eq!(story.on_snapshot(&nothing_back), None, "the queue is gone");
        let restarted = at(4, |now| {
            now.link_up = false;
            now.ledger.carried_over = 200;
            now.ledger.queued = 250;
        });
        assert_eq!(story.on_snapshot(&restarted), Some(Cue::GiveBack));

        let draining = at(5, |now| now.ledger.queued = 10);
        assert_eq!(story.on_snapshot(&draining), None);
        assert_eq!(story.on_snapshot(&at(6, |_| ())), Some(Cue::Provoke));

        let not_all = at(7, |now| {
            now.published.audits = 2;
            now.ledger.dead_lettered = 2;
        });
        assert_eq!(story.on_snapshot(&not_all), None, "more are to come");
        let not_yet = at(7, |now| now.published.audits = 5);
        assert_eq!(story.on_snapshot(&not_yet), None, "no dead letter yet");
        let refused = at(8, |now| {
            now.published.audits = 5;
            now.ledger.dead_lettered = 5;
        });
        assert_eq!(story.on_snapshot(&refused), Some(Cue::StopPublishing));

        assert_eq!(story.on_snapshot(&at(9, |_| ())), None, "still publishing");
        let quiet = at(10, |now| now.publishing = false);
        assert_eq!(story.on_snapshot(&quiet), Some(Cue::End));
        assert_eq!(story.on_snapshot(&at(11, |_| ())), None);

        assert_eq!(story.waited, 250);
        assert_eq!(
            story.outcomes(),
            [
                "100 messages crossed as they came",
                "200 messages wait on disk",
                "200 came back from disk, 50 joined them",
                "250 drained in 2.0 s, new ones behind them",
                "5 dead letters; 200 others went on",
                "1,000 messages accounted for",
            ]
        );
    }

    #[test]
    fn patience_ends_a_chapter_that_waits_in_vain() {
        let mut story = Story::new(PACE);
        let silent = |seconds| at(seconds, |now| now.ledger.delivered = 0);
        assert_eq!(story.on_snapshot(&silent(10)), None);
        assert_eq!(story.on_snapshot(&silent(11)), Some(Cue::TakeAway));
    }

    #[test]
    fn the_whole_ends_within_a_minute_even_when_everything_is_waited_for_in_vain() {
        let mut story = Story::new(Pace::CALM);
        let mut ends = None;
        for tenth in 0..600 {
            let now = Snapshot {
                at: Duration::from_millis(100 * tenth),
                publishing: true,
                ..Snapshot::default()
            };
            if story.on_snapshot(&now) == Some(Cue::End) {
                ends = Some(now.at);
            }
        }
        assert!(ends.unwrap() < Duration::from_secs(46), "{ends:?}");
        assert!(Pace::CALM.total() < Duration::from_secs(30));
    }
}
