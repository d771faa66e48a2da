//! The binary at work between real brokers, seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: failing loudly is what they are for"
)]

mod admin;
mod admin_cli;
mod bounds;
mod collision;
mod compose;
mod content;
mod crossing;
#[cfg(feature = "demo")]
#[path = "../interop/embedded.rs"]
mod embedded;
mod exclusive;
mod fan_out;
mod field;
mod full;
mod health;
mod judged;
mod mapping;
mod monitor;
mod policy;
mod reach;
mod redrive;
mod refused;
mod restart;
mod retained;
mod scale_out;
mod second_chance;
mod setup;
mod shutdown;
mod sources;
mod suspicion;
mod told;
mod verdicts;
mod views;
mod window;
