//! The session that the client library believes it remembers.
//!
//! A broker that resumes a session speaks of it as if we had never been away; after a restart the
//! library refuses that, unless a store hands it a session of its own. Ours is empty but for the
//! QoS 2 messages that wait for their release: what is unacknowledged the broker sends again, and
//! nothing is ever published on a connection that reads.

use bridge_core::BoxFuture;
use rumqttc::{
    PersistedAckMode, PersistedIncomingQos2, PersistedSession, SessionStore, SessionStoreError,
    SessionStoreKey,
};

/// How much a connection that reads may publish unanswered: it says its status and nothing else.
/// The library keeps a place ready for each, which without a limit is 18 MB for a connection.
pub(crate) const UNANSWERED: u16 = 16;

/// A store that hands out one session and takes none.
#[derive(Debug)]
pub(crate) struct Remembered {
    expiry: u32,
    releasing: Vec<u16>,
}

impl Remembered {
    pub(crate) const fn new(expiry: u32, releasing: Vec<u16>) -> Self {
        Self { expiry, releasing }
    }
}

impl SessionStore for Remembered {
    fn load<'a>(
        &'a self,
        key: &'a SessionStoreKey,
    ) -> BoxFuture<'a, Result<Option<PersistedSession>, SessionStoreError>> {
        Box::pin(async move {
            let releasing = self.releasing.iter();
            Ok(Some(PersistedSession {
                format_version: 1,
                client_id: key.client_id().to_owned(),
                clean_start: false,
                session_expiry_interval: Some(self.expiry),
                outgoing_inflight_upper_limit: Some(UNANSWERED),
                ack_mode: PersistedAckMode::Manual,
                last_pkid: 0,
                last_puback: 0,
                replay: Vec::new(),
                incoming_qos2: releasing
                    .map(|&pkid| PersistedIncomingQos2 { pkid })
                    .collect(),
            }))
        })
    }

    fn save<'a>(
        &'a self,
        _: &'a SessionStoreKey,
        _: &'a PersistedSession,
    ) -> BoxFuture<'a, Result<(), SessionStoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn clear<'a>(&'a self, _: &'a SessionStoreKey) -> BoxFuture<'a, Result<(), SessionStoreError>> {
        Box::pin(async { Ok(()) })
    }
}
