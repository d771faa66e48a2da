//! The broker's retained value of a topic is the newest payload, in whichever order answers come (I08).

use bridge_runtime::DeliveryMode;

use crate::fixture::{Fixture, Reply, Setup, wait_until};

/// `count` retained messages of one topic wait in the queue.
async fn with_retained(count: u64) -> Fixture {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    for _ in 0..count {
        retained(&fixture);
    }
    let count = usize::try_from(count).unwrap();
    fixture.acknowledges(count).await;
    fixture
}

fn retained(fixture: &Fixture) -> u64 {
    fixture
        .source
        .arrive_with("state", |message| message.retain = true)
}

/// What a broker has as the retained value after all that this one has accepted.
fn value(fixture: &Fixture) -> String {
    let messages = fixture.sink().messages();
    let last = messages.iter().rev().find(|message| message.retain);
    String::from_utf8_lossy(&last.unwrap().payload).into_owned()
}

/// Refuses the first `count` offers.
fn refuse_first(fixture: &Fixture, count: u32, code: u8) {
    let mut refusals = count;
    fixture.sink().policy(move |_| {
        if refusals > 0 {
            refusals -= 1;
            return Reply::Refuse(code);
        }
        Reply::Accept
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_what_was_overtaken_before_a_restart_does_not_become_the_retained_value() {
    for restarts in 1..3 {
        let mut fixture = with_retained(6).await;
        refuse_first(&fixture, 3, 0x87);
        fixture.go_live().await;
        fixture.waits(0, (0, 3, 0)).await;
        wait_until("quiet", || fixture.binding(0).open == 0).await;
        assert_eq!(fixture.sink().accepted(), [3, 4, 5]);
        for _ in 0..restarts {
            let (_, data, _) = fixture.stop().await;
            fixture = Setup::new(DeliveryMode::StoreAndForward).data(data).start();
            // It is known still when it was refused once more.
            refuse_first(&fixture, 1, 0x87);
            fixture.sink().connect();
            fixture.is_in(0, "live").await;
            wait_until("refused once more", || fixture.sink().offered() == 1).await;
            wait_until("quiet", || fixture.binding(0).open == 0).await;
        }
        fixture.sink().cut();
        fixture.is_in(0, "link_down").await;
        fixture.sink().connect();
        wait_until("recovered", || fixture.sink().accepted() == [0, 1, 2]).await;
        let messages = fixture.sink().messages();
        assert!(messages.iter().all(|message| !message.retain));
        // What comes now is newer than all of them.
        retained(&fixture);
        wait_until("the newest", || fixture.sink().accepted().len() == 4).await;
        assert_eq!(value(&fixture), "0", "the numbers begin anew in each run");
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_a_newer_one_that_is_not_retained_overtakes_nothing() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    retained(&fixture);
    fixture.source.arrive("state");
    fixture.acknowledges(2).await;
    refuse_first(&fixture, 1, 0x87);
    fixture.go_live().await;
    fixture.waits(0, (0, 1, 0)).await;
    assert_eq!(fixture.sink().accepted(), [1]);
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.sink().connect();
    wait_until("recovered", || fixture.sink().accepted() == [1, 0]).await;
    assert_eq!(value(&fixture), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_a_refusal_that_is_heard_after_a_newer_one_was_accepted_is_of_an_older_value() {
    for (code, deferred) in [(0x87, 1), (0x97, 0)] {
        let fixture = with_retained(2).await;
        let mut first = true;
        fixture.sink().policy(move |_| {
            if std::mem::take(&mut first) {
                Reply::Hold
            } else {
                Reply::Accept
            }
        });
        fixture.sink().connect();
        wait_until("the newer one is through", || fixture.depth(0) == 1).await;
        fixture.sink().refuse_held(code);
        if deferred > 0 {
            fixture.waits(0, (0, deferred, 0)).await;
            fixture.sink().cut();
            fixture.is_in(0, "link_down").await;
            fixture.sink().connect();
        }
        wait_until("the older one too", || fixture.sink().accepted() == [1, 0]).await;
        assert_eq!(value(&fixture), "1", "0x{code:x}");
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_what_was_refused_for_now_live_and_overtaken_is_not_the_retained_value() {
    let fixture = with_retained(0).await;
    fixture.go_live().await;
    fixture.sink().policy(|_| Reply::Hold);
    retained(&fixture);
    wait_until("held", || fixture.sink().held() == 1).await;
    fixture.sink().policy(|_| Reply::Accept);
    retained(&fixture);
    wait_until("the newer one is through", || {
        fixture.sink().accepted() == [1]
    })
    .await;
    fixture.sink().refuse_held(0x97);
    wait_until("the older one too", || fixture.sink().accepted() == [1, 0]).await;
    assert_eq!(value(&fixture), "1");
    fixture.acknowledges(2).await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_what_overtook_is_done_with_only_when_it_is_stored_that_it_did() {
    let fixture = with_retained(2).await;
    refuse_first(&fixture, 1, 0x87);
    fixture.store.fail(true);
    fixture.sink().connect();
    wait_until("the newer one is through", || {
        fixture.sink().accepted() == [1]
    })
    .await;
    wait_until("it was tried", || {
        fixture.metric("store_failures_total", 0, None) >= 5
    })
    .await;
    // After a crash now both would come again, in their order.
    assert_eq!(fixture.waiting(0), (2, 0, 0));
    assert_eq!(fixture.sink().offers(), [0, 1]);
    fixture.store.fail(false);
    fixture.waits(0, (0, 1, 0)).await;
    fixture.ledger_balances(0).await;
}
