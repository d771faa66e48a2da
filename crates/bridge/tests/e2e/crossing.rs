//! Many messages from one broker to another, while something is broken.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use bridge_testkit::{Crossing, CrossingReport, Disturbance, Load};

use crate::setup::BRIDGE;

async fn crossing(messages: u64, delivery: &'static str, what: Disturbance) -> CrossingReport {
    let crossing = Crossing {
        program: BRIDGE.into(),
        load: Load {
            messages,
            size: 256,
        },
        delivery,
        disturbance: what,
    };
    let report = crossing.run().await;
    println!("{delivery}, {what:?}\n{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_crosses_once_and_in_order() {
    crossing(20_000, "store_and_forward", Disturbance::None)
        .await
        .expect_all_once_and_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_crosses_an_outbox_once_and_in_order() {
    crossing(5_000, "outbox", Disturbance::None)
        .await
        .expect_all_once_and_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_crosses_while_the_destination_is_stopped() {
    let stopped = Disturbance::DestinationStopped(Duration::from_secs(2));
    crossing(10_000, "store_and_forward", stopped)
        .await
        .expect_all_and_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_11_every_message_crosses_while_the_destination_is_halted_beyond_the_keep_alive() {
    let paused = Disturbance::DestinationPaused(Duration::from_secs(3));
    crossing(10_000, "store_and_forward", paused)
        .await
        .expect_all_and_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_crosses_while_the_source_restarts() {
    crossing(10_000, "store_and_forward", Disturbance::SourceRestarted)
        .await
        .expect_all_and_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_order_under_load_loses_nothing() {
    let restarted = Disturbance::BridgeRestarted { rounds: 4 };
    crossing(10_000, "store_and_forward", restarted)
        .await
        .expect_all_and_in_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_bridge_is_killed() {
    killed("store_and_forward").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_a_bridge_with_an_outbox_is_killed() {
    killed("outbox").await;
}

/// The moments are others in each run; the seed is in the output of a run that fails.
async fn killed(delivery: &'static str) {
    let seed = RandomState::new().hash_one(0);
    let killed = Disturbance::BridgeKilled { rounds: 4, seed };
    crossing(5_000, delivery, killed)
        .await
        .expect_all_and_in_order();
}
