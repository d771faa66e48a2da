//! The bridge over HTTP: its state, its dead letters and what is done about them, behind a login;
//! and beside it, without one, what probes and monitoring systems ask.
//!
//! The crate shows and asks; it decides nothing about a message. It knows a running bridge by
//! [`bridge_runtime`] and by what implements [`Observed`], and never reads a configuration file,
//! opens a store or speaks MQTT.
//!
//! ```text
//!   TcpListener ─► listener   so many connections, each with deadlines, over TLS or not
//!                     ├─► monitor   liveness, readiness and metrics: nothing secret, no login
//!                     └─► guard   headers of safety, who may, stopping, defects
//!                           ├─► page   files, which ask the API as anybody does
//!                           └─► api    one module for each kind of thing, one function for each call
//!                                 └─► audit   what was changed or shown, to whom
//! ```
//!
//! Where no bridge runs, [`Offline`] answers what needs none, to the process that it is in.
//!
//! Every call is described in `spec/openapi.yaml`, which is made of the types and functions here:
//! see [`openapi()`].

mod admin;
mod api;
mod audit;
mod auth;
mod files;
mod guard;
mod listener;
mod monitor;
mod offline;
mod openapi;
mod page;
mod problem;
mod rates;
mod request;

pub use admin::{
    Admin, AdminOptions, Described, LeaseFacts, LeaseHolder, Observed, SessionFacts, StartError,
};
pub use auth::{InvalidToken, Token, TokenOrigin};
pub use files::FileError;
pub use listener::{TlsError, TlsFiles};
pub use monitor::Monitor;
pub use offline::Offline;
pub use openapi::{openapi, openapi_yaml};
