use std::time::Duration;

use bridge_runtime::DeliveryMode;

use crate::fixture::{NOT_WAITED, Reply, Setup, wait_until};

fn holding(budget: Duration) -> Setup {
    Setup::new(DeliveryMode::DirectHold {
        send_retry_budget: budget,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_hold_waits_for_the_link_and_never_stores() {
    let fixture = holding(Duration::from_secs(60)).start();
    fixture.source.arrive_many(20, "t");
    wait_until("held", || fixture.binding(0).open == 20).await;
    assert!(fixture.source.acknowledged().is_empty());
    fixture.sink().connect();
    fixture.acknowledges(20).await;
    assert_eq!(fixture.sink().accepted(), (0..20).collect::<Vec<_>>());
    assert_eq!(fixture.store.puts(), 0);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_hold_sends_again_what_was_lost_in_order() {
    let fixture = holding(Duration::from_secs(60)).start();
    fixture.go_live().await;
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive_many(20, "t");
    wait_until("under way", || fixture.sink().held() == 20).await;
    fixture.sink().cut();
    fixture.source.arrive_many(5, "t");
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().connect();
    fixture.acknowledges(25).await;
    assert_eq!(fixture.sink().accepted(), (0..25).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_hold_leaves_with_the_source_what_it_cannot_deliver_in_time() {
    let fixture = holding(Duration::from_millis(100)).start();
    fixture.source.arrive_many(3, "t");
    wait_until("left", || fixture.source.left().len() == 3).await;
    assert!(fixture.source.acknowledged().is_empty());
    assert_eq!(fixture.depth(0), 0);
    assert_eq!(fixture.metric("left_at_source_total", 0, None), 3);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_hold_keeps_a_dead_letter_of_what_is_refused_for_good() {
    let fixture = holding(Duration::from_secs(60)).start();
    fixture.sink().policy(|_| Reply::Refuse(0x87));
    fixture.go_live().await;
    fixture.source.arrive("t");
    fixture.acknowledges(1).await;
    assert_eq!(fixture.binding(0).usage.dead_letters.entries, 1);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_with_the_source_what_is_held_directly() {
    let fixture = holding(Duration::from_secs(60)).start();
    fixture.source.arrive_many(5, "t");
    wait_until("held", || fixture.binding(0).open == 5).await;
    let begun = std::time::Instant::now();
    let (source, _, unsettled) = fixture.stop().await;
    assert_eq!((source.acknowledged(), unsettled), (vec![], 0));
    assert!(
        begun.elapsed() < NOT_WAITED,
        "no need to wait for the drain timeout"
    );
}
