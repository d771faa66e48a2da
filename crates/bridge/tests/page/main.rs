//! The operator's page, used as a person uses it: in a real browser, at a running bridge between
//! real brokers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: failing loudly is what they are for"
)]

mod accessible;
mod counting;
mod desk;
mod keyboard;
mod night_call;
mod operate;
mod screenshots;
mod stage;
mod standby;
mod strangers;
mod trouble;
