//! Guessing is slow: so many wrong tokens of one client are looked at at once, and then one every
//! other second.
//!
//! What a client has used up is one instant, that at which all is forgotten; the memory for all
//! clients is bounded, and those for which there is no room share one such instant.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::client;

/// A wrong token more is looked at every so often.
const INTERVAL: Duration = Duration::from_secs(2);
/// So many wrong tokens are looked at at once.
const BURST: u32 = 10;
/// So many clients are known apart.
const CLIENTS: usize = 4096;

/// Who has guessed how much.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    clients: HashMap<IpAddr, Used>,
    /// For those that find no room.
    others: Used,
}

#[derive(Debug, Clone, Copy, Default)]
struct Used {
    /// When all is forgotten.
    until: Duration,
    /// Whether it was said that the client is slowed.
    told: bool,
}

/// Nothing was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slowed {
    /// When it will be.
    pub(super) retry_after: Duration,
    /// The first time since something was looked at.
    pub(super) first: bool,
}

impl Throttle {
    /// What `look` finds, unless the client has to wait; what it finds wrong is held against it.
    pub(super) fn judge(
        &mut self,
        address: IpAddr,
        now: Duration,
        look: impl FnOnce() -> bool,
    ) -> Result<bool, Slowed> {
        let used = self.used(client(address), now);
        let full = INTERVAL * (BURST - 1);
        let retry_after = used.until.saturating_sub(now).saturating_sub(full);
        if !retry_after.is_zero() {
            let first = !std::mem::replace(&mut used.told, true);
            return Err(Slowed { retry_after, first });
        }
        used.told = false;
        let right = look();
        if !right {
            used.until = used.until.max(now) + INTERVAL;
        }
        Ok(right)
    }

    fn used(&mut self, client: IpAddr, now: Duration) -> &mut Used {
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.clients.retain(|_, used| used.until > now);
            if self.clients.len() >= CLIENTS {
                return &mut self.others;
            }
        }
        self.clients.entry(client).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn wrong(throttle: &mut Throttle, address: IpAddr, now: u64) -> Result<bool, Slowed> {
        throttle.judge(address, Duration::from_millis(now), || false)
    }

    #[test]
    fn wrong_tokens_are_slowed_and_forgotten() {
        let mut throttle = Throttle::default();
        for _ in 0..BURST {
            assert_eq!(wrong(&mut throttle, HERE, 0), Ok(false));
        }
        let slowed = |first, millis| {
            Err(Slowed {
                retry_after: Duration::from_millis(millis),
                first,
            })
        };
        assert_eq!(wrong(&mut throttle, HERE, 500), slowed(true, 1_500));
        for _ in 0..10_000 {
            assert_eq!(wrong(&mut throttle, HERE, 1_000), slowed(false, 1_000));
        }
        assert_eq!(wrong(&mut throttle, HERE, 2_000), Ok(false));
        assert_eq!(wrong(&mut throttle, HERE, 2_000), slowed(true, 2_000));
        // The right one waits like the others: else guessing would not be slow.
        let judged = throttle.judge(HERE, Duration::from_secs(3), || true);
        assert!(judged.is_err());
        assert_eq!(
            throttle.judge(HERE, Duration::from_secs(4), || true),
            Ok(true)
        );
        for _ in 0..BURST {
            assert_eq!(wrong(&mut throttle, HERE, 60_000), Ok(false));
        }
    }

    #[test]
    fn a_right_token_is_never_held_against_its_client() {
        let mut throttle = Throttle::default();
        for _ in 0..1_000 {
            assert_eq!(throttle.judge(HERE, Duration::ZERO, || true), Ok(true));
        }
    }

    #[test]
    fn one_client_is_slowed_and_another_is_not() {
        let mut throttle = Throttle::default();
        for _ in 0..=BURST {
            let _ = wrong(&mut throttle, HERE, 0);
        }
        assert!(wrong(&mut throttle, HERE, 0).is_err());
        assert!(wrong(&mut throttle, "10.0.0.1".parse().unwrap(), 0).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let mut throttle = Throttle::default();
        for host in 0..u16::try_from(BURST).unwrap() {
            let address = format!("2001:db8::{host:x}").parse().unwrap();
            assert_eq!(wrong(&mut throttle, address, 0), Ok(false));
        }
        assert!(wrong(&mut throttle, "2001:db8::ffff".parse().unwrap(), 0).is_err());
        assert!(wrong(&mut throttle, "2001:db8:0:1::1".parse().unwrap(), 0).is_ok());
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(client(mapped), "10.0.0.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn memory_is_bounded_and_those_without_room_share_their_patience() {
        let mut throttle = Throttle::default();
        for number in 0..20_000_u32 {
            let _ = wrong(&mut throttle, IpAddr::V4(number.into()), 0);
        }
        assert_eq!(throttle.clients.len(), CLIENTS);
        let another = IpAddr::V4(u32::MAX.into());
        assert!(wrong(&mut throttle, another, 0).is_err());
        // What is forgotten makes room.
        assert!(wrong(&mut throttle, another, 60_000).is_ok());
        assert_eq!(throttle.clients.len(), 1);
    }
}
