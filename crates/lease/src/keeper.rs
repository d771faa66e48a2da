//! Keeps a lease: the task around the decisions of `tenure`.

mod log;

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{BoxFuture, Clock, Name, Permission, Permit};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::log::Log;
use crate::store::{AcquireError, Claim, Holder, LeaseStore, StoreFailure, TenureError, Token};
use crate::tenure::{Outcome, Request, Tenure};
use crate::{LeaseSettings, Owner};

/// How long giving the lease back takes at most, however long `step_down_grace` is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an instance is with regard to its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It holds the lease: its exclusive sessions may be connected.
    Active {
        /// The number of its tenure.
        token: Token,
    },
    /// It waits for the lease.
    Standby {
        /// Who has it, as far as is known.
        holder: Option<Holder>,
    },
}

/// What a keeper has counted since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseStats {
    /// How often the lease was acquired.
    pub acquired: u64,
    /// How often it was lost: not renewed in time, or taken by another. A release is no loss.
    pub lost: u64,
    /// Renewals that failed, for whatever reason.
    pub renew_failures: u64,
    /// Requests that the store did not answer, or answered with an error of its own.
    pub store_errors: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Face {
    permission: Permission,
    role: Role,
    stats: LeaseStats,
}

/// Acquires a lease as soon as it can be had, renews it in time, and says what that permits.
///
/// The task that does it ends with [`Keeper::release`], or when the keeper is dropped; after a drop
/// the lease stays held until its end.
#[derive(Debug)]
pub struct Keeper {
    face: watch::Receiver<Face>,
    stop: CancellationToken,
    task: AbortHandle,
    clock: Arc<dyn Clock>,
}

impl Keeper {
    /// Begins to keep the lease `name` for `owner`; the sessions that ask have to use the same clock.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(
        store: Arc<dyn LeaseStore>,
        name: Name,
        owner: Owner,
        settings: LeaseSettings,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let tenure = Tenure::new(settings, clock.monotonic());
        let (face, watched) = watch::channel(face_of(&tenure));
        let stop = CancellationToken::new();
        let keeping = Keeping {
            log: Log::new(&name, &owner),
            claim: Claim {
                name,
                owner,
                ttl: settings.lease_ttl(),
            },
            store,
            settings,
            clock: Arc::clone(&clock),
            tenure,
            face,
            stop: stop.clone(),
            give_up_at: None,
        };
        let task = tokio::spawn(keeping.run()).abort_handle();
        Arc::new(Self {
            face: watched,
            stop,
            task,
            clock,
        })
    }

    /// What this instance is now.
    pub fn role(&self) -> Role {
        let role = self.face.borrow().role.clone();
        // Its task has ended by a panic: what it said last holds for as long as the permission, and
        // nobody renews it.
        if self.task.is_finished() {
            return Role::Standby { holder: None };
        }
        role
    }

    /// What has been counted.
    pub fn stats(&self) -> LeaseStats {
        self.face.borrow().stats
    }

    /// Gives the lease back, so that another instance can be active at once; this one never is
    /// again. To be called when the exclusive sessions have closed.
    ///
    /// Ends when the store has been told, or could not be within `step_down_grace`, or within 5 s
    /// where that is longer: then the lease ends by itself.
    pub async fn release(&self) {
        self.stop.cancel();
        let mut face = self.face.clone();
        // The task has ended when nobody writes any more.
        while face.changed().await.is_ok() {}
    }

    /// Whether nobody keeps the lease any more, and what was granted last is over. Until then there
    /// is time for a goodbye.
    fn has_outlived(&self, permission: Permission) -> bool {
        let Permission::Granted { fence, .. } = permission else {
            return false;
        };
        self.task.is_finished() && self.clock.monotonic() >= fence
    }
}

impl Permit for Keeper {
    fn now(&self) -> Permission {
        let permission = self.face.borrow().permission;
        if self.has_outlived(permission) {
            return Permission::Withheld;
        }
        permission
    }

