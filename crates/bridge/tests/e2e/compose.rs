//! What `docker-compose.yml` says, run without containers: its very files, with two real brokers and
//! two replicas of the bridge under the hostnames that it gives them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bridge_testkit::{
    BridgeProcess, Collector, Ledger, PortLease, Postgres, Publish, RawClient, numbered,
    require_mosquitto, wait_for,
};
use tempfile::TempDir;

use crate::scale_out::{namespace, on_host};
use crate::setup::{BRIDGE, PATIENCE, publish, until_live};

const MESSAGES: u64 = 3_000;

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/compose")
}

/// A Mosquitto with one of the configurations that the containers have; killed on drop.
struct Broker {
    folder: TempDir,
    port: PortLease,
    child: Option<Child>,
}

impl Broker {
    async fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = PortLease::take();
        let text = fs::read_to_string(files().join(config)).unwrap();
        // Other paths and another port than in a container, and nothing else.
        let here = folder.path().display();
        let text = text
            .replace(
                "listener 1883",
                &format!("listener {} 127.0.0.1", port.port()),
            )
            .replace("/mosquitto/data/", &format!("{here}/"))
            .replace("/mosquitto/config/", &format!("{here}/"))
            .replace("log_dest stdout", "log_dest stderr");
        assert!(!text.contains("/mosquitto/"), "{text}");
        let user = if rustix::process::geteuid().is_root() {
            "user root\n"
        } else {
            ""
        };
        fs::write(
            folder.path().join("mosquitto.conf"),
            format!("{text}{user}"),
        )
        .unwrap();
        fs::copy(files().join("cloud.acl"), folder.path().join("cloud.acl")).unwrap();
        let mut broker = Self {
            folder,
            port,
            child: None,
        };
        broker.launch().await;
        broker
    }

    async fn launch(&mut self) {
        let log = self.folder.path().join("log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(require_mosquitto())
            .arg("-c")
            .arg(self.folder.path().join("mosquitto.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
        let port = self.port.port();
        wait_for("mosquitto accepts", PATIENCE, async || {
            RawClient::connect(port, "trial").await.ok()
        })
        .await;
    }

    /// Ends it in good order, so that it saves what it has.
    fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
    }

    fn port(&self) -> u16 {
        self.port.port()
    }

    fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One replica, with the file of both.
struct Replica {
    process: BridgeProcess,
    data: PathBuf,
    _port: PortLease,
}

impl Replica {
    fn start(name: &str, plant: &Broker, cloud: &Broker, lease: &str, folder: &Path) -> Self {
        let port = PortLease::take();
        let data = folder.join(name);
        let file = files().join("bridge/bridge.yaml");
        let process = on_host(name, &file)
            .env("PLANT_URL", plant.url())
            .env("CLOUD_URL", cloud.url())
            .env("LEASE_URL", lease)
            .env("LEASE_PASSWORD", Postgres::PASSWORD)
            .env("BRIDGE_DATA_DIR", &data)
            .env("BRIDGE_MONITOR", format!("0.0.0.0:{}", port.port()))
            .monitor_port(port.port())
            .spawn();
        Self {
            process,
            data,
            _port: port,
        }
    }

    /// What it keeps of what was given up on, as an operator would ask.
    fn dead_letters(&self) -> String {
        let output = Command::new(BRIDGE)
            .args(["dead-letters", "list"])
            .arg(&self.data)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Stops it in order.
    async fn stop(&mut self) {
        self.process.sigterm();
        let status = self.process.wait().await;
        assert!(status.success(), "{}", self.process.output());
    }

    async fn ledger(&self, route: &str) -> Ledger {
        Ledger::of(&self.process.metrics().await, route, "cloud")
    }
}

/// The sum over both replicas.
async fn sum(replicas: &[Replica], pick: impl Fn(&Ledger) -> u64) -> u64 {
    let mut sum = 0;
    for replica in replicas {
        sum += pick(&replica.ledger("telemetry").await);
    }
    sum
}

#[tokio::test]
async fn what_compose_runs_shares_the_work_survives_outages_and_keeps_what_is_refused() {
    if namespace().is_none() {
        eprintln!("skipped: no process gets a hostname of its own here");
        return;
    }
    let plant = Broker::start("plant.conf").await;
    let mut cloud = Broker::start("cloud.conf").await;
    let folder = tempfile::tempdir().unwrap();
    let database = Postgres::start().await;
    let lease = format!("{}?sslmode=disable", database.url());
    let mut replicas = ["bridge-a", "bridge-b"]
        .map(|name| Replica::start(name, &plant, &cloud, &lease, folder.path()));
    for replica in &mut replicas {
        replica.process.ready().await;
        until_live(&replica.process, "telemetry/cloud", 1).await;
    }

    let collector = Collector::start(cloud.port(), "plants/7/+/+").await;
    publish(
        plant.port(),
        (0..MESSAGES).map(|n| numbered("sensors", n, 64)),
    )
    .await;
    collector.until(MESSAGES, PATIENCE).await;
    collector.barrier().await;
    assert_eq!(
        collector.tally().duplicates(),
        0,
        "delivered more than once"
    );
    for replica in &replicas {
        let ledger = replica.ledger("telemetry").await;
        assert!(ledger.received > MESSAGES / 4, "hardly took part: {ledger}");
        // What is refused from the queue is deferred first.
        let telemetry = ("telemetry", "cloud");
        let drained = Ledger::is_drained;
        Ledger::until(&replica.process, telemetry, "drained", PATIENCE, drained).await;
    }

    // The access control of the cloud refuses this one, and says so.
    publish(plant.port(), [Publish::new("sensors/denied", "x")]).await;
    wait_for("one of them keeps what is refused", PATIENCE, async || {
        (sum(&replicas, |ledger| ledger.dead_letters).await == 1).then_some(())
    })
    .await;
    wait_for(
        "it is among the dead letters of one",
        PATIENCE,
        async || {
            let lists: String = replicas.iter().map(Replica::dead_letters).collect();
            let told = lists.contains("sensors/denied") && lists.contains("not_authorized");
            told.then_some(())
        },
    )
    .await;

    // The cloud goes away: what comes meanwhile waits on the disks of both.
    cloud.stop();
    let more = MESSAGES..2 * MESSAGES;
    publish(plant.port(), more.map(|n| numbered("sensors", n, 64))).await;
    wait_for("all of it waits", PATIENCE, async || {
        (sum(&replicas, |ledger| ledger.queued).await == MESSAGES).then_some(())
    })
    .await;
    cloud.launch().await;
    collector.until(2 * MESSAGES, PATIENCE).await;

    // One of them has the exclusive session. When it stops, the other goes on.
    let first = active(&replicas).await;
    let alarms = |from: u64| (from..from + 100).map(|n| numbered("alarms", n, 64));
    publish(plant.port(), alarms(2 * MESSAGES)).await;
    collector.until(2 * MESSAGES + 100, PATIENCE).await;
    assert_eq!(replicas[1 - first].ledger("alarms").await.received, 0);
    replicas[first].stop().await;
    publish(plant.port(), alarms(2 * MESSAGES + 100)).await;
    collector.until(2 * MESSAGES + 200, PATIENCE).await;
    replicas[1 - first].stop().await;
}

/// The replica that holds the lease, of which there is one.
async fn active(replicas: &[Replica]) -> usize {
    wait_for("one holds the lease", PATIENCE, async || {
        let mut holders = Vec::new();
        for (number, replica) in replicas.iter().enumerate() {
            let metrics = replica.process.metrics().await;
            if metrics.whole("bridge_lease_held", &[]) == Some(1) {
                holders.push(number);
            }
        }
        assert!(holders.len() < 2, "both hold it");
        holders.pop()
    })
    .await
}
