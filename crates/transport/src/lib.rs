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

mod config;
mod connection;
mod convert;
mod dial;
mod guard;
mod lifecycle;
mod link;
mod memory;
mod packet;
mod reader;
mod reconnect;
mod stats;
mod writer;

pub use config::{Address, Credentials, Secret, SessionConfig, SessionKind};
pub use reader::{Reader, ReaderTuning, RefusedSubscription};
pub use stats::SessionStats;
pub use writer::{Writer, WriterIdentity};
