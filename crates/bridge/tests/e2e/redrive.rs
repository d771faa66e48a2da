//! Dead letters that are sent on while everything breaks, and those that cannot be.

mod job;
mod offline;
mod refused;
mod removed;
mod sent;
mod storm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_testkit::{
    BridgeConfig, BridgeProcess, Installation, Mosquitto, PortLease, Proxy, Publish,
};

use self::sent::Sent;
use crate::admin::{Admin, put_token};
use crate::restart::until_acknowledged;
use crate::setup::{BRIDGE, PATIENCE, asked, publish, until};

/// How many messages the bridge has open at the destination.
const WINDOW: usize = 8;

/// A bridge with dead letters whose cause is mended, to a destination behind a line that can be
/// cut.
struct Night {
    destination: Arc<Mosquitto>,
    line: Proxy,
    admin: PortLease,
    installation: Installation,
    bridge: BridgeProcess,
    /// How long the destination's log was at each kill.
    killed: Vec<usize>,
    _source: Mosquitto,
}

impl Night {
    /// So many dead letters, each with a topic of its own.
    async fn with_dead_letters(count: usize) -> Self {
        let source = Mosquitto::start().await;
        let destination = Mosquitto::builder().acl("topic read #\n").start().await;
        let line = Proxy::start(destination.port()).await;
        let admin = PortLease::take();
        let listen = format!("127.0.0.1:{}", admin.port());
        let config = BridgeConfig::between(source.url(), line.url())
            .top(format!(
                "admin: {{ listen: \"{listen}\", token_file: token }}"
            ))
            .cloud(format!("max_in_flight: {WINDOW}"))
            // More than the window takes waits in the queue, and is refused from there.
            .binding("deferred: { window: 1s, retry_interval: 1s }");
        let installation = Installation::new(&config);
        put_token(&installation);
        let bridge = installation.bridge(BRIDGE).start().await;
        let messages = (0..count).map(|n| Publish::new(format!("t/{n}"), n.to_string()));
        publish(source.port(), messages).await;
        until(&bridge, "all are dead letters", |ledger| {
            ledger.dead_letters == count as u64
        })
        .await;
        // What the source does not know to be settled comes again after a kill.
        until_acknowledged(&source, "bridge-plant", count).await;
        destination.reload("topic readwrite #\n").await;
        Self {
            destination: Arc::new(destination),
            line,
            admin,
            installation,
            bridge,
            killed: Vec::new(),
            _source: source,
        }
    }

    const fn admin(&self) -> Admin {
        Admin(self.admin.port())
    }

    /// The topic of each dead letter, by its id.
    async fn dead_letters(&self) -> BTreeMap<String, String> {
        let (mut all, mut cursor) = (BTreeMap::new(), String::new());
        loop {
            let path = format!("/dead-letters?limit=1000{cursor}");
            let page = self.admin().get(&path).await;
            for item in page["items"].as_array().unwrap() {
                let text = |field: &str| item[field].as_str().unwrap().to_owned();
                all.insert(text("id"), text("topic"));
            }
            let Some(next) = page["next"].as_str() else {
                return all;
            };
            cursor = format!("&cursor={next}");
        }
    }

    /// Kills the bridge and says how many dead letters there are then. None of them was ever sent
    /// to the destination: what moves is on disk before it goes anywhere.
    async fn kill(&mut self) -> u64 {
        self.bridge.kill().await;
        self.killed.push(self.destination.log().len());
        let command = "dead-letters list DATA --limit 1000000";
        let list = asked(&self.installation, command).await;
        let letters = list["dead_letters"].as_array().unwrap().iter();
        let dead: BTreeSet<_> = letters.map(|l| l["topic"].as_str().unwrap()).collect();
        let sent = self.sent();
        let both: Vec<_> = sent.topics().intersection(&dead).copied().collect();
        assert_eq!(both, [""; 0], "sent, and dead letters all the same");
        dead.len() as u64
    }

    /// How long the journal is.
    fn journal_bytes(&self) -> u64 {
        let folder = self.installation.data_dir().join("journal");
        let files = std::fs::read_dir(folder).unwrap();
        // One that is gone meanwhile counts for nothing.
        let lengths = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        lengths.sum()
    }

    async fn relaunch(&mut self) {
        self.bridge.relaunch();
        self.bridge.ready().await;
    }

    fn sent(&self) -> Sent {
        Sent::read(&self.destination.log(), "bridge-cloud")
    }

    /// Waits until all is delivered, and sees that it came, and once but for what the faults excuse.
    async fn all_came(&self, count: usize) {
        let ledger = until(&self.bridge, "all is delivered", |ledger| {
            ledger.is_drained() && ledger.dead_letters == 0
        });
        let ledger = ledger.await;
        let lost = ledger.dropped + ledger.deleted + ledger.left;
        assert_eq!((ledger.received, lost), (0, 0), "{ledger}");
        let sent = self.sent();
        let expected: BTreeSet<_> = (0..count).map(|n| format!("t/{n}")).collect();
        let came: BTreeSet<_> = sent.topics().into_iter().map(str::to_owned).collect();
        let missing: Vec<_> = expected.difference(&came).collect();
        assert!(missing.is_empty(), "{missing:?} never came");
        assert_eq!(came.len(), count, "more came than was there");
        sent.every_repetition_has_a_cause(&self.killed, WINDOW);
        println!("{count} came, {} of them again", sent.again());
    }
}

/// The number in that variable of the environment, or else that one.
fn size(variable: &str, ordinary: usize) -> usize {
    let text = std::env::var(variable).ok();
    text.map_or(ordinary, |text| text.parse().expect("a whole number"))
}
