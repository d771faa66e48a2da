//! What is put between the two brokers.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bridge_testkit::{BridgeProcess, Mosquitto, MosquittoBuilder, PortLease};
use clap::ValueEnum;

use super::load::{FILTER, Generator, Load};
use super::stats::grouped;
use super::usage::{Machine, Usage};

/// One way for messages to cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Contender {
    /// Our live path: `store_and_forward`, with the destination up
    Live,
    /// Our `outbox`: everything through the journal
    Outbox,
    /// Mosquitto's built-in bridge, in a broker that does nothing else
    Mosquitto,
}

/// What one run showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// Messages per second.
    pub(super) rate: f64,
    /// The bridging process's CPU time per message in µs.
    pub(super) cpu: f64,
    /// Bytes that it caused to be written to a disk, per message.
    pub(super) disk: f64,
    /// Its most memory in MiB.
    pub(super) memory: f64,
    /// The share of the CPUs in percent that strangers took meanwhile.
    pub(super) elsewhere: f64,
}

/// Where runs take place.
#[derive(Debug)]
pub(super) struct Course {
    /// The binary of the bridge.
    pub(super) bridge: PathBuf,
    /// The folder for journals.
    pub(super) data_dir: PathBuf,
    /// What crosses.
    pub(super) load: Load,
}

/// A process that carries messages; it ends on drop.
#[derive(Debug)]
enum Running {
    Bridge {
        process: BridgeProcess,
        // Before the folder: the port is taken, and the journal is open, while the process runs.
        _port: PortLease,
        _folder: tempfile::TempDir,
    },
    Mosquitto(Mosquitto),
}

impl Contender {
    /// All of them, in the order of a round.
    pub(super) const ALL: [Self; 3] = [Self::Live, Self::Outbox, Self::Mosquitto];

    /// The name in tables and in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Live => "store_and_forward",
            Self::Outbox => "outbox",
            Self::Mosquitto => "mosquitto",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>8} messages/s  {:>5.1} µs CPU/message  {:>4.0} disk bytes/message  {:>4.0} MiB  \
             (elsewhere: {:.0} % of the CPUs)",
            grouped(self.rate, 0),
            self.cpu,
            self.disk,
            self.memory,
            self.elsewhere
        )
    }
}

impl Course {
    /// One run on fresh brokers; also tells the brokers' version.
    pub(super) async fn run(&self, contender: Contender) -> Result<(Figures, String)> {
        let source = broker(self.load.window).start().await;
        let destination = broker(self.load.window).start().await;
        let running = self.start(contender, &source, &destination).await?;
        let pid = running.pid()?;
        let brokers = source.pid().zip(destination.pid());
        let (source_pid, destination_pid) = brokers.context("a broker has ended")?;
        let ours = [pid, source_pid, destination_pid, std::process::id()];
        let mut generator = Generator::connect(&source, &destination, self.load).await?;
        let crossed = async {
            generator.until_open().await?;
            // Allocators, caches and the brokers' windows are as they stay.
            generator.carry(self.load.messages / 10).await?;
            let before = Usage::at_rest(pid).await?;
            let machine = Machine::now(&ours)?;
            let took = generator.carry(self.load.messages).await?;
            let elsewhere = Machine::now(&ours)?.elsewhere_since(&machine);
            let after = Usage::at_rest(pid).await?;
            Ok(Figures::of(
                self.load.messages,
                took,
                (&before, &after),
                elsewhere,
            ))
        };
        let figures = crossed.await.map_err(|error: anyhow::Error| {
            error.context(format!("what the process said:\n{}", running.log()))
        })?;
        let version = version(&source.log()).context("mosquitto does not tell its version")?;
        Ok((figures, version))
    }

    async fn start(
        &self,
        contender: Contender,
        source: &Mosquitto,
        destination: &Mosquitto,
    ) -> Result<Running> {
        let delivery = match contender {
            Contender::Mosquitto => {
                let between = bridging(self.load.window, source.port(), destination.port());
                return Ok(Running::Mosquitto(between.start().await));
            }
            Contender::Live => "store_and_forward",
            Contender::Outbox => "outbox",
        };
        let folder = tempfile::tempdir_in(&self.data_dir)
            .with_context(|| format!("cannot write to {}", self.data_dir.display()))?;
        let port = PortLease::take();
        let file = folder.path().join("bridge.yaml");
        let config = Config {
            data_dir: folder.path().join("data"),
            source: source.url(),
            destination: destination.url(),
            window: self.load.window,
            delivery,
            monitor: port.port(),
        };
        fs::write(&file, config.yaml()?).context("cannot write the config")?;
        let process = BridgeProcess::builder(&self.bridge)
            .arg("run")
            .arg(&file)
            .monitor_port(port.port())
            .ready_path("/readyz?level=full")
            .start()
            .await;
        Ok(Running::Bridge {
            process,
            _port: port,
            _folder: folder,
        })
    }
}

