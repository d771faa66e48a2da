//! The decisions one by one, and the whole of it in a simulated world.

mod world;

use bridge_core::Name;
use proptest::prelude::*;

use super::*;
use crate::Owner;
use crate::store::StoreFailure;
use world::{Faults, World};

const SETTINGS: [u64; 3] = [1_000, 300, 200];

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn settings() -> LeaseSettings {
    let [ttl, renew, grace] = SETTINGS.map(ms);
    LeaseSettings::new(ttl, renew, grace).unwrap()
}

fn unreachable() -> StoreFailure {
    StoreFailure::Unreachable {
        store: "a store".to_owned(),
        why: "it is away".to_owned(),
    }
}

fn acquired(token: Token) -> Outcome {
    Outcome::Acquired(Ok(token))
}

/// A tenure that was asked for at 0 and granted at 10 ms.
fn active() -> Tenure {
    let mut tenure = Tenure::new(settings(), ms(0));
    assert_eq!(tenure.next(ms(0)).unwrap().request, Request::Acquire);
    tenure.answered(acquired(7), ms(10), 1.0);
    tenure
}

fn granted(token: Token, until: u64, fence: u64) -> Permission {
    Permission::Granted {
        token,
        until: ms(until),
        fence: ms(fence),
    }
}

#[test]
fn i18_the_lease_counts_from_before_the_request_was_sent() {
    let mut tenure = active();
    assert_eq!(tenure.permission(), granted(7, 800, 950));
    assert_eq!(tenure.role(), Role::Active { token: 7 });
    assert_eq!(tenure.next(ms(299)), None);
    assert_eq!(tenure.next(ms(310)).unwrap().request, Request::Renew(7));
    tenure.answered(Outcome::Renewed(Ok(())), ms(500), 1.0);
    assert_eq!(tenure.permission(), granted(7, 1_110, 1_260));
    assert_eq!(tenure.wake_at(), ms(610));
}

#[test]
fn i18_what_is_not_renewed_in_time_steps_down_and_is_asked_for_again_at_the_fence() {
    let mut tenure = active();
    assert!(tenure.next(ms(300)).is_some());
    tenure.answered(Outcome::Renewed(Err(unreachable().into())), ms(400), 1.0);
    assert_eq!(tenure.wake_at(), ms(475), "a second attempt comes soon");
    tenure.advance(ms(800));
    assert!(tenure.is_stepping_down());
    assert_eq!(tenure.permission(), granted(7, 800, 950));
    assert_eq!(tenure.next(ms(949)), None, "closing has begun");
    let order = tenure.next(ms(950)).unwrap();
    assert_eq!(order.request, Request::Acquire);
    assert_eq!(tenure.permission(), Permission::Withheld);
    tenure.answered(acquired(8), ms(960), 1.0);
    assert_eq!(tenure.permission(), granted(8, 1_750, 1_900));
    let stats = tenure.stats();
    assert_eq!((stats.acquired, stats.lost), (2, 1));
    assert_eq!((stats.renew_failures, stats.store_errors), (1, 1));
}

#[test]
fn i18_a_renewal_that_is_answered_after_the_stepping_down_began_grants_nothing() {
    let mut tenure = active();
    assert!(tenure.next(ms(700)).is_some());
    tenure.answered(Outcome::Renewed(Ok(())), ms(801), 1.0);
    assert!(tenure.is_stepping_down());
    assert_eq!(tenure.permission(), granted(7, 800, 950));
}

#[test]
fn i18_a_lease_that_is_lost_is_withheld_at_once() {
    let mut tenure = active();
    assert!(tenure.next(ms(300)).is_some());
    tenure.answered(Outcome::Renewed(Err(TenureError::Lost)), ms(310), 1.0);
    assert_eq!(tenure.permission(), Permission::Withheld);
    assert_eq!(tenure.next(ms(310)).unwrap().request, Request::Acquire);
    assert_eq!((tenure.stats().lost, tenure.stats().store_errors), (1, 0));
}

