//! Whether an exclusive session may be connected: the wait for its permit, the moment to step
//! down, and the fence at the socket (I18).
//!
//! ```text
//!   Gate::admitted ─► Pass ─┬─ Approach ─► Socket   before each write: may it?
//!                           ├─ serve                until it is over: step down
//!                           └─ Live                 why an answer did not come
//! ```
//!
//! A session that is not exclusive goes through the same doors, and they are open.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_core::{Clock, Name, Permission, Permit};
use tokio::time::sleep;
use tracing::info;

/// How long until a permit is looked at again that says it has changed, and has not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a session has to pass before it connects.
#[derive(Debug)]
pub(crate) struct Gate {
    session: Name,
    role: &'static str,
    permit: Option<Arc<dyn Permit>>,
    clock: Arc<dyn Clock>,
    /// What was granted when something spoke against it; good for no other connection.
    doubted: Option<Permission>,
}

impl Gate {
    pub(crate) const fn new(
        session: Name,
        role: &'static str,
        permit: Option<Arc<dyn Permit>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            session,
            role,
            permit,
            clock,
            doubted: None,
        }
    }

    /// Another client has taken the session's place. By right, if the lease was lost unnoticed:
    /// what is granted now has to be renewed, or granted anew, before the session connects again.
    pub(crate) fn doubt(&mut self) {
        self.doubted = self.permit.as_ref().map(|permit| permit.now());
    }

    /// Waits until the session may connect, which the log is told when it takes a while.
    pub(crate) async fn admitted(&self) -> Pass {
        let Some(permit) = &self.permit else {
            return Pass::default();
        };
        let mut waits = false;
        loop {
            let permission = permit.now();
            if self.doubted != Some(permission)
                && let Some(token) = permission.to_connect(self.clock.monotonic())
            {
                if waits {
                    info!(
                        event = "session_admitted",
                        session = %self.session,
                        role = self.role,
                        token,
                        "the lease is here: connecting"
                    );
                }
                return Pass(Some(Arc::new(Held {
                    permit: Arc::clone(permit),
                    clock: Arc::clone(&self.clock),
                    token,
                    stepping_down: AtomicBool::new(false),
                })));
            }
            if !std::mem::replace(&mut waits, true) {
                info!(
                    event = "session_standby",
                    session = %self.session,
                    role = self.role,
                    "the session is exclusive and another instance may have it: not connected \
                     until the lease is here"
                );
            }
            permit.changed(permission).await;
            if permit.now() == permission {
                // Nobody keeps it any more: what was granted last is only over, again and again.
                sleep(LOOK_AGAIN).await;
            }
        }
    }
}

/// What one connection was admitted with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pass(Option<Arc<Held>>);

struct Held {
    permit: Arc<dyn Permit>,
    clock: Arc<dyn Clock>,
    token: u64,
    /// Once begun it is not taken back, whatever becomes of the permission.
    stepping_down: AtomicBool,
}

impl Pass {
    /// Whether anything may be written at this moment.
    pub(crate) fn may_write(&self) -> bool {
        let Self(held) = self;
        held.as_ref().is_none_or(|held| {
            let permission = held.permit.now();
            permission.may_write(held.token, held.clock.monotonic())
        })
    }

    /// Whether only one may be connected at a time.
    pub(crate) const fn is_exclusive(&self) -> bool {
        self.0.is_some()
    }

    /// Whether nobody else can have been connected between this and the `earlier` one.
    pub(crate) fn follows(&self, earlier: &Self) -> bool {
        let token = |Self(held): &Self| held.as_ref().map(|held| held.token);
        token(self) == token(earlier)
    }

    /// Whether the connection has to end, or is ending, because it is no longer permitted.
    pub(crate) fn is_over(&self) -> bool {
        let Self(held) = self;
        held.as_ref().is_some_and(|held| held.is_over())
    }

    /// Ends when the connection has to end; never, where no permit is asked for.
    pub(crate) async fn over(&self) {
        let Self(Some(held)) = self else {
            return std::future::pending().await;
        };
        while !held.is_over() {
            let seen = held.permit.now();
            let lasts = match seen {
                Permission::Granted { until, .. } => until.saturating_sub(held.clock.monotonic()),
                Permission::Withheld => Duration::ZERO,
            };
            tokio::select! {
                // Where nobody changes it any more, time alone is to be waited for.
                _ = held.permit.changed(seen) => if held.permit.now() == seen {
                    sleep(lasts).await;
                },
                () = sleep(lasts) => {}
            }
        }
    }

    /// How long something may still be written.
    pub(crate) fn left(&self) -> Duration {
        let Self(held) = self;
        held.as_ref().map_or(Duration::MAX, |held| held.left())
    }
}

impl Held {
    fn is_over(&self) -> bool {
        let now = self.clock.monotonic();
        let over = self.stepping_down.load(Ordering::Acquire)
            || self.permit.now().to_connect(now) != Some(self.token);
        if over {
            self.stepping_down.store(true, Ordering::Release);
        }
        over
    }

