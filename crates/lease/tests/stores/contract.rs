//! What every store of leases has to pass; it knows nothing of the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{Clock, Name, SystemClock};
use bridge_lease::{AcquireError, Claim, Holder, LeaseStore, Owner, TenureError, Token};
use bridge_testkit::wait_for;

/// Long enough for a slow disk and a slow database, short enough for a test that waits for its end.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// Of a lease whose end nobody waits for.
pub(crate) const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);

/// Where leases are, and ways to get at them.
pub(crate) trait Place {
    /// A store as a further process has it, with nothing in common but the place.
    fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn LeaseStore>;
}

/// One instance with its own view of one lease.
pub(crate) struct Party {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) claim: Claim,
}

impl Party {
    pub(crate) fn new(place: &dyn Place, lease: &str) -> Self {
        Self {
            store: place.open(Arc::new(SystemClock::new())),
            claim: Claim {
                name: Name::parse(lease).unwrap(),
                owner: Owner::new("copied").unwrap(),
                ttl: TTL,
            },
        }
    }

    /// One whose lease does not run out while the test takes its steps.
    pub(crate) fn for_long(place: &dyn Place, lease: &str) -> Self {
        let mut party = Self::new(place, lease);
        party.claim.ttl = LONG;
        party
    }

    pub(crate) async fn acquire(&self) -> Result<Token, AcquireError> {
        self.store.acquire(&self.claim).await
    }

    async fn renew(&self, token: Token) -> Result<(), TenureError> {
        self.store.renew(&self.claim, token).await
    }

    async fn release(&self, token: Token) -> Result<(), TenureError> {
        self.store.release(&self.claim, token).await
    }

