//! The stores of leases: what each has to promise, and what is particular to one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the code of tests: failing loudly is what it is for"
)]

#[path = "stores/contract.rs"]
mod contract;
#[path = "stores/file.rs"]
mod file;
#[path = "stores/postgres.rs"]
mod postgres;
#[path = "stores/processes.rs"]
mod processes;
#[path = "stores/rivals.rs"]
mod rivals;
