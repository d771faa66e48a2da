//! How a binding's worker stands: the pure part of delivery, with the time passed in.
//!
//! ```text
//!                 link up                    drained
//!   LinkDown ───────────────► Replaying ───────────────► Live
//!      ▲  ▲                    ▲     │                     │
//!      │  └──── link down ───┐ │     │ something lost      │
//!      │                     │ │     ▼ or kept             │
//!      │                  Blocked ◄─ Recalling ◄───────────┘
//!      └───────────────────────────────┘ resolved
//! ```
//!
//! An operator's pause is a recall that ends in `Paused`, and stays there until it is resumed.

use std::time::Duration;

/// What the worker of a binding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No connection: everything that comes is queued.
    LinkDown,
    /// Publishing what the queue holds.
    Replaying,
    /// The queue is empty: publishing what has just arrived.
    Live,
    /// A message under way was lost or is to stay: nothing more is sent until everything under
    /// way is answered or lost, so that it can be put back in its order.
    Recalling {
        /// Where to go then.
        then: Next,
    },
    /// The head of the queue was refused for now: waiting before it is offered again.
    Blocked {
        /// The monotonic instant of the next attempt.
        until: Duration,
    },
    /// An operator wants nothing sent: everything that comes is queued.
    Paused,
}

/// Where a recall ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Without a connection.
    LinkDown,
    /// Publishing from the head of the queue.
    Replay,
    /// The same, for what is few: what has arrived waits in memory behind it.
    Drain,
    /// Waiting until that monotonic instant.
    Block(Duration),
    /// Until the operator wants it otherwise.
    Pause,
}

/// What a worker hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// There is a (new) connection.
    LinkUp,
    /// There is no connection.
    LinkDown,
    /// A message under way will get no answer.
    Unanswered,
    /// A message was refused for now and is to be offered again at that instant.
    RefusedForNow {
        /// The monotonic instant of the next attempt.
        until: Duration,
    },
    /// Nothing is under way any more, and what was lost is back in its place.
    Resolved,
    /// The queue is empty.
    Drained,
    /// The queue is not empty, though it was.
    Queued {
        /// Whether that is so little that what arrives need not go through the queue as well.
        few: bool,
    },
    /// Time has passed.
    Tick,
    /// An operator pauses the binding.
    Paused,
    /// An operator lets it go on.
    Resumed {
        /// Whether there is a connection.
        up: bool,
    },
}

impl Phase {
    /// What the worker is about after `event`, heard at the monotonic instant `now`.
    #[must_use]
    pub(crate) fn on_event(self, event: Event, now: Duration) -> Self {
        match (self, event) {
            (Self::LinkDown | Self::Blocked { .. }, Event::Paused) => Self::Paused,
            (Self::Replaying | Self::Live | Self::Recalling { .. }, Event::Paused) => {
                Self::Recalling { then: Next::Pause }
            }
            (Self::Paused, Event::Resumed { up: true })
            | (Self::LinkDown | Self::Blocked { .. }, Event::LinkUp) => Self::Replaying,
            (Self::Paused, Event::Resumed { up: false })
            | (Self::Blocked { .. }, Event::LinkDown) => Self::LinkDown,
            (Self::Recalling { then: Next::Pause }, Event::Resumed { up }) => Self::Recalling {
                then: if up { Next::Replay } else { Next::LinkDown },
            },
            // Whatever else is heard is seen to when it is resumed.
            (Self::Recalling { then: Next::Pause }, event) if event != Event::Resolved => self,

            (Self::Blocked { until }, Event::Tick) if now >= until => Self::Replaying,
            (Self::Replaying, Event::Drained) => Self::Live,

            (Self::Replaying | Self::Live | Self::Recalling { .. }, Event::LinkDown) => {
                Self::Recalling {
                    then: Next::LinkDown,
                }
            }
            (Self::Live, Event::Queued { few: true }) => Self::Recalling { then: Next::Drain },
            (
                Self::Replaying | Self::Live | Self::Recalling { then: Next::Drain },
                Event::Unanswered,
            )
            | (Self::Live, Event::Queued { few: false })
            | (
                Self::Recalling {
                    then: Next::LinkDown,
                },
                Event::LinkUp,
            ) => Self::Recalling { then: Next::Replay },

            (
                Self::Replaying
                | Self::Live
                | Self::Recalling {
                    then: Next::Replay | Next::Drain,
                },
                Event::RefusedForNow { until },
            ) => Self::Recalling {
                then: Next::Block(until),
            },
            (Self::Recalling { then }, Event::Resolved) => match then {
                Next::LinkDown => Self::LinkDown,
                Next::Replay | Next::Drain => Self::Replaying,
                Next::Block(until) => Self::Blocked { until },
                Next::Pause => Self::Paused,
            },
            (phase, _) => phase,
        }
    }

