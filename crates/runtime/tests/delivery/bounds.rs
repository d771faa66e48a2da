use bridge_runtime::{DeliveryMode, OnFull};

use crate::fixture::{Setup, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_a_full_queue_holds_the_source_back() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .queue(10, OnFull::Backpressure)
        .start();
    fixture.source.arrive_many(25, "t");
    fixture.acknowledges(10).await;
    wait_until("all were taken", || fixture.binding(0).open == 15).await;
    assert_eq!(fixture.depth(0), 10);
    assert_eq!(fixture.source.acknowledged(), (0..10).collect::<Vec<_>>());
    fixture.sink().connect();
    fixture.acknowledges(25).await;
    wait_until("all", || fixture.sink().accepted().len() == 25).await;
    assert_eq!(fixture.sink().accepted(), (0..25).collect::<Vec<_>>());
    assert_eq!(fixture.metric("dropped_total", 0, None), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_drop_newest_counts_what_it_drops() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .queue(10, OnFull::DropNewest)
        .start();
    fixture.source.arrive_many(25, "t");
    fixture.acknowledges(25).await;
    assert_eq!(fixture.depth(0), 10);
    assert_eq!(
        fixture.metric("dropped_total", 0, Some(("policy", "drop_newest"))),
        15
    );
    fixture.go_live().await;
    assert_eq!(fixture.sink().accepted(), (0..10).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_6_drop_oldest_holds_its_limit_from_the_first_moment() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .queue(10, OnFull::DropOldest)
        .start();
    for _ in 0..50 {
        fixture.source.arrive("t");
        assert!(fixture.depth(0) <= 10, "{}", fixture.depth(0));
    }
    fixture.acknowledges(50).await;
    assert_eq!(fixture.depth(0), 10);
    assert_eq!(
        fixture.metric("dropped_total", 0, Some(("policy", "drop_oldest"))),
        40
    );
    fixture.go_live().await;
    assert_eq!(fixture.sink().accepted(), (40..50).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_holds_everything_in_order_and_acknowledges_nothing() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(5, "t");
    fixture.acknowledges(5).await;
    fixture.store.fail(true);
    fixture.source.arrive_many(200, "t");
    wait_until("it was tried", || {
        fixture.metric("store_failures_total", 0, None) >= 5
    })
    .await;
    assert_eq!(fixture.source.acknowledged().len(), 5);
    assert_eq!(fixture.depth(0), 5);
    fixture.store.fail(false);
    fixture.acknowledges(205).await;
    fixture.go_live().await;
    assert_eq!(fixture.sink().accepted(), (0..205).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_a_dead_letter_that_cannot_be_written_is_held_until_it_can() {
    use crate::fixture::Reply;
    for queued in [false, true] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
        fixture
            .sink()
            .policy(|message| match message.topic.as_str() {
                "bad" => Reply::Refuse(0x99),
                _ => Reply::Accept,
            });
        if queued {
            fixture.source.arrive("bad");
            fixture.source.arrive("good");
            fixture.acknowledges(2).await;
            fixture.store.fail(true);
            fixture.sink().connect();
        } else {
            fixture.go_live().await;
            fixture.store.fail(true);
            fixture.source.arrive("bad");
            fixture.source.arrive("good");
        }
        wait_until("good passes", || fixture.sink().accepted() == [1]).await;
        wait_until("it was tried", || {
            fixture.metric("store_failures_total", 0, None) >= 3
        })
        .await;
        assert_eq!(fixture.binding(0).usage.dead_letters.entries, 0);
        wait_until("it alone is held", || fixture.binding(0).open == 1).await;
        if !queued {
            assert_eq!(fixture.source.acknowledged(), [1]);
        }
        fixture.store.fail(false);
        wait_until("kept", || {
            fixture.binding(0).usage.dead_letters.entries == 1
        })
        .await;
        fixture.acknowledges(2).await;
        wait_until("quiet", || fixture.binding(0).open == 0).await;
        fixture.ledger_balances(0).await;
    }
}
