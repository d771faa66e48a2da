//! Keepers that want the same lease of a real store, while it is disturbed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bridge_core::{BoxFuture, Clock, Name, Permission, Permit as _, SystemClock};
use bridge_lease::{
    AcquireError, Claim, Keeper, LeaseSettings, LeaseStore, Owner, Role, TenureError, Token,
};
use bridge_testkit::{Postgres, wait_for, wait_until};

use super::contract::Place;
use super::file::Folder;
use super::postgres::Database;

const PATIENCE: Duration = Duration::from_secs(30);

fn settings() -> LeaseSettings {
    let [ttl, renew, grace] = [800, 200, 200].map(Duration::from_millis);
    LeaseSettings::new(ttl, renew, grace).unwrap()
}

/// Of a lease that no hiccup of the machine makes run out.
fn long() -> LeaseSettings {
    let [ttl, renew, grace] = [30_000, 200, 300].map(Duration::from_millis);
    LeaseSettings::new(ttl, renew, grace).unwrap()
}

/// A way to a store that can be cut for one instance alone.
#[derive(Debug)]
struct Line {
    store: Arc<dyn LeaseStore>,
    cut: Arc<AtomicBool>,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

impl Line {
    /// Nothing gets through a cut line, and nobody is told.
    async fn pass(&self) {
        if self.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl LeaseStore for Line {
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Token, AcquireError>> {
        Box::pin(async move {
            self.pass().await;
            self.store.acquire(claim).await
        })
    }

    fn renew<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>> {
        Box::pin(async move {
            self.pass().await;
            let renewed = self.store.renew(claim, token).await;
            self.pass().await;
            renewed
        })
    }

    fn release<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>> {
        Box::pin(async move {
            self.pass().await;
            self.store.release(claim, token).await
        })
    }
}

/// Some instances on one clock, and a witness who looks at all of them all the time.
struct Rivals {
    clock: Arc<dyn Clock>,
    keepers: Vec<Arc<Keeper>>,
    cuts: Vec<Arc<AtomicBool>>,
    witness: tokio::task::JoinHandle<u64>,
    done: Arc<AtomicBool>,
}

impl Rivals {
    fn start(place: &dyn Place, count: usize, settings: LeaseSettings) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let cuts: Vec<_> = (0..count).map(|_| Arc::<AtomicBool>::default()).collect();
        let keepers: Vec<_> = cuts
            .iter()
            .map(|cut| {
                let line = Line {
                    store: place.open(Arc::clone(&clock)),
                    cut: Arc::clone(cut),
                };
                let owner = Owner::new("copied").unwrap();
                let name = Name::parse("plant-7").unwrap();
                Keeper::start(Arc::new(line), name, owner, settings, Arc::clone(&clock))
            })
            .collect();
        let done = Arc::<AtomicBool>::default();
        let witness = tokio::spawn(witness(
            Arc::clone(&clock),
            keepers.clone(),
            Arc::clone(&done),
        ));
        Self {
            clock,
            keepers,
            cuts,
            witness,
            done,
        }
    }

    fn active(&self) -> Option<usize> {
        self.keepers
            .iter()
            .position(|keeper| keeper.now().to_connect(self.clock.monotonic()).is_some())
    }

    async fn one_is_active(&self) -> usize {
        wait_for("one is active", PATIENCE, async || self.active()).await
    }

    /// How many looks the witness has had, at each of which at most one was permitted to write.
    async fn end(self) -> u64 {
        for keeper in &self.keepers {
            keeper.release().await;
            assert_eq!(keeper.now(), Permission::Withheld);
        }
        self.done.store(true, Ordering::Relaxed);
        self.witness.await.unwrap()
    }
}

async fn witness(clock: Arc<dyn Clock>, keepers: Vec<Arc<Keeper>>, done: Arc<AtomicBool>) -> u64 {
    let permitted = || -> Vec<Token> {
        let now = clock.monotonic();
        keepers
            .iter()
            .filter_map(|keeper| match keeper.now() {
                Permission::Granted { token, fence, .. } if now < fence => Some(token),
                Permission::Granted { .. } | Permission::Withheld => None,
            })
            .collect()
    };
    let (mut looks, mut latest) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let mut tokens = permitted();
        if tokens.len() > 1 {
            // Between the looks at one and at the other the lease may have been given back.
            tokens = permitted();
        }
        assert!(tokens.len() < 2, "two may write: {tokens:?}");
        if let Some(token) = tokens.first() {
            assert!(*token >= latest, "{token} writes after {latest}");
            latest = *token;
        }
        looks += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    looks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_who_loses_its_line_to_the_store_steps_down_before_another_is_active() {
    let folder = Folder::new();
    let rivals = Rivals::start(&folder, 3, settings());
    for _ in 0..3 {
        let first = rivals.one_is_active().await;
        let cut = Instant::now();
        rivals.cuts[first].store(true, Ordering::Relaxed);
        let second = wait_for("another is active", PATIENCE, async || {
            let is_active = |n: &usize| matches!(rivals.keepers[*n].role(), Role::Active { .. });
            rivals.active().filter(|n| *n != first).filter(is_active)
        })
        .await;
        let took = cut.elapsed();
        assert!(
            took < settings().lease_ttl() + Duration::from_secs(5),
            "{took:?}"
        );
        rivals.cuts[first].store(false, Ordering::Relaxed);
        wait_until("it knows who has it", PATIENCE, || {
            let Role::Standby {
                holder: Some(holder),
            } = rivals.keepers[first].role()
            else {
                return false;
            };
            let token = holder.token;
            rivals.keepers[second].role() == Role::Active { token }
        })
        .await;
        assert!(rivals.keepers[first].stats().lost >= 1);
        assert!(rivals.keepers[first].stats().renew_failures >= 1);
    }
    assert!(rivals.end().await > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_35_a_stop_in_order_hands_the_lease_over_at_once() {
    let folder = Folder::new();
    let rivals = Rivals::start(&folder, 2, long());
    let first = rivals.one_is_active().await;
    let other = Arc::clone(&rivals.keepers[1 - first]);
    let released = Instant::now();
    rivals.keepers[first].release().await;
    wait_until("the other is active", PATIENCE, || {
        matches!(other.role(), Role::Active { .. })
    })
    .await;
    let took = released.elapsed();
    assert!(took < long().lease_ttl() / 2, "{took:?}");
    assert_eq!(
        rivals.keepers[first].stats().lost,
        0,
        "a release is no loss"
    );
    rivals.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_order_does_not_wait_for_a_store_that_is_away() {
    let folder = Folder::new();
    let rivals = Rivals::start(&folder, 2, settings());
    let first = rivals.one_is_active().await;
    for cut in &rivals.cuts {
        cut.store(true, Ordering::Relaxed);
    }
    for keeper in [&rivals.keepers[first], &rivals.keepers[1 - first]] {
        let stopped = Instant::now();
        keeper.release().await;
        let took = stopped.elapsed();
        // What is in flight, and the release.
        assert!(
            took < settings().step_down_grace() + PATIENCE / 2,
            "{took:?}"
        );
        keeper.release().await;
    }
    rivals.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_change_is_told_of_it_and_of_the_end() {
    let folder = Folder::new();
    let rivals = Rivals::start(&folder, 1, long());
    let keeper = Arc::clone(&rivals.keepers[0]);
    let granted = keeper.changed(Permission::Withheld).await;
    assert!(matches!(granted, Permission::Granted { .. }));
    let renewed = keeper.changed(granted).await;
    assert!(
        matches!(renewed, Permission::Granted { .. }),
        "it is renewed"
    );
    assert_ne!(renewed, granted);
    rivals.end().await;
    assert_eq!(keeper.changed(renewed).await, Permission::Withheld);
    assert_eq!(keeper.role(), Role::Standby { holder: None });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_database_that_stops_crashes_or_hangs_never_makes_two_active() {
    let mut server = Postgres::start().await;
    let rivals = Rivals::start(&Database::of(&server), 3, settings());
    let ttl = settings().lease_ttl();
    for round in 0..9 {
        let active = rivals.one_is_active().await;
        let Role::Active { token } = rivals.keepers[active].role() else {
            continue;
        };
        let down = Instant::now();
        match round % 3 {
            0 => server.stop().await,
            1 => server.kill().await,
            _ => server.pause(),
        }
        let long = round >= 3;
        if long {
            // Longer than the lease: nobody is active any more.
            let gone = Instant::now();
            wait_until("all step down", PATIENCE, || rivals.active().is_none()).await;
            let took = gone.elapsed();
            assert!(took < ttl + Duration::from_secs(5), "after {took:?}");
        }
        match round % 3 {
            2 => server.resume(),
            _ => server.restart().await,
        }
        let next = rivals.one_is_active().await;
        let role = rivals.keepers[next].role();
        if down.elapsed() < Duration::from_millis(200) {
            assert_eq!(
                next, active,
                "shorter than the lease, and yet another is active"
            );
            assert_eq!(role, Role::Active { token });
        }
    }
    assert!(rivals.end().await > 100);
}
