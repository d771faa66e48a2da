//! Two Mosquittos, a line that breaks, a bridge, and what happens to them.

use std::process::Command;
use std::time::{Duration, Instant};

use bridge_testkit::{
    BridgeProcess, Chance, Collector, Cut, Installation, Ledger, Mosquitto, Proxy, wait_for,
};
use tokio::time::sleep;

use crate::books::{Books, Outcome, waiting};
use crate::feeding::Feeding;

const BRIDGE: &str = env!("CARGO_BIN_EXE_bridge");
const PATIENCE: Duration = Duration::from_secs(120);
const TOPICS: u64 = 8;
/// `out` loses nothing but what expires; `copy` has every policy that drops.
const BINDINGS: [&str; 2] = ["out", "copy"];

pub(crate) struct Stage {
    _source: Mosquitto,
    destination: Mosquitto,
    line: Proxy,
    installation: Installation,
    bridge: BridgeProcess,
    collector: Collector,
    feeding: Feeding,
    chance: Chance,
    books: Books,
    began: Instant,
}

/// What everyone may do, and of `granted` the topics that the bridge may write.
fn acl(granted: impl Fn(&str) -> bool) -> String {
    let mut acl = "topic read #\ntopic readwrite testkit/#\n".to_owned();
    for prefix in ["", "copy/"] {
        for number in 0..TOPICS {
            let topic = format!("{prefix}soak/{number}");
            if granted(&topic) {
                acl.extend(["topic readwrite ", &topic, "\n"]);
            }
        }
    }
    acl
}

fn config(source: &Mosquitto, line: &Proxy, monitor: u16) -> String {
    format!(
        r#"bridge: {{ id: soak }}
data_dir: data
monitor: {{ listen: "127.0.0.1:{monitor}" }}
sessions:
  plant:
    url: {}
    client_id: soak-plant
    reconnect: {{ min: 20ms, max: 200ms }}
  cloud:
    url: {}
    client_id: soak-cloud
    reconnect: {{ min: 20ms, max: 200ms }}
    keep_alive: 1s
    connect_timeout: 1s
    answer_timeout: 3s
routes:
  all:
    from: {{ session: plant, topics: ["soak/#"], qos: 1 }}
    bindings:
      out:
        session: cloud
        deferred: {{ window: 4s, retry_interval: 1s }}
      copy:
        session: cloud
        topic: "copy/{{topic}}"
        queue: {{ max_entries: 200, max_bytes: 1 MiB, on_full: drop_oldest }}
        deferred: {{ window: 3s, retry_interval: 1s, max_entries: 20, max_bytes: 1 MiB }}
        dead_letters: {{ max_entries: 100, max_bytes: 1 MiB, on_full: discard_newest }}
        on_expired: dead_letter
"#,
        source.url(),
        line.url(),
    )
}

impl Stage {
    pub(crate) async fn set(seed: u64) -> Self {
        let source = Mosquitto::builder().terse().start().await;
        let destination = Mosquitto::builder()
            .terse()
            .persistence(true)
            .acl(acl(|_| true))
            .start()
            .await;
        let line = Proxy::start(destination.port()).await;
        let installation = Installation::with(|monitor| config(&source, &line, monitor));
        let collector = Collector::start(destination.port(), "soak/#").await;
        let bridge = installation.bridge(BRIDGE).start().await;
        Self {
            feeding: Feeding::start(source.port(), seed).await,
            _source: source,
            destination,
            line,
            installation,
            bridge,
            collector,
            chance: Chance::new(seed),
            books: Books::default(),
            began: Instant::now(),
        }
    }

    /// Lets something happen, again and again, for so long.
    pub(crate) async fn soak(&mut self, last: Duration) {
        let end = self.began + last;
        let mut told = Instant::now();
        while Instant::now() < end {
            match self.chance.below(16) {
                0..=4 => self.change_grants().await,
                5 | 6 => self.cut(),
                7 => self.stall().await,
                8 => self.restart_destination().await,
                9 | 10 => self.restart_bridge(false).await,
                11 | 12 => self.restart_bridge(true).await,
                _ => self.look_in_a_quiet_moment().await,
            }
            self.pass(1_000).await;
            if told.elapsed() > Duration::from_secs(30) {
                told = Instant::now();
                let fed = self.feeding.fed();
                println!("{:>5.0?} {fed} published", self.began.elapsed());
            }
        }
    }

    async fn pass(&mut self, most_millis: u64) {
        sleep(Duration::from_millis(self.chance.below(most_millis))).await;
    }

