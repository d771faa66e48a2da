//! Exclusive pairs: two instances of one file, of which one at a time has the sessions (I18).

mod checker;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_core::{Clock as _, SystemClock};
use bridge_testkit::{
    BridgeConfig, BridgeProcess, Chance, Collector, Feeder, Installation, Ledger, Load, Mosquitto,
    wait_for, wait_until,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::setup::{BRIDGE, PATIENCE};
use record::{Record, Tap, What, Who};

const LEASE_TTL: Duration = Duration::from_secs(3);
const TIMES: &str = "lease_ttl: 3s, renew_interval: 500ms, step_down_grace: 1s";

/// Where the lease is.
enum Store {
    File(TempDir),
}

impl Store {
    fn file() -> Self {
        let folder = tempfile::Builder::new().prefix("bridge-lease-").tempdir();
        let folder = folder.unwrap();
        std::fs::create_dir(folder.path().join("shared")).unwrap();
        Self::File(folder)
    }

    fn config(&self) -> String {
        match self {
            Self::File(folder) => {
                let path = folder.path().join("shared/bridge.lease");
                format!(
                    "lease: {{ store: file, path: \"{}\", {TIMES} }}",
                    path.display()
                )
            }
        }
    }

    /// Takes it away from both.
    fn take_away(&self) {
        match self {
            Self::File(folder) => {
                let at = |name: &str| folder.path().join(name);
                std::fs::rename(at("shared"), at("away")).unwrap();
            }
        }
    }

    /// Brings it back.
    fn bring_back(&self) {
        match self {
            Self::File(folder) => {
                let at = |name: &str| folder.path().join(name);
                std::fs::rename(at("away"), at("shared")).unwrap();
            }
        }
    }
}

/// How the destination's session is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Exclusive,
    /// Each instance has one of its own.
    OfEach,
}

struct Instance {
    bridge: BridgeProcess,
    source: Tap,
    destination: Tap,
    _installation: Installation,
}

/// Two instances between two brokers.
struct Pair {
    record: Record,
    store: Store,
    kind: Destination,
    source: Mosquitto,
    _destination: Mosquitto,
    collector: Collector,
    instances: BTreeMap<Who, Instance>,
}

impl Pair {
    async fn start(store: Store, kind: Destination) -> Self {
        let broker = || {
            let broker = Mosquitto::builder().persistence(true);
            broker.max_queued_messages(1_000_000).terse().start()
        };
        let (source, destination) = (broker().await, broker().await);
        let collector = Collector::start(destination.port(), "#").await;
        let record = Record::default();
        let mut instances = BTreeMap::new();
        for who in Who::BOTH {
            let to_source = Tap::start(&record, who, "source", source.port()).await;
            let to_destination = Tap::start(&record, who, "destination", destination.port()).await;
            let cloud = match kind {
                Destination::Exclusive => "session_mode: exclusive",
                Destination::OfEach => "client_id_suffix: nonce",
            };
            let config = BridgeConfig::between(to_source.url(), to_destination.url())
                .top(store.config())
                .plant("session_mode: exclusive")
                .cloud(cloud);
            let installation = Installation::new(&config);
            // A standby is ready: neither waits for the other.
            let bridge = installation.bridge(BRIDGE).args(["--log-format", "json"]);
            let instance = Instance {
                bridge: bridge.start().await,
                source: to_source,
                destination: to_destination,
                _installation: installation,
            };
            instances.insert(who, instance);
        }
        Self {
            record,
            store,
            kind,
            source,
            _destination: destination,
            collector,
            instances,
        }
    }

    fn bridge(&self, who: Who) -> &BridgeProcess {
        &self.instances[&who].bridge
    }

    fn bridge_mut(&mut self, who: Who) -> &mut BridgeProcess {
        &mut self.instances.get_mut(&who).unwrap().bridge
    }

    /// Who holds the lease and is connected to the source, as soon as someone is.
    async fn active(&self) -> Who {
        wait_for("someone is active", PATIENCE, async || {
            for who in Who::BOTH {
                if self.is_active(who).await {
                    return Some(who);
                }
            }
            None
        })
        .await
    }