    /// Whether messages may be sent.
    pub(crate) const fn sends(self) -> bool {
        matches!(self, Self::Replaying | Self::Live)
    }

    /// Whether a queue that is not empty is held up: its head could not be published at the
    /// latest attempt (I12).
    pub(crate) const fn holds_the_head(self) -> bool {
        matches!(
            self,
            Self::LinkDown
                | Self::Blocked { .. }
                | Self::Recalling {
                    then: Next::LinkDown | Next::Block(_)
                }
        )
    }

    /// The word for it in the API and in logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::LinkDown => "link_down",
            Self::Replaying => "replaying",
            Self::Live => "live",
            Self::Recalling { .. } => "recalling",
            Self::Blocked { .. } => "blocked",
            Self::Paused => "paused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const LATER: Duration = Duration::from_secs(101);
    const BLOCKED: Phase = Phase::Blocked { until: LATER };
    const RECALL_DOWN: Phase = Phase::Recalling {
        then: Next::LinkDown,
    };
    const RECALL_REPLAY: Phase = Phase::Recalling { then: Next::Replay };
    const RECALL_DRAIN: Phase = Phase::Recalling { then: Next::Drain };
    const RECALL_BLOCK: Phase = Phase::Recalling {
        then: Next::Block(LATER),
    };
    const RECALL_PAUSE: Phase = Phase::Recalling { then: Next::Pause };
    const REFUSED: Event = Event::RefusedForNow { until: LATER };
    const UP: Event = Event::Resumed { up: true };
    const DOWN: Event = Event::Resumed { up: false };

