//! Sessions against real and scripted brokers.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the code of tests, their helpers and scripts too: failing loudly is what it is for"
)]

mod acknowledgements;
mod answers;
mod common;
mod crossing;
mod endings;
mod limits;
mod logs;
mod resuming;
mod shutdown;
mod stalls;
mod subscriptions;
mod version_311;
