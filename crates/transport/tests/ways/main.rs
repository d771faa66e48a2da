//! Sessions by every way to a broker.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the code of tests, their helpers and scripts too: failing loudly is what it is for"
)]

mod common;
mod failover;
mod goodbye;
mod layers;
mod rotation;
mod row_11_through_the_guard;
