//! What a keeper says, each fact once.

use std::time::Duration;

use bridge_core::Name;
use tracing::{error, info, warn};

use super::Role;
use crate::Owner;
use crate::store::{AcquireError, StoreFailure, TenureError};
use crate::tenure::Outcome;

/// What has been said already.
#[derive(Debug)]
pub(super) struct Log {
    lease: String,
    owner: String,
    said: Option<Said>,
    stepping_down: bool,
    failing: bool,
}

/// A role without what changes all the time.
#[derive(Debug, PartialEq)]
enum Said {
    Active(u64),
    Standby(Option<u64>),
}

impl Log {
    pub(super) fn new(lease: &Name, owner: &Owner) -> Self {
        Self {
            lease: lease.to_string(),
            owner: owner.to_string(),
            said: None,
            stepping_down: false,
            failing: false,
        }
    }

    /// What this instance is now.
    pub(super) fn role(&mut self, role: &Role, stepping_down: bool) {
        let (lease, owner) = (&self.lease, &self.owner);
        if stepping_down && !self.stepping_down {
            warn!(
                event = "lease_not_renewed",
                lease, owner, "the lease was not renewed in time: the exclusive sessions close"
            );
        }
        self.stepping_down = stepping_down;
        let now = match role {
            Role::Active { token } => Said::Active(*token),
            Role::Standby { holder } => Said::Standby(holder.as_ref().map(|holder| holder.token)),
        };
        if self.said.as_ref() == Some(&now) {
            return;
        }
        let was_active = matches!(self.said, Some(Said::Active(_)));
        match role {
            Role::Active { token } => {
                info!(event = "lease_acquired", lease, owner, token, "active");
            }
            Role::Standby { holder: None } if was_active => {
                warn!(
                    event = "lease_lost",
                    lease, owner, "standby: the lease is lost"
                );
            }
            Role::Standby {
                holder: Some(holder),
            } => {
                info!(event = "lease_held_by_another", lease, owner, %holder, "standby");
            }
            // Nothing is known yet, or not any more: the next answer says it, or what failed.
            Role::Standby { holder: None } => return,
        }
        self.said = Some(now);
    }

    /// What the store has answered: its failures until it works again.
    pub(super) fn outcome(&mut self, outcome: &Outcome) {
        let failure = match outcome {
            Outcome::Acquired(Err(AcquireError::Store(failure)))
            | Outcome::Renewed(Err(TenureError::Store(failure))) => Some(failure),
            Outcome::Acquired(_) | Outcome::Renewed(_) => None,
        };
        let Self { lease, owner, .. } = &*self;
        match failure {
            Some(failure) if !self.failing => match failure {
                StoreFailure::Unusable { .. } => {
                    error!(event = "lease_store_failed", lease, owner, %failure, "the lease cannot be asked for: it is tried again");
                }
                StoreFailure::Unreachable { .. } | StoreFailure::TimedOut { .. } => {
                    warn!(event = "lease_store_failed", lease, owner, %failure, "the lease cannot be asked for: it is tried again");
                }
            },
            None if self.failing => {
                info!(
                    event = "lease_store_recovered",
                    lease, owner, "the store of the lease answers again"
                );
            }
            Some(_) | None => {}
        }
        self.failing = failure.is_some();
    }

    /// How a stop in order has ended.
    pub(super) fn released(&self, released: &Result<(), TenureError>, ttl: Duration) {
        let Self { lease, owner, .. } = self;
        match released {
            Ok(()) => info!(
                event = "lease_released",
                lease, owner, "another may be active"
            ),
            Err(TenureError::Lost) => {
                info!(event = "lease_released", lease, owner, "it was lost before");
            }
            Err(TenureError::Store(failure)) => {
                warn!(
                    event = "lease_not_released", lease, owner, %failure,
                    "another may be active only in {ttl:?}"
                );
            }
        }
    }
}
