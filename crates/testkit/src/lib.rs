//! What the tests of the workspace stand on; never part of the service.
//!
//! Brokers to talk to: [`Mosquitto`], a real one that can be stopped, killed, paused and given
//! a new ACL, and [`ScriptedBroker`], which answers byte for byte what a test says, and where they are installed
//! [`Rabbitmq`] and [`Nats`]. A real database, [`Postgres`]. A [`Proxy`]
//! to break the line between; a [`TlsFront`], a [`WebSocketFront`] and an [`HttpProxy`] to get
//! there another way, with certificates of an [`Authority`] made on the spot. [`RawClient`], an MQTT client on the same
//! small [`codec`], so that no test checks a client library with itself. [`BridgeProcess`], a
//! binary under test, in an [`Installation`] of its own; and a [`Browser`](browser::Browser) for its page. And what they play together: a
//! [`Crossing`] of numbered messages.
//!
//! For stores there is [`store_conformance`], which every implementation of the core's contract
//! has to pass, and a [`MemoryStore`]; for runtimes a [`FailingStore`] and a [`SteadySink`].
//!
//! All else shares nothing with the code it tests: no type of the bridge, no MQTT library. What goes
//! wrong here fails the test that asked, with a message that says what and where: the helpers
//! panic, the client returns [`std::io::Error`]. Everything stops on drop.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "the code of tests: failing loudly is what it is for"
)]

pub mod browser;
pub mod codec;
pub mod http;
pub mod store_conformance;

mod acceptor;
mod certificates;
mod chance;
mod client;
mod collector;
mod crossing;
mod failing_store;
mod feeder;
mod frames;
mod http_head;
mod http_proxy;
mod installation;
mod ledger;
mod memory;
mod memory_store;
mod mosquitto;
mod nats;
mod numbered;
mod permit;
mod port;
mod postgres;
mod process;
mod program;
mod proxy;
mod rabbitmq;
mod scripted;
mod signal;
mod socket;
mod steady_sink;
mod tls_front;
mod wait;
mod websocket_front;

pub use certificates::{Authority, Identity};
pub use chance::Chance;
pub use client::{ClientOptions, PublishReport, RawClient};
pub use codec::{
    Ack, AckKind, ConnAck, Connect, Disconnect, Packet, Property, Protocol, Publish, SubAck,
    Subscribe, Unsubscribe,
};
pub use collector::Collector;
pub use crossing::{Crossing, CrossingReport, Disturbance, Loss};
pub use failing_store::{FailingStore, Write};
pub use feeder::{Fed, Feeder, Load};
pub use http_head::RequestHead;
pub use http_proxy::HttpProxy;
pub use installation::{BridgeConfig, Installation};
pub use ledger::Ledger;
pub use memory::resident_kib;
pub use memory_store::MemoryStore;
pub use mosquitto::{Mosquitto, MosquittoBuilder, require_mosquitto};
pub use nats::Nats;
pub use numbered::{Tally, number_of, numbered};
pub use permit::ScriptedPermit;
pub use port::PortLease;
pub use postgres::{Postgres, postgres_folder};
pub use process::{BridgeProcess, BridgeProcessBuilder, Metrics, Sample};
pub use program::find_program;
pub use proxy::{Cut, Proxy};
pub use rabbitmq::Rabbitmq;
pub use scripted::{Behaviour, BrokerConnection, ReceivedPublish, Reply, ScriptedBroker};
pub use steady_sink::SteadySink;
pub use tls_front::{Handshake, TlsFront, TlsFrontBuilder};
pub use wait::{wait_for, wait_until};
pub use websocket_front::{WebSocketFront, WebSocketFrontBuilder};