    fn changed(&self, seen: Permission) -> BoxFuture<'_, Permission> {
        let mut face = self.face.clone();
        Box::pin(async move {
            let changed = face.wait_for(|face| face.permission != seen).await;
            let changed = changed.map(|face| face.permission);
            match (changed, seen) {
                (Ok(permission), _) if !self.has_outlived(permission) => permission,
                // Nobody keeps the lease any more: what was granted last ends by itself. Not before
                // that, as whoever asks would find it unchanged and ask again at once.
                (_, Permission::Granted { fence, .. }) => {
                    sleep_until(&*self.clock, fence).await;
                    Permission::Withheld
                }
                (_, Permission::Withheld) => std::future::pending().await,
            }
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn face_of(tenure: &Tenure) -> Face {
    Face {
        permission: tenure.permission(),
        role: tenure.role(),
        stats: tenure.stats(),
    }
}

/// The task's own.
struct Keeping {
    store: Arc<dyn LeaseStore>,
    claim: Claim,
    settings: LeaseSettings,
    clock: Arc<dyn Clock>,
    tenure: Tenure,
    face: watch::Sender<Face>,
    stop: CancellationToken,
    log: Log,
    /// When a stop has taken long enough, once it has begun.
    give_up_at: Option<Instant>,
}

impl Keeping {
    async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let order = self.tenure.next(self.clock.monotonic());
            self.publish();
            match order {
                Some(order) => self.ask(order.request, order.timeout).await,
                None => self.pause().await,
            }
        }
        self.give_back().await;
    }

    /// Asks the store, and lets time take effect while it is silent.
    async fn ask(&mut self, request: Request, timeout: Duration) {
        let (store, claim) = (Arc::clone(&self.store), self.claim.clone());
        // A task of its own, so that a defect of the store is a failed request and no end of this.
        let mut asked = JoinSet::new();
        asked.spawn(ask(store, claim, request, timeout));
        let outcome = loop {
            tokio::select! {
                Some(outcome) = asked.join_next() => break outcome,
                () = self.stop.cancelled() => {
                    // What comes now is still given back; what comes later ends by itself. Half of
                    // the time is left for the release.
                    let half = self.give_up_at() - self.patience() / 2;
                    match tokio::time::timeout_at(half, asked.join_next()).await {
                        Ok(Some(outcome)) => break outcome,
                        Ok(None) | Err(_) => return,
                    }
                }
                () = sleep_until(&*self.clock, self.tenure.wake_at()) => {}
            }
            self.tenure.advance(self.clock.monotonic());
            self.publish();
        };
        let outcome = outcome.unwrap_or_else(|error| self.ended_by_a_defect(request, &error));
        self.log.outcome(&outcome);
        let now = self.clock.monotonic();
        self.tenure.answered(outcome, now, spread());
        self.publish();
    }

    fn ended_by_a_defect(&self, request: Request, error: &JoinError) -> Outcome {
        let failure = StoreFailure::Unusable {
            store: self.store.to_string(),
            why: format!("a defect has ended the request: {error}"),
            remedy: "please report it".to_owned(),
        };
        match request {
            Request::Acquire => Outcome::Acquired(Err(failure.into())),
            Request::Renew(_) => Outcome::Renewed(Err(failure.into())),
        }
    }

    async fn pause(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = sleep_until(&*self.clock, self.tenure.wake_at()) => {}
        }
    }

    /// How long a stop may take.
    fn patience(&self) -> Duration {
        self.settings.step_down_grace().min(PATIENCE)
    }

    /// When it has: counted from when this is asked for the first time.
    fn give_up_at(&mut self) -> Instant {
        let patience = self.patience();
        *self
            .give_up_at
            .get_or_insert_with(|| Instant::now() + patience)
    }

    fn publish(&mut self) {
        let face = face_of(&self.tenure);
        self.log.role(&face.role, self.tenure.is_stepping_down());
        self.face.send_if_modified(|current| {
            let modified = *current != face;
            *current = face;
            modified
        });
    }

    async fn give_back(mut self) {
        let token = self.tenure.token();
        self.tenure.end();
        // Before the store is told: from then on another may be active.
        self.face.send_modify(|face| *face = face_of(&self.tenure));
        let Some(token) = token else {
            return;
        };
        let (began, give_up_at) = (Instant::now(), self.give_up_at());
        let release = self.store.release(&self.claim, token);
        let released = tokio::time::timeout_at(give_up_at, release).await;
        let after = give_up_at.saturating_duration_since(began);
        let released = released.unwrap_or_else(|_| Err(timed_out(&*self.store, after).into()));
        self.log.released(&released, self.settings.lease_ttl());
    }
}

async fn ask(
    store: Arc<dyn LeaseStore>,
    claim: Claim,
    request: Request,
    timeout: Duration,
) -> Outcome {
    let late = || timed_out(&*store, timeout);
    match request {
        Request::Acquire => {
            let result = tokio::time::timeout(timeout, store.acquire(&claim)).await;
            Outcome::Acquired(result.unwrap_or_else(|_| Err(AcquireError::Store(late()))))
        }
        Request::Renew(token) => {
            let result = tokio::time::timeout(timeout, store.renew(&claim, token)).await;
            Outcome::Renewed(result.unwrap_or_else(|_| Err(TenureError::Store(late()))))
        }
    }
}

fn timed_out(store: &dyn LeaseStore, after: Duration) -> StoreFailure {
    StoreFailure::TimedOut {
        store: store.to_string(),
        after,
    }
}

/// Sleeps until the clock says so, and looks at it now and then: the runtime's timers stand still
/// while the machine sleeps, this clock does not.
async fn sleep_until(clock: &dyn Clock, wake_at: Duration) {
    const GLANCE: Duration = Duration::from_secs(1);
    loop {
        let left = wake_at.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(GLANCE)).await;
    }
}

fn spread() -> f64 {
    rand::random_range(0.9..1.1)
}
