//! What a session's connections have in common: epochs, patience, counters, and one log line for
//! each change of state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bridge_core::Clock;
use tracing::{error, info, warn};

use crate::connection::{Ending, Welcome, is_takeover};
use crate::reconnect::Reconnect;
use crate::stats::Counters;
use crate::{PORTABLE_CLIENT_ID, SessionConfig};

/// The history of one session's connections.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    config: Arc<SessionConfig>,
    client_id: String,
    role: &'static str,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    reconnect: Reconnect,
    epoch: u64,
    /// What the log was last told about attempts that fail.
    announced: Option<String>,
}

impl Lifecycle {
    /// Says once what the session's protocol cannot say.
    pub(crate) fn new(
        config: Arc<SessionConfig>,
        client_id: String,
        role: &'static str,
        clock: Arc<dyn Clock>,
        counters: Arc<Counters>,
    ) -> Self {
        announce_protocol(&config, &client_id, role);
        Self {
            reconnect: Reconnect::new(config.backoff),
            config,
            client_id,
            role,
            clock,
            counters,
            epoch: 0,
            announced: None,
        }
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// The number that the next connection will have.
    pub(crate) const fn next_epoch(&self) -> u64 {
        self.epoch + 1
    }

    /// A connection stands.
    pub(crate) fn connected(&mut self, welcome: &Welcome) {
        self.epoch += 1;
        self.reconnect.connected(self.clock.monotonic());
        self.counters.connects.add(1);
        self.counters.connected.store(true, Ordering::Relaxed);
        self.announced = None;
        info!(
            event = "session_connected",
            session = %self.config.name,
            role = self.role,
            client_id = self.client_id,
            broker = %self.config.brokers,
            epoch = self.epoch,
            resumed = welcome.session_present,
            window = welcome.limits.window,
            "connected to the broker"
        );
    }

    /// No connection came about: how long to wait.
    pub(crate) fn failed(&mut self, ending: &Ending) -> Duration {
        self.counters.connect_failures.add(1);
        let reason = ending.to_string();
        let delay = self.reconnect.ended(self.clock.monotonic(), rand::random());
        if self.announced.as_ref() != Some(&reason) {
            warn!(
                event = "session_connect_failed",
                session = %self.config.name,
                role = self.role,
                client_id = self.client_id,
                broker = %self.config.brokers,
                reason,
                "cannot connect to the broker; trying on, and silent until something changes"
            );
            self.announced = Some(reason);
        }
        delay
    }

    /// The connection has ended: how long to wait.
    pub(crate) fn ended(&mut self, ending: &Ending) -> Duration {
        self.counters.connected.store(false, Ordering::Relaxed);
        if matches!(ending, Ending::Closed) {
            self.reconnect.ended_by_us();
            info!(
                event = "session_closed",
                session = %self.config.name,
                role = self.role,
                epoch = self.epoch,
                "closed the connection to the broker"
            );
            return Duration::ZERO;
        }
        self.counters.connection_losses.add(1);
        let delay = self.reconnect.ended(self.clock.monotonic(), rand::random());
        let name = &self.config.name;
        if is_takeover(ending) {
            self.counters.takeovers.add(1);
            error!(
                event = "session_taken_over",
                session = %name,
                role = self.role,
                client_id = self.client_id,
                broker = %self.config.brokers,
                epoch = self.epoch,
                "another client connected with this client id: give each its own"
            );
        } else {
            warn!(
                event = "session_connection_lost",
                session = %name,
                role = self.role,
                client_id = self.client_id,
                broker = %self.config.brokers,
                epoch = self.epoch,
                reason = %ending,
                "lost the connection to the broker"
            );
        }
        delay
    }
}

fn announce_protocol(config: &SessionConfig, client_id: &str, role: &'static str) {
    let unsaid = config.protocol.unsaid().iter();
    let unsaid: Vec<_> = unsaid
        .filter(|unsaid| match role {
            "writer" => unsaid.writing,
            _ => unsaid.reading,
        })
        .map(|unsaid| unsaid.name)
        .collect();
    if unsaid.is_empty() {
        return;
    }
    warn!(
        event = "protocol_without",
        session = %config.name,
        role,
        protocol = %config.protocol,
        without = unsaid.join(","),
        "the session's protocol has no words for some of what the bridge relies on; most of all, \
         a broker cannot refuse a message on it"
    );
    if client_id.len() > PORTABLE_CLIENT_ID {
        warn!(
            event = "client_id_long",
            session = %config.name,
            role,
            client_id,
            longest = PORTABLE_CLIENT_ID,
            "on this protocol a broker need not take a client id of this length"
        );
    }
}
