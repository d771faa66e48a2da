//! What a session's connections have in common: epochs, patience, counters, and one log line for
//! each change of state.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bridge_core::Clock;
use tracing::{error, info, warn};

use crate::connection::{Ending, Welcome, is_takeover};
use crate::reconnect::Reconnect;
use crate::stats::Counters;
use crate::status::Status;
use crate::{Endpoint, PORTABLE_CLIENT_ID, SessionConfig};

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
    told: Told,
    /// What the log was last told about the broker's own terms.
    terms: Terms,
    status: Option<Status>,
}

/// How many reasons for attempts that fail the log is told of each broker: some are never twice
/// the same, such as a broker's own words with the time of day in them.
const MOST_REASONS: usize = 8;

/// Why attempts failed since the last connection, as far as the log has been told: reasons that
/// alternate, as they do where a name has several addresses, are told once as well.
#[derive(Debug, Default)]
struct Told(HashMap<String, BTreeSet<String>>);

impl Told {
    /// Whether the log is to be told of this, which it then has been.
    fn is_new(&mut self, broker: &Endpoint, reason: &str) -> bool {
        let Self(told) = self;
        let reasons = told.entry(broker.to_string()).or_default();
        reasons.len() < MOST_REASONS && reasons.insert(reason.to_owned())
    }
}

