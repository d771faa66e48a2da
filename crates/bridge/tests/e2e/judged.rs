//! A bridge whose destination answers as a test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bridge_testkit::{
    Behaviour, BridgeConfig, BridgeProcess, Cut, Installation, Metrics, Mosquitto, Proxy, Publish,
    ReceivedPublish, Reply, ScriptedBroker, wait_for,
};

use crate::setup::{BRIDGE, PATIENCE, of_session, publish, until_queued};

/// A bridge from a Mosquitto to a scripted destination, with a line between that can be cut.
pub(crate) struct Judged {
    pub(crate) source: Mosquitto,
    pub(crate) destination: ScriptedBroker,
    pub(crate) line: Proxy,
    pub(crate) installation: Installation,
    pub(crate) bridge: BridgeProcess,
}

impl Judged {
    pub(crate) async fn start(
        behaviour: Behaviour,
        config: impl FnOnce(BridgeConfig) -> BridgeConfig,
    ) -> Self {
        let source = Mosquitto::start().await;
        let destination = ScriptedBroker::behaving(behaviour).await;
        let line = Proxy::start(destination.port()).await;
        let config = config(BridgeConfig::between(source.url(), line.url()));
        let installation = Installation::new(&config);
        let process = installation.bridge(BRIDGE).ready_path("/readyz?level=full");
        let bridge = process.start().await;
        Self {
            source,
            destination,
            line,
            installation,
            bridge,
        }
    }

    /// Ends the connection to the destination, and refuses the next ones.
    pub(crate) async fn lose_the_line(&mut self) {
        self.line.refuse().await;
        self.line.cut(Cut::Reset);
        wait_for("the line is down", PATIENCE, async || {
            let connected = of_session(&self.bridge, "bridge_mqtt_session_connected", "cloud");
            (connected.await == 0).then_some(())
        })
        .await;
    }

    /// Publishes `topics` while the line is down, so that all of them are queued.
    pub(crate) async fn publish_to_the_queue(&mut self, topics: &[&str]) {
        self.lose_the_line().await;
        self.publish(topics).await;
        until_queued(&self.bridge, topics.len() as u64).await;
    }

    pub(crate) async fn publish(&self, topics: &[&str]) {
        let messages = topics.iter().map(|topic| Publish::new(*topic, "x"));
        publish(self.source.port(), messages).await;
    }

    pub(crate) fn arrived(&self) -> Vec<String> {
        let arrived = self.destination.publishes().into_iter();
        arrived.map(|received| received.publish.topic).collect()
    }

    pub(crate) async fn dead_lettered(&self, reason: &str) -> Option<u64> {
        let metrics: Metrics = self.bridge.metrics().await;
        metrics.whole("bridge_queue_dead_lettered_total", &[("reason", reason)])
    }
}

/// Answers a topic with that code, and accepts all others.
pub(crate) fn refusing(topic: &'static str, code: u8) -> Behaviour {
    Behaviour::new().reply(move |received: &ReceivedPublish| {
        if received.publish.topic == topic {
            Reply::Code(code)
        } else {
            Reply::Accept
        }
    })
}

/// A policy of the destination that can change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant(Arc<AtomicBool>);

impl Grant {
    /// From now on everything is accepted.
    pub(crate) fn give(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Answers what `concerns` says with that code before it is granted.
    pub(crate) fn withholding(
        &self,
        code: u8,
        concerns: impl Fn(&Publish) -> bool + Send + Sync + 'static,
    ) -> Behaviour {
        let granted = Arc::clone(&self.0);
        Behaviour::new().reply(move |received: &ReceivedPublish| {
            if concerns(&received.publish) && !granted.load(Ordering::SeqCst) {
                Reply::Code(code)
            } else {
                Reply::Accept
            }
        })
    }
}
