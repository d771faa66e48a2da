//! MQTT sessions: connect, subscribe, publish to a verdict, acknowledge in order.
//!
//! A [`Reader`] is a [`Source`](bridge_core::Source), a [`Writer`] is a
//! [`Sink`](bridge_core::Sink); each owns one connection and makes it anew whenever it is lost.
//! A session that is both read from and written to has one of each, under two client ids.
//!
//! This crate never gives up on a message, never counts attempts and never sends anything a
//! second time by itself: it says what the broker said. No type of the client library appears in
//! its face.
//!
//! ```text
//!   runtime ── Writer ── Live ────────┐
//!                                     ├─ Connection ── library ── Guarded ── socket
//!   runtime ── Reader ── Inbox, Acks ─┘
//! ```
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use bridge_core::{Answer, Message, Sink, SystemClock, Topic};
//! # use bridge_transport::{SessionConfig, Writer, WriterIdentity};
//! # async fn publish(config: SessionConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let writer = Writer::start(config, WriterIdentity::ClientId, Arc::new(SystemClock::new()));
//! let link = writer.changed(writer.link()).await;
//! assert!(link.is_up());
//! let message = Message::new(Topic::parse("sensors/boiler/1")?, "21.5");
//! // First its place in the window, in the order of the calls; then the broker's own answer.
//! if let Ok(admitted) = writer.publish(message).await {
//!     match admitted.await {
//!         Answer::Answered { code, .. } => println!("the broker says {code}"),
//!         other => println!("no answer: {other:?}"),
//!     }
//! }
//! writer.close().await;
//! # Ok(())
//! # }
//! ```

mod approach;
mod config;
mod connection;
mod convert;
mod dial;
mod failover;
mod gate;
mod guard;
/// What the fuzz target calls, and its stand-in in the tests: see `fuzz/`.
#[cfg(any(test, fuzzing))]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "for tests only, where failing loudly is what it is for"
)]
pub mod hostile;
mod keys;
mod lifecycle;
mod link;
mod memory;
mod packet;
mod protocol;
mod reader;
mod reconnect;
mod stats;
mod status;
mod takeover;
mod task;
mod writer;

pub use config::{
    Address, Brokers, ClientCertificate, Credentials, Endpoint, HttpProxy, Password, Place,
    Protocol, QosUnavailable, RetainUnavailable, Secret, SessionConfig, SessionKind, StatusTopic,
    Tls, TlsVersion, Trust, WebSocket,
};
pub use keys::certificate_unusable;
pub use protocol::{PORTABLE_CLIENT_ID, Unsaid};
pub use reader::{DowngradedSubscription, Reader, ReaderTuning, RefusedSubscription};
pub use stats::SessionStats;
pub use writer::{Writer, WriterIdentity};
