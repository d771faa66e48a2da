//! The ledger through everything at once: refusals that come and go, cut lines, brokers and
//! bridges that restart, kills, expiry.
//!
//! A minute in every test run; `cargo xtask soak` makes it longer. A run that fails says its seed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: failing loudly is what they are for"
)]

mod books;
mod feeding;
mod stage;

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use self::stage::Stage;

const SECONDS: &str = "BRIDGE_SOAK_SECONDS";
const SEED: &str = "BRIDGE_SOAK_SEED";

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i24_the_ledger_balances_through_refusals_cuts_restarts_and_kills() {
    let seed = number(SEED).unwrap_or_else(|| RandomState::new().hash_one("events") >> 32);
    let last = Duration::from_secs(number(SECONDS).unwrap_or(60));
    println!("{SEED}={seed}");
    let mut stage = Stage::set(seed).await;
    stage.soak(last).await;
    let outcome = stage.settle().await;
    println!("{outcome}");
    assert_eq!(outcome.faults(), [""; 0], "{SEED}={seed}");
}
