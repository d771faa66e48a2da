//! The broker under a runtime that owns its subscriptions, while dead letters cannot be written.
//!
//! Time is tokio's own, paused: it moves on when everyone waits, so a round takes microseconds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by unwrapping it"
)]

mod parts;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    BindingKey, DeadLetterInfo, Destination, MessageId, Placement, Reason, Source, Store,
    StoredMessage,
};
use bridge_runtime::DeliveryMode;
use bridge_transport_memory::{MemoryBroker, Options};

use self::parts::{Outage, PausedClock, Running, Unmarked, asking, message, name, outage};

const ROUNDS: u64 = 10_000;
const STALE_AFTER: Duration = Duration::from_secs(30);
const BUDGET: Duration = Duration::from_secs(60);

fn broker() -> MemoryBroker {
    let options = Options {
        stale_after: STALE_AFTER,
        max_deliveries: NonZeroU32::new(3).unwrap(),
        ..Options::default()
    };
    MemoryBroker::new(options, Arc::new(PausedClock::new()))
}

/// A runtime that reads from `source`, live, towards a destination that refuses everything.
async fn refused_by_all(source: Arc<dyn Source>, store: &Arc<Outage>) -> Running {
    let running = Running::start(DeliveryMode::StoreAndForward, source, store.clone());
    running.sink.answer_with(0x99);
    while !running.is_live() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running
}

/// The one message is with the source, in flight or resting, and nobody has given up on it.
fn is_held(broker: &MemoryBroker) -> bool {
    let standing = broker.standing(&name("reader"), &asking("#").filter);
    standing.is_some_and(|s| s.held.entries == 1 && s.dead_letters == 0 && s.owned)
}

/// The outage is over: one dead letter, acknowledged, and nothing is left anywhere.
async fn settles_as_one_dead_letter(broker: &MemoryBroker, running: &Running, attempts: u32) {
    tokio::time::sleep(Duration::from_secs(600)).await;
    let dead = running.dead_letters().await;
    let [dead] = &dead[..] else {
        panic!("{} dead letters", dead.len())
    };
    let info = dead.dead_letter.as_ref().unwrap();
    assert_eq!(info.attempts, attempts, "{info:?}");
    let standing = broker.standing(&name("reader"), &asking("#").filter);
    let standing = standing.unwrap();
    assert_eq!((standing.held.entries, standing.in_flight), (0, 0));
    assert_eq!((standing.dead_letters, standing.discarded), (0, 0));
    assert_eq!((running.open(), running.counted()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn i20_a_dead_letter_that_cannot_be_written_holds_its_message_for_10_000_rounds() {
    let store = Arc::new(outage());
    let broker = broker();
    let source = Arc::new(broker.source(name("reader"), &[asking("#")]));
    let running = refused_by_all(source, &store).await;
    broker.publish(&name("writer"), message("poison"));
    for round in 0..ROUNDS {
        tokio::time::sleep(STALE_AFTER).await;
        broker.sweep();
        assert!(is_held(&broker), "round {round}");
        assert_eq!(running.open(), 1, "round {round}");
        if round % 100 == 0 {
            assert!(running.counted() <= 1, "round {round}");
        }
    }
    assert!(store.failed() >= ROUNDS, "written again in each round");
    assert_eq!(running.sink.offered(), 1, "the verdict stands");
    store.fail(false);
    settles_as_one_dead_letter(&broker, &running, 1).await;
}

#[tokio::test(start_paused = true)]
async fn i19_10_000_redeliveries_reach_no_ceiling_and_leave_no_count_behind() {
    let store = Arc::new(outage());
    let budget = Duration::from_secs(3);
    let mode = DeliveryMode::DirectHold {
        send_retry_budget: budget,
    };
    let broker = broker();
    let source = Arc::new(broker.source(name("reader"), &[asking("#")]));
    let running = Running::adjusted(mode, source, store.clone(), |spec| {
        spec.max_attempts = NonZeroU32::MAX;
    });
    broker.publish(&name("writer"), message("poison"));
    for round in 0..ROUNDS {
        tokio::time::sleep(budget * 2).await;
        assert!(is_held(&broker) && running.open() <= 1, "round {round}");
        if round % 100 == 0 {
            assert!(running.counted() <= 1, "round {round}");
        }
    }
    assert!(running.left() >= ROUNDS, "only {} rounds", running.left());
    // Now the destination gives a verdict, and its dead letter cannot be written.
    running.sink.answer_with(0x99);
    tokio::time::sleep(BUDGET * 100).await;
    assert!(is_held(&broker) && running.open() == 1);
    assert!(store.failed() > 0);
    store.fail(false);
    let dead = async {
        tokio::time::sleep(BUDGET).await;
        running.dead_letters().await
    };
    let attempts = dead.await[0].dead_letter.as_ref().unwrap().attempts;
    settles_as_one_dead_letter(&broker, &running, attempts).await;
}

#[tokio::test(start_paused = true)]
async fn i20_restarts_in_the_outage_neither_lose_nor_double_the_message() {
    let store = Arc::new(outage());
    let broker = broker();
    let reader = || Arc::new(broker.source(name("reader"), &[asking("#")]));
    let mut running = refused_by_all(reader(), &store).await;
    broker.publish(&name("writer"), message("poison"));
    for restart in 0..20 {
        tokio::time::sleep(BUDGET).await;
        assert!(is_held(&broker), "restart {restart}");
        running.stop().await;
        running = refused_by_all(reader(), &store).await;
    }
    store.fail(false);
    settles_as_one_dead_letter(&broker, &running, 1).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_mark_the_ceiling_gives_up_underneath_the_runtime() {
    let store = Arc::new(outage());
    let broker = broker();
    let source = broker.source(name("reader"), &[asking("#")]);
    let running = refused_by_all(Arc::new(Unmarked(source)), &store).await;
    broker.publish(&name("writer"), message("poison"));
    tokio::time::sleep(STALE_AFTER * 4).await;
    let dead = broker.dead_letters(&name("reader"), &asking("#").filter);
    assert_eq!((dead.len(), dead[0].failures), (1, 3));
    assert!(running.open() > 1, "and each redelivery is held as well");
}

#[tokio::test(start_paused = true)]
async fn consumed_directly_in_the_same_outage_the_ceiling_dead_letters() {
    let store = outage();
    let broker = broker();
    let source = broker.source(name("reader"), &[asking("#")]);
    broker.publish(&name("writer"), message("poison"));
    let mut deliveries = 0;
    while let Ok(Some(delivery)) = tokio::time::timeout(BUDGET, source.next()).await {
        deliveries += 1;
        let stored = StoredMessage {
            id: MessageId::new(delivery.received, [deliveries; 10]),
            cause: None,
            session: name("reader"),
            received: delivery.received,
            message: delivery.message,
        };
        let info = DeadLetterInfo {
            reason: Reason::ProcessorFailed,
            reason_string: None,
            first_refusal: delivery.received,
            last_refusal: delivery.received,
            attempts: 1,
        };
        let there = Destination {
            binding: BindingKey::new(name("route"), name("binding")),
            placement: Placement::DeadLetter(info),
        };
        store.put(Arc::new(stored), vec![there]).await.unwrap_err();
        delivery.acknowledge.leave();
    }
    assert_eq!(deliveries, 3);
    let dead = broker.dead_letters(&name("reader"), &asking("#").filter);
    assert_eq!((dead.len(), dead[0].failures), (1, 3));
}
