//! The contract of a store of leases.

use std::fmt;
use std::time::Duration;

use bridge_core::{BoxFuture, Name};

use crate::Owner;

/// What a store is asked for: which lease, for whom, for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The lease. Instances that must not be active together ask for the same one.
    pub name: Name,
    /// Who asks.
    pub owner: Owner,
    /// For how long it is held from the moment at which the store has taken the request.
    pub ttl: Duration,
}

/// The number of a tenure: greater for each, whoever holds it.
pub type Token = u64;

/// Who holds a lease, as far as a store can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The owner.
    pub owner: Owner,
    /// The number of its tenure.
    pub token: Token,
    /// When it may be taken over, unless it is renewed until then.
    pub remaining: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            owner,
            token,
            remaining,
        } = self;
        write!(
            f,
            "held by {owner} with token {token}, for {:.1} s more unless it is renewed",
            remaining.as_secs_f64()
        )
    }
}

/// Why a lease was not acquired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    /// Another owner has it.
    #[error("{0}")]
    Held(Holder),
    /// Nobody knows.
    #[error(transparent)]
    Store(#[from] StoreFailure),
}

/// Why a lease was not renewed or released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenureError {
    /// The store says that this tenure is over: another may have begun.
    #[error("the lease is lost: this tenure is over")]
    Lost,
    /// Nobody knows.
    #[error(transparent)]
    Store(#[from] StoreFailure),
}

/// A store did not answer, or could not do what it was asked. Whether it has done it all the same
/// is not known. All of it is worth another attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// It may work again by itself.
    #[error("the lease in {store} cannot be reached: {why}")]
    Unreachable {
        /// Which store.
        store: String,
        /// What went wrong.
        why: String,
    },
    /// A person has to do something about it.
    #[error("the lease in {store} cannot be used: {why}; {remedy}")]
    Unusable {
        /// Which store.
        store: String,
        /// What is wrong.
        why: String,
        /// What to do about it.
        remedy: String,
    },
    /// It did not answer in time.
    #[error("the lease in {store} gave no answer within {after:?}")]
    TimedOut {
        /// Which store.
        store: String,
        /// How long it was waited for.
        after: Duration,
    },
}

/// Where leases are written down, for all instances that must agree.
///
/// ```text
///            acquire: token 7                    acquire: token 8
///   free ───────────────────────► held ─ renew ─┐ ───────────────► held by another
///     ▲                            │ ▲──────────┘   (after the ttl)
///     └──────────── release ───────┘
/// ```
///
/// Promises of an implementation:
/// - **One holder.** From the moment at which [`LeaseStore::acquire`] is called until `ttl` later,
///   or [`LeaseStore::renew`] likewise, nobody else acquires the lease, unless it was released. So
///   whoever measures the `ttl` from before the call, on a clock of its own, lets go in time.
/// - **Each tenure has a token of its own**, greater than all before it, across restarts of the
///   store. That is so for an owner that acquires what it holds already, too: a request that was
///   given up and takes effect late then ends no tenure but its own.
/// - **Takeover.** A lease that is not renewed can be acquired soon after its `ttl`, a released one
///   at once. An owner that asks for what it holds already gets it at once.
/// - **A future that is dropped** is a request whose outcome is not known: it may take effect later.
/// - **No wait without end.** Whoever calls sets a deadline, and what has passed it does not keep
///   the next call from working once the store does.
///
/// Its `Display` names the store in a log, without secrets.
pub trait LeaseStore: Send + Sync + fmt::Debug + fmt::Display {
    /// Begins a tenure.
    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Token, AcquireError>>;

    /// Makes a tenure last for another `ttl` from now.
    fn renew<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>>;

    /// Ends a tenure, so that another may begin at once.
    fn release<'a>(
        &'a self,
        claim: &'a Claim,
        token: Token,
    ) -> BoxFuture<'a, Result<(), TenureError>>;
}
