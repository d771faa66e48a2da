//! Numbered messages from one Mosquitto to another through a bridge, while something is broken.

mod disturbance;
mod outcome;

use std::path::PathBuf;
use std::time::Duration;

pub use outcome::{CrossingReport, Loss};

use crate::collector::Collector;
use crate::feeder::{Feeder, Load};
use crate::installation::{BridgeConfig, Installation};
use crate::ledger::Ledger;
use crate::mosquitto::Mosquitto;
use crate::process::BridgeProcess;
use crate::proxy::Proxy;

/// How long the whole may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What happens in the middle of a crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// The destination is stopped, for at least so long, and comes back.
    DestinationStopped(Duration),
    /// The destination is halted with its connections open (SIGSTOP), until the bridge has given
    /// the connection up and for at least so long.
    DestinationPaused(Duration),
    /// The source is restarted, twice; it keeps sessions and messages on disk.
    SourceRestarted,
    /// The bridge is stopped in order (SIGTERM) and started again so often, while the source goes
    /// on.
    BridgeRestarted {
        /// How often.
        rounds: u32,
    },
    /// The bridge is killed (SIGKILL) at so many moments, between which the line to the
    /// destination is cut.
    BridgeKilled {
        /// How often.
        rounds: u32,
        /// Decides on the moments.
        seed: u64,
    },
}

/// A crossing to be run.
#[derive(Debug, Clone)]
pub struct Crossing {
    /// The binary of the bridge.
    pub program: PathBuf,
    /// What crosses.
    pub load: Load,
    /// The route's `delivery`.
    pub delivery: &'static str,
    /// What happens in the middle.
    pub disturbance: Disturbance,
}

/// Everything that takes part.
struct Stage {
    source: Mosquitto,
    destination: Mosquitto,
    line: Proxy,
    bridge: BridgeProcess,
    collector: Collector,
    feeder: Feeder,
    messages: u64,
}

impl Crossing {
    /// Runs it to its end.
    ///
    /// # Panics
    /// When messages do not arrive in time, or one of those who take part fails.
    pub async fn run(&self) -> CrossingReport {
        let source = Mosquitto::builder().persistence(true).start().await;
        let destination = Mosquitto::builder().persistence(true).start().await;
        let line = Proxy::start(destination.port()).await;
        let mut config = BridgeConfig::between(source.url(), line.url())
            .topics(&["crossing/#"])
            .route(format!("delivery: {}", self.delivery));
        if matches!(self.disturbance, Disturbance::DestinationPaused(_)) {
            // A connection that is dead is given up soon; on a busy machine one that is not, too,
            // and then messages come twice.
            config = config
                .cloud("keep_alive: 1s")
                .cloud("connect_timeout: 1s")
                .cloud("answer_timeout: 3s");
        }
        let installation = Installation::new(&config);
        let collector = Collector::start(destination.port(), "crossing/#").await;
        let bridge = installation.bridge(&self.program).start().await;
        let first = self.disturbance.first_of(self.load.messages);
        let feeder = Feeder::start_with(source.port(), "crossing", self.load, first);
        let began = tokio::time::Instant::now();
        let mut stage = Stage {
            source,
            destination,
            line,
            bridge,
            collector,
            feeder,
            messages: self.load.messages,
        };
        let mut loss = stage.disturb(self.disturbance).await;
        stage.collector.until(self.load.messages, PATIENCE).await;
        let elapsed = began.elapsed();
        let nothing_waits = "nothing waits in the bridge";
        let ledger = Ledger::until(
            &stage.bridge,
            ("all", "out"),
            nothing_waits,
            PATIENCE,
            Ledger::is_drained,
        )
        .await;
        let metrics = stage.bridge.metrics().await;
        stage.collector.barrier().await;
        let tally = stage.collector.tally();
        let fed = stage.feeder.finish().await;
        loss.add_counters(&metrics);
        CrossingReport {
            load: self.load,
            tally,
            fed,
            loss,
            ledger,
            elapsed,
        }
    }
}
