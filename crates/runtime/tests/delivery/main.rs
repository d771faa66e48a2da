//! Delivery as a whole: a runtime over a real journal, between a source and sinks that do what
//! a test says.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects by unwrapping it"
)]

mod at_rest;
mod bounds;
mod deferral;
mod fixture;
mod given_up;
mod holding;
mod job;
mod large;
mod lists;
mod live;
mod operator;
mod redrive;
mod replay;
mod retained;
mod schedule;
mod suspicion;
mod suspicion_alone;
mod transfer;
mod winding_down;
