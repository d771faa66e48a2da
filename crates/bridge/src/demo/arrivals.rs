//! What arrives at the destination, counted there: the bridge is not asked.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use mqtt5::{MqttClient, QoS, SubscribeOptions};
use serde::Deserialize;

use super::traffic::{Kind, Sample};

/// What a subscriber at the destination has seen.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    seen: HashSet<u64>,
    latest: Option<u64>,
    tally: Tally,
}

/// The subscriber's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Different messages.
    pub(crate) distinct: u64,
    /// Messages that had arrived before.
    pub(crate) duplicates: u64,
    /// Messages that arrived for the first time after one with a higher number.
    pub(crate) overtaken: u64,
    /// Messages whose topic or payload is not what was published.
    pub(crate) altered: u64,
}

#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

impl Arrivals {
    /// Counts a message.
    pub(crate) fn arrived(&mut self, prefix: &str, topic: &str, payload: &[u8]) {
        let Ok(Numbered { seq }) = serde_json::from_slice(payload) else {
            self.tally.altered += 1;
            return;
        };
        // An audit message must not get here at all: it is no reading, and so counts as altered.
        let expected = Sample::new(seq, Kind::Reading);
        if topic.strip_prefix(prefix) != Some(expected.topic)
            || payload != expected.payload.as_bytes()
        {
            self.tally.altered += 1;
        }
        if !self.seen.insert(seq) {
            self.tally.duplicates += 1;
            return;
        }
        self.tally.distinct += 1;
        if self.latest.is_some_and(|latest| latest > seq) {
            self.tally.overtaken += 1;
        }
        self.latest = self.latest.max(Some(seq));
    }

    /// The numbers so far.
    pub(crate) const fn tally(&self) -> Tally {
        self.tally
    }

    /// How many of the published readings have not arrived.
    pub(crate) fn missing(&self, published: &[Kind]) -> u64 {
        (0..)
            .zip(published)
            .filter(|(seq, kind)| **kind == Kind::Reading && !self.seen.contains(seq))
            .count() as u64
    }
}

/// A subscriber at the destination.
pub(crate) struct Subscriber {
    client: MqttClient,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl Subscriber {
    /// Subscribes to everything under `prefix` at the broker at `url`.
    pub(crate) async fn start(url: &str, prefix: &'static str) -> anyhow::Result<Self> {
        let client = MqttClient::new("demo-observer");
        let arrivals = Arc::new(Mutex::new(Arrivals::default()));
        client
            .connect(url)
            .await
            .context("the observer cannot connect to the destination")?;
        let options = SubscribeOptions {
            qos: QoS::AtLeastOnce,
            ..SubscribeOptions::default()
        };
        let counted = arrivals.clone();
        client
            .subscribe_with_options(format!("{prefix}#"), options, move |message| {
                counted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .arrived(prefix, &message.topic, &message.payload);
            })
            .await
            .context("the observer cannot subscribe at the destination")?;
        Ok(Self { client, arrivals })
    }

    /// The numbers so far.
    pub(crate) fn tally(&self) -> Tally {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tally()
    }

    /// How many of the published readings have not arrived.
    pub(crate) fn missing(&self, published: &[Kind]) -> u64 {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .missing(published)
    }

    /// Says goodbye.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        Ok(self.client.disconnect().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "plants/7/";

    fn after(numbers: &[u64]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for &seq in numbers {
            let sample = Sample::new(seq, Kind::Reading);
            let topic = format!("{PREFIX}{}", sample.topic);
            arrivals.arrived(PREFIX, &topic, sample.payload.as_bytes());
        }
        arrivals
    }

    #[test]
    fn a_message_that_comes_again_is_a_duplicate_and_not_out_of_order() {
        assert_eq!(
            after(&[0, 1, 2, 1, 2, 3]).tally(),
            Tally {
                distinct: 4,
                duplicates: 2,
                ..Tally::default()
            }
        );
    }

    #[test]
    fn a_message_that_comes_late_for_the_first_time_is_out_of_order() {
        assert_eq!(after(&[0, 2, 1, 3]).tally().overtaken, 1);
    }

    #[test]
    fn what_has_not_arrived_is_missing_unless_the_destination_refuses_it() {
        let published = [Kind::Reading, Kind::Audit, Kind::Reading, Kind::Reading];
        assert_eq!(after(&[0, 3]).missing(&published), 1);
        assert_eq!(after(&[0, 2, 3]).missing(&published), 0);
    }

    #[test]
    fn another_payload_or_topic_is_an_altered_message() {
        let mut arrivals = after(&[0]);
        let sample = Sample::new(1, Kind::Reading);
        arrivals.arrived(PREFIX, sample.topic, sample.payload.as_bytes());
        arrivals.arrived(PREFIX, "plants/7/x", b"\xff");
        let audit = Sample::new(2, Kind::Audit);
        arrivals.arrived(PREFIX, "plants/7/audit/login", audit.payload.as_bytes());
        assert_eq!(arrivals.tally().altered, 3);
    }
}