    async fn change_grants(&mut self) {
        self.books.event("grants changed");
        let denied: u64 = self.chance.below(1 << 16) & self.chance.below(1 << 16);
        let mut bit = 0;
        let mut granted = Vec::new();
        for prefix in ["", "copy/"] {
            for number in 0..TOPICS {
                if denied >> bit & 1 == 0 {
                    granted.push(format!("{prefix}soak/{number}"));
                }
                bit += 1;
            }
        }
        let acl = acl(|topic| granted.iter().any(|granted| granted == topic));
        self.destination.reload(&acl).await;
    }

    fn cut(&mut self) {
        self.books.event("line cut");
        let how = [Cut::Reset, Cut::Finish];
        let which = usize::from(self.chance.below(2) == 1);
        self.line.cut(*how.get(which).unwrap());
    }

    async fn stall(&mut self) {
        self.books.event("line stalled");
        if self.chance.below(2) == 0 {
            self.line.stall();
        } else {
            self.line.stall_answers();
        }
        self.pass(4_000).await;
        self.line.resume();
    }

    async fn restart_destination(&mut self) {
        self.books.event("destination restarted");
        self.destination.stop().await;
        self.pass(3_000).await;
        self.destination.restart().await;
    }

    /// Stops or kills the bridge; what it finds when it comes back is what it left.
    async fn restart_bridge(&mut self, kill: bool) {
        self.books.event(if kill { "kill" } else { "stop" });
        self.books.close_process(&self.bridge.metrics().await);
        if kill {
            self.bridge.kill().await;
        } else {
            self.bridge.sigterm();
            let status = self.bridge.wait().await;
            assert!(status.success(), "{status}\n{}", self.bridge.output());
        }
        let left = BINDINGS.map(|binding| self.told_offline(binding));
        if kill {
            let [[queued, deferred, _], _] = left;
            self.books.kill(queued + deferred);
        }
        self.pass(500).await;
        self.bridge.relaunch();
        let metrics = self.bridge.first_metrics().await;
        for (binding, left) in BINDINGS.into_iter().zip(left) {
            let found = Ledger::of(&metrics, "all", binding).carried_over;
            let left: u64 = left.iter().sum();
            assert_eq!(found, left, "{binding} found something else than it left");
        }
    }

    async fn look_in_a_quiet_moment(&mut self) {
        self.books.event("ledger balanced");
        let _paused = self.feeding.pause().await;
        self.balanced("any", |_| true).await;
    }

    async fn balanced(&self, what: &str, condition: impl Fn(&Ledger) -> bool + Copy) {
        for binding in BINDINGS {
            let of = ("all", binding);
            Ledger::until(&self.bridge, of, what, PATIENCE, condition).await;
        }
    }

    /// Queue, deferred and dead letters of a binding, as `bridge queue status` tells them.
    fn told_offline(&self, binding: &str) -> [u64; 3] {
        let status = self.asked(&["queue", "status"], &[]);
        let bindings = status["bindings"].as_array().unwrap();
        let this = bindings.iter().find(|info| info["binding"] == binding);
        ["queue", "deferred", "dead_letters"]
            .map(|view| this.map_or(0, |info| info[view]["entries"].as_u64().unwrap()))
    }

    fn asked(&self, command: &[&str], more: &[&str]) -> serde_json::Value {
        let output = Command::new(BRIDGE)
            .args(command)
            .arg(self.installation.data_dir())
            .arg("--json")
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Everything is granted and whole again; says where each message is once all is quiet.
    pub(crate) async fn settle(mut self) -> Outcome {
        self.destination.reload(&acl(|_| true)).await;
        let fed = self.feeding.finish().await;
        // The source hands out in order: when its last message has crossed, it has no more.
        wait_for("the last message crosses", PATIENCE, async || {
            let tally = self.collector.tally();
            (!tally.missing(fed).ends_with(&[fed - 1])).then_some(())
        })
        .await;
        self.balanced("nothing waits", Ledger::is_drained).await;
        self.collector.barrier().await;
        self.books.close_process(&self.bridge.metrics().await);
        self.bridge.sigterm();
        let status = self.bridge.wait().await;
        assert!(status.success(), "{status}\n{}", self.bridge.output());
        let told = self.told_offline("out");
        let of_this = ["--route", "all", "--binding", "out", "--limit", "1"];
        let listed = self.asked(&["dead-letters", "list"], &of_this);
        assert_eq!(listed["total"].as_u64(), Some(told[2]));
        Outcome {
            books: self.books.clone(),
            elapsed: self.began.elapsed(),
            fed,
            tally: self.collector.tally(),
            waiting: waiting(&self.installation.data_dir(), "all/out").await,
            told,
        }
    }
}
