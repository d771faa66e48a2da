//! MQTT sessions: connect, subscribe, publish to a verdict, acknowledge in order.

mod config;

pub use config::{Address, Credentials, Secret, SessionConfig, SessionKind};