    /// Asks until the lease is free.
    pub(crate) async fn acquire_in_time(&self) -> Token {
        wait_for("the lease is free", PATIENCE, async || {
            match self.acquire().await {
                Ok(token) => Some(token),
                Err(AcquireError::Held(_)) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await
    }

    pub(crate) async fn refused(&self) -> Holder {
        match self.acquire().await {
            Err(AcquireError::Held(holder)) => holder,
            other => panic!("the lease is held, and yet: {other:?}"),
        }
    }
}

pub(crate) async fn one_gets_the_lease_and_a_second_is_told_who_has_it(p: &dyn Place, lease: &str) {
    let (a, b) = (Party::for_long(p, lease), Party::for_long(p, lease));
    assert_ne!(
        a.claim.owner, b.claim.owner,
        "a copied name is another owner"
    );
    let token = a.acquire().await.unwrap();
    let holder = b.refused().await;
    assert_eq!((&holder.owner, holder.token), (&a.claim.owner, token));
    assert!(holder.remaining <= LONG, "{holder}");
}

pub(crate) async fn i18_it_is_another_s_only_after_the_ttl(p: &dyn Place, lease: &str) {
    let (a, b) = (Party::new(p, lease), Party::new(p, lease));
    let sent = Instant::now();
    let first = a.acquire().await.unwrap();
    let second = b.acquire_in_time().await;
    assert!(sent.elapsed() >= TTL, "after {:?}", sent.elapsed());
    assert!(second > first);
}

pub(crate) async fn i18_as_long_as_it_is_renewed_nobody_else_gets_it(p: &dyn Place, lease: &str) {
    let (mut a, mut b) = (Party::new(p, lease), Party::new(p, lease));
    // No hiccup of the machine is to be longer than what is left when it is renewed.
    let ttl = Duration::from_secs(5);
    (a.claim.ttl, b.claim.ttl) = (ttl, ttl);
    let token = a.acquire().await.unwrap();
    let end = Instant::now() + ttl * 3 / 2;
    let mut renewed = Instant::now();
    while Instant::now() < end {
        if renewed.elapsed() > ttl / 10 {
            renewed = Instant::now();
            a.renew(token).await.unwrap();
        }
        assert_eq!(b.refused().await.token, token);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let last = renewed;
    b.acquire_in_time().await;
    assert!(last.elapsed() >= ttl, "after {:?}", last.elapsed());
}

pub(crate) async fn a_released_lease_is_another_s_at_once(p: &dyn Place, lease: &str) {
    let (a, b) = (Party::for_long(p, lease), Party::for_long(p, lease));
    let first = a.acquire().await.unwrap();
    b.refused().await;
    a.release(first).await.unwrap();
    assert!(b.acquire().await.unwrap() > first);
    assert_eq!(a.refused().await.owner, b.claim.owner);
}

pub(crate) async fn i18_a_tenure_that_is_over_can_do_nothing_to_the_next(
    p: &dyn Place,
    lease: &str,
) {
    let (a, mut b) = (Party::new(p, lease), Party::new(p, lease));
    let first = a.acquire().await.unwrap();
    let second = b.acquire_in_time().await;
    // Nobody else asks before that.
    b.claim.ttl = LONG;
    b.renew(second).await.unwrap();
    assert_eq!(a.renew(first).await, Err(TenureError::Lost));
    assert_eq!(a.release(first).await, Err(TenureError::Lost));
    assert_eq!(
        b.renew(first).await,
        Err(TenureError::Lost),
        "not its token"
    );
    assert_eq!(
        a.renew(second).await,
        Err(TenureError::Lost),
        "not its owner"
    );
    assert_eq!(a.refused().await.token, second);
    b.renew(second).await.unwrap();
}

pub(crate) async fn an_owner_that_asks_again_gets_it_at_once_with_a_new_token(
    p: &dyn Place,
    lease: &str,
) {
    let (a, b) = (Party::for_long(p, lease), Party::for_long(p, lease));
    let first = a.acquire().await.unwrap();
    let second = a.acquire().await.unwrap();
    assert!(second > first);
    assert_eq!(a.renew(first).await, Err(TenureError::Lost));
    // As a release that was given up, and arrives late.
    assert_eq!(a.release(first).await, Err(TenureError::Lost));
    assert_eq!(b.refused().await.token, second);
    a.renew(second).await.unwrap();
}

pub(crate) async fn a_released_tenure_cannot_be_renewed(p: &dyn Place, lease: &str) {
    let a = Party::for_long(p, lease);
    let token = a.acquire().await.unwrap();
    a.release(token).await.unwrap();
    assert_eq!(a.renew(token).await, Err(TenureError::Lost));
    assert_eq!(a.release(token).await, Err(TenureError::Lost));
}

pub(crate) async fn of_many_that_ask_at_once_one_gets_it(p: &dyn Place, lease: &str) {
    const ROUNDS: usize = 10;
    let parties: Vec<_> = (0..6)
        .map(|_| Arc::new(Party::for_long(p, lease)))
        .collect();
    let mut tokens = BTreeSet::new();
    for round in 0..ROUNDS {
        let asking: Vec<_> = parties
            .iter()
            .map(|party| {
                let party = Arc::clone(party);
                tokio::spawn(async move { party.acquire().await })
            })
            .collect();
        let mut won = None;
        for (party, asked) in parties.iter().zip(asking) {
            match asked.await.unwrap() {
                Ok(token) => assert!(won.replace((party, token)).is_none(), "two in {round}"),
                Err(AcquireError::Held(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let (winner, token) = won.unwrap();
        assert!(tokens.last() < Some(&token), "{token} after {tokens:?}");
        tokens.insert(token);
        winner.release(token).await.unwrap();
    }
    assert_eq!(tokens.len(), ROUNDS);
}

pub(crate) async fn a_request_that_is_given_up_at_any_moment_harms_nothing(
    p: &dyn Place,
    lease: &str,
) {
    let (a, b) = (Party::for_long(p, lease), Party::for_long(p, lease));
    for micros in (0..8_000).step_by(400) {
        let patience = Duration::from_micros(micros);
        let _ = tokio::time::timeout(patience, a.acquire()).await;
    }
    // None of them may come late and end this tenure: a new token is asked for if one does.
    let token = wait_for("the late ones have come", PATIENCE, async || {
        let token = a.acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        a.renew(token).await.ok().map(|()| token)
    })
    .await;
    assert_eq!(b.refused().await.token, token);
    a.release(token).await.unwrap();
    assert!(b.acquire().await.unwrap() > token);
}

/// Calls `$with!` with the name of every requirement.
macro_rules! requirements {
    ($with:ident) => {
        $with!(
            one_gets_the_lease_and_a_second_is_told_who_has_it,
            i18_it_is_another_s_only_after_the_ttl,
            i18_as_long_as_it_is_renewed_nobody_else_gets_it,
            a_released_lease_is_another_s_at_once,
            i18_a_tenure_that_is_over_can_do_nothing_to_the_next,
            an_owner_that_asks_again_gets_it_at_once_with_a_new_token,
            a_released_tenure_cannot_be_renewed,
            of_many_that_ask_at_once_one_gets_it,
            a_request_that_is_given_up_at_any_moment_harms_nothing,
        );
    };
}
pub(crate) use requirements;
