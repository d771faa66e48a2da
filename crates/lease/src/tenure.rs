//! What a keeper decides: when to ask the store for what, and what the answer permits.
//!
//! ```text
//!             acquired                     not renewed until …
//!   standby ───────────► active ───────────────────────────► stepping down
//!     ▲ ▲                 │  ▲ │ renewed                            │
//!     │ └─────── lost ────┘  └─┘                                    │ the fence
//!     └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! Plain data: time is passed in, requests are handed out, answers are handed in.

#[cfg(test)]
mod tests;

use std::time::Duration;

use bridge_core::Permission;

use crate::store::{AcquireError, Holder, TenureError, Token};
use crate::{LeaseSettings, LeaseStats, Role};

/// What the store is to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire,
    Renew(Token),
}

/// A request, and after which time nobody waits for the answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) request: Request,
    pub(crate) timeout: Duration,
}

/// What the store has answered.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Acquired(Result<Token, AcquireError>),
    Renewed(Result<(), TenureError>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Another has the lease, or nobody is known to.
    Standby { try_at: Duration },
    /// The lease is ours for a `ttl` from `sent`.
    Active {
        token: Token,
        sent: Duration,
        renew_at: Duration,
    },
    /// It was not renewed in time: the sessions are closing.
    SteppingDown { token: Token, sent: Duration },
}

/// The lease as one instance has it.
#[derive(Debug)]
pub(crate) struct Tenure {
    settings: LeaseSettings,
    phase: Phase,
    /// When the request was sent that has no answer yet.
    in_flight: Option<Duration>,
    holder: Option<Holder>,
    stats: LeaseStats,
}

impl Tenure {
    /// Nothing held; the store is asked at once.
    pub(crate) fn new(settings: LeaseSettings, now: Duration) -> Self {
        Self {
            settings,
            phase: Phase::Standby { try_at: now },
            in_flight: None,
            holder: None,
            stats: LeaseStats::default(),
        }
    }

    /// Lets time take effect.
    pub(crate) fn advance(&mut self, now: Duration) {
        if let Phase::Active { token, sent, .. } = self.phase
            && now >= self.settings.until(sent)
        {
            self.phase = Phase::SteppingDown { token, sent };
            self.stats.lost += 1;
        }
        if let Phase::SteppingDown { sent, .. } = self.phase
            && now >= self.settings.fence(sent)
        {
            self.phase = Phase::Standby { try_at: now };
        }
    }

    /// The request that is due, if any; it is in flight from now on.
    ///
    /// `now` is read before the request is sent: the lease counts from there.
    pub(crate) fn next(&mut self, now: Duration) -> Option<Order> {
        self.advance(now);
        if self.in_flight.is_some() {
            return None;
        }
        let order = match self.phase {
            Phase::Standby { try_at } if now >= try_at => Order {
                request: Request::Acquire,
                timeout: self.settings.acquire_timeout(),
            },
            Phase::Active {
                token,
                sent,
                renew_at,
            } if now >= renew_at => {
                let left = self.settings.until(sent).saturating_sub(now);
                Order {
                    request: Request::Renew(token),
                    timeout: self.settings.renew_timeout(left),
                }
            }
            _ => return None,
        };
        self.in_flight = Some(now);
        Some(order)
    }

    /// Takes the answer to what is in flight. Pauses are multiplied by `spread`, which is about 1,
    /// so that instances do not ask in step.
    pub(crate) fn answered(&mut self, outcome: Outcome, now: Duration, spread: f64) {
        self.advance(now);
        let Some(sent) = self.in_flight.take() else {
            return;
        };
        match outcome {
            Outcome::Acquired(result) => self.acquired(result, sent, now, spread),
            Outcome::Renewed(result) => self.renewed(result, sent, now, spread),
        }
    }

