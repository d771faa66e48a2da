//! A permit that is as a test says.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bridge_core::{BoxFuture, Permission, Permit};
use tokio::sync::Notify;

/// Grants and withholds what a test wants.
#[derive(Debug)]
pub struct ScriptedPermit {
    permission: Mutex<Permission>,
    told: Notify,
}

impl ScriptedPermit {
    /// Begins with `permission`.
    pub fn new(permission: Permission) -> Self {
        Self {
            permission: Mutex::new(permission),
            told: Notify::new(),
        }
    }

    /// From now on it is like that.
    pub fn set(&self, permission: Permission) {
        *self.lock() = permission;
        self.told.notify_waiters();
    }

    /// Grants it until that instant, and lets be written for as long as `grace` after it.
    pub fn grant(&self, token: u64, until: Duration, grace: Duration) {
        self.set(Permission::Granted {
            token,
            until,
            fence: until.saturating_add(grace),
        });
    }

    /// Takes it away.
    pub fn withhold(&self) {
        self.set(Permission::Withheld);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Permission> {
        self.permission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ScriptedPermit {
    fn default() -> Self {
        Self::new(Permission::Withheld)
    }
}

impl Permit for ScriptedPermit {
    fn now(&self) -> Permission {
        *self.lock()
    }

    fn changed(&self, seen: Permission) -> BoxFuture<'_, Permission> {
        Box::pin(async move {
            loop {
                let told = self.told.notified();
                let now = self.now();
                if now != seen {
                    return now;
                }
                told.await;
            }
        })
    }
}
