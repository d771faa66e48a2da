//! The stage: two brokers, a cable, sensors, an observer, and the real bridge between them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bridge_core::SourceState;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::arrivals::Subscriber;
use super::broker::Broker;
use super::cable::{BytesPerSecond, Cable};
use super::ledger::Ledger;
use super::reckoning::Reckoning;
use super::story::{Cue, PROVOCATIONS, Snapshot};
use super::traffic::{self, FILTERS, Published};
use crate::config::Config;
use crate::service::Service;

/// What the bridge puts before each topic.
const PREFIX: &str = "plants/7/";
/// As a constant, because the broker's list of denied topics outlives everything.
const DENIED: &str = "plants/7/audit/login";
/// A mobile link, so that one can watch the queue drain.
const UPLINK: BytesPerSecond = BytesPerSecond(90_000);
/// How long the bridge may take to connect and subscribe.
const READY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Everything that takes part.
pub(crate) struct Stage {
    plant: Broker,
    cloud: Broker,
    cable: Cable,
    observer: Subscriber,
    published: Arc<Published>,
    stop_sensors: CancellationToken,
    sensors: JoinHandle<anyhow::Result<()>>,
    config: Config,
    /// There is none only between two lives.
    service: Option<Service>,
    /// What the lives of the bridge before this one counted.
    before: Ledger,
    began: Instant,
}

/// The brokers before there is a bridge between them.
pub(crate) struct Props {
    plant: Broker,
    cloud: Broker,
    cable: Cable,
}

impl Props {
    /// Starts both brokers and lays the cable.
    pub(crate) async fn fetch() -> anyhow::Result<Self> {
        let plant = Broker::start(None).await?;
        let cloud = Broker::start(Some(DENIED)).await?;
        let cable = Cable::lay(cloud.port(), UPLINK)
            .context("cannot open a port between the bridge and the destination")?;
        Ok(Self {
            plant,
            cloud,
            cable,
        })
    }

    /// The bridge's configuration, as an operator would write it.
    pub(crate) fn config(&self, data_dir: &Path) -> anyhow::Result<String> {
        // A JSON string is a YAML string, whatever is in it.
        let data_dir = serde_json::to_string(data_dir)?;
        let [sensors, audit] = FILTERS;
        let plant = self.plant.port();
        let cloud = self.cable.port();
        Ok(format!(
            r#"bridge: {{ id: demo }}
data_dir: {data_dir}
sessions:
  plant: {{ url: "mqtt://127.0.0.1:{plant}", client_id: demo }}
  cloud:
    url: "mqtt://127.0.0.1:{cloud}"
    client_id: demo
    reconnect: {{ min: 100ms, max: 1s }}
routes:
  telemetry:
    from: {{ session: plant, topics: ["{sensors}", "{audit}"], qos: 1 }}
    bindings:
      cloud: {{ session: cloud, topic: "{PREFIX}{{topic}}" }}
"#
        ))
    }

    /// Starts the bridge, the observer and, when all are ready, the sensors.
    pub(crate) async fn start(self, config: Config) -> anyhow::Result<Stage> {
        let Self {
            plant,
            cloud,
            cable,
        } = self;
        let observer = Subscriber::start(&cloud.url(), PREFIX).await?;
        let service = Service::start(config.clone()).await?;
        ready(&service, Destination::Reachable).await?;
        let published = Arc::new(Published::default());
        let stop_sensors = CancellationToken::new();
        let sensors = traffic::publish(plant.url(), published.clone(), stop_sensors.clone());
        Ok(Stage {
            plant,
            cloud,
            cable,
            observer,
            published,
            stop_sensors,
            sensors: tokio::spawn(sensors),
            config,
            service: Some(service),
            before: Ledger::default(),
            began: Instant::now(),
        })
    }
}

/// Whether the bridge can be expected to reach its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Reachable,
    Away,
}

