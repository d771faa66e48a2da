//! The sample traffic: what sensors of a plant publish, numbered, so that every one can be missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use mqtt5::{MqttClient, PublishResult};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Filters under which the bridge takes all of the traffic.
pub(crate) const FILTERS: [&str; 2] = ["sensors/#", "audit/#"];
/// The topic that the destination does not take.
pub(crate) const AUDIT: &str = "audit/login";

const TICK: Duration = Duration::from_millis(50);
const PER_TICK: u32 = 10;
/// So many sensor readings come between two audit messages.
const BETWEEN_AUDITS: u32 = 40;

/// What one message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A sensor's value: the destination takes it.
    Reading,
    /// Who logged in: the destination refuses it.
    Audit,
}

/// One message, wholly determined by its number and kind: so whoever receives it can tell
/// whether it is still what it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) topic: &'static str,
    pub(crate) payload: String,
}

impl Sample {
    /// The message with the number `seq`.
    pub(crate) fn new(seq: u64, kind: Kind) -> Self {
        if kind == Kind::Audit {
            return Self {
                topic: AUDIT,
                payload: format!(r#"{{"seq":{seq},"user":"operator","from":"panel-2"}}"#),
            };
        }
        let (topic, unit, base, swing) = match seq % 4 {
            0 => ("sensors/boiler/temperature", "°C", 71.0, 4.0),
            1 => ("sensors/pump-3/vibration", "mm/s", 2.8, 0.6),
            2 => ("sensors/line-1/pressure", "bar", 6.2, 0.3),
            _ => ("sensors/line-1/speed", "m/min", 42.0, 1.5),
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a phase of a sine needs no precision"
        )]
        let value: f64 = base + swing * (seq as f64 / 40.0).sin();
        Self {
            topic,
            payload: format!(r#"{{"seq":{seq},"value":{value:.2},"unit":"{unit}"}}"#),
        }
    }
}

/// What has been published so far: the message with the number `n` is the `n`-th.
#[derive(Debug, Default)]
pub(crate) struct Published {
    kinds: Mutex<Vec<Kind>>,
    audits_wanted: AtomicU32,
    /// Held while a tick's messages are published.
    breath: tokio::sync::Mutex<()>,
}

/// How much has been published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// Messages that the destination takes.
    pub(crate) readings: u64,
    /// Messages that it refuses.
    pub(crate) audits: u64,
}

impl Count {
    /// All of them.
    pub(crate) const fn all(self) -> u64 {
        self.readings + self.audits
    }
}

impl Published {
    /// Asks for so many audit messages in the midst of the readings.
    pub(crate) fn want_audits(&self, wanted: u32) {
        self.audits_wanted.fetch_add(wanted, Ordering::Relaxed);
    }

    /// Keeps the sensors silent until the guard is dropped; nothing of theirs is under way then.
    pub(crate) async fn silence(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.breath.lock().await
    }

    /// What each published message is about, in the order of publishing.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How much has been published.
    pub(crate) fn count(&self) -> Count {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let audits = kinds.iter().filter(|kind| **kind == Kind::Audit).count() as u64;
        Count {
            readings: kinds.len() as u64 - audits,
            audits,
        }
    }

    fn add(&self, kind: Kind) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.push(kind);
    }

    fn take_audit(&self) -> bool {
        self.audits_wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
    }
}

/// Publishes with QoS 1 to the broker at `url` until told to stop, and writes down what the broker
/// acknowledged.
pub(crate) async fn publish(
    url: String,
    published: Arc<Published>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let client = MqttClient::new("demo-sensors");
    client
        .connect(&url)
        .await
        .context("the sensors cannot connect to their broker")?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since_audit = 0;
    let mut seq = 0;
    // Whole ticks only: a publish that is cut off is neither published nor not.
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let _breath = published.breath.lock().await;
        for _ in 0..PER_TICK {
            since_audit += 1;
            let kind = if since_audit > BETWEEN_AUDITS && published.take_audit() {
                since_audit = 0;
                Kind::Audit
            } else {
                Kind::Reading
            };
            let Sample { topic, payload } = Sample::new(seq, kind);
            match client.publish_qos1(topic, payload).await? {
                PublishResult::Sent(_) => published.add(kind),
                PublishResult::Queued(_) => bail!("the sensors lost their broker"),
            }
            seq += 1;
        }
    }
    client.disconnect().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_determined_by_its_number_and_kind() {
        assert_eq!(
            Sample::new(80, Kind::Reading),
            Sample {
                topic: "sensors/boiler/temperature",
                payload: r#"{"seq":80,"value":74.64,"unit":"°C"}"#.to_owned(),
            }
        );
        assert_eq!(Sample::new(81, Kind::Audit).topic, AUDIT);
    }

    #[test]
    fn as_many_audits_are_published_as_were_asked_for() {
        let published = Published::default();
        assert!(!published.take_audit());
        published.want_audits(2);
        assert!(published.take_audit());
        assert!(published.take_audit());
        assert!(!published.take_audit());
    }
}