    /// Whether that one answers, holds the lease and is subscribed.
    async fn is_active(&self, who: Who) -> bool {
        // A process that is halted or dead gives no answer.
        let asked = self.bridge(who).get("/readyz");
        match tokio::time::timeout(Duration::from_secs(2), asked).await {
            Ok(Ok(answer)) => answer.status == 200 && answer.body.contains("role: active"),
            _ => false,
        }
    }

    async fn until_active(&self, who: Who) {
        wait_for("it is active", PATIENCE, async || {
            self.is_active(who).await.then_some(())
        })
        .await;
    }

    async fn kill(&mut self, who: Who) {
        self.bridge_mut(who).kill().await;
        self.record.note(who, What::Ended);
    }

    async fn terminate(&mut self, who: Who) {
        self.bridge(who).sigterm();
        let status = self.bridge_mut(who).wait().await;
        assert_eq!(status.code(), Some(0), "{}", self.bridge(who).output());
        self.record.note(who, What::Ended);
    }

    fn halt(&self, who: Who) {
        self.bridge(who).pause();
        self.record.note(who, What::Halted);
    }

    fn resume(&self, who: Who) {
        self.record.note(who, What::Resumed);
        self.bridge(who).resume();
    }

    /// Waits until that one, alone, has delivered all that it has and the source has for it.
    async fn drained(&self, who: Who) {
        self.until_active(who).await;
        let what = "it has delivered everything";
        let all = ("all", "out");
        Ledger::until(self.bridge(who), all, what, PATIENCE, Ledger::is_drained).await;
    }

    /// Lets each of them deliver what it has: what an exclusive destination waits for.
    async fn both_drained(&mut self) {
        for who in Who::BOTH {
            let other = who.other();
            self.terminate(other).await;
            self.drained(who).await;
            let bridge = self.bridge_mut(other);
            bridge.relaunch();
            bridge.ready().await;
        }
    }

    /// How many lines with that event that one has logged.
    fn logged(&self, who: Who, event: &str) -> usize {
        let line = format!("\"event\":\"{event}\"");
        self.bridge(who).stderr().matches(&line).count()
    }

    /// Never two at once. Says how many tenures there were.
    fn never_two_at_once(&self) -> usize {
        let events = self.record.events();
        let logs = Who::BOTH.map(|who| (who, self.bridge(who).stderr()));
        let (sessions, brokers): (&[&str], &[&str]) = match self.kind {
            Destination::Exclusive => (&["plant", "cloud"], &["source", "destination"]),
            Destination::OfEach => (&["plant"], &["source"]),
        };
        let (mut wrong, tenures) = checker::in_the_logs(&logs.into(), &events, sessions);
        wrong.extend(checker::on_the_wire(&events, brokers));
        let told = || {
            Who::BOTH
                .map(|who| self.bridge(who).stderr())
                .join("\n---\n")
        };
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", told());
        tenures
    }
}

// === one fault at a time ===

