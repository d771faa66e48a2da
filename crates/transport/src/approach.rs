//! Which broker a session turns to next, and what it proves itself with there.

use std::sync::Arc;

use tracing::warn;

use crate::connection::Ending;
use crate::dial::{self, Stream, Terms};
use crate::keys::{Keys, Origin};
use crate::stats::Counters;
use crate::{Endpoint, SessionConfig, Trust};

/// The ways of a session to its brokers.
#[derive(Debug)]
pub(crate) struct Approach {
    config: Arc<SessionConfig>,
    counters: Arc<Counters>,
}

/// A way that is open.
#[derive(Debug)]
pub(crate) struct Way {
    /// Where MQTT is spoken.
    pub(crate) stream: Stream,
    /// With what it was opened.
    pub(crate) keys: Keys,
}

impl Approach {
    pub(crate) fn new(
        config: Arc<SessionConfig>,
        role: &'static str,
        counters: Arc<Counters>,
    ) -> Self {
        for endpoint in config
            .brokers
            .iter()
            .filter(|endpoint| is_unverified(endpoint))
        {
            warn!(
                event = "session_broker_not_verified",
                session = %config.name,
                role,
                broker = %endpoint,
                "tls.insecure_skip_verify is set: anyone on the way can be this broker"
            );
        }
        Self { config, counters }
    }

    /// The broker of the connection that stands, or of the next attempt.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.config.brokers.first
    }

    /// Opens the way to it.
    pub(crate) async fn open(&mut self) -> Result<Way, Ending> {
        let endpoint = self.endpoint();
        let origin = Origin::new(endpoint, self.config.credentials.as_ref());
        let keys = origin.load().await?;
        self.counters
            .certificate_expiry
            .set(keys.certificate_expiry);
        let terms = Terms {
            within: self.config.connect_timeout,
            write_timeout: self.config.write_timeout,
            max_packet_size: self.config.max_packet_size,
        };
        let stream = dial::connect(endpoint, &keys, terms).await?;
        Ok(Way { stream, keys })
    }
}

fn is_unverified(endpoint: &Endpoint) -> bool {
    let trust = endpoint.tls.as_ref().map(|tls| &tls.trust);
    matches!(trust, Some(Trust::InsecureSkipVerify))
}
