//! A topic that was found to cost the connection, when nothing else goes through its session any
//! more: nobody else shows whether the connection is at fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_core::{ManualClock, Reason, Timestamp, View};
use bridge_runtime::DeliveryMode;

use crate::fixture::{Fixture, Setup};
use crate::suspicion::{close_on_bad, reconnecting_until};

const INTERVAL: Duration = Duration::from_secs(120);
/// The message that was found out.
const BAD: u64 = 5;

/// A binding that has found out its topic `bad`; from then on it gets no other.
struct Alone {
    fixture: Fixture,
    clock: Arc<ManualClock>,
    closing: Arc<AtomicBool>,
}

impl Alone {
    async fn found_out() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)));
        let fixture = Setup::new(DeliveryMode::StoreAndForward)
            .clock(&clock)
            .start();
        let closing = close_on_bad(&fixture);
        fixture.source.arrive_many(5, "good");
        fixture.source.arrive("bad");
        // Two of them show that the connection is not at fault, the third follows the finding.
        fixture.source.arrive_many(3, "good");
        fixture.acknowledges(9).await;
        let alone = Self {
            fixture,
            clock,
            closing,
        };
        alone.comes_to("found out", (0, 1, 0)).await;
        alone.is_live_again().await;
        // Others were accepted before the first trial, and none after it.
        alone.is_tried_after(INTERVAL).await;
        alone
    }

    fn tries(&self) -> usize {
        let offers = self.fixture.sink().offers();
        offers.into_iter().filter(|n| *n == BAD).count()
    }

    async fn comes_to(&self, what: &str, waiting: (u64, u64, u64)) {
        reconnecting_until(&self.fixture, what, || self.fixture.waiting(0) == waiting).await;
    }

    async fn is_live_again(&self) {
        reconnecting_until(&self.fixture, "live", || {
            self.fixture.binding(0).state == "live"
        })
        .await;
    }

    /// Lets time pass, and one more of the topic arrive, which lines up.
    fn passes(&self, time: Duration) {
        self.clock.advance(time);
        self.fixture.source.arrive("bad");
    }

    async fn is_tried_after(&self, time: Duration) {
        let (tries, connections) = (self.tries(), self.fixture.sink().connections());
        self.passes(time);
        reconnecting_until(&self.fixture, "tried", || self.tries() == tries + 1).await;
        // Only with the next connection the worker has heard of the end of this one.
        reconnecting_until(&self.fixture, "connected", || {
            self.fixture.sink().connections() > connections
        })
        .await;
        self.is_live_again().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_a_suspected_topic_is_offered_each_interval_though_nothing_else_is_sent() {
    let alone = Alone::found_out().await;
    for _ in 0..4 {
        alone.is_tried_after(INTERVAL).await;
    }
    alone.closing.store(false, Ordering::SeqCst);
    alone.passes(INTERVAL);
    alone.comes_to("all of it gets through", (0, 0, 0)).await;
    let accepted = alone.fixture.sink().accepted();
    assert_eq!(accepted[accepted.len() - 7..], [5, 9, 10, 11, 12, 13, 14]);
    alone.fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_the_window_of_a_suspected_topic_ends_though_nothing_else_is_sent() {
    let alone = Alone::found_out().await;
    // At 120 s it was refused for the second time. Two more ends say nothing yet, from the third
    // on each is a refusal, and at 960 s the window is over.
    for minutes in [4, 6, 8, 10, 12, 14] {
        alone.is_tried_after(INTERVAL).await;
        assert_eq!(alone.fixture.waiting(0).2, 0, "after {minutes} min");
    }
    alone.is_tried_after(INTERVAL).await;
    reconnecting_until(&alone.fixture, "given up", || {
        alone.fixture.waiting(0).2 == 1
    })
    .await;
    let dead = alone.fixture.view(0, View::DeadLetters).await;
    let info = dead[0].dead_letter.as_ref().unwrap();
    assert_eq!(info.reason, Reason::SuspectedRefusal);
    assert_eq!(info.attempts, 2 + 4 + 1);
    alone.fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_connections_that_do_not_stand_give_up_nothing_though_nothing_else_is_sent() {
    let alone = Alone::found_out().await;
    for _ in 0..12 {
        // It ends by itself, and the next one is young when it is time.
        alone.clock.advance(INTERVAL * 3 / 4);
        alone.fixture.sink().cut();
        alone.fixture.is_in(0, "link_down").await;
        alone.is_live_again().await;
        alone.is_tried_after(INTERVAL / 4).await;
    }
    assert_eq!(alone.fixture.waiting(0), (0, 14, 0));
    let deferred = alone.fixture.view(0, View::Deferred).await;
    let info = deferred[0].deferred.as_ref().unwrap();
    assert_eq!(info.attempts, 2, "an outage spends no attempt");
    alone.closing.store(false, Ordering::SeqCst);
    alone.passes(INTERVAL);
    alone.comes_to("all of it gets through", (0, 0, 0)).await;
    alone.fixture.ledger_balances(0).await;
}
