//! Two instances of one bridge, between two brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_testkit::{
    BridgeConfig, BridgeProcess, Collector, Feeder, Installation, Ledger, Load, Mosquitto,
    PortLease, http, wait_for, wait_until,
};
use serde_json::Value;

use super::LEASE_TTL;
use super::checker;
use super::record::{Record, Tap, What, Who};
use super::store::Store;
use crate::setup::{BRIDGE, PATIENCE};

/// What opens the admin API of each.
const TOKEN: &str = "swordfish-0123456789abcdef";

/// How the destination's session is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    Exclusive,
    /// Each instance has one of its own.
    OfEach,
}

pub(crate) struct Instance {
    pub(crate) bridge: BridgeProcess,
    pub(crate) source: Tap,
    pub(crate) destination: Tap,
    admin: PortLease,
    _installation: Installation,
}

/// Two instances between two brokers.
pub(crate) struct Pair {
    pub(crate) record: Record,
    pub(crate) store: Store,
    kind: Destination,
    pub(crate) source: Mosquitto,
    _destination: Mosquitto,
    pub(crate) collector: Collector,
    pub(crate) instances: BTreeMap<Who, Instance>,
}

impl Pair {
    pub(crate) async fn start(store: Store, kind: Destination) -> Self {
        Self::with_lease(store, kind, LEASE_TTL).await
    }

    /// The same, with a lease that lasts so long.
    pub(crate) async fn with_lease(store: Store, kind: Destination, ttl: Duration) -> Self {
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
            let admin = PortLease::take();
            let cloud = match kind {
                Destination::Exclusive => "session_mode: exclusive",
                Destination::OfEach => "client_id_suffix: nonce",
            };
            let config = BridgeConfig::between(to_source.url(), to_destination.url())
                .top(store.config(ttl))
                .top(format!(
                    "admin: {{ listen: \"127.0.0.1:{}\", token: {TOKEN} }}",
                    admin.port()
                ))
                .plant("session_mode: exclusive")
                .cloud(cloud);
            let installation = Installation::new(&config);
            // A standby is ready: neither waits for the other.
            let bridge = installation.bridge(BRIDGE).args(["--log-format", "json"]);
            let instance = Instance {
                bridge: bridge.start().await,
                source: to_source,
                destination: to_destination,
                admin,
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

    pub(crate) fn bridge(&self, who: Who) -> &BridgeProcess {
        &self.instances[&who].bridge
    }

    pub(crate) fn bridge_mut(&mut self, who: Who) -> &mut BridgeProcess {
        &mut self.instances.get_mut(&who).unwrap().bridge
    }

    /// Who holds the lease and is connected to the source, as soon as someone is.
    pub(crate) async fn active(&self) -> Who {
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
    pub(crate) async fn is_active(&self, who: Who) -> bool {
        // A process that is halted or dead gives no answer.
        let asked = self.bridge(who).get("/readyz");
        match tokio::time::timeout(Duration::from_secs(2), asked).await {
            Ok(Ok(answer)) => answer.status == 200 && answer.body.contains("role: active"),
            _ => false,
        }
    }

    /// What the admin API of that one says of the bridge as a whole.
    pub(crate) async fn told(&self, who: Who) -> Value {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str())];
        let port = self.instances[&who].admin.port();
        let asked = http::request(port, "GET", "/api/v1/bridge", &headers, "").await;
        serde_json::from_str(&asked.unwrap().body).unwrap()
    }

    pub(crate) async fn until_active(&self, who: Who) {
        wait_for("it is active", PATIENCE, async || {
            self.is_active(who).await.then_some(())
        })
        .await;
    }

    /// Feeds the source so many messages; more than `begun` of them have been delivered then.
    pub(crate) async fn under_load(&self, messages: u64, begun: u64) -> Feeder {
        let load = Load { messages, size: 64 };
        let feeder = Feeder::start(self.source.port(), "t", load);
        wait_until("it is under load", PATIENCE, || {
            self.collector.distinct() > begun
        })
        .await;
        feeder
    }

    /// Waits until that instance has delivered something since its start.
    pub(crate) async fn until_delivering(&self, who: Who) {
        wait_for(&format!("{who:?} delivers"), PATIENCE, async || {
            let ledger = Ledger::of(&self.bridge(who).metrics().await, "all", "out");
            (ledger.delivered > 0).then_some(())
        })
        .await;
    }

    /// Waits until that instance has logged the event so many times.
    pub(crate) async fn until_logged(&self, who: Who, event: &str, times: usize) {
        let what = format!("{who:?} says {event}, {times} times in all");
        wait_until(&what, PATIENCE, || self.logged(who, event) == times).await;
    }

    pub(crate) async fn kill(&mut self, who: Who) {
        // From now on it cannot help it; that it is gone may be seen much later.
        self.record.note(who, What::Halted);
        self.bridge_mut(who).kill().await;
        self.record.note(who, What::Ended);
    }

    pub(crate) async fn terminate(&mut self, who: Who) {
        self.bridge(who).sigterm();
        let status = self.bridge_mut(who).wait().await;
        assert_eq!(status.code(), Some(0), "{}", self.bridge(who).output());
        self.record.note(who, What::Ended);
    }

    pub(crate) fn halt(&self, who: Who) {
        self.bridge(who).pause();
        self.record.note(who, What::Halted);
    }

    pub(crate) fn resume(&self, who: Who) {
        self.record.note(who, What::Resumed);
        self.bridge(who).resume();
    }

    /// Waits until that one, alone, has delivered all that it has and the source has for it.
    pub(crate) async fn drained(&self, who: Who) {
        self.until_active(who).await;
        let what = "it has delivered everything";
        let all = ("all", "out");
        Ledger::until(self.bridge(who), all, what, PATIENCE, Ledger::is_drained).await;
    }

    /// Lets each of them deliver what it has: what an exclusive destination waits for.
    pub(crate) async fn both_drained(&mut self) {
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
    pub(crate) fn logged(&self, who: Who, event: &str) -> usize {
        let line = format!("\"event\":\"{event}\"");
        self.bridge(who).stderr().matches(&line).count()
    }

    /// Never two at once. Says how many tenures there were.
    pub(crate) fn never_two_at_once(&self) -> usize {
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
