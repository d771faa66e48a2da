//! Replicas that share one file: by a suffix of their client ids each is somebody, and what comes
//! by a shared subscription is one's or another's.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bridge_testkit::{
    BridgeProcess, BridgeProcessBuilder, Collector, Ledger, Mosquitto, PortLease, RawClient,
    numbered,
};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::setup::{BRIDGE, PATIENCE, until_live};

const REPLICAS: usize = 3;
const MESSAGES: u64 = 30_000;
/// How many are published at once, where one goes on until something has happened.
const AT_ONCE: u64 = 1_000;
/// How many those are ahead of what has come, at most.
const AHEAD: u64 = 5_000;
/// For replicas whose hostnames do not change.
const LASTING: &str = "session_mode: persistent, client_id_suffix: hostname, \
                       assert_stable_client_identity: true";

/// The file that all replicas share. What is a replica's own comes from its environment.
fn file(broker: &Mosquitto, identity: &str) -> String {
    format!(
        "bridge: {{ id: plant-7 }}\n\
         data_dir: ${{BRIDGE_DATA}}\n\
         monitor: {{ listen: \"127.0.0.1:${{BRIDGE_MONITOR_PORT}}\" }}\n\
         sessions:\n\
         \x20 site: {{ url: \"{}\", client_id: bridge, {identity} }}\n\
         routes:\n\
         \x20 all:\n\
         \x20   from: {{ session: site, topics: [\"$share/bridge/in/#\"], qos: 1 }}\n\
         \x20   bindings:\n\
         \x20     out: {{ session: site, topic: \"out/{{topic}}\" }}\n",
        broker.url()
    )
}

/// Replicas of one file, each with a data folder and a monitor of its own.
struct Replicas {
    bridges: Vec<BridgeProcess>,
    _ports: Vec<PortLease>,
    _folder: TempDir,
}

impl Replicas {
    /// Starts them all at once. `program` says how the binary is run as the replica of a number.
    async fn start(file: &str, program: impl Fn(usize, &Path) -> BridgeProcessBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bridge.yaml");
        std::fs::write(&path, file).unwrap();
        let mut ports = Vec::new();
        let mut bridges = Vec::new();
        for number in 0..REPLICAS {
            let port = PortLease::take();
            let bridge = program(number, &path)
                .env("BRIDGE_DATA", folder.path().join(format!("data-{number}")))
                .env("BRIDGE_MONITOR_PORT", port.port().to_string())
                .monitor_port(port.port())
                .spawn();
            ports.push(port);
            bridges.push(bridge);
        }
        for bridge in &mut bridges {
            bridge.ready().await;
        }
        Self {
            bridges,
            _ports: ports,
            _folder: folder,
        }
    }

    /// The client ids that each says it has, the reading one first.
    fn client_ids(&self) -> Vec<[String; 2]> {
        let of = |bridge: &BridgeProcess| {
            let log = bridge.stderr();
            let line = log.lines().find(|line| line.contains("session_identity"));
            let line = line.unwrap_or_else(|| panic!("no identity is told:\n{log}"));
            let field = |name: &str| {
                let (_, rest) = line.split_once(&format!(" {name}=")).unwrap();
                let value = rest.split(' ').next().unwrap();
                value.trim_matches('"').to_owned()
            };
            [field("client_id"), field("publisher_client_id")]
        };
        self.bridges.iter().map(of).collect()
    }
}

/// The binary, as it is.
fn plain(_number: usize, file: &Path) -> BridgeProcessBuilder {
    BridgeProcess::builder(BRIDGE).arg("run").arg(file)
}

/// The binary on a machine of another name: in a UTS namespace of its own, as in a container.
pub(crate) fn on_host(name: &str, file: &Path) -> BridgeProcessBuilder {
    const RENAMED: &str = "echo \"$1\" > /proc/sys/kernel/hostname && shift && exec \"$@\"";
    let (program, options) = namespace().unwrap();
    BridgeProcess::builder(program)
        .args(options)
        .args(["sh", "-c", RENAMED, "sh", name, BRIDGE])
        .arg("run")
        .arg(file)
}

