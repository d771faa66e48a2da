//! A stop, with a source that loses what is not settled.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bridge_runtime::DeliveryMode;

use crate::fixture::{Fixture, Reply, Setup, wait_until};

const BUDGET: Duration = Duration::from_secs(60);

async fn is_emptied(mode: DeliveryMode) {
    let fixture = Setup::new(mode).start();
    fixture.go_live().await;
    fixture.source.loses();
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive_many(3, "t");
    wait_until("they are under way", || fixture.binding(0).open == 3).await;
    let before = fixture.source.acknowledged().len();
    let Fixture {
        runtime,
        source,
        sinks,
        data: _data,
        ..
    } = fixture;
    let overview = runtime.overview();
    let stop = tokio::spawn(runtime.shutdown(Duration::from_secs(30)));
    wait_until("it winds down", || source.winds_down.load(Ordering::SeqCst)).await;
    source.arrive_many(4, "t");
    wait_until("they are taken", || overview.status().bindings[0].open == 7).await;
    assert!(!stop.is_finished(), "nothing has settled");
    sinks[0].policy(|_| Reply::Accept);
    sinks[0].release();
    wait_until("they settle", || source.acknowledged().len() == before + 7).await;
    assert!(!stop.is_finished(), "more may come");
    let last = source.arrive("t");
    source.finish();
    assert_eq!(stop.await.unwrap().unwrap().unsettled, 0);
    assert_eq!(source.acknowledged().last(), Some(&last));
    assert!(source.left().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_35_a_source_that_would_lose_it_is_emptied_and_what_it_gave_settles() {
    is_emptied(DeliveryMode::StoreAndForward).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_35_so_is_one_whose_messages_are_never_queued() {
    is_emptied(DeliveryMode::DirectHold {
        send_retry_budget: BUDGET,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_never_empty_is_left_in_time() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    fixture.source.loses();
    let asked = Instant::now();
    let stopped = fixture.runtime.shutdown(Duration::from_secs(5)).await;
    let took = asked.elapsed();
    assert!(took > Duration::from_secs(3), "it was given time: {took:?}");
    assert!(fixture.source.winds_down.load(Ordering::SeqCst));
    assert_eq!(stopped.unwrap().unsettled, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_more_is_taken_from_a_source_that_keeps_it() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.go_live().await;
    let before = fixture.source.acknowledged();
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive("t");
    wait_until("it is under way", || fixture.sink().held() == 1).await;
    let Fixture {
        runtime,
        source,
        sinks,
        data: _data,
        ..
    } = fixture;
    let stop = tokio::spawn(runtime.shutdown(Duration::from_secs(30)));
    wait_until("it stops", || source.winds_down.load(Ordering::SeqCst)).await;
    source.arrive_many(4, "t");
    sinks[0].release();
    assert_eq!(stop.await.unwrap().unwrap().unsettled, 0);
    assert_eq!(source.acknowledged().len(), before.len() + 1);
}
