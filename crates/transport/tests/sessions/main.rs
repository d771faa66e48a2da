//! Sessions against real and scripted brokers.

mod common;
mod crossing;
