//! What a keeper does when what it stands on gives way.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "the code of tests: failing loudly is what it is for, and not every test uses all of it"
)]

#[path = "keeper/told.rs"]
mod told;

use std::time::Duration;

use bridge_core::{Permission, Permit as _};
use tokio::time::Instant;
use told::{Mood, Told, keep, keep_for, token, until};

#[tokio::test]
async fn a_defect_of_the_store_is_a_failed_request_and_the_keeper_goes_on() {
    let store = Told::new(Mood::Panics);
    let keeper = keep(&store);
    until("it has failed twice", || keeper.stats().store_errors >= 2).await;
    assert_eq!(keeper.now(), Permission::Withheld);
    store.set(Mood::Grants);
    until("it is active", || token(&keeper) == Some(1)).await;
    store.set(Mood::Panics);
    until("a renewal has failed", || keeper.stats().renew_failures > 0).await;
    store.set(Mood::Grants);
    let last = keeper.now();
    until("it is renewed", || keeper.now() != last).await;
    assert_eq!(token(&keeper), Some(1), "renewed, and not lost");
    keeper.release().await;
}

/// How long a stop takes by the runtime's clock while a renewal hangs and then the release does.
async fn stop_while_the_store_hangs(times: [u64; 3]) -> Duration {
    let store = Told::new(Mood::Grants);
    let keeper = keep_for(&store, times.map(Duration::from_millis));
    until("it is active", || token(&keeper).is_some()).await;
    store.set(Mood::Hangs);
    store.hanging().await;
    tokio::time::pause();
    let stopped = Instant::now();
    keeper.release().await;
    let took = stopped.elapsed();
    tokio::time::resume();
    took
}

#[tokio::test]
async fn a_stop_takes_one_grace_at_most_though_a_renewal_and_the_release_hang() {
    let took = stop_while_the_store_hangs([20_000, 1_000, 2_000]).await;
    assert!(took <= Duration::from_millis(2_010), "{took:?}");
}

#[tokio::test]
async fn a_stop_takes_five_seconds_at_most_however_long_the_grace_is() {
    let took = stop_while_the_store_hangs([90_000, 1_000, 60_000]).await;
    assert!(took <= Duration::from_millis(5_010), "{took:?}");
}

#[test]
fn i18_a_keeper_whose_task_is_gone_permits_nothing_for_longer_than_it_did() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, second) = (runtime(), runtime());
    let keeper = first.block_on(async {
        let keeper = keep(&Told::new(Mood::Grants));
        keeper.changed(Permission::Withheld).await;
        keeper
    });
    drop(first);
    second.block_on(async {
        until("it is on standby", || token(&keeper).is_none()).await;
        let last = keeper.now();
        assert!(
            matches!(last, Permission::Granted { .. }),
            "it ends by itself"
        );
        assert_eq!(keeper.changed(last).await, Permission::Withheld);
        assert_eq!(keeper.now(), Permission::Withheld, "as it was said");
        let next = keeper.changed(Permission::Withheld);
        let next = tokio::time::timeout(Duration::from_millis(50), next).await;
        assert!(next.is_err(), "nothing changes any more: {next:?}");
        keeper.release().await;
    });
}