fn on_edge(number: usize, file: &Path) -> BridgeProcessBuilder {
    on_host(&format!("edge-{number}"), file)
}

/// How a process gets a hostname of its own here, if that is allowed.
pub(crate) fn namespace() -> Option<(PathBuf, Vec<&'static str>)> {
    let unshare = bridge_testkit::find_program("unshare")?;
    let root = rustix::process::geteuid().is_root();
    let options = if root {
        vec!["--uts"]
    } else {
        vec!["--user", "--map-root-user", "--uts"]
    };
    let tried = std::process::Command::new(&unshare)
        .args(&options)
        .args(["sh", "-c", "echo edge > /proc/sys/kernel/hostname"])
        .stderr(std::process::Stdio::null())
        .status();
    tried
        .is_ok_and(|status| status.success())
        .then_some((unshare, options))
}

/// 30,000 messages through three replicas: each is delivered once, all take part, and no one takes
/// another's place.
async fn share_the_work(
    suffix: &str,
    program: impl Fn(usize, &Path) -> BridgeProcessBuilder,
) -> Vec<[String; 2]> {
    let broker = Mosquitto::builder().terse().start().await;
    let replicas = Replicas::start(
        &file(&broker, &format!("client_id_suffix: {suffix}")),
        program,
    )
    .await;
    let ids = replicas.client_ids();
    let distinct: BTreeSet<_> = ids.iter().flatten().collect();
    assert_eq!(distinct.len(), 2 * REPLICAS, "{ids:?}");

    let collector = Collector::start(broker.port(), "out/#").await;
    let mut client = RawClient::connect(broker.port(), "publisher")
        .await
        .unwrap();
    let messages = (0..MESSAGES).map(|number| numbered("in", number, 64));
    let report = client.publish_all(messages, 100).await;
    report.expect_all_accepted();
    collector.until(MESSAGES, 4 * PATIENCE).await;
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!(tally.distinct(), MESSAGES);
    assert_eq!(tally.duplicates(), 0, "delivered more than once");

    let mut received = 0;
    for bridge in &replicas.bridges {
        let all_settled = |ledger: &Ledger| ledger.is_drained();
        let ledger = Ledger::until(bridge, ("all", "out"), "drained", PATIENCE, all_settled).await;
        assert!(
            ledger.received > MESSAGES / 10,
            "hardly took part: {ledger}"
        );
        assert_eq!(ledger.received, ledger.delivered, "{ledger}");
        received += ledger.received;
        let metrics = bridge.metrics().await;
        let takeovers = metrics.whole("bridge_mqtt_session_takeover_total", &[]);
        assert_eq!(takeovers, Some(0));
    }
    assert_eq!(received, MESSAGES, "each was one replica's");
    // This broker does not tell a client that another took its place; it tells its log.
    let log = broker.log();
    assert!(!log.contains("already connected"), "a takeover:\n{log}");
    ids
}

#[tokio::test]
async fn i15_three_replicas_with_nonces_share_the_work() {
    let ids = share_the_work("nonce", plain).await;
    for [reads, writes] in ids {
        let nonce = reads.strip_prefix("bridge-").unwrap();
        assert_eq!(nonce.len(), 8, "{reads}");
        assert_eq!(writes, format!("{reads}-pub"));
    }
}

#[tokio::test]
async fn i15_three_replicas_on_three_hosts_share_the_work() {
    if namespace().is_none() {
        eprintln!("skipped: no process gets a hostname of its own here; see the test with nonces");
        return;
    }
    let ids = share_the_work("hostname", on_edge).await;
    let expected: Vec<_> = (0..REPLICAS)
        .map(|number| {
            [
                format!("bridge-edge-{number}"),
                format!("bridge-edge-{number}-pub"),
            ]
        })
        .collect();
    assert_eq!(ids, expected);
}

