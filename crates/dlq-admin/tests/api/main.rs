//! The admin API over real HTTP, in front of a runtime whose destinations do what a test says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: failing loudly is what they are for"
)]

mod audit;
mod dead_letters;
mod delivery;
mod fixture;
mod jobs;
mod login;
mod redrive;
mod requests;
mod state;
mod transfer;