    fn left(&self) -> Duration {
        match self.permit.now() {
            Permission::Granted { token, fence, .. } if token == self.token => {
                fence.saturating_sub(self.clock.monotonic())
            }
            Permission::Granted { .. } | Permission::Withheld => Duration::ZERO,
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("token", &self.token)
            .field("permission", &self.permit.now())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::{ManualClock, Timestamp};
    use bridge_testkit::ScriptedPermit;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const fn granted(token: u64, until: u64) -> Permission {
        Permission::Granted {
            token,
            until: Duration::from_secs(until),
            fence: Duration::from_secs(until + 2),
        }
    }

    fn gate() -> (Gate, Arc<ScriptedPermit>, Arc<ManualClock>) {
        let permit = Arc::new(ScriptedPermit::new(granted(1, 10)));
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let session = Name::parse("s").unwrap();
        let gate = Gate::new(session, "reader", Some(permit.clone()), clock.clone());
        (gate, permit, clock)
    }

    #[tokio::test]
    async fn i18_a_pass_lasts_as_long_as_its_permission_is_renewed() {
        let (gate, permit, clock) = gate();
        let pass = gate.admitted().await;
        clock.advance(SECOND * 9);
        permit.set(granted(1, 19));
        clock.advance(SECOND * 9);
        assert!(!pass.is_over() && pass.may_write());
        assert_eq!(pass.left(), SECOND * 3);
        clock.advance(SECOND);
        pass.over().await;
        assert!(pass.may_write(), "there is time for a goodbye");
        clock.advance(SECOND * 2);
        assert!(!pass.may_write());
        assert_eq!(pass.left(), Duration::ZERO);
    }

    #[tokio::test]
    async fn i18_who_steps_down_goes_on_doing_so_when_the_permission_is_renewed_meanwhile() {
        let (gate, permit, clock) = gate();
        let pass = gate.admitted().await;
        clock.advance(SECOND * 10);
        assert!(pass.is_over());
        permit.set(granted(1, 20));
        pass.over().await;
        assert!(pass.is_over());
        let next = gate.admitted().await;
        assert!(!next.is_over(), "a new one is good");
        assert!(next.follows(&pass), "of the same tenure");
    }

    #[tokio::test]
    async fn i18_a_pass_of_an_earlier_token_is_good_for_nothing() {
        let (gate, permit, _) = gate();
        let pass = gate.admitted().await;
        permit.set(granted(2, 10));
        pass.over().await;
        assert!(!pass.may_write());
        assert_eq!(pass.left(), Duration::ZERO);
        assert!(!gate.admitted().await.follows(&pass));
        permit.set(Permission::Withheld);
        let next = gate.admitted();
        tokio::pin!(next);
        let early = tokio::time::timeout(Duration::from_millis(20), &mut next).await;
        assert!(early.is_err(), "it waits");
        permit.set(granted(3, 10));
        assert!(next.await.may_write());
    }

    #[tokio::test]
    async fn i18_a_permission_that_is_doubted_is_good_again_when_it_has_been_renewed() {
        for renewed in [granted(1, 20), granted(2, 10)] {
            let (mut gate, permit, _) = gate();
            drop(gate.admitted().await);
            gate.doubt();
            {
                let next = gate.admitted();
                tokio::pin!(next);
                let early = tokio::time::timeout(Duration::from_millis(20), &mut next).await;
                assert!(early.is_err(), "it waits");
                permit.set(renewed);
                assert!(next.await.may_write());
            }
            assert!(
                gate.admitted().await.may_write(),
                "and there is no doubt left"
            );
        }
    }

    /// A permit that nobody keeps any more: it says what it said last, and that this is over.
    #[derive(Debug, Default)]
    struct Forsaken(std::sync::atomic::AtomicUsize);

    impl Permit for Forsaken {
        fn now(&self) -> Permission {
            granted(1, 10)
        }

        fn changed(&self, _: Permission) -> bridge_core::BoxFuture<'_, Permission> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Permission::Withheld))
        }
    }

    #[tokio::test]
    async fn a_permit_that_nobody_keeps_is_not_asked_without_a_pause() {
        let permit = Arc::new(Forsaken::default());
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        clock.advance(SECOND * 10);
        let session = Name::parse("s").unwrap();
        let gate = Gate::new(session, "reader", Some(permit.clone()), clock);
        let never = tokio::time::timeout(LOOK_AGAIN / 4, gate.admitted()).await;
        assert!(never.is_err(), "what is over stays over");
        let asked = permit.0.load(Ordering::Relaxed);
        assert_eq!(asked, 1);
    }

    #[tokio::test]
    async fn a_session_that_is_not_exclusive_is_let_through() {
        let pass = Pass::default();
        assert!(pass.may_write() && !pass.is_over());
        assert_eq!(pass.left(), Duration::MAX);
    }
}