async fn killed_under_load(store: Store) {
    const MESSAGES: u64 = 20_000;
    let mut pair = Pair::start(store, Destination::OfEach).await;
    let active = pair.active().await;
    let load = Load {
        messages: MESSAGES,
        size: 64,
    };
    let feeder = Feeder::start(pair.source.port(), "t", load);
    wait_until("it is under load", PATIENCE, || {
        pair.collector.distinct() > MESSAGES / 20
    })
    .await;
    pair.kill(active).await;
    let killed = Instant::now();
    let standby = active.other();
    wait_for("the standby delivers", PATIENCE, async || {
        let ledger = Ledger::of(&pair.bridge(standby).metrics().await, "all", "out");
        (ledger.delivered > 0).then_some(())
    })
    .await;
    let took = killed.elapsed();
    println!("the standby delivers {took:.1?} after the active was killed");
    assert!(took < LEASE_TTL + Duration::from_secs(5), "{took:?}");
    feeder.finish().await;
    pair.drained(standby).await;
    // What it had acknowledged waits in its journal, and goes out while it stands by.
    let bridge = pair.bridge_mut(active);
    bridge.relaunch();
    bridge.ready().await;
    pair.collector.until(MESSAGES, PATIENCE).await;
    let tally = pair.collector.tally();
    assert_eq!((tally.missing(MESSAGES).len(), tally.damaged()), (0, 0));
    let standing_by = pair.bridge(active).get("/readyz?level=full").await.unwrap();
    assert_eq!(
        (standing_by.status, standing_by.body.as_str()),
        (200, "ready\nrole: standby\n")
    );
    assert_eq!(pair.never_two_at_once(), 2, "one tenure each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_standby_delivers_soon_after_the_active_was_killed_with_a_file() {
    killed_under_load(Store::file()).await;
}

async fn halted_past_its_lease(store: Store) {
    const MESSAGES: u64 = 10_000;
    let mut pair = Pair::start(store, Destination::Exclusive).await;
    let active = pair.active().await;
    let load = Load {
        messages: MESSAGES,
        size: 64,
    };
    let feeder = Feeder::start(pair.source.port(), "t", load);
    wait_until("it is under load", PATIENCE, || {
        pair.collector.distinct() > MESSAGES / 50
    })
    .await;
    pair.halt(active);
    let standby = active.other();
    pair.until_active(standby).await;
    wait_for("the standby delivers", PATIENCE, async || {
        let ledger = Ledger::of(&pair.bridge(standby).metrics().await, "all", "out");
        (ledger.delivered > 0).then_some(())
    })
    .await;
    pair.resume(active);
    wait_until("it steps down", PATIENCE, || {
        pair.logged(active, "session_stepped_down") == 2
    })
    .await;
    assert!(pair.is_active(standby).await, "who has the lease keeps it");
    assert_eq!(
        pair.logged(active, "session_taken_over"),
        0,
        "it was by right"
    );
    feeder.finish().await;
    pair.drained(standby).await;
    pair.both_drained().await;
    pair.collector.until(MESSAGES, PATIENCE).await;
    assert_eq!(pair.collector.tally().missing(MESSAGES), Vec::<u64>::new());
    let tenures = pair.never_two_at_once();
    assert!(tenures >= 2, "{tenures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_an_active_that_was_halted_past_its_lease_writes_nothing_more_with_a_file() {
    halted_past_its_lease(Store::file()).await;
}

/// A stop in order hands the lease over at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_at_a_stop_in_order_the_standby_takes_over_at_once() {
    let mut pair = Pair::start(Store::file(), Destination::Exclusive).await;
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
    assert!(ended.elapsed() < LEASE_TTL, "it was given back");
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
            pair.store.take_away();
            sleep(at_most(chance, LEASE_TTL * 2)).await;
            pair.store.bring_back();
            "without the store of its lease"
        }
    }
}

async fn rounds_of_faults(store: Store) {
    const A_ROUND: u64 = 500;
    let mut pair = Pair::start(store, Destination::Exclusive).await;
    let (rounds, mut chance) = (rounds(), Chance::new(seed()));
    println!("{chance:?}");
    let load = Load {
        messages: A_ROUND * rounds,
        size: 64,
    };
    let began = Instant::now();
    let feeder = Feeder::start(pair.source.port(), "t", load);
    let mut faults = BTreeMap::<&str, u32>::new();
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let fault = a_fault(&mut pair, &mut chance).await;
        *faults.entry(fault).or_default() += 1;
        let over = Instant::now();
        pair.active().await;
        longest = longest.max(over.elapsed());
    }
    feeder.finish().await;
    for who in Who::BOTH {
        pair.bridge_mut(who).ready().await;
    }
    pair.both_drained().await;
    pair.collector.until(A_ROUND * rounds, PATIENCE).await;
    let tally = pair.collector.tally();
    let tenures = pair.never_two_at_once();
    println!(
        "{rounds} rounds in {:.0?}: {faults:?}; {tenures} tenures, never two at once; someone was \
         active again {longest:.1?} after a fault at the latest; {} messages, {} duplicates",
        began.elapsed(),
        tally.distinct(),
        tally.duplicates(),
    );
    assert_eq!(tally.missing(A_ROUND * rounds), Vec::<u64>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_never_two_at_once_whatever_happens_with_a_file() {
    rounds_of_faults(Store::file()).await;
}
