//! A keeper with a store that does as it is told.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_core::{BoxFuture, Name, SystemClock};
use bridge_lease::{
    AcquireError, Claim, Keeper, LeaseSettings, LeaseStore, Owner, Role, StoreFailure, TenureError,
    Token,
};
use bridge_testkit::wait_until;
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(30);

/// What a [`Told`] store does with a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mood {
    Grants,
    Fails,
    Panics,
    Lost,
    /// It does not answer.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Told {
    state: Mutex<(Mood, Token)>,
    hanging: Notify,
}

impl Told {
    pub(crate) fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new((mood, 0)),
            hanging: Notify::new(),
        })
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.state.lock().unwrap().0 = mood;
    }

    /// Waits until a request hangs.
    pub(crate) async fn hanging(&self) {
        self.hanging.notified().await;
    }

    async fn mood(&self) -> Result<Mood, StoreFailure> {
        let mood = self.state.lock().unwrap().0;
        if mood == Mood::Hangs {
            self.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        assert!(mood != Mood::Panics, "as it was told");
        if mood == Mood::Fails {
            return Err(StoreFailure::Unreachable {
                store: self.to_string(),
                why: "it is away".to_owned(),
            });
        }
        Ok(mood)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store that is told what to do")
    }
}

impl LeaseStore for Told {
    fn acquire<'a>(&'a self, _: &'a Claim) -> BoxFuture<'a, Result<Token, AcquireError>> {
        Box::pin(async {
            self.mood().await?;
            let mut state = self.state.lock().unwrap();
            state.1 += 1;
            Ok(state.1)
        })
    }

    fn renew<'a>(&'a self, _: &'a Claim, _: Token) -> BoxFuture<'a, Result<(), TenureError>> {
        Box::pin(async {
            match self.mood().await? {
                Mood::Lost => Err(TenureError::Lost),
                _ => Ok(()),
            }
        })
    }

    fn release<'a>(&'a self, _: &'a Claim, _: Token) -> BoxFuture<'a, Result<(), TenureError>> {
        Box::pin(async {
            self.mood().await?;
            Ok(())
        })
    }
}

/// With a `lease_ttl` that no hiccup of the machine lasts for.
pub(crate) fn keep(store: &Arc<Told>) -> Arc<Keeper> {
    keep_for(store, [5_000, 100, 200].map(Duration::from_millis))
}

/// With these: `lease_ttl`, `renew_interval` and `step_down_grace`.
pub(crate) fn keep_for(store: &Arc<Told>, [ttl, renew, grace]: [Duration; 3]) -> Arc<Keeper> {
    Keeper::start(
        Arc::clone(store) as _,
        Name::parse("plant-7").unwrap(),
        Owner::new("bridge-0").unwrap(),
        LeaseSettings::new(ttl, renew, grace).unwrap(),
        Arc::new(SystemClock::new()),
    )
}

pub(crate) fn token(keeper: &Keeper) -> Option<Token> {
    match keeper.role() {
        Role::Active { token } => Some(token),
        Role::Standby { .. } => None,
    }
}

pub(crate) async fn until(what: &str, condition: impl FnMut() -> bool) {
    wait_until(what, PATIENCE, condition).await;
}