/// Waits until the bridge is connected and subscribed.
async fn ready(service: &Service, destination: Destination) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let status = service.status();
        let subscribed = |state: &SourceState| *state == SourceState::Subscribed;
        let connected = destination == Destination::Away || status.sinks.values().all(|up| *up);
        if status.sources.values().all(subscribed) && connected {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("the bridge has not connected to the embedded brokers in time: {status:?}");
        }
    }
}

/// Waits until the bridge has received all that was published, and holds it durably.
async fn taken_in(service: &Service, published: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let ledger = Ledger::read(&service.metrics());
        if ledger.received >= published && ledger.under_way == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("the bridge has not taken in the {published} published messages: {ledger:?}");
        }
    }
}

fn no_bridge() -> anyhow::Error {
    anyhow!("there is no bridge between the brokers")
}

impl Stage {
    /// How things are now.
    pub(crate) async fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        let publishing = !self.sensors.is_finished();
        if !publishing && !self.stop_sensors.is_cancelled() {
            (&mut self.sensors).await??;
            bail!("the sensors stopped of their own accord");
        }
        let service = self.service.as_ref().ok_or_else(no_bridge)?;
        let status = service.status();
        let binding = status
            .bindings
            .first()
            .ok_or_else(|| anyhow!("the bridge has no binding"))?;
        Ok(Snapshot {
            at: self.began.elapsed(),
            publishing,
            published: self.published.count(),
            arrived: self.observer.tally(),
            ledger: self.before.continued_by(&Ledger::read(&service.metrics())),
            state: binding.state,
            blocked: binding.blocked,
            link_up: status.sinks.values().all(|up| *up),
        })
    }

    /// Does what the story says.
    pub(crate) async fn on_cue(&mut self, cue: Cue) -> anyhow::Result<()> {
        match cue {
            Cue::TakeAway => self.cable.cut().await.context("cannot cut the cable")?,
            Cue::Restart => self.restart().await.context("cannot restart the bridge")?,
            Cue::GiveBack => self.cable.mend().context("cannot mend the cable")?,
            Cue::Provoke => self.published.want_audits(PROVOCATIONS),
            Cue::StopPublishing => self.stop_sensors.cancel(),
            Cue::End => (),
        }
        Ok(())
    }

    /// Stops the bridge, and starts it again on what it has on disk. The sensors are silent
    /// meanwhile: the plant broker of this demo keeps nothing for those who are away.
    async fn restart(&mut self) -> anyhow::Result<()> {
        let service = self.service.take().ok_or_else(no_bridge)?;
        let published = self.published.clone();
        let _silence = published.silence().await;
        taken_in(&service, published.count().all()).await?;
        let ledger = Ledger::read(&service.metrics());
        let stopped = service.shutdown().await?;
        if stopped.unsettled > 0 {
            bail!("{} messages had not settled", stopped.unsettled);
        }
        self.before = self.before.continued_by(&ledger);
        let service = Service::start(self.config.clone()).await?;
        ready(&service, Destination::Away).await?;
        self.service = Some(service);
        Ok(())
    }

    /// Stops everything, the bridge first, and adds up.
    pub(crate) async fn clear(mut self, waited: u64) -> anyhow::Result<Reckoning> {
        self.stop_sensors.cancel();
        (&mut self.sensors).await??;
        let service = self.service.take().ok_or_else(no_bridge)?;
        let ledger = self.before.continued_by(&Ledger::read(&service.metrics()));
        let stopped = service.shutdown().await?;
        let sums = Reckoning {
            published: self.published.count(),
            arrived: self.observer.tally(),
            missing: self.observer.missing(&self.published.kinds()),
            ledger,
            unsettled: stopped.unsettled,
            waited,
        };
        self.observer.stop().await?;
        self.cable.cut().await?;
        self.cloud.stop().await?;
        self.plant.stop().await?;
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::AUDIT;
    use super::*;

    #[test]
    fn the_denied_topic_is_where_the_audit_messages_go() {
        assert_eq!(DENIED, format!("{PREFIX}{AUDIT}"));
    }
}