/// What a broker does otherwise than it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Terms {
    keep_alive: Option<Duration>,
    session_expiry: Option<u32>,
    client_id: Option<String>,
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
        counters.connected_as(&client_id);
        let status = Status::new(&config);
        Self {
            reconnect: Reconnect::new(config.backoff),
            config,
            client_id,
            role,
            clock,
            counters,
            epoch: 0,
            told: Told::default(),
            terms: Terms::default(),
            status,
        }
    }

    /// What the session says of itself, if anything.
    pub(crate) const fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// The number that the next connection will have.
    pub(crate) const fn next_epoch(&self) -> u64 {
        self.epoch + 1
    }

    /// A connection stands.
    pub(crate) fn connected(&mut self, broker: &Endpoint, welcome: &Welcome) {
        self.epoch += 1;
        self.reconnect.connected(self.clock.monotonic());
        self.counters.connects.add(1);
        self.counters.connected.store(true, Ordering::Relaxed);
        self.told = Told::default();
        info!(
            event = "session_connected",
            session = %self.config.name,
            role = self.role,
            client_id = self.client_id,
            %broker,
            epoch = self.epoch,
            resumed = welcome.session_present,
            window = welcome.limits.window,
            keep_alive_s = welcome.keep_alive.map(|other| other.as_secs()),
            reason_string = welcome.reason_string,
            "connected to the broker"
        );
        self.announce_terms(broker, welcome);
    }

    /// What the broker does otherwise than it was asked, told once as long as it stays so.
    fn announce_terms(&mut self, broker: &Endpoint, welcome: &Welcome) {
        let terms = Terms {
            keep_alive: welcome
                .keep_alive
                .filter(|other| *other != self.config.keep_alive),
            session_expiry: welcome.session_expiry,
            client_id: welcome
                .client_id
                .clone()
                .or_else(|| self.terms.client_id.clone()),
        };
        if self.terms == terms {
            return;
        }
        if let Some(client_id) = &terms.client_id {
            // Asked for from now on, so that the broker makes no other one each time.
            self.client_id.clone_from(client_id);
            self.counters.connected_as(client_id);
        }
        self.terms = terms;
        info!(
            event = "session_terms",
            session = %self.config.name,
            role = self.role,
            %broker,
            keep_alive_s = self.terms.keep_alive.map(|other| other.as_secs()),
            session_expiry_s = self.terms.session_expiry,
            assigned_client_id = self.terms.client_id,
            "the broker has terms of its own, and they are kept to: the keep-alive that it wants, \
             how long it keeps the session, the client id that it gave"
        );
    }

    /// No connection came about: how long to wait. `all` says whether every broker was tried.
    pub(crate) fn failed(&mut self, broker: &Endpoint, ending: &Ending, all: bool) -> Duration {
        self.counters.connect_failures.add(1);
        if let (Some(status), Ending::Refused((code, _))) = (&mut self.status, ending)
            && status.refused(*code)
        {
            warn!(
                event = "will_adapted",
                session = %self.config.name,
                %broker,
                reason = %code,
                "the broker lets nobody in with a last will like that: the session's status goes \
                 without the retain flag, or with QoS 0, from now on"
            );
        }
        let delay = if all {
            self.reconnect.ended(self.clock.monotonic(), rand::random())
        } else {
            self.reconnect.elsewhere(rand::random())
        };
        let reason = ending.to_string();
        if self.told.is_new(broker, &reason) {
            self.announce_redirect(broker, ending);
            warn!(
                event = "session_connect_failed",
                session = %self.config.name,
                role = self.role,
                client_id = self.client_id,
                %broker,
                reason,
                "cannot connect to the broker; trying on, and saying each reason once until there \
                 is a connection"
            );
        }
        delay
    }

    /// The connection has ended: how long to wait.
    pub(crate) fn ended(&mut self, broker: &Endpoint, ending: &Ending) -> Duration {
        self.counters.connected.store(false, Ordering::Relaxed);
        if matches!(ending, Ending::Closed) {
            self.reconnect.ended_by_us(self.clock.monotonic());
            info!(
                event = "session_closed",
                session = %self.config.name,
                role = self.role,
                epoch = self.epoch,
                "closed the connection to the broker"
            );
            return Duration::ZERO;
        }
        if matches!(ending, Ending::SteppedDown) {
            self.reconnect.ended_by_us(self.clock.monotonic());
            warn!(
                event = "session_stepped_down",
                session = %self.config.name,
                role = self.role,
                client_id = self.client_id,
                %broker,
                epoch = self.epoch,
                "the lease has ended: closed the connection to the broker, and waiting for the \
                 lease to come back"
            );
            return Duration::ZERO;
        }
        self.counters.connection_losses.add(1);
        let delay = self.reconnect.ended(self.clock.monotonic(), rand::random());
        self.announce_redirect(broker, ending);
        let name = &self.config.name;
        if is_takeover(ending) {
            self.counters.takeovers.add(1);
            error!(
                event = "session_taken_over",
                session = %name,
                role = self.role,
                client_id = self.client_id,
                %broker,
                epoch = self.epoch,
                "another client connected with this client id: give each its own"
            );
        } else {
            warn!(
                event = "session_connection_lost",
                session = %name,
                role = self.role,
                client_id = self.client_id,
                %broker,
                epoch = self.epoch,
                reason = %ending,
                "lost the connection to the broker"
            );
        }
        delay
    }

    /// MQTT 5 §4.11. It is not followed: our credentials are for the brokers that the
    /// configuration names.
    fn announce_redirect(&self, broker: &Endpoint, ending: &Ending) {
        if let Ending::Redirected { to, .. } = ending {
            error!(
                event = "session_redirected",
                session = %self.config.name,
                role = self.role,
                %broker,
                server_reference = to,
                reason = %ending,
                "the broker sends us to another one, and the bridge does not go where its \
                 configuration does not: set the session's url to the server that it names"
            );
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    #[test]
    fn case_22_reasons_that_alternate_or_never_repeat_are_told_a_few_times_only() {
        let broker = |port| {
            let host = "h".to_owned();
            Endpoint::tcp(Address { host, port })
        };
        let mut told = Told::default();
        let alternating =
            (0..100).filter(|n| told.is_new(&broker(1), ["refused", "silent"][n % 2]));
        assert_eq!(alternating.count(), 2);
        let ever_new = (0..100).filter(|n| told.is_new(&broker(1), &n.to_string()));
        assert_eq!(ever_new.count(), MOST_REASONS - 2);
        assert!(told.is_new(&broker(2), "refused"), "of another broker");
    }
}
