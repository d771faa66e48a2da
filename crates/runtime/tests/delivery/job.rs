//! Redrives and deletes of many dead letters: what they move, what holds them up, and what ends them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{ManualClock, Seq, StoreError, Timestamp};
use bridge_runtime::{
    DeadLetterFilter, DeliveryMode, HeldUp, HeldUpBy, Job, JobKind, JobState, OnFull,
    RedriveOptions, Selection,
};

use crate::fixture::{Fixture, NOT_WAITED, Reply, Setup, key, wait_until};

/// A binding that has refused `count` messages and is mended.
pub(crate) async fn refused(count: usize) -> Fixture {
    let fixture = Setup::new(DeliveryMode::StoreAndForward).start();
    fixture.sink().policy(|_| Reply::Refuse(0x99));
    // Refused from the queue, they have the numbers with which they came.
    fixture.source.arrive_many(count, "t");
    fixture.acknowledges(count).await;
    fixture.go_live().await;
    fixture.waits(0, (0, 0, count as u64)).await;
    fixture.sink().policy(|_| Reply::Accept);
    fixture
}

pub(crate) async fn ended(fixture: &Fixture, job: &Job) -> Job {
    let control = fixture.runtime.control();
    let now = || control.job(job.id).unwrap().unwrap();
    wait_until("the job's end", || now().state != JobState::Running).await;
    now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i21_a_job_moves_each_entry_once_and_not_what_is_refused_again() {
    let fixture = refused(500).await;
    // Every third one is refused again.
    fixture.sink().policy(|message| {
        let number: u64 = std::str::from_utf8(&message.payload)
            .unwrap()
            .parse()
            .unwrap();
        if number.is_multiple_of(3) {
            Reply::Refuse(0x99)
        } else {
            Reply::Accept
        }
    });
    let control = fixture.runtime.control();
    let job = control
        .start_job(JobKind::Redrive, DeadLetterFilter::default())
        .unwrap();
    assert_eq!((job.among, &job.state), (500, &JobState::Running));
    let job = ended(&fixture, &job).await;
    assert_eq!(job.state, JobState::Done);
    assert_eq!((job.looked_at, job.matched, job.done), (500, 500, 500));
    assert!(job.failed.is_empty() && job.ended.is_some());
    fixture.waits(0, (0, 0, 167)).await;
    let expected: Vec<u64> = (0..500_u64).filter(|n| !n.is_multiple_of(3)).collect();
    assert_eq!(
        fixture.sink().accepted(),
        expected,
        "in their order, each once"
    );
    fixture.ledger_balances(0).await;
    assert_eq!(control.jobs().unwrap(), [job]);
}

/// Two bindings whose queues take ten messages, with 50 dead letters each. The second one is
/// mended; the first one has no connection any more.
async fn one_of_two_is_cut(clock: Option<&Arc<ManualClock>>) -> Fixture {
    let setup = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .queue(10, OnFull::DropNewest);
    let setup = match clock {
        Some(clock) => setup.clock(clock),
        None => setup,
    };
    let fixture = setup.start();
    for sink in &fixture.sinks {
        sink.policy(|_| Reply::Refuse(0x99));
    }
    fixture.go_live().await;
    // One by one: when they wait for their turn for a second, they go through the queues, which
    // have no room for all.
    for count in 1..=50 {
        fixture.source.arrive("t");
        fixture.acknowledges(count).await;
    }
    for n in 0..2 {
        fixture.waits(n, (0, 0, 50)).await;
        fixture.sinks[n].policy(|_| Reply::Accept);
    }
    fixture.sink().cut();
    fixture.is_in(0, "link_down").await;
    fixture
}

fn begin(fixture: &Fixture, kind: JobKind) -> Job {
    let control = fixture.runtime.control();
    let job = control.start_job(kind, DeadLetterFilter::default());
    job.unwrap()
}

fn now(fixture: &Fixture, job: &Job) -> Job {
    fixture.runtime.control().job(job.id).unwrap().unwrap()
}

/// Waits until the job says that it gets no further at exactly those bindings, and why.
async fn is_held_up(fixture: &Fixture, job: &Job, expected: &[(&str, HeldUpBy)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(name, by)| (key(name), *by)).collect();
    wait_until("what holds it up", || {
        let held = now(fixture, job).held_up.into_iter();
        held.map(|(key, held)| (key, held.by))
            .collect::<BTreeMap<_, _>>()
            == expected
    })
    .await;
}

fn counts(job: &Job) -> (u64, u64, u64, u64) {
    (job.among, job.looked_at, job.matched, job.done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_on_at_other_bindings_while_one_is_held_up_and_comes_back() {
    let fixture = one_of_two_is_cut(None).await;
    let job = begin(&fixture, JobKind::Redrive);
    is_held_up(&fixture, &job, &[("b0", HeldUpBy::QueueFull)]).await;
    fixture.waits(1, (0, 0, 0)).await;
    assert_eq!(fixture.sinks[1].accepted(), (0..50).collect::<Vec<_>>());
    // The other half of the queue is for what arrives.
    assert_eq!(fixture.waiting(0), (5, 0, 45));
    fixture.source.arrive_many(5, "t");
    fixture.acknowledges(55).await;
    assert_eq!(fixture.waiting(0), (10, 0, 45));
    assert_eq!(fixture.metric("dropped_total", 0, None), 0);
    fixture.sink().connect();
    let job = ended(&fixture, &job).await;
    assert_eq!(job.state, JobState::Done, "{job:?}");
    assert_eq!(counts(&job), (100, 100, 100, 100));
    assert!(job.failed.is_empty() && job.held_up.is_empty(), "{job:?}");
    let before = (0..5).chain(50..55);
    let expected: Vec<u64> = before.chain(5..50).collect();
    fixture.waits(0, (0, 0, 0)).await;
    assert_eq!(fixture.sink().accepted(), expected);
    for n in 0..2 {
        fixture.ledger_balances(n).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_move_for_ten_minutes_stays_and_is_counted_by_its_reason() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)));
    let fixture = one_of_two_is_cut(Some(&clock)).await;
    let job = begin(&fixture, JobKind::Redrive);
    let held_up = || now(&fixture, &job).held_up.remove(&key("b0"));
    wait_until("the first is held up", || held_up().is_some()).await;
    let HeldUp { by, since } = held_up().unwrap();
    assert_eq!(by, HeldUpBy::QueueFull);
    assert_eq!(since, Timestamp::from_millis(1_764_486_000_000));
    // The other one finds its queue full as well, now and then, and is looked at again in time.
    let mut left = Duration::from_secs(599);
    wait_until("the other one is done", || {
        let step = left.min(Duration::from_millis(10));
        clock.advance(step);
        left -= step;
        now(&fixture, &job).done == 55
    })
    .await;
    clock.advance(left);
    assert_eq!(now(&fixture, &job).state, JobState::Running);
    wait_until("its end", || {
        clock.advance(Duration::from_secs(1));
        now(&fixture, &job).state != JobState::Running
    })
    .await;
    let job = now(&fixture, &job);
    assert_eq!(job.state, JobState::Done);
    assert_eq!(counts(&job), (100, 100, 100, 55));
    assert_eq!(job.failed, BTreeMap::from([("queue_full", 45)]));
    assert_eq!(fixture.waiting(0), (5, 0, 45));
    let full = Some(("outcome", "queue_full"));
    assert_eq!(fixture.metric("redrive_total", 0, full), 45);
    for n in 0..2 {
        fixture.ledger_balances(n).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_for_a_while_is_waited_for() {
    for kind in [JobKind::Redrive, JobKind::Delete] {
        let fixture = refused(100).await;
        fixture.store.fail(true);
        let job = begin(&fixture, kind);
        is_held_up(&fixture, &job, &[("b0", HeldUpBy::StoreFailed)]).await;
        assert_eq!(now(&fixture, &job).failed, BTreeMap::new());
        fixture.store.fail(false);
        let job = ended(&fixture, &job).await;
        assert_eq!(
            (&job.state, counts(&job)),
            (&JobState::Done, (100, 100, 100, 100))
        );
        assert!(job.failed.is_empty() && job.held_up.is_empty(), "{job:?}");
        fixture.waits(0, (0, 0, 0)).await;
        fixture.ledger_balances(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_the_store_can_never_move_is_counted_at_once() {
    let fixture = refused(100).await;
    let damaged = StoreError::Damaged {
        seq: Seq::new(1),
        place: "the test".into(),
    };
    fixture.store.fail_moves(Some(damaged));
    let job = ended(&fixture, &begin(&fixture, JobKind::Redrive)).await;
    assert_eq!(
        (&job.state, counts(&job)),
        (&JobState::Done, (100, 100, 100, 0))
    );
    assert_eq!(job.failed, BTreeMap::from([("store_failed", 100)]));
    fixture.store.fail_moves(None);
    assert_eq!(fixture.waiting(0), (0, 0, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_read_for_a_while_is_waited_for_and_for_long_fails_the_job() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)));
    let fixture = one_of_two_is_cut(Some(&clock)).await;
    let broken = StoreError::Io {
        action: "read",
        place: "the test".into(),
        error: "no".into(),
    };
    let both = [("b0", HeldUpBy::StoreFailed), ("b1", HeldUpBy::StoreFailed)];
    fixture.store.fail_reads(Some(broken.clone()));
    let job = begin(&fixture, JobKind::Delete);
    is_held_up(&fixture, &job, &both).await;
    fixture.store.fail_reads(None);
    let passes = || {
        clock.advance(Duration::from_millis(100));
        now(&fixture, &job).state != JobState::Running
    };
    wait_until("its end", passes).await;
    let job = now(&fixture, &job);
    assert_eq!(
        (&job.state, counts(&job)),
        (&JobState::Done, (100, 100, 100, 100))
    );

    let fixture = one_of_two_is_cut(Some(&clock)).await;
    fixture.store.fail_reads(Some(broken.clone()));
    let job = begin(&fixture, JobKind::Delete);
    is_held_up(&fixture, &job, &both).await;
    wait_until("its end", || {
        clock.advance(Duration::from_secs(60));
        now(&fixture, &job).state != JobState::Running
    })
    .await;
    let job = now(&fixture, &job);
    assert_eq!(job.state, JobState::Failed(broken.into()));
    assert_eq!(counts(&job), (100, 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_held_up_can_be_cancelled() {
    let fixture = one_of_two_is_cut(None).await;
    let job = begin(&fixture, JobKind::Redrive);
    fixture.waits(0, (5, 0, 45)).await;
    fixture.waits(1, (0, 0, 0)).await;
    is_held_up(&fixture, &job, &[("b0", HeldUpBy::QueueFull)]).await;
    let control = fixture.runtime.control();
    let running = control.cancel_job(job.id).unwrap().unwrap();
    assert_eq!(running.state, JobState::Running);
    let job = ended(&fixture, &job).await;
    assert_eq!((&job.state, job.done), (&JobState::Cancelled, 55));
    assert!(job.held_up.is_empty());
    assert_eq!(fixture.waiting(0), (5, 0, 45));
    let job = ended(&fixture, &begin(&fixture, JobKind::Delete)).await;
    assert_eq!((job.state, job.done), (JobState::Done, 45));
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_on_a_disk_that_does_not_answer_can_be_cancelled() {
    let fixture = refused(100).await;
    fixture.store.answer_moves(false);
    let job = begin(&fixture, JobKind::Redrive);
    wait_until("it has read", || now(&fixture, &job).matched == 100).await;
    fixture.runtime.control().cancel_job(job.id).unwrap();
    let job = ended(&fixture, &job).await;
    assert_eq!((&job.state, job.done), (&JobState::Cancelled, 0));
    // They may have moved, or not.
    let unanswered = job.failed.get("unanswered");
    assert!(unanswered.is_some_and(|count| *count > 0), "{job:?}");
    fixture.store.answer_moves(true);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_cancelled_counts_what_was_answered_of_its_last_batch() {
    for (kind, left) in [(JobKind::Redrive, 32), (JobKind::Delete, 0)] {
        let fixture = refused(100).await;
        let before = fixture.store.moves();
        fixture.store.answer_moves_up_to(before + 10);
        let job = begin(&fixture, kind);
        wait_until("a batch is asked for, and ten are answered", || {
            let moved = Some(("outcome", "moved"));
            let answered = match kind {
                JobKind::Redrive => fixture.metric("redrive_total", 0, moved),
                JobKind::Delete => fixture.metric("dead_letters_deleted_total", 0, None),
            };
            (fixture.store.moves(), answered) == (before + 32, 10)
        })
        .await;
        fixture.runtime.control().cancel_job(job.id).unwrap();
        let job = ended(&fixture, &job).await;
        assert_eq!((&job.state, job.done), (&JobState::Cancelled, 10));
        assert_eq!(job.failed, BTreeMap::from([("unanswered", 22)]), "{job:?}");
        // They do move, and no others.
        fixture.store.answer_moves(true);
        fixture.waits(0, (0, 0, 68)).await;
        assert_eq!(fixture.sink().accepted(), (0..left).collect::<Vec<_>>());
        fixture.ledger_balances(0).await;
        assert_eq!(fixture.store.moves(), before + 32);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_a_job_that_is_held_up() {
    let fixture = one_of_two_is_cut(None).await;
    let job = begin(&fixture, JobKind::Redrive);
    is_held_up(&fixture, &job, &[("b0", HeldUpBy::QueueFull)]).await;
    let begun = Instant::now();
    let (_, _, unsettled) = fixture.stop().await;
    assert_eq!(unsettled, 0);
    assert!(begun.elapsed() < NOT_WAITED, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_beside_a_job_does_not_go_through_the_queue_and_keeps_its_order() {
    let fixture = refused(500).await;
    let job = begin(&fixture, JobKind::Redrive);
    let mut arrived = Vec::new();
    while now(&fixture, &job).state == JobState::Running {
        arrived.push(fixture.source.arrive("live"));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.acknowledges(500 + arrived.len()).await;
    fixture.waits(0, (0, 0, 0)).await;
    let accepted = fixture.sink().accepted();
    let (redriven, live): (Vec<u64>, Vec<u64>) = accepted.iter().partition(|n| **n < 500);
    assert_eq!(redriven, (0..500).collect::<Vec<_>>());
    assert_eq!(live, arrived);
    // All 500 went through it, when they came first.
    let queued = Some(("outcome", "queued"));
    assert_eq!(fixture.metric("publish_total", 0, queued), 500);
    fixture.ledger_balances(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_beside_a_redrive_of_very_many_goes_through_the_queue() {
    let fixture = refused(1_000).await;
    // The first redriven ones stay under way, and the queue is long behind them.
    fixture.sink().policy(|_| Reply::Hold);
    let control = fixture.runtime.control();
    let all = Selection::Matching {
        filter: DeadLetterFilter::default(),
        limit: 1_000,
    };
    let redriven = control.redrive(all, RedriveOptions::default()).await;
    assert_eq!(redriven.unwrap().len(), 1_000);
    // The source is acknowledged while the destination takes nothing.
    fixture.source.arrive_many(3, "live");
    fixture.acknowledges(1_003).await;
    assert_eq!(fixture.waiting(0), (1_003, 0, 0));
    fixture.sink().policy(|_| Reply::Accept);
    fixture.sink().release();
    fixture.waits(0, (0, 0, 0)).await;
    assert_eq!(fixture.sink().accepted(), (0..1_003).collect::<Vec<_>>());
    fixture.ledger_balances(0).await;
}
