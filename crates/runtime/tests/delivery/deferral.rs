//! The second chance of what a policy refuses, seen from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bridge_core::{Clock, ManualClock, Reason, ReasonCode, Timestamp, View};
use bridge_runtime::DeliveryMode;

use crate::fixture::{Fixture, Reply, Setup, wait_until};

const MINUTE: Duration = Duration::from_secs(60);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)))
}

/// Refuses everything on topics that begin with `denied` while the switch is on.
fn deny(fixture: &Fixture) -> Arc<AtomicBool> {
    let denied = Arc::new(AtomicBool::new(true));
    let asked = denied.clone();
    fixture.sink().policy(move |message| {
        if message.topic.as_str().starts_with("denied") && asked.load(Ordering::SeqCst) {
            Reply::Refuse(0x87)
        } else {
            Reply::Accept
        }
    });
    denied
}

/// Makes the worker look at the clock, as its timer does every 30 s: something arrives.
async fn look(fixture: &Fixture) {
    let number = fixture.source.arrive("tick");
    wait_until("the tick has arrived", || {
        fixture.sink().accepted().contains(&number)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i02_behind_a_refused_head_8404_messages_arrive_in_the_same_pass() {
    for (code, deferred, dead) in [(0x87, 1, 0), (0x90, 0, 1)] {
        let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
        fixture.source.arrive("head");
        fixture.source.arrive_many(8_404, "audit");
        fixture.acknowledges(8_405).await;
        fixture
            .sink()
            .policy(move |message| match message.topic.as_str() {
                "head" => Reply::Refuse(code),
                _ => Reply::Accept,
            });
        fixture.go_live().await;
        assert_eq!(fixture.sink().accepted(), (1..8_405).collect::<Vec<_>>());
        assert_eq!(fixture.sink().offered(), 8_405, "in one pass");
        assert_eq!(fixture.sink().connections(), 1);
        fixture.waits(0, (0, deferred, dead)).await;
        assert!(!fixture.binding(0).blocked);
        assert_eq!(fixture.metric("queue_deferred_total", 0, None), deferred);
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_of_an_upgrade_that_is_granted_four_minutes_later_all_283_messages_arrive() {
    let clock = clock();
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .clock(&clock)
        .start();
    let denied = deny(&fixture);
    for n in 0..2_830 {
        fixture
            .source
            .arrive(if n % 10 == 0 { "denied/new" } else { "old" });
    }
    fixture.acknowledges(2_830).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 283, 0)).await;
    let before = fixture.sink().offered();
    for _ in 0..4 {
        clock.advance(MINUTE);
        look(&fixture).await;
    }
    // Two sweeps in four minutes, and each asks for one message of the topic.
    wait_until("two sweeps", || fixture.sink().offered() - before >= 4 + 2).await;
    wait_until("they are over", || fixture.binding(0).open == 0).await;
    assert_eq!(fixture.sink().offered() - before, 4 + 2);
    denied.store(false, Ordering::SeqCst);
    clock.advance(MINUTE * 2);
    look(&fixture).await;
    fixture.waits(0, (0, 0, 0)).await;
    let accepted = fixture.sink().accepted();
    let recovered: Vec<u64> = accepted
        .into_iter()
        .filter(|n| n % 10 == 0 && *n < 2_830)
        .collect();
    assert_eq!(recovered, (0..283).map(|n| n * 10).collect::<Vec<_>>());
    let metric = |name| fixture.metric(name, 0, None);
    assert_eq!(metric("queue_deferred_total"), 283);
    assert_eq!(metric("queue_deferred_recovered_total"), 283);
    assert_eq!(metric("queue_dead_lettered_total"), 0);
    assert_eq!(fixture.sink().connections(), 1, "no reconnect was needed");
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_later_messages_of_a_deferred_topic_line_up_from_the_queue_and_live() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    let denied = deny(&fixture);
    fixture.source.arrive("denied");
    fixture.source.arrive_many(100, "open");
    fixture.source.arrive("denied");
    fixture.acknowledges(102).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 2, 0)).await;
    for _ in 0..3 {
        fixture.source.arrive("denied");
        fixture.source.arrive("open");
    }
    fixture.acknowledges(108).await;
    fixture.waits(0, (0, 5, 0)).await;
    assert_eq!(fixture.binding(0).state, "live", "the others stay live");
    let view = fixture.view(0, View::Deferred).await;
    let attempts = view
        .iter()
        .map(|entry| entry.deferred.as_ref().unwrap().attempts);
    assert!(attempts.clone().skip(2).all(|n| n == 0), "never refused");
    denied.store(false, Ordering::SeqCst);
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.source.arrive("denied");
    fixture.acknowledges(109).await;
    fixture.sink().connect();
    wait_until("all", || fixture.sink().accepted().len() == 109).await;
    let accepted = fixture.sink().accepted();
    let of_topic: Vec<u64> = accepted
        .into_iter()
        .filter(|n| [0, 101, 102, 104, 106, 108].contains(n))
        .collect();
    assert_eq!(of_topic, [0, 101, 102, 104, 106, 108]);
    fixture.is_in(0, "live").await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_what_lines_up_live_keeps_its_order_whichever_the_store_answers_first() {
    let clock = clock();
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .clock(&clock)
        .start();
    let denied = deny(&fixture);
    fixture.source.arrive("denied");
    fixture.acknowledges(1).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 1, 0)).await;
    wait_until("quiet", || fixture.binding(0).open == 0).await;
    let held = fixture.store.hold_next();
    fixture.source.arrive("denied");
    wait_until("the first is stored", || fixture.waiting(0).1 == 2).await;
    fixture.source.arrive("denied");
    fixture.acknowledges(2).await;
    assert_eq!(fixture.source.acknowledged(), [0, 2], "1 is not answered");
    denied.store(false, Ordering::SeqCst);
    clock.advance(MINUTE * 2);
    look(&fixture).await;
    wait_until("the line is granted", || {
        fixture.sink().accepted().contains(&0)
    })
    .await;
    look(&fixture).await;
    drop(held);
    fixture.waits(0, (0, 0, 0)).await;
    let mut accepted = fixture.sink().accepted();
    accepted.retain(|n| *n < 3);
    assert_eq!(accepted, [0, 1, 2]);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_deferred_messages_go_before_the_queue_on_a_new_connection() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    let denied = deny(&fixture);
    fixture.source.arrive_many(10, "denied/a");
    fixture.acknowledges(10).await;
    fixture.go_live().await;
    wait_until("deferred", || fixture.waiting(0).1 == 10).await;
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.source.arrive_many(10, "open");
    fixture.acknowledges(20).await;
    denied.store(false, Ordering::SeqCst);
    fixture.sink().connect();
    wait_until("all", || fixture.sink().accepted().len() == 20).await;
    assert_eq!(fixture.sink().accepted(), (0..20).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_the_window_survives_a_restart_and_an_outage_gives_up_nothing() {
    let clock = clock();
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .clock(&clock)
        .start();
    deny(&fixture);
    fixture.source.arrive("denied");
    fixture.source.arrive("denied");
    fixture.acknowledges(2).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 2, 0)).await;
    wait_until("quiet", || fixture.binding(0).open == 0).await;
    let first = fixture.view(0, View::Deferred).await[0]
        .deferred
        .clone()
        .unwrap();
    let (_, data, _) = fixture.stop().await;

    // Away for longer than the window, in this process and before it.
    clock.advance(MINUTE * 10);
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .clock(&clock)
        .data(data)
        .start();
    deny(&fixture);
    clock.advance(MINUTE * 60);
    fixture.source.arrive("other");
    fixture.acknowledges(1).await;
    assert_eq!(fixture.waiting(0), (1, 2, 0));
    fixture.sink().connect();
    fixture.waits(0, (0, 0, 2)).await;
    let dead = fixture.view(0, View::DeadLetters).await;
    let info = dead[0].dead_letter.clone().unwrap();
    assert_eq!(info.reason, Reason::Broker(ReasonCode::NOT_AUTHORIZED));
    assert_eq!(info.reason_string.as_deref(), Some("because"));
    assert_eq!(info.first_refusal, first.first_refusal);
    assert_eq!(
        info.last_refusal.since(info.first_refusal),
        MINUTE * 70,
        "the refusal that decided"
    );
    assert_eq!(info.attempts, first.attempts + 1);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_a_restart_within_the_window_goes_on_with_it() {
    let clock = clock();
    let fixture = Setup::new(DeliveryMode::Outbox).clock(&clock).start();
    deny(&fixture);
    fixture.source.arrive("denied");
    fixture.acknowledges(1).await;
    fixture.sink().connect();
    fixture.waits(0, (0, 1, 0)).await;
    wait_until("quiet", || fixture.binding(0).open == 0).await;
    let (_, data, _) = fixture.stop().await;

    clock.advance(MINUTE * 10);
    let fixture = Setup::new(DeliveryMode::Outbox)
        .clock(&clock)
        .data(data)
        .start();
    deny(&fixture);
    fixture.sink().connect();
    wait_until("offered again", || fixture.sink().offered() == 1).await;
    wait_until("quiet", || fixture.binding(0).open == 0).await;
    assert_eq!(fixture.waiting(0), (0, 1, 0), "ten minutes are within it");
    clock.advance(MINUTE * 6);
    look(&fixture).await;
    fixture.waits(0, (0, 0, 1)).await;
    assert_eq!(fixture.sink().offers(), [0, 0, 0]);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i08_after_a_recovery_the_retained_value_is_the_newest_payload() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    // The policy changes in the middle of a window: what is newer is accepted first.
    let mut refusals = 3;
    fixture.sink().policy(move |_| {
        if refusals > 0 {
            refusals -= 1;
            return Reply::Refuse(0x87);
        }
        Reply::Accept
    });
    for _ in 0..6 {
        fixture
            .source
            .arrive_with("state", |message| message.retain = true);
    }
    fixture.acknowledges(6).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 3, 0)).await;
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.sink().connect();
    wait_until("recovered", || fixture.sink().accepted().len() == 6).await;
    assert_eq!(fixture.sink().accepted(), [3, 4, 5, 0, 1, 2]);
    let retained = fixture.sink().messages();
    let last = retained.iter().rev().find(|message| message.retain);
    assert_eq!(&*last.unwrap().payload, b"5");
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_what_the_deferred_have_no_room_for_is_a_dead_letter_at_once_and_counted() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| spec.deferral.max_entries = 3)
        .start();
    deny(&fixture);
    fixture.source.arrive_many(5, "denied");
    fixture.source.arrive("open");
    fixture.acknowledges(6).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 3, 2)).await;
    fixture.source.arrive("denied");
    fixture.acknowledges(7).await;
    assert_eq!(fixture.waiting(0), (0, 3, 3));
    assert_eq!(fixture.metric("queue_deferred_overflow_total", 0, None), 3);
    assert_eq!(fixture.sink().accepted(), [5]);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i20_a_deferral_that_cannot_be_stored_is_held_and_nothing_overtakes_it() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    let denied = deny(&fixture);
    fixture.source.arrive_many(3, "denied");
    fixture.source.arrive("open");
    fixture.acknowledges(4).await;
    fixture.store.fail(true);
    fixture.sink().connect();
    wait_until("open passes", || fixture.sink().accepted() == [3]).await;
    wait_until("it was tried", || {
        fixture.metric("store_failures_total", 0, None) >= 5
    })
    .await;
    assert_eq!(fixture.waiting(0), (3, 0, 0));
    denied.store(false, Ordering::SeqCst);
    fixture.source.arrive("denied");
    fixture.store.fail(false);
    fixture.waits(0, (0, 4, 0)).await;
    fixture.acknowledges(5).await;
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture.sink().connect();
    wait_until("all", || fixture.sink().accepted() == [3, 0, 1, 2, 4]).await;
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i03_every_code_in_the_middle_of_a_full_window_is_its_messages_own() {
    let code = Arc::new(AtomicU8::new(0));
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .adjust(|spec| spec.max_in_flight = 100.try_into().unwrap())
        .start();
    let asked = code.clone();
    let mut refused_for_now = 0;
    fixture.sink().policy(move |message| {
        let code = asked.load(Ordering::SeqCst);
        if message.topic.as_str() != "odd" {
            return Reply::Accept;
        }
        if matches!(code, 0x91 | 0x97) {
            refused_for_now += 1;
            if refused_for_now % 3 == 0 {
                return Reply::Accept;
            }
        }
        Reply::Refuse(code)
    });
    let mut expected = Vec::new();
    let (mut deferred, mut dead) = (0, 0);
    for byte in 0..=u8::MAX {
        code.store(byte, Ordering::SeqCst);
        fixture.sink().cut();
        fixture.is_in(0, "link_down").await;
        for n in 0..100 {
            let topic = if n == 50 { "odd" } else { "even" };
            let number = fixture.source.arrive(topic);
            match byte {
                0x80.. if byte != 0x91 && byte != 0x97 && n == 50 => {}
                _ => expected.push(number),
            }
        }
        wait_until("queued", || fixture.depth(0) == 100).await;
        fixture.sink().connect();
        fixture.is_in(0, "live").await;
        match byte {
            0x87 => deferred += 1,
            0x91 | 0x97 => {}
            0x80.. => dead += 1,
            _ => {}
        }
        if byte == 0x87 {
            wait_until("deferred", || fixture.waiting(0).1 == deferred).await;
            // The next codes are for this one too, on the next connection.
            deferred -= 1;
        }
        if byte == 0x88 {
            dead += 1;
        }
        fixture.waits(0, (0, u64::from(byte == 0x87), dead)).await;
    }
    let accepted = fixture.sink().accepted();
    let mut firsts = std::collections::HashSet::new();
    let accepted: Vec<u64> = accepted.into_iter().filter(|n| firsts.insert(*n)).collect();
    assert_eq!(accepted.len(), expected.len());
    assert_eq!(deferred, 0);
    let in_order = |numbers: &[u64]| numbers.is_sorted();
    let of = |odd: bool| -> Vec<u64> {
        let wanted = |n: &u64| (n % 100 == 50) == odd;
        accepted.iter().copied().filter(wanted).collect()
    };
    assert!(in_order(&of(true)) && in_order(&of(false)));
    assert_eq!(fixture.sink().connections(), 256, "one for each code");
    fixture.ledger_balances(0).await;
}