    #[test]
    fn every_state_answers_every_event() {
        use Event::{Drained, LinkDown, LinkUp, Paused, Resolved, Tick, Unanswered};
        const FEW: Event = Event::Queued { few: true };
        const MANY: Event = Event::Queued { few: false };
        const EVENTS: [Event; 12] = [
            LinkUp, LinkDown, Unanswered, REFUSED, Resolved, Drained, Tick, FEW, MANY, Paused, UP,
            DOWN,
        ];
        const PAUSED: Phase = Phase::Paused;
        let (down, replaying, live) = (Phase::LinkDown, Phase::Replaying, Phase::Live);
        let table: [(Phase, [Phase; EVENTS.len()]); 10] = [
            (
                down,
                [
                    replaying, down, down, down, down, down, down, down, down, PAUSED, down, down,
                ],
            ),
            (
                PAUSED,
                [
                    PAUSED, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED, PAUSED,
                    replaying, down,
                ],
            ),
            (
                RECALL_PAUSE,
                [
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    PAUSED,
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    RECALL_PAUSE,
                    RECALL_REPLAY,
                    RECALL_DOWN,
                ],
            ),
            (
                replaying,
                [
                    replaying,
                    RECALL_DOWN,
                    RECALL_REPLAY,
                    RECALL_BLOCK,
                    replaying,
                    live,
                    replaying,
                    replaying,
                    replaying,
                    RECALL_PAUSE,
                    replaying,
                    replaying,
                ],
            ),
            (
                live,
                [
                    live,
                    RECALL_DOWN,
                    RECALL_REPLAY,
                    RECALL_BLOCK,
                    live,
                    live,
                    live,
                    RECALL_DRAIN,
                    RECALL_REPLAY,
                    RECALL_PAUSE,
                    live,
                    live,
                ],
            ),
            (
                RECALL_DOWN,
                [
                    RECALL_REPLAY,
                    RECALL_DOWN,
                    RECALL_DOWN,
                    RECALL_DOWN,
                    down,
                    RECALL_DOWN,
                    RECALL_DOWN,
                    RECALL_DOWN,
                    RECALL_DOWN,
                    RECALL_PAUSE,
                    RECALL_DOWN,
                    RECALL_DOWN,
                ],
            ),
            (
                RECALL_REPLAY,
                [
                    RECALL_REPLAY,
                    RECALL_DOWN,
                    RECALL_REPLAY,
                    RECALL_BLOCK,
                    replaying,
                    RECALL_REPLAY,
                    RECALL_REPLAY,
                    RECALL_REPLAY,
                    RECALL_REPLAY,
                    RECALL_PAUSE,
                    RECALL_REPLAY,
                    RECALL_REPLAY,
                ],
            ),
            (
                RECALL_DRAIN,
                [
                    RECALL_DRAIN,
                    RECALL_DOWN,
                    RECALL_REPLAY,
                    RECALL_BLOCK,
                    replaying,
                    RECALL_DRAIN,
                    RECALL_DRAIN,
                    RECALL_DRAIN,
                    RECALL_DRAIN,
                    RECALL_PAUSE,
                    RECALL_DRAIN,
                    RECALL_DRAIN,
                ],
            ),
            (
                RECALL_BLOCK,
                [
                    RECALL_BLOCK,
                    RECALL_DOWN,
                    RECALL_BLOCK,
                    RECALL_BLOCK,
                    BLOCKED,
                    RECALL_BLOCK,
                    RECALL_BLOCK,
                    RECALL_BLOCK,
                    RECALL_BLOCK,
                    RECALL_PAUSE,
                    RECALL_BLOCK,
                    RECALL_BLOCK,
                ],
            ),
            (
                BLOCKED,
                [
                    replaying, down, BLOCKED, BLOCKED, BLOCKED, BLOCKED, BLOCKED, BLOCKED, BLOCKED,
                    PAUSED, BLOCKED, BLOCKED,
                ],
            ),
        ];
        for (phase, row) in table {
            for (event, expected) in EVENTS.into_iter().zip(row) {
                assert_eq!(
                    phase.on_event(event, NOW),
                    expected,
                    "{phase:?} × {event:?}"
                );
            }
        }
        assert_eq!(BLOCKED.on_event(Tick, LATER), replaying);
    }

    #[test]
    fn i12_the_head_is_held_exactly_when_the_latest_attempt_failed() {
        for (phase, held) in [
            (Phase::LinkDown, true),
            (BLOCKED, true),
            (RECALL_DOWN, true),
            (RECALL_BLOCK, true),
            (RECALL_REPLAY, false),
            (RECALL_DRAIN, false),
            (RECALL_PAUSE, false),
            (Phase::Paused, false),
            (Phase::Replaying, false),
            (Phase::Live, false),
        ] {
            assert_eq!(phase.holds_the_head(), held, "{phase:?}");
        }
    }

    #[test]
    fn i11_no_state_is_terminal() {
        for phase in [
            Phase::LinkDown,
            BLOCKED,
            RECALL_DOWN,
            RECALL_REPLAY,
            RECALL_DRAIN,
            RECALL_BLOCK,
            RECALL_PAUSE,
            Phase::Paused,
        ] {
            let out = [UP, Event::LinkUp, Event::Resolved, Event::Tick]
                .into_iter()
                .fold(phase, |phase, event| phase.on_event(event, LATER));
            assert!(out.sends(), "{phase:?} ends in {out:?}");
        }
    }
}
