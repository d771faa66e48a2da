//! Which broker a session turns to next, what it proves itself with there, and when a connection
//! is to be made anew for the sake of either.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::Clock;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::connection::{Ending, is_takeover};
use crate::dial::{self, Stream, Terms};
use crate::failover::Failover;
use crate::gate::Pass;
use crate::keys::{Glimpse, KeyError, Keys, Origin, Ring};
use crate::reconnect::STABLE_AFTER;
use crate::stats::{Counters, Standing};
use crate::{Endpoint, SessionConfig, Trust};

/// How often the files of keys are looked at. They are read and compared, since a mounted folder
/// of Kubernetes is changed by a symlink that no watch on a file hears of.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon again when there is something new.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The ways of a session to its brokers.
#[derive(Debug)]
pub(crate) struct Approach {
    context: Context,
    /// In the order of the brokers.
    rings: Vec<Ring>,
    failover: Failover,
    connected_at: Option<Duration>,
    /// The preferred broker was found there again.
    returning: bool,
}

#[derive(Debug)]
struct Context {
    config: Arc<SessionConfig>,
    role: &'static str,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    /// What the latest connection was admitted with.
    pass: Pass,
}

/// A way that is open.
#[derive(Debug)]
pub(crate) struct Way {
    /// Where MQTT is spoken.
    pub(crate) stream: Stream,
    /// With what it was opened.
    pub(crate) keys: Keys,
}

/// Why a connection is to be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// There are other keys.
    Keys,
    /// The preferred broker is there again.
    FailBack,
}

impl Approach {
    pub(crate) fn new(
        config: Arc<SessionConfig>,
        role: &'static str,
        clock: Arc<dyn Clock>,
        counters: Arc<Counters>,
    ) -> Self {
        for broker in config.brokers.iter().filter(|broker| is_unverified(broker)) {
            warn!(
                event = "session_broker_not_verified",
                session = %config.name,
                role,
                %broker,
                "tls.insecure_skip_verify is set: anyone on the way can be this broker"
            );
        }
        let credentials = config.credentials.as_ref();
        let brokers = config.brokers.iter();
        let rings: Vec<_> = brokers
            .map(|broker| Ring::new(Origin::new(broker, credentials)))
            .collect();
        Self {
            failover: Failover::new(rings.len(), config.brokers.fail_back),
            rings,
            context: Context {
                config,
                role,
                clock,
                counters,
                pass: Pass::default(),
            },
            connected_at: None,
            returning: false,
        }
    }

    /// The broker of the connection that stands, or of the next attempt.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.context.endpoint(self.failover.at())
    }

    /// How the connection that is opened is to be counted.
    pub(crate) fn standing(&self) -> Standing {
        Standing::new(Arc::clone(&self.context.counters))
    }

    /// What is opened from now on is opened with `pass`.
    pub(crate) fn admitted(&mut self, pass: Pass) {
        self.context.pass = pass;
    }

    /// What it is opened with.
    pub(crate) const fn pass(&self) -> &Pass {
        &self.context.pass
    }

    /// Opens the way to it.
    pub(crate) async fn open(&mut self) -> Result<Way, Ending> {
        let at = self.failover.at();
        let Some(ring) = self.rings.get_mut(at) else {
            return Err(KeyError::Defect(format!("there is no broker {at}")).into());
        };
        let way = self.context.open(at, ring).await?;
        let expiry = way.keys.certificate_expiry;
        self.context.counters.certificate_expiry.set(expiry);
        Ok(way)
    }

    /// The connection stands.
    pub(crate) fn connected(&mut self) {
        let now = self.context.clock.monotonic();
        self.failover.connected(now);
        self.connected_at = Some(now);
    }

    /// No connection came about, or it has ended. Says whether every broker has been tried, so
    /// that it is time for more patience.
    pub(crate) fn ended(&mut self, ending: &Ending) -> bool {
        let now = self.context.clock.monotonic();
        let lived = self
            .connected_at
            .take()
            .map(|since| now.saturating_sub(since));
        if std::mem::take(&mut self.returning) {
            self.failover.back();
            return true;
        }
        let stays = match ending {
            Ending::Closed | Ending::SteppedDown => true,
            // Who takes our place takes it anywhere.
            ending if is_takeover(ending) => true,
            // It said so, or it does not do what a broker does.
            Ending::Disconnected(_) | Ending::Redirected { .. } | Ending::Unanswered { .. } => {
                false
            }
            _ => lived.is_some_and(|lived| lived >= STABLE_AFTER),
        };
        stays || self.failover.next()
    }

    /// Ends when the connection that stands is to be made anew, which the log is told.
    pub(crate) async fn due(&mut self) -> Renewal {
        let at = self.failover.at();
        let broker = self.context.endpoint(at).to_string();
        let look_back = self.failover.look_back_at().is_some();
        let renewal = if look_back && let Some((first, rest)) = self.rings.split_first_mut() {
            let ring = rest.get_mut(at.saturating_sub(1));
            tokio::select! {
                () = self.context.other_keys(at, ring) => Renewal::Keys,
                () = self.context.preferred(&mut self.failover, first) => Renewal::FailBack,
            }
        } else {
            self.context.other_keys(at, self.rings.get_mut(at)).await;
            Renewal::Keys
        };
        self.returning = renewal == Renewal::FailBack;
        let config = &self.context.config;
        match renewal {
            Renewal::Keys => info!(
                event = "session_keys_renewed",
                session = %config.name,
                role = self.context.role,
                broker,
                "the password or the TLS files have changed: connecting anew with the new ones"
            ),
            Renewal::FailBack => info!(
                event = "session_fails_back",
                session = %config.name,
                role = self.context.role,
                broker,
                preferred = %config.brokers.first,
                "the preferred broker is there again: going back to it"
            ),
        }
        renewal
    }
}

