//! Sessions against real and scripted brokers.
//!
//! The modules `row_01_…` to `row_11_…` are the rows of the conformance list: what is asked of
//! whatever stands between the bridge and a broker, whichever library does the work.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the code of tests, their helpers and scripts too: failing loudly is what it is for"
)]

mod common;
mod crossing;
mod exclusive;
mod half_open;
mod hostile;
mod leftovers;
mod logs;
mod recovery;
mod redeliveries;
mod resuming;
mod row_01_reason_codes;
mod row_02_many_refusals;
mod row_03_denied_then_allowed;
mod row_04_endings;
mod row_05_unanswered;
mod row_06_limits;
mod row_07_acknowledgements;
mod row_08_silent_peers;
mod row_09_order;
mod row_10_shutdown;
mod row_11_through_the_guard;
mod status;
mod subscriptions;
mod takeovers;
mod terms;
mod version_311;
mod ways;
mod winding_down;
