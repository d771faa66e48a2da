//! Random schedules: whatever happens to links, verdicts and the store, the ledger balances.

use std::collections::HashSet;
use std::time::Duration;

use bridge_runtime::DeliveryMode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fixture::{Reply, Setup, name, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i24_the_ledger_balances_after_any_schedule() {
    for seed in 0..16 {
        let mode = if seed % 3 == 0 {
            DeliveryMode::Outbox
        } else {
            DeliveryMode::StoreAndForward
        };
        run(seed, mode).await;
    }
}

async fn run(seed: u64, mode: DeliveryMode) {
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = Setup::new(mode)
        .bindings(2)
        .adjust(move |spec| {
            // Both at one session in some runs, so that they are in each other's way.
            if seed % 4 == 1 {
                spec.sink = name("b0");
            }
            spec.deferral.retry_interval = Duration::from_millis(20);
            spec.deferral.window = Duration::from_millis(200);
            spec.deferral.max_entries = 20;
        })
        .start();
    for (n, sink) in fixture.sinks.iter().enumerate() {
        let mut random = StdRng::seed_from_u64(seed * 7 + n as u64);
        sink.policy(move |message| match random.random_range(0..300) {
            0 => Reply::Cut,
            1..5 => Reply::Refuse(0x97),
            5..15 if message.topic.as_str() == "refused" => Reply::Refuse(0x90),
            5..100 if message.topic.as_str() == "denied" => Reply::Refuse(0x87),
            5..60 if message.topic.as_str() == "closing" => Reply::Cut,
            100..110 => Reply::Fail,
            15..20 => Reply::Hold,
            _ => Reply::Accept,
        });
    }
    let mut sent = 0;
    for _ in 0..150 {
        match random.random_range(0..12) {
            0 => fixture.sinks[random.random_range(0..2)].cut(),
            1 | 2 => fixture.sinks[random.random_range(0..2)].connect(),
            3 => fixture.store.fail(true),
            4 | 5 => fixture.store.fail(false),
            6 => tokio::time::sleep(Duration::from_millis(random.random_range(0..10))).await,
            7 => fixture.sinks[random.random_range(0..2)].release(),
            _ => {
                for _ in 0..random.random_range(0..30) {
                    fixture.source.arrive(match random.random_range(0..30) {
                        0..3 => "refused",
                        3..6 => "denied",
                        6 => "closing",
                        _ => "t",
                    });
                    sent += 1;
                }
            }
        }
    }
    fixture.store.fail(false);
    for sink in &fixture.sinks {
        sink.policy(|_| Reply::Accept);
        sink.release();
    }
    wait_until(&format!("seed {seed}: everything has settled"), || {
        for sink in &fixture.sinks {
            sink.release();
            if !bridge_core::Sink::link(&**sink).is_up() {
                sink.connect();
            }
        }
        let settled = |n| {
            let (queue, deferred, _) = fixture.waiting(n);
            fixture.binding(n).open == 0 && queue + deferred == 0
        };
        // What is acknowledged has been given to the bindings: nothing is still to come.
        fixture.source.acknowledged().len() == sent && (0..2).all(settled)
    })
    .await;
    assert_eq!(fixture.source.acknowledged().len(), sent, "seed {seed}");
    for (n, sink) in fixture.sinks.iter().enumerate() {
        fixture.ledger_balances(n).await;
        assert_eq!(
            fixture.metric("counted_attempts", n, None),
            0,
            "seed {seed}: a count outlives its message"
        );
        if seed % 4 == 1 {
            continue;
        }
        let accepted = sink.accepted();
        let different: HashSet<_> = accepted.iter().collect();
        let dead = fixture.binding(n).usage.dead_letters.entries;
        assert_eq!(
            different.len() as u64 + dead,
            sent as u64,
            "seed {seed} binding {n}"
        );
    }
}