impl Context {
    fn endpoint(&self, at: usize) -> &Endpoint {
        let brokers = &self.config.brokers;
        brokers.iter().nth(at).unwrap_or(&brokers.first)
    }

    async fn open(&self, at: usize, ring: &mut Ring) -> Result<Way, Ending> {
        let endpoint = self.endpoint(at);
        let keys = ring.take(|error| self.complain(endpoint, error)).await?;
        let terms = Terms {
            within: self.config.connect_timeout,
            write_timeout: self.config.write_timeout,
            max_packet_size: self.config.max_packet_size,
            pass: self.pass.clone(),
        };
        let stream = dial::connect(endpoint, &keys, terms).await?;
        Ok(Way { stream, keys })
    }

    /// Ends when the files make other keys than those in use.
    async fn other_keys(&self, at: usize, ring: Option<&mut Ring>) {
        let endpoint = self.endpoint(at);
        let Some(ring) = ring.filter(|ring| ring.has_files()) else {
            return std::future::pending().await;
        };
        let mut seen = Glimpse::default();
        loop {
            sleep(if seen.is_some() {
                LOOK_AGAIN
            } else {
                LOOK_EVERY
            })
            .await;
            let complain = |error: &KeyError| self.complain(endpoint, error);
            if ring.renewed(&mut seen, complain).await {
                return;
            }
        }
    }

    /// Ends when the preferred broker has been away for as long as it was given, and can be
    /// reached again.
    async fn preferred(&self, failover: &mut Failover, ring: &mut Ring) {
        while let Some(when) = failover.look_back_at() {
            sleep(when.saturating_sub(self.clock.monotonic())).await;
            match self.open(0, ring).await {
                Ok(way) => return drop(way),
                Err(ending) => debug!(
                    session = %self.config.name,
                    role = self.role,
                    broker = %self.config.brokers.first,
                    reason = %ending,
                    "the preferred broker is still away"
                ),
            }
            failover.still_away(self.clock.monotonic());
        }
        std::future::pending::<()>().await;
    }

    fn complain(&self, broker: &Endpoint, error: &KeyError) {
        warn!(
            event = "session_keys_not_renewed",
            session = %self.config.name,
            role = self.role,
            %broker,
            reason = %error,
            "the new keys are of no use; the old ones stay in use until there are good ones"
        );
    }
}

fn is_unverified(endpoint: &Endpoint) -> bool {
    let trust = endpoint.tls.as_ref().map(|tls| &tls.trust);
    matches!(trust, Some(Trust::InsecureSkipVerify))
}