/// Counts how often it is looked at.
#[derive(Debug)]
struct LookedAt {
    clock: ManualClock,
    looks: AtomicU64,
}

impl Clock for LookedAt {
    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
    fn monotonic(&self) -> Duration {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.clock.monotonic()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_is_due_waits_for_room_in_the_window_and_does_not_spin() {
    let clock = Arc::new(LookedAt {
        clock: ManualClock::new(Timestamp::from_millis(1_764_486_000_000)),
        looks: AtomicU64::new(0),
    });
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .clock(&clock)
        .start();
    deny(&fixture);
    fixture.source.arrive("denied");
    fixture.acknowledges(1).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 1, 0)).await;
    fixture.sink().policy(|_| Reply::Hold);
    fixture.source.arrive_many(50, "t");
    wait_until("the window is full", || fixture.sink().held() == 50).await;
    clock.clock.advance(MINUTE * 2);
    fixture.source.arrive("t");
    wait_until("it was rung", || fixture.binding(0).open == 51).await;
    let before = clock.looks.load(Ordering::SeqCst);
    // Nothing happens, and it is the absence of anything that is looked for.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let looks = clock.looks.load(Ordering::SeqCst) - before;
    assert!(looks < 100, "{looks} looks at the clock");
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().release();
    fixture.waits(0, (0, 0, 0)).await;
    fixture.ledger_balances(0).await;
}
