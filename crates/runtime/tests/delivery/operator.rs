//! What an operator does with a running binding: pauses it, and gives it messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{ManualClock, Message, Timestamp, Topic};
use bridge_runtime::{ControlError, DeliveryMode, InjectTarget, OnFull, RedriveVerdict};

use crate::fixture::{Reply, Setup, key, name, wait_until};

const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn message(text: &str) -> Message {
    Message::new(Topic::parse("test/1").unwrap(), text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_binding_queues_and_goes_on_in_order() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    fixture.go_live().await;
    let control = fixture.runtime.control();
    // Two are under way when it is paused: one settles well, one is lost.
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive_many(2, "t");
    wait_until("both under way", || fixture.sink().held() == 2).await;
    assert_eq!(control.pause(&key("b0")), Ok(true));
    assert_eq!(control.pause(&key("b0")), Ok(false));
    assert!(fixture.binding(0).paused);
    fixture.source.arrive_many(3, "t");
    fixture.is_in(0, "recalling").await;
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().release();
    fixture.is_in(0, "paused").await;
    fixture.acknowledges(5).await;
    assert_eq!(fixture.waiting(0), (3, 0, 0));
    assert!(!fixture.binding(0).blocked, "its head was not refused");
    assert_eq!(fixture.sink().accepted(), [0, 1]);
    assert_eq!(fixture.sinks[1].accepted(), [0, 1, 2, 3, 4]);
    assert_eq!(fixture.metric("binding_paused", 0, None), 1);
    assert_eq!(fixture.metric("binding_paused", 1, None), 0);
    // A new connection changes nothing.
    fixture.sink().cut();
    fixture.sink().connect();
    fixture.source.arrive("t");
    fixture.acknowledges(6).await;
    assert_eq!(
        (fixture.waiting(0), fixture.binding(0).state),
        ((4, 0, 0), "paused")
    );
    assert_eq!(control.resume(&key("b0")), Ok(true));
    assert_eq!(control.resume(&key("b0")), Ok(false));
    fixture.is_in(0, "live").await;
    assert_eq!(fixture.sink().accepted(), [0, 1, 2, 3, 4, 5]);
    fixture.ledger_balances(0).await;
    assert_eq!(
        control.pause(&key("none")),
        Err(ControlError::NoSuchBinding)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_outlasts_an_outage_and_a_stop_loses_nothing() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    let control = fixture.runtime.control();
    control.pause(&key("b0")).unwrap();
    fixture.is_in(0, "paused").await;
    fixture.sink().connect();
    fixture.source.arrive_many(3, "t");
    fixture.acknowledges(3).await;
    assert_eq!(
        (fixture.sink().offered(), fixture.binding(0).state),
        (0, "paused")
    );
    let (_, data, unsettled) = fixture.stop().await;
    assert_eq!(unsettled, 0);
    let fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
    assert!(!fixture.binding(0).paused, "a pause ends with the process");
    fixture.go_live().await;
    assert_eq!(fixture.sink().accepted(), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_binding_that_never_queues_leaves_with_the_source_what_it_held_too_long() {
    let budget = Duration::from_millis(100);
    let mode = DeliveryMode::DirectHold {
        send_retry_budget: budget,
    };
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)));
    let fixture = Setup::new(mode).clock(&clock).start();
    fixture.go_live().await;
    let control = fixture.runtime.control();
    control.pause(&key("b0")).unwrap();
    fixture.is_in(0, "paused").await;
    fixture.source.arrive("t");
    wait_until("it is held", || fixture.binding(0).open == 1).await;
    clock.advance(budget);
    wait_until("left", || fixture.source.left() == [0]).await;
    control.resume(&key("b0")).unwrap();
    fixture.source.arrive("t");
    fixture.acknowledges(1).await;
    assert_eq!(fixture.sink().accepted(), [1]);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i24_a_test_message_goes_through_the_pipeline_or_to_one_binding_and_is_counted() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    fixture.sinks[1].policy(|_| Reply::Refuse(0x99));
    fixture.go_live().await;
    let control = fixture.runtime.control();
    let route = name("route");
    let inject = |text, target| control.inject(&route, message(text), target, LONG);
    let injected = inject("7", InjectTarget::Pipeline).await.unwrap();
    assert!(injected.stored);
    let [(first, accepted), (second, refused)] = &injected.bindings[..] else {
        panic!("{injected:?}");
    };
    assert_eq!((first, second), (&key("b0"), &key("b1")));
    assert_eq!(*accepted, Some(RedriveVerdict::Delivered));
    let Some(RedriveVerdict::Refused { dead_letter, .. }) = refused else {
        panic!("{refused:?}");
    };
    let letter = control.get(dead_letter).await.unwrap().unwrap();
    assert_eq!(letter.stored.id, injected.message_id);
    let target = InjectTarget::Binding(name("b0"));
    let injected = inject("8", target).await.unwrap();
    assert_eq!(injected.bindings.len(), 1);
    assert_eq!(fixture.sink().accepted(), [7, 8]);
    assert_eq!(fixture.metric("injected_total", 0, None), 2);
    assert_eq!(fixture.metric("injected_total", 1, None), 1);
    assert_eq!(fixture.metric("received_total", 0, None), 0);
    for n in 0..2 {
        fixture.ledger_balances(n).await;
    }
    let nowhere = InjectTarget::Binding(name("b9"));
    assert_eq!(inject("9", nowhere).await, Err(ControlError::NoSuchBinding));
    let strange = name("strange");
    let lost = control.inject(&strange, message("9"), InjectTarget::Pipeline, None);
    assert_eq!(lost.await, Err(ControlError::NoSuchRoute));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_a_test_message_finds_no_room_at_one_binding_and_is_at_none() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .queue(1, OnFull::DropOldest)
        .start();
    let control = fixture.runtime.control();
    let route = name("route");
    let one = InjectTarget::Binding(name("b1"));
    control
        .inject(&route, message("1"), one, None)
        .await
        .unwrap();
    let both = control.inject(&route, message("2"), InjectTarget::Pipeline, None);
    assert_eq!(both.await, Err(ControlError::QueueFull));
    assert_eq!([fixture.depth(0), fixture.depth(1)], [0, 1]);
    fixture.store.fail(true);
    let one = InjectTarget::Binding(name("b0"));
    let held = control.inject(&route, message("3"), one, None);
    // It is held, and stored when that works.
    let mended = async {
        wait_until("it could not be stored", || fixture.store.failed() > 0).await;
        fixture.store.fail(false);
    };
    let (held, ()) = tokio::join!(held, mended);
    assert!(held.unwrap().stored);
    assert_eq!(fixture.depth(0), 1);
    for n in 0..2 {
        fixture.ledger_balances(n).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_a_test_message_that_the_store_fails_on_puts_nothing_out_of_order() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| spec.max_in_flight = 3.try_into().unwrap())
        .start();
    fixture.go_live().await;
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive_many(5, "t");
    wait_until("three under way, and two behind", || {
        fixture.sink().held() == 3 && fixture.binding(0).open == 5
    })
    .await;
    fixture.store.fail(true);
    let control = fixture.runtime.control();
    let by_hand = tokio::spawn(async move {
        let target = InjectTarget::Pipeline;
        control
            .inject(&name("route"), message("100"), target, None)
            .await
    });
    wait_until("it could not be stored", || fixture.store.failed() > 0).await;
    wait_until("it is told", || {
        fixture.metric("store_failures_total", 0, None) > 0
    })
    .await;
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.store.fail(false);
    fixture.acknowledges(5).await;
    assert!(by_hand.await.unwrap().unwrap().stored);
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().connect();
    fixture.waits(0, (0, 0, 0)).await;
    assert_eq!(fixture.sink().accepted(), [100, 0, 1, 2, 3, 4]);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_what_leaves_the_queue_hides_nothing_that_is_put_there_meanwhile() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.source.arrive("refused");
    fixture.acknowledges(1).await;
    fixture
        .sink()
        .policy(|message| match message.topic.as_str() {
            "refused" => Reply::Refuse(0x90),
            _ => Reply::Accept,
        });
    // It is a dead letter, and the worker is not told yet.
    fixture.store.answer_moves(false);
    fixture.go_live().await;
    fixture.waits(0, (0, 0, 1)).await;
    let control = fixture.runtime.control();
    let target = InjectTarget::Binding(name("b0"));
    let route = name("route");
    let injected = control.inject(&route, message("7"), target, None);
    assert!(injected.await.unwrap().stored);
    assert_eq!(fixture.waiting(0), (1, 0, 1));
    // Nothing else happens that could wake it.
    fixture.store.answer_moves(true);
    let told = Instant::now();
    wait_until("it is sent", || fixture.sink().accepted() == [7]).await;
    assert!(
        told.elapsed() < Duration::from_secs(20),
        "by the timer only"
    );
    fixture.ledger_balances(0).await;
}
