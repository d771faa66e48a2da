//! What a session's connections have in common: epochs, patience, counters, and one log line for
//! each change of state.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Clock, Subscription};
use tracing::{error, info, warn};

use crate::connection::{Ending, Welcome, is_takeover, is_wordless};
use crate::reconnect::Reconnect;
use crate::stats::Counters;
use crate::status::Status;
use crate::takeover::{Collisions, End, Finding};
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
    collisions: Collisions,
    /// Another client was in the place of the latest connection when that ended, or may have been.
    replaced: bool,
    /// It takes part in a shared subscription.
    shares: bool,
    /// It connects only while it holds its lease.
    exclusive: bool,
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
            collisions: Collisions::new(config.backoff.longest()),
            replaced: false,
            shares: false,
            exclusive: false,
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

    /// The same of a connection that asks for these.
    pub(crate) fn subscribed_to(mut self, subscriptions: &[Subscription]) -> Self {
        let mut filters = subscriptions.iter().map(|asked| &asked.filter);
        self.shares = filters.any(|filter| filter.share_group().is_some());
        self
    }

    /// The same of a session that is exclusive, or not.
    pub(crate) const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
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
        let now = self.clock.monotonic();
        self.reconnect.connected(now);
        self.collisions.connected(now);
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
        self.collisions.failed();
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

    /// The connection has ended: how long to wait. `explained` says whether something was alone
    /// unanswered then, which the broker may have closed it on.
    pub(crate) fn ended(
        &mut self,
        broker: &Endpoint,
        ending: &Ending,
        explained: bool,
    ) -> Duration {
        self.replaced = false;
        let now = self.clock.monotonic();
        if matches!(ending, Ending::Closed | Ending::SteppedDown) {
            self.reconnect.ended_by_us(now);
            self.collisions.ended_by_us(now);
            if matches!(ending, Ending::Closed) {
                info!(
                    event = "session_closed",
                    session = %self.config.name,
                    role = self.role,
                    epoch = self.epoch,
                    "closed the connection to the broker"
                );
            } else {
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
            }
            return Duration::ZERO;
        }
        self.counters.connection_losses.add(1);
        let backoff = self.reconnect.ended(now, rand::random());
        self.announce_redirect(broker, ending);
        let end = match ending {
            ending if is_takeover(ending) => End::TakenOver,
            ending if is_wordless(ending) && !explained => End::Wordless,
            _ => End::Otherwise,
        };
        let (finding, delay) = self.collisions.ended(end, backoff, now, rand::random());
        self.replaced = finding != Finding::Nothing;
        match finding {
            Finding::Nothing => warn!(
                event = "session_connection_lost",
                session = %self.config.name,
                role = self.role,
                client_id = self.client_id,
                %broker,
                epoch = self.epoch,
                reason = %ending,
                "lost the connection to the broker"
            ),
            Finding::Takeover { row } => {
                self.counters.takeovers.add(1);
                self.announce_takeover(broker, row, delay);
            }
            Finding::Suspected { row } => {
                self.counters.suspected_collisions.add(1);
                self.announce_suspicion(broker, ending, row, delay);
            }
        }
        delay
    }

    /// Whether another client seems to have used the session since the connection that has ended:
    /// what its packet ids meant, they may mean no longer.
    pub(crate) const fn was_replaced(&self) -> bool {
        self.replaced
    }

    /// The first in a row is no error by itself: a new instance may have come before the old one
    /// had gone. Instances that share a subscription are meant to be there at the same time, and of
    /// those of an exclusive session only one ever connects.
    fn announce_takeover(&self, broker: &Endpoint, row: u32, delay: Duration) {
        let (session, role) = (&self.config.name, self.role);
        let (client_id, epoch) = (&self.client_id, self.epoch);
        let reconnect_in_ms = millis(delay);
        if row > 1 || self.shares || self.exclusive {
            error!(
                event = "session_taken_over",
                %session,
                role,
                client_id,
                %broker,
                epoch,
                in_a_row = row,
                reconnect_in_ms,
                "another client connected with this client id: {}",
                self.likely()
            );
        } else {
            warn!(
                event = "session_taken_over",
                %session,
                role,
                client_id,
                %broker,
                epoch,
                in_a_row = row,
                reconnect_in_ms,
                "another client connected with this client id; once is nothing to worry about, \
                 where a new instance has come before the old one had gone"
            );
        }
    }

    fn announce_suspicion(&self, broker: &Endpoint, ending: &Ending, row: u32, delay: Duration) {
        error!(
            event = "session_collision_suspected",
            session = %self.config.name,
            role = self.role,
            client_id = self.client_id,
            %broker,
            epoch = self.epoch,
            reason = %ending,
            in_a_row = row,
            reconnect_in_ms = millis(delay),
            "the broker lets us in and soon closes the connection without a word, again and again; \
             most likely another client has this client id: {}. If none has, look at what else \
             may close it: the broker's own log says why, or something on the way does",
            self.likely()
        );
    }

    /// Why another client most likely has our client id, and what helps.
    const fn likely(&self) -> &'static str {
        if self.exclusive {
            "the session is exclusive, so it is one that does not ask for its lease, a bridge with \
             another `lease` or another program; give that one a client_id of its own"
        } else if self.shares {
            "two instances run with the same client_id, and to share a `$share` subscription each \
             needs its own; set `client_id_suffix: hostname` (or `nonce`)"
        } else {
            "two instances run with the same client_id, and throw each other out; set \
             `client_id_suffix: hostname` (or `nonce`), so that each has its own, or \
             `session_mode: exclusive` with a `lease`, so that one waits for the other"
        }
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

fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
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