    fn acquired(
        &mut self,
        result: Result<Token, AcquireError>,
        sent: Duration,
        now: Duration,
        spread: f64,
    ) {
        let pause = self.settings.poll_interval().mul_f64(spread);
        self.holder = None;
        let pause = match result {
            Ok(token) if now < self.settings.until(sent) => {
                self.stats.acquired += 1;
                self.phase = Phase::Active {
                    token,
                    sent,
                    renew_at: sent + self.settings.renew_interval(),
                };
                return;
            }
            // Answered so late that nothing of it is left: asked again, and it is still ours.
            Ok(_) => Duration::ZERO,
            Err(AcquireError::Held(holder)) => {
                let pause = pause.min(holder.remaining.max(LeaseSettings::SHORTEST / 5));
                self.holder = Some(holder);
                pause
            }
            Err(AcquireError::Store(_)) => {
                self.stats.store_errors += 1;
                pause
            }
        };
        self.phase = Phase::Standby {
            try_at: now + pause,
        };
    }

    fn renewed(
        &mut self,
        result: Result<(), TenureError>,
        was_sent: Duration,
        now: Duration,
        spread: f64,
    ) {
        if let Err(error) = &result {
            self.stats.renew_failures += 1;
            self.stats.store_errors += u64::from(matches!(error, TenureError::Store(_)));
        }
        match (&mut self.phase, result) {
            (Phase::Active { sent, renew_at, .. }, Ok(())) => {
                *sent = was_sent;
                *renew_at = was_sent + self.settings.renew_interval();
            }
            (Phase::Active { renew_at, .. }, Err(TenureError::Store(_))) => {
                *renew_at = now + self.settings.retry_interval().mul_f64(spread);
            }
            (Phase::Active { .. }, Err(TenureError::Lost)) => {
                self.stats.lost += 1;
                self.phase = Phase::Standby { try_at: now };
            }
            (Phase::SteppingDown { .. }, Err(TenureError::Lost)) => {
                self.phase = Phase::Standby { try_at: now };
            }
            // Too late: the sessions are closing already, or have closed.
            (Phase::SteppingDown { .. } | Phase::Standby { .. }, _) => {}
        }
    }

    /// When there is something to do next, unless an answer comes before.
    pub(crate) fn wake_at(&self) -> Duration {
        match self.phase {
            // An answer is waited for, which has a timeout of its own.
            Phase::Standby { .. } if self.in_flight.is_some() => Duration::MAX,
            Phase::Standby { try_at } => try_at,
            Phase::Active { sent, renew_at, .. } => {
                let until = self.settings.until(sent);
                if self.in_flight.is_some() {
                    until
                } else {
                    until.min(renew_at)
                }
            }
            Phase::SteppingDown { sent, .. } => self.settings.fence(sent),
        }
    }

    /// What the sessions may do.
    pub(crate) fn permission(&self) -> Permission {
        match self.phase {
            Phase::Standby { .. } => Permission::Withheld,
            Phase::Active { token, sent, .. } | Phase::SteppingDown { token, sent } => {
                Permission::Granted {
                    token,
                    until: self.settings.until(sent),
                    fence: self.settings.fence(sent),
                }
            }
        }
    }

    /// What this instance is, in the words of health and metrics.
    pub(crate) fn role(&self) -> Role {
        match self.phase {
            Phase::Standby { .. } => Role::Standby {
                holder: self.holder.clone(),
            },
            Phase::Active { token, .. } | Phase::SteppingDown { token, .. } => {
                Role::Active { token }
            }
        }
    }

    /// Whether it could not renew, and the sessions are closing.
    pub(crate) fn is_stepping_down(&self) -> bool {
        matches!(self.phase, Phase::SteppingDown { .. })
    }

    /// The tenure that the store may still have as ours.
    pub(crate) fn token(&self) -> Option<Token> {
        match self.phase {
            Phase::Standby { .. } => None,
            Phase::Active { token, .. } | Phase::SteppingDown { token, .. } => Some(token),
        }
    }

    /// What has been counted.
    pub(crate) fn stats(&self) -> LeaseStats {
        self.stats
    }

    /// Ends the tenure, for a stop in order.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Standby {
            try_at: Duration::MAX,
        };
        self.holder = None;
    }
}
