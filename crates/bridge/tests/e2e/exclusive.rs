//! Exclusive pairs: two instances of one file, of which one at a time has the sessions (I18).

mod checker;
mod pair;
mod record;
mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_core::{Clock as _, SystemClock};
use bridge_testkit::{Chance, RawClient, numbered, wait_for, wait_until};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::setup::{PATIENCE, publish};
use pair::{Destination, Pair};
use record::Who;
use store::{Away, Store};

/// Short, as tests wait for its end, and longer than a busy machine holds up a renewal.
const LEASE_TTL: Duration = Duration::from_secs(5);
/// One whose end no test waits for.
const LONG_TTL: Duration = Duration::from_secs(90);

// === one fault at a time ===

/// Publishes some more after those: who was active cannot have taken them, however fast it is.
async fn some_more(pair: &Pair, messages: u64) -> u64 {
    let all = messages + 100;
    let more = (messages..all).map(|number| numbered("t", number, 64));
    publish(pair.source.port(), more).await;
    all
}

async fn killed_under_load(store: Store) {
    const MESSAGES: u64 = 20_000;
    let mut pair = Pair::start(store, Destination::OfEach).await;
    let active = pair.active().await;
    let feeder = pair.under_load(MESSAGES, MESSAGES / 20).await;
    pair.kill(active).await;
    let killed = Instant::now();
    let all = some_more(&pair, MESSAGES).await;
    let standby = active.other();
    pair.until_delivering(standby).await;
    let took = killed.elapsed();
    println!("the standby delivers {took:.1?} after the active was killed");
    assert!(took < LEASE_TTL + Duration::from_secs(15), "{took:?}");
    feeder.finish().await;
    pair.drained(standby).await;
    // What it had acknowledged waits in its journal, and goes out while it stands by.
    let bridge = pair.bridge_mut(active);
    bridge.relaunch();
    bridge.ready().await;
    pair.collector.until(all, PATIENCE).await;
    let tally = pair.collector.tally();
    assert_eq!((tally.missing(all).len(), tally.damaged()), (0, 0));
    wait_for(
        "all that a standby has to have is well",
        PATIENCE,
        async || {
            let answer = pair.bridge(active).get("/readyz?level=full").await.ok()?;
            let said = (answer.status, answer.body.as_str());
            (said == (200, "ready\nrole: standby\n")).then_some(())
        },
    )
    .await;
    assert_eq!(pair.never_two_at_once(), 2, "one tenure each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_standby_delivers_soon_after_the_active_was_killed_with_a_file() {
    killed_under_load(Store::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_standby_delivers_soon_after_the_active_was_killed_with_postgresql() {
    killed_under_load(Store::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_a_pair_tells_its_role_and_who_holds_the_lease() {
    let pair = Pair::start(Store::file(), Destination::OfEach).await;
    let active = pair.active().await;
    let told = wait_for("the standby knows who is active", PATIENCE, async || {
        let (active, standby) = (pair.told(active).await, pair.told(active.other()).await);
        (standby["lease_token"] == active["lease_token"]).then_some((active, standby))
    });
    let (active, standby) = told.await;
    assert_eq!(
        (&active["role"], &standby["role"]),
        (&"active".into(), &"standby".into())
    );
    assert!(active["lease_token"].is_u64(), "{active}");
    assert!(active["lease_holder"].is_string(), "{active}");
    assert_eq!(active["lease_holder"], standby["lease_holder"]);
}

async fn halted_past_its_lease(store: Store) {
    const MESSAGES: u64 = 10_000;
    let mut pair = Pair::start(store, Destination::Exclusive).await;
    let active = pair.active().await;
    let feeder = pair.under_load(MESSAGES, MESSAGES / 50).await;
    pair.halt(active);
    let all = some_more(&pair, MESSAGES).await;
    let standby = active.other();
    pair.until_active(standby).await;
    pair.until_delivering(standby).await;
    pair.resume(active);
    pair.until_logged(active, "session_stepped_down", 2).await;
    assert_eq!(
        pair.logged(standby, "lease_lost"),
        0,
        "who has the lease keeps it"
    );
    assert_eq!(
        pair.logged(active, "session_taken_over"),
        0,
        "it was by right"
    );
    feeder.finish().await;
    pair.drained(standby).await;
    pair.both_drained().await;
    pair.collector.until(all, PATIENCE).await;
    assert_eq!(pair.collector.tally().missing(all), Vec::<u64>::new());
    let tenures = pair.never_two_at_once();
    assert!(tenures >= 2, "{tenures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_an_active_that_was_halted_past_its_lease_writes_nothing_more_with_a_file() {
    halted_past_its_lease(Store::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_an_active_that_was_halted_past_its_lease_writes_nothing_more_with_postgresql() {
    halted_past_its_lease(Store::postgres().await).await;
}

/// A store that is away for less than the lease lasts, and one that is away for longer.
async fn without_its_store(store: Store, how: Away) {
    let mut pair = Pair::with_lease(store, Destination::Exclusive, LONG_TTL).await;
    let active = pair.active().await;
    pair.until_logged(active, "session_connected", 2).await;
    let told = |pair: &Pair| {
        ["lease_store_failed", "lease_store_recovered"].map(|event| pair.logged(active, event))
    };
    let [failed, _] = told(&pair);
    pair.store.take_away(how).await;
    wait_until("the active misses it", PATIENCE, || told(&pair)[0] > failed).await;
    pair.store.bring_back(how).await;
    wait_until("it is there again", PATIENCE, || {
        let [failed, recovered] = told(&pair);
        failed == recovered
    })
    .await;
    pair.until_active(active).await;
    assert_eq!(pair.logged(active, "lease_lost"), 0, "it has stayed so");
    assert_eq!(
        pair.logged(active, "session_connected"),
        2,
        "reader and writer, once"
    );
    assert_eq!(pair.never_two_at_once(), 1);
    pair.terminate(active.other()).await;
    pair.terminate(active).await;

    let mut pair = Pair::start(pair.store, Destination::Exclusive).await;
    let active = pair.active().await;
    pair.until_logged(active, "session_connected", 2).await;
    pair.store.take_away(how).await;
    pair.until_logged(active, "session_stepped_down", 2).await;
    pair.until_logged(active, "lease_lost", 1).await;
    for who in Who::BOTH {
        let answer = pair.bridge(who).get("/readyz?level=full").await.unwrap();
        let said = (answer.status, answer.body.as_str());
        assert_eq!(said, (200, "ready\nrole: standby\n"), "{who:?}");
        let metrics = pair.bridge(who).metrics().await;
        assert_eq!(metrics.whole("bridge_lease_held", &[]), Some(0), "{who:?}");
    }
    pair.store.bring_back(how).await;
    let next = pair.active().await;
    let metrics = pair.bridge(next).metrics().await;
    assert_eq!(metrics.whole("bridge_lease_held", &[]), Some(1));
    assert_eq!(pair.never_two_at_once(), 2, "one before and one after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_file_that_is_away_for_longer_than_the_lease_makes_the_active_step_down() {
    without_its_store(Store::file(), Away::Gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_database_that_is_silent_for_longer_than_the_lease_makes_the_active_step_down() {
    without_its_store(Store::postgres().await, Away::Silent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_database_that_is_gone_for_longer_than_the_lease_makes_the_active_step_down() {
    without_its_store(Store::postgres().await, Away::Gone).await;
}

/// A store that is not there at the start is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_not_there_at_the_start_is_waited_for() {
    let mut store = Store::file();
    store.take_away(Away::Gone).await;
    let mut pair = Pair::start(store, Destination::Exclusive).await;
    for who in Who::BOTH {
        assert!(!pair.is_active(who).await);
        pair.until_logged(who, "lease_store_failed", 1).await;
    }
    pair.store.bring_back(Away::Gone).await;
    pair.active().await;
    assert_eq!(pair.never_two_at_once(), 1);
}

/// A stop in order hands the lease over at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_at_a_stop_in_order_the_standby_takes_over_at_once() {
    // Whoever waits for its end waits in vain.
    let mut pair = Pair::with_lease(Store::file(), Destination::Exclusive, LONG_TTL).await;
    let active = pair.active().await;
    let asked = Instant::now();
    pair.terminate(active).await;
    let ended = Instant::now();
    pair.until_active(active.other()).await;
    println!(
        "ended after {:.1?}, taken over {:.1?} after that",
        ended - asked,
        ended.elapsed()
    );
    pair.never_two_at_once();
}

// === many ===

/// How many rounds of random faults a test plays.
fn rounds() -> u64 {
    let asked = std::env::var("BRIDGE_EXCLUSIVE_ROUNDS").ok();
    asked.map_or(4, |rounds| {
        rounds.parse().expect("BRIDGE_EXCLUSIVE_ROUNDS is a number")
    })
}

/// The seed of a run that is to be played again, or a new one.
fn seed() -> u64 {
    match std::env::var("BRIDGE_EXCLUSIVE_SEED") {
        Ok(seed) => seed.parse().expect("BRIDGE_EXCLUSIVE_SEED is a number"),
        Err(_) => SystemClock::new().wall().as_millis(),
    }
}

/// Up to so long.
fn at_most(chance: &mut Chance, most: Duration) -> Duration {
    most.mul_f64(f64::from(u32::try_from(chance.below(1_000)).unwrap()) / 1_000.0)
}

async fn a_fault(pair: &mut Pair, chance: &mut Chance) -> &'static str {
    for who in Who::BOTH {
        pair.bridge_mut(who).ready().await;
    }
    let active = pair.active().await;
    let who = if chance.below(4) == 0 {
        active.other()
    } else {
        active
    };
    match chance.below(5) {
        0 => {
            pair.kill(who).await;
            sleep(at_most(chance, LEASE_TTL)).await;
            pair.bridge_mut(who).relaunch();
            "killed"
        }
        1 => {
            pair.halt(who);
            sleep(at_most(chance, LEASE_TTL * 2)).await;
            pair.resume(who);
            "halted"
        }
        2 => {
            pair.terminate(who).await;
            sleep(at_most(chance, LEASE_TTL)).await;
            pair.bridge_mut(who).relaunch();
            "stopped"
        }
        3 => {
            let instance = &pair.instances[&who];
            instance.source.cut();
            instance.destination.cut();
            "cut off from the brokers"
        }
        _ => {
            let (how, name) = if chance.below(2) == 0 {
                (Away::Gone, "with the store gone")
            } else {
                (Away::Silent, "with the store silent")
            };
            pair.store.take_away(how).await;
            sleep(at_most(chance, LEASE_TTL * 2)).await;
            pair.store.bring_back(how).await;
            name
        }
    }
}

/// Publishes numbered messages at that port, some hundred a second, until told to stop; says how many.
async fn trickle(port: u16, mut stop: oneshot::Receiver<()>) -> u64 {
    const AT_ONCE: u64 = 20;
    let mut client = RawClient::connect(port, "trickle").await.unwrap();
    let mut published = 0;
    while stop.try_recv().is_err() {
        let batch = (published..published + AT_ONCE).map(|number| numbered("t", number, 64));
        client.publish_all(batch, 20).await.expect_all_accepted();
        published += AT_ONCE;
        sleep(Duration::from_millis(50)).await;
    }
    client.disconnect().await.unwrap();
    published
}

async fn rounds_of_faults(store: Store) {
    let mut pair = Pair::start(store, Destination::Exclusive).await;
    let (rounds, mut chance) = (rounds(), Chance::new(seed()));
    println!("{chance:?}");
    // From then on the source has a session to keep messages for.
    pair.active().await;
    let began = Instant::now();
    let (stop, stopped) = oneshot::channel();
    let trickle = tokio::spawn(trickle(pair.source.port(), stopped));
    let mut faults = BTreeMap::<&str, u32>::new();
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let fault = a_fault(&mut pair, &mut chance).await;
        *faults.entry(fault).or_default() += 1;
        let over = Instant::now();
        pair.active().await;
        longest = longest.max(over.elapsed());
        // It is at work when the next fault comes.
        let before = pair.collector.distinct();
        wait_until("it delivers", PATIENCE, || {
            pair.collector.distinct() > before + 50
        })
        .await;
    }
    stop.send(()).unwrap();
    let published = trickle.await.unwrap();
    for who in Who::BOTH {
        pair.bridge_mut(who).ready().await;
    }
    pair.both_drained().await;
    pair.collector.until(published, PATIENCE).await;
    let tally = pair.collector.tally();
    let tenures = pair.never_two_at_once();
    println!(
        "{rounds} rounds in {:.0?}: {faults:?}; {tenures} tenures, never two at once; someone was \
         active again {longest:.1?} after a fault at the latest; {} messages, {} duplicates",
        began.elapsed(),
        tally.distinct(),
        tally.duplicates(),
    );
    assert_eq!(tally.missing(published), Vec::<u64>::new());
    assert_eq!(tally.damaged(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_never_two_at_once_whatever_happens_with_a_file() {
    rounds_of_faults(Store::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_never_two_at_once_whatever_happens_with_postgresql() {
    rounds_of_faults(Store::postgres().await).await;
}