impl Running {
    fn pid(&self) -> Result<u32> {
        match self {
            Self::Bridge { process, .. } => process.pid(),
            Self::Mosquitto(broker) => broker.pid(),
        }
        .context("the process has ended")
    }

    fn log(&self) -> String {
        match self {
            Self::Bridge { process, .. } => process.output(),
            Self::Mosquitto(broker) => broker.log(),
        }
    }
}

impl Figures {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts far below 2^52, for a table"
    )]
    fn of(
        messages: u64,
        took: Duration,
        (before, after): (&Usage, &Usage),
        elsewhere: f64,
    ) -> Self {
        let messages = messages as f64;
        let cpu = after.cpu.saturating_sub(before.cpu);
        let disk = after.disk_bytes.saturating_sub(before.disk_bytes);
        Self {
            rate: messages / took.as_secs_f64(),
            cpu: cpu.as_secs_f64() * 1e6 / messages,
            disk: disk as f64 / messages,
            memory: after.peak_memory as f64 / f64::from(1 << 20),
            elsewhere,
        }
    }
}

/// A broker that logs what it does and not each packet, as one in service does.
fn broker(window: u16) -> MosquittoBuilder {
    ["none", "error", "warning", "notice", "information"]
        .into_iter()
        .fold(Mosquitto::builder(), |builder, kind| {
            builder.config_line(format!("log_type {kind}"))
        })
        .max_inflight_messages(window)
}

/// A broker that takes from one broker and gives to another.
fn bridging(window: u16, source: u16, destination: u16) -> MosquittoBuilder {
    [
        ("source", source, "in"),
        ("destination", destination, "out"),
    ]
    .into_iter()
    .fold(broker(window), |builder, (name, port, direction)| {
        builder
            .config_line(format!("connection {name}"))
            .config_line(format!("address 127.0.0.1:{port}"))
            .config_line(format!("topic {FILTER} {direction} 1"))
            .config_line("bridge_protocol_version mqttv50")
            .config_line("cleansession false")
            .config_line("notifications false")
    })
}

/// What the bridge's config says.
struct Config {
    data_dir: PathBuf,
    source: String,
    destination: String,
    window: u16,
    delivery: &'static str,
    monitor: u16,
}

impl Config {
    fn yaml(&self) -> Result<String> {
        let Self {
            data_dir,
            source,
            destination,
            window,
            delivery,
            monitor,
        } = self;
        // A text of JSON is one of YAML.
        let data_dir = data_dir.to_str().context("the data folder is not UTF-8")?;
        let data_dir = serde_json::Value::from(data_dir);
        let mut yaml = format!("bridge: {{ id: bench }}\ndata_dir: {data_dir}\nsessions:\n");
        for (name, url) in [("source", source), ("destination", destination)] {
            // Writing to a text cannot fail.
            let _ = writeln!(
                yaml,
                "  {name}: {{ url: \"{url}\", client_id: bench-{name}, max_in_flight: {window}, \
                 receive_maximum: {window} }}"
            );
        }
        let _ = write!(
            yaml,
            "routes:\n  bench:\n    from: {{ session: source, topics: [\"{FILTER}\"], qos: 1 }}\n    \
             delivery: {delivery}\n    bindings:\n      there: {{ session: destination }}\n\
             monitor: {{ listen: \"127.0.0.1:{monitor}\" }}\n"
        );
        Ok(yaml)
    }
}

/// `mosquitto version 2.0.11 starting`
fn version(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("mosquitto version ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mosquittos_bridge_carries_and_logs_no_packets() {
        let load = Load {
            messages: 1_000,
            payload: 64,
            window: 50,
        };
        let source = broker(load.window).start().await;
        let destination = broker(load.window).start().await;
        let between = bridging(load.window, source.port(), destination.port());
        let between = between.start().await;
        let mut generator = Generator::connect(&source, &destination, load)
            .await
            .unwrap();
        generator.until_open().await.unwrap();
        generator.carry(load.messages).await.unwrap();
        for log in [source.log(), between.log(), destination.log()] {
            assert!(!log.contains("PUBLISH"), "{log}");
        }
        assert!(version(&source.log()).unwrap().starts_with("2."));
    }

    #[test]
    fn figures_are_per_message() {
        let usage = |cpu, disk_bytes| Usage {
            cpu: Duration::from_millis(cpu),
            disk_bytes,
            peak_memory: 3 << 20,
        };
        let took = Duration::from_secs(2);
        let figures = Figures::of(1_000, took, (&usage(5, 1_000), &usage(25, 401_000)), 12.4);
        assert_eq!(
            figures.to_string(),
            "     500 messages/s   20.0 µs CPU/message   400 disk bytes/message     3 MiB  \
             (elsewhere: 12 % of the CPUs)"
        );
    }
}
