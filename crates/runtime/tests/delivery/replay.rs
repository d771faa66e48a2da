use std::time::Duration;

use bridge_core::{Reason, ReasonCode};
use bridge_runtime::DeliveryMode;

use crate::fixture::{Reply, Setup, wait_until};

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

/// The first time that each number was accepted, in order.
fn first_times(accepted: &[u64]) -> Vec<u64> {
    let mut seen = std::collections::HashSet::new();
    accepted
        .iter()
        .copied()
        .filter(|n| seen.insert(*n))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_durable_acknowledged_and_delivered_in_order() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(3_000, "t");
    fixture.acknowledges(3_000).await;
    assert_eq!(fixture.depth(0), 3_000);
    assert!(fixture.binding(0).blocked);
    fixture.sink().connect();
    fixture.is_in(0, "live").await;
    assert_eq!(fixture.sink().accepted(), numbers(0..3_000));
    fixture.source.arrive_many(10, "t");
    fixture.acknowledges(3_010).await;
    assert_eq!(fixture.sink().accepted(), numbers(0..3_010));
    assert_eq!(fixture.metric("queue_replayed_total", 0, None), 3_000);
    assert!(!fixture.binding(0).blocked);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_under_way_when_the_link_broke_comes_again_in_order() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    fixture.source.arrive_many(5, "t");
    fixture.acknowledges(5).await;
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive_many(20, "t");
    wait_until("under way", || fixture.sink().held() == 20).await;
    fixture.sink().cut();
    fixture.source.arrive_many(5, "t");
    fixture.acknowledges(30).await;
    assert_eq!(fixture.depth(0), 25);
    assert_eq!(fixture.metric("publish_unanswered_total", 0, None), 20);
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().connect();
    fixture.is_in(0, "live").await;
    assert_eq!(fixture.sink().accepted(), numbers(0..30));
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i02_a_refused_message_in_the_queue_costs_one_message() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive("bad");
    fixture.source.arrive_many(500, "good");
    fixture.source.arrive("bad");
    fixture.source.arrive_many(500, "good");
    fixture.acknowledges(1_002).await;
    fixture
        .sink()
        .policy(|message| match message.topic.as_str() {
            "bad" => Reply::Refuse(0x90),
            _ => Reply::Accept,
        });
    fixture.sink().connect();
    fixture.is_in(0, "live").await;
    let mut expected = numbers(1..501);
    expected.extend(502..1_002);
    assert_eq!(fixture.sink().accepted(), expected);
    // One pass: no message was offered twice.
    assert_eq!(fixture.sink().offered(), 1_002);
    wait_until("dead letters", || {
        fixture.binding(0).usage.dead_letters.entries == 2
    })
    .await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i03_a_refusal_for_now_keeps_the_head_and_blocks_visibly() {
    for code in [0x91, 0x97] {
        let fixture = Setup::new(DeliveryMode::Outbox).start();
        fixture.source.arrive_many(3, "t");
        fixture.acknowledges(3).await;
        fixture.sink().policy(move |_| Reply::Refuse(code));
        fixture.sink().connect();
        wait_until("blocked", || fixture.binding(0).state == "blocked").await;
        wait_until("tried again and again", || fixture.sink().offered() >= 9).await;
        assert_eq!(fixture.depth(0), 3);
        let status = fixture.binding(0);
        assert_eq!(status.usage.dead_letters.entries, 0);
        let held = status.held.expect("it is told why");
        let reason = Reason::Broker(ReasonCode::new(code));
        assert_eq!(
            (held.reason, held.reason_string.as_deref()),
            (reason, Some("because"))
        );
        assert!(
            held.times >= 2 && held.next_attempt > held.since,
            "{held:?}"
        );
        fixture.sink().policy(|_| Reply::Accept);
        wait_until("drained", || fixture.depth(0) == 0).await;
        assert_eq!(fixture.sink().accepted(), [0, 1, 2]);
        assert!(!fixture.binding(0).blocked);
        assert_eq!(fixture.binding(0).held, None);
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i12_a_queue_that_is_held_and_one_that_is_idle_never_read_the_same() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    assert!(!fixture.binding(0).blocked, "idle: nothing is queued");
    assert_eq!(fixture.metric("queue_blocked", 0, None), 0);
    fixture.source.arrive("t");
    fixture.acknowledges(1).await;
    assert!(
        fixture.binding(0).blocked,
        "held: one is queued and cannot go"
    );
    assert_eq!(fixture.metric("queue_blocked", 0, None), 1);
    fixture.go_live().await;
    assert!(!fixture.binding(0).blocked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i12_a_queue_is_blocked_until_its_head_was_published_after_all() {
    let fixture = Setup::new(DeliveryMode::Outbox).start();
    fixture.source.arrive_many(3, "t");
    fixture.acknowledges(3).await;
    fixture.sink().policy(|_| Reply::Hold);
    fixture.sink().connect();
    wait_until("under way", || fixture.sink().held() == 3).await;
    assert_eq!(fixture.binding(0).state, "replaying");
    assert!(fixture.binding(0).blocked, "its latest attempt failed");
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().release();
    wait_until("published", || fixture.depth(0) == 0).await;
    assert!(!fixture.binding(0).blocked);
    // What comes now is queued as well, and was not tried before.
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive("t");
    wait_until("under way", || fixture.sink().held() == 1).await;
    assert!(!fixture.binding(0).blocked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_stores_everything_and_acknowledges_what_is_durable() {
    let fixture = Setup::new(DeliveryMode::Outbox).start();
    fixture.sink().connect();
    fixture.source.arrive_many(1_000, "t");
    fixture.acknowledges(1_000).await;
    wait_until("delivered", || fixture.sink().accepted().len() == 1_000).await;
    assert_eq!(fixture.sink().accepted(), numbers(0..1_000));
    assert_eq!(fixture.store.puts(), 1_000);
    wait_until("drained", || fixture.depth(0) == 0).await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_26_a_queue_drains_in_order_under_steady_traffic_and_becomes_live() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(2_000, "t");
    fixture.acknowledges(2_000).await;
    fixture.sink().connect();
    let mut rounds = 0;
    while fixture.binding(0).state != "live" {
        fixture.source.arrive_many(5, "t");
        rounds += 1;
        assert!(rounds < 20_000, "never live: {:?}", fixture.binding(0));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.source.arrive_many(100, "t");
    let all = 2_000 + 5 * rounds + 100;
    fixture.acknowledges(all).await;
    assert_eq!(fixture.sink().accepted(), numbers(0..all as u64));
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_survives_a_stop_and_goes_on_in_order() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(100, "t");
    fixture.acknowledges(100).await;
    let (_, data, unsettled) = fixture.stop().await;
    assert_eq!(unsettled, 0);
    let fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    assert_eq!(fixture.depth(0), 100);
    fixture.go_live().await;
    assert_eq!(fixture.sink().accepted(), numbers(0..100));
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_expires_in_the_queue_goes_by_policy() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture
        .source
        .arrive_with("t", |message| message.properties.message_expiry = Some(1));
    fixture.source.arrive_with("t", |message| {
        message.properties.message_expiry = Some(1_000);
    });
    fixture.acknowledges(2).await;
    // The wait itself is what is tested: the interval has to pass.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    fixture.go_live().await;
    assert_eq!(fixture.sink().accepted(), [1]);
    let left = fixture.sink().messages()[0]
        .properties
        .message_expiry
        .unwrap();
    assert!((990..=998).contains(&left), "{left}");
    assert_eq!(
        fixture.metric("dropped_total", 0, Some(("policy", "expired"))),
        1
    );
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_breaks_in_the_middle_of_a_drain_resumes_at_the_head() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive_many(1_000, "t");
    fixture.acknowledges(1_000).await;
    let mut until_cut = 137;
    fixture.sink().policy(move |_| {
        until_cut -= 1;
        if until_cut == 0 {
            until_cut = 137;
            return Reply::Cut;
        }
        Reply::Accept
    });
    wait_until("drained", || {
        if !bridge_core::Sink::link(fixture.sink()).is_up() {
            fixture.sink().connect();
        }
        fixture.depth(0) == 0
    })
    .await;
    let accepted = fixture.sink().accepted();
    assert!(
        accepted.len() < 1_000 + 8 * 50,
        "more than the windows came again"
    );
    assert!(first_times(&accepted) == numbers(0..1_000), "{accepted:?}");
    fixture.ledger_balances(0).await;
}
