//! The disturbances of a crossing.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{Disturbance, Loss, PATIENCE, Stage};
use crate::chance::Chance;
use crate::proxy::Cut;
use crate::wait::wait_for;

/// How many messages Mosquitto keeps open to one client, unless told otherwise.
const SOURCE_WINDOW: u64 = 20;

impl Disturbance {
    /// How many messages are published before it is on. What has to wait in the queue while the
    /// destination is away comes when it is: on a fast machine all would have crossed before.
    pub(super) const fn first_of(self, messages: u64) -> u64 {
        match self {
            Self::DestinationStopped(_) | Self::DestinationPaused(_) => messages / 2,
            _ => messages,
        }
    }
}

impl Stage {
    /// Lets the disturbance happen; what it may have doubled so far.
    pub(super) async fn disturb(&mut self, disturbance: Disturbance) -> Loss {
        let mut loss = Loss::default();
        match disturbance {
            Disturbance::None => {}
            Disturbance::DestinationStopped(away) => self.stop_destination(away).await,
            Disturbance::DestinationPaused(away) => self.pause_destination(away).await,
            Disturbance::SourceRestarted => self.restart_source().await,
            Disturbance::BridgeRestarted { rounds } => self.restart_bridge(rounds, &mut loss).await,
            Disturbance::BridgeKilled { rounds, seed } => {
                self.kill_bridge(rounds, seed, &mut loss).await;
            }
        }
        loss
    }

    async fn stop_destination(&mut self, away: Duration) {
        self.arrived(self.messages / 4).await;
        self.destination.stop().await;
        self.feeder.go_on();
        let end = Instant::now() + away;
        self.queued(self.messages / 4).await;
        sleep_until(end).await;
        self.destination.restart().await;
    }

    async fn pause_destination(&mut self, away: Duration) {
        self.arrived(self.messages / 4).await;
        self.destination.pause();
        self.feeder.go_on();
        let end = Instant::now() + away;
        wait_for("the connection is given up", PATIENCE, async || {
            let cloud = [("session", "cloud")];
            let metrics = self.bridge.metrics().await;
            let connected = metrics.whole("bridge_mqtt_session_connected", &cloud)?;
            (connected == 0).then_some(())
        })
        .await;
        self.queued(self.messages / 4).await;
        sleep_until(end).await;
        self.destination.resume();
    }

    async fn restart_source(&mut self) {
        for quarter in 1..=2 {
            self.arrived(self.messages / 4 * quarter).await;
            self.source.restart().await;
        }
    }

    /// Each process ends with status 0, and its counters are read before it is told to stop.
    async fn restart_bridge(&mut self, rounds: u32, loss: &mut Loss) {
        for round in 1..=rounds {
            self.arrived(self.messages / u64::from(rounds + 1) * u64::from(round))
                .await;
            loss.add_counters(&self.bridge.metrics().await);
            self.bridge.sigterm();
            let status = self.bridge.wait().await;
            assert!(status.success(), "{status}\n{}", self.bridge.output());
            self.bridge.relaunch();
            self.bridge.first_metrics().await;
        }
    }

    /// Each round waits for an arrival by chance, cuts the line in every second one, and kills by
    /// chance a little later; every third start is killed as well.
    async fn kill_bridge(&mut self, rounds: u32, seed: u64, loss: &mut Loss) {
        let mut chance = Chance::new(seed);
        let step = self.messages / u64::from(rounds + 1);
        for round in 0..rounds {
            self.arrived(step * u64::from(round) + chance.below(step))
                .await;
            if round % 2 == 1 {
                self.line.cut(Cut::Reset);
                // The counter of this goes with the process.
                loss.across_kills += SOURCE_WINDOW;
            }
            sleep(Duration::from_micros(chance.below(30_000))).await;
            loss.kills += 1;
            loss.across_kills += 2 * SOURCE_WINDOW;
            self.bridge.kill().await;
            self.bridge.relaunch();
            if round % 3 == 2 {
                sleep(Duration::from_micros(chance.below(50_000))).await;
                loss.kills += 1;
                loss.across_kills += 2 * SOURCE_WINDOW;
                self.bridge.kill().await;
                self.bridge.relaunch();
            }
            let metrics = self.bridge.first_metrics().await;
            loss.across_kills += metrics.whole("bridge_carried_over", &[]).unwrap_or(0);
        }
    }

    async fn arrived(&self, messages: u64) {
        self.collector.until(messages, PATIENCE).await;
    }

    async fn queued(&self, messages: u64) {
        let what = format!("{messages} messages wait in the queue");
        wait_for(&what, PATIENCE, async || {
            let metrics = self.bridge.metrics().await;
            let depth = metrics.whole("bridge_queue_depth", &[])?;
            (depth >= messages).then_some(())
        })
        .await;
    }
}