/// What a stateful set does: the replica comes back under the name that it had, and finds at the
/// broker what that has kept for it.
#[tokio::test]
async fn i07_a_replica_that_is_killed_and_comes_back_under_its_name_loses_nothing() {
    if namespace().is_none() {
        eprintln!("skipped: no process gets a hostname of its own here");
        return;
    }
    let broker = Mosquitto::builder().terse().start().await;
    let mut replicas = Replicas::start(&file(&broker, LASTING), on_edge).await;
    let collector = Collector::start(broker.port(), "out/#").await;
    let port = broker.port();
    let feeding = tokio::spawn(async move {
        let mut client = RawClient::connect(port, "publisher").await.unwrap();
        let messages = (0..MESSAGES).map(|number| numbered("in", number, 64));
        let report = client.publish_all(messages, 1_000).await;
        report.expect_all_accepted();
    });
    collector.until(MESSAGES / 4, PATIENCE).await;
    let one = &mut replicas.bridges[0];
    one.kill().await;
    one.relaunch();
    one.ready().await;
    feeding.await.unwrap();
    collector.until(MESSAGES, 4 * PATIENCE).await;
}

/// What a deployment does when it shrinks, or rolls: the broker keeps nothing for a replica that
/// goes, so what that one has been given it has to bring to an end itself. `queues` says that it
/// does so in its own folder, from which it sends when it is back.
async fn one_of_three_is_stopped_amid(delivery: &str, queues: bool) {
    let broker = Mosquitto::builder().terse().start().await;
    let mut file = file(&broker, "client_id_suffix: nonce");
    file.push_str("    delivery: ");
    file.push_str(delivery);
    let mut replicas = Replicas::start(&file, plain).await;
    if !queues {
        // What comes before that goes through its folder, and waits there when it is stopped.
        for bridge in &replicas.bridges {
            until_live(bridge, "all/out", 1).await;
        }
    }
    let collector = Collector::start(broker.port(), "out/#").await;
    let stopped = Cell::new(false);
    // Until it has stopped, however fast the machine is.
    let feeding = async {
        let mut client = RawClient::connect(broker.port(), "publisher")
            .await
            .unwrap();
        let mut fed = 0;
        while fed < MESSAGES || !stopped.get() {
            let messages = (fed..fed + AT_ONCE).map(|number| numbered("in", number, 64));
            let report = client.publish_all(messages, 1_000).await;
            report.expect_all_accepted();
            fed += AT_ONCE;
            collector.until(fed.saturating_sub(AHEAD), PATIENCE).await;
        }
        fed
    };
    let one = &mut replicas.bridges[0];
    let stopping = async {
        collector.until(MESSAGES / 4, PATIENCE).await;
        let asked = Instant::now();
        one.sigterm();
        let status = one.wait().await;
        eprintln!("{delivery}: stopped in {:?}", asked.elapsed());
        assert_eq!(status.code(), Some(0), "{}", one.output());
        let log = one.stderr();
        if queues {
            one.relaunch();
        }
        stopped.set(true);
        log
    };
    let (fed, log) = tokio::join!(feeding, stopping);
    collector.until(fed, 4 * PATIENCE).await;
    collector.barrier().await;
    let tally = collector.tally();
    assert_eq!((tally.distinct(), tally.duplicates()), (fed, 0));
    assert!(log.contains("session_wound_down"), "{log}");
    assert!(!log.contains("intake_cut_off"), "{log}");
}

#[tokio::test]
async fn case_35_a_replica_that_is_stopped_in_order_loses_nothing_of_a_session_that_is_not_kept() {
    one_of_three_is_stopped_amid("store_and_forward", false).await;
}

#[tokio::test]
async fn case_35_nor_does_one_that_has_nowhere_to_keep_it() {
    one_of_three_is_stopped_amid("direct_hold", false).await;
}

#[tokio::test]
async fn case_35_nor_does_one_that_keeps_all_of_it() {
    one_of_three_is_stopped_amid("outbox", true).await;
}
