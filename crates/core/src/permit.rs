//! The contract of who may be connected: an exclusive session asks before it connects (I18).

use std::fmt;
use std::time::Duration;

use crate::BoxFuture;

/// Whether an exclusive session may be connected, and until when.
///
/// ```text
///   granted                            until          fence
///   ├── may connect, read, write ──────┼─ says goodbye ─┤ nothing leaves any more
///                                                        others may have it from here on
/// ```
///
/// Both instants are of [`Clock::monotonic`](crate::Clock::monotonic), of the clock that gives the
/// permit and those who ask it share. They move on whenever the permission is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// It may not: another instance has it, or nobody knows who has.
    Withheld,
    /// It may.
    Granted {
        /// Greater for each new holder, of whatever instance. A connection belongs to one token:
        /// when that changes it has to end.
        token: u64,
        /// From then on the connection is closed in order, unless the permission was renewed.
        until: Duration,
        /// From then on nothing may be written: neither a message nor an acknowledgement.
        fence: Duration,
    },
}

impl Permission {
    /// The token with which one may connect at `now`.
    pub fn to_connect(self, now: Duration) -> Option<u64> {
        match self {
            Self::Granted { token, until, .. } if now < until => Some(token),
            Self::Granted { .. } | Self::Withheld => None,
        }
    }

    /// Whether a connection of `token` may still write at `now`.
    pub fn may_write(self, token: u64, now: Duration) -> bool {
        matches!(self, Self::Granted { token: current, fence, .. } if current == token && now < fence)
    }
}

/// Says whether an exclusive session may be connected.
///
/// Promises of an implementation:
/// - While [`Permit::now`] grants and the fence has not passed, no other instance is granted
///   the same.
/// - A permission is taken back before its `until` only by whoever stops this instance, and where
///   what has given it says that another has it all the same: then at once.
pub trait Permit: Send + Sync + fmt::Debug {
    /// What holds now. Cheap: it is asked before every write.
    fn now(&self) -> Permission;

    /// Ends when the permission is no longer as `seen`, and says how it is then.
    fn changed(&self, seen: Permission) -> BoxFuture<'_, Permission>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GRANTED: Permission = Permission::Granted {
        token: 7,
        until: Duration::from_secs(10),
        fence: Duration::from_secs(12),
    };

    #[test]
    fn i18_one_connects_until_it_has_to_go_and_writes_until_the_fence() {
        for (at, connects, writes) in [(9, true, true), (10, false, true), (12, false, false)] {
            let at = SECOND * at;
            assert_eq!(GRANTED.to_connect(at).is_some(), connects, "{at:?}");
            assert_eq!(GRANTED.may_write(7, at), writes, "{at:?}");
            assert!(!GRANTED.may_write(6, at), "of an earlier token");
        }
        assert_eq!(Permission::Withheld.to_connect(SECOND), None);
        assert!(!Permission::Withheld.may_write(7, SECOND));
    }
}