#[test]
fn a_grant_that_comes_too_late_is_none_and_is_asked_for_again() {
    let mut tenure = Tenure::new(settings(), ms(0));
    assert!(tenure.next(ms(0)).is_some());
    tenure.answered(acquired(7), ms(800), 1.0);
    assert_eq!(tenure.permission(), Permission::Withheld);
    assert!(tenure.next(ms(800)).is_some());
}

#[test]
fn a_standby_knows_the_holder_and_looks_again_soon_and_when_the_lease_may_be_free() {
    for (remaining, again) in [(500, 150), (60, 60), (0, 20)] {
        let mut tenure = Tenure::new(settings(), ms(0));
        assert!(tenure.next(ms(0)).is_some());
        let holder = Holder {
            owner: Owner::new("other").unwrap(),
            token: 3,
            remaining: ms(remaining),
        };
        let held = AcquireError::Held(holder.clone());
        tenure.answered(Outcome::Acquired(Err(held)), ms(0), 1.0);
        let holder = Some(holder);
        assert_eq!(tenure.role(), Role::Standby { holder });
        assert_eq!(tenure.wake_at(), ms(again), "{remaining}");
    }
}

#[test]
fn no_request_waits_beyond_what_is_left_of_the_lease() {
    for at in (300..800).step_by(10) {
        let order = active().next(ms(at)).unwrap();
        assert!(ms(at) + order.timeout <= ms(800), "{at}: {order:?}");
    }
}

#[test]
fn one_request_at_a_time() {
    let mut tenure = active();
    assert!(tenure.next(ms(300)).is_some());
    assert_eq!(tenure.next(ms(310)), None);
    tenure.advance(ms(2_000));
    assert_eq!(tenure.next(ms(2_000)), None, "a renewal is still out");
    let late = StoreFailure::TimedOut {
        store: "a store".to_owned(),
        after: ms(250),
    };
    tenure.answered(Outcome::Renewed(Err(late.into())), ms(2_000), 1.0);
    assert_eq!(tenure.next(ms(2_000)).unwrap().request, Request::Acquire);
}

fn name() -> Name {
    Name::parse("plant-7").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Requests that are late, lost, or take effect after they were given up, answers that are lost,
    /// processes that are stopped, clocks that run at different paces.
    #[test]
    fn i18_never_two_that_may_write_whatever_happens_to_them(
        seed in any::<u64>(),
        keepers in 2_usize..=3,
        by_database in any::<bool>(),
        delay in 1_u64..400,
        loss in 0_u64..60,
        pauses in 0_u64..30,
    ) {
        let faults = Faults { delay, loss, pauses };
        let mut world = World::new(seed, keepers, by_database, faults, settings(), &name());
        for _ in 0..4_000 {
            world.step();
        }
    }

    #[test]
    fn i18_when_all_is_well_again_one_is_active_within_the_ttl_and_a_look(
        seed in any::<u64>(),
        keepers in 1_usize..=3,
        by_database in any::<bool>(),
    ) {
        let faults = Faults { delay: 400, loss: 50, pauses: 5 };
        let mut world = World::new(seed, keepers, by_database, faults, settings(), &name());
        for _ in 0..500 {
            world.step();
        }
        world.mend();
        // What hangs in the network, a whole lease, a look.
        for _ in 0..(500 + 1_000 + 500) / world::TICK {
            world.step();
        }
        prop_assert_eq!(world.active(), 1);
    }
}

#[test]
fn the_simulated_world_has_takeovers_and_losses_in_it() {
    let faults = Faults {
        delay: 200,
        loss: 20,
        pauses: 4,
    };
    let mut world = World::new(1, 3, false, faults, settings(), &name());
    for _ in 0..20_000 {
        world.step();
    }
    let stats = world.stats();
    assert!(stats.acquired > 10 && stats.lost > 5, "{stats:?}");
    assert!(world.holders() > 1, "one alone was active");
}
