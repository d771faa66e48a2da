//! Dead letters in an operator's hands while nothing runs.

use std::sync::Arc;

use bridge_core::{Store, SystemClock, View};
use bridge_queue::{Journal, JournalOptions};
use bridge_runtime::{
    AtRest, DeadLetterFilter, DeliveryMode, Job, JobKind, JobState, OnFull, RedriveOptions,
    RedriveOutcome, RouteSpec, Selection,
};

use crate::fixture::{Reply, Setup, key, name};

const MODE: DeliveryMode = DeliveryMode::StoreAndForward;

/// A folder in which both bindings have given up on messages 0 to 2, and 3 and 4 wait.
async fn a_folder() -> tempfile::TempDir {
    let fixture = Setup::new(MODE).bindings(2).start();
    for sink in &fixture.sinks {
        sink.policy(|_| Reply::Refuse(0x99));
    }
    fixture.go_live().await;
    fixture.source.arrive_many(3, "t");
    fixture.acknowledges(3).await;
    for (n, sink) in fixture.sinks.iter().enumerate() {
        sink.cut();
        fixture.is_in(n, "link_down").await;
    }
    fixture.source.arrive_many(2, "t");
    fixture.acknowledges(5).await;
    fixture.stop().await.1
}

fn at_rest(data: &tempfile::TempDir, route: RouteSpec) -> (AtRest, Arc<Journal>) {
    let (journal, _) = Journal::open_existing(data.path(), JournalOptions::default()).unwrap();
    let journal = Arc::new(journal);
    let clock = Arc::new(SystemClock::new());
    let at_rest = AtRest::over(&[route], journal.clone(), clock).unwrap();
    (at_rest, journal)
}

fn words(results: &[bridge_runtime::RedriveResult]) -> Vec<&'static str> {
    let words = results.iter().map(|result| result.outcome.as_str());
    words.collect()
}

async fn ended(at_rest: &AtRest, kind: JobKind, filter: DeadLetterFilter) -> Job {
    let control = at_rest.control();
    let id = control.start_job(kind, filter).unwrap().id;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let job = control.job(id).unwrap().unwrap();
        if job.state != JobState::Running {
            return job;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "it goes on: {job:?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

fn of(binding: &str) -> DeadLetterFilter {
    DeadLetterFilter {
        binding: Some(key(binding).binding),
        ..DeadLetterFilter::default()
    }
}

fn matching(filter: DeadLetterFilter) -> Selection {
    let limit = 100;
    Selection::Matching { filter, limit }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i21_what_is_redriven_at_rest_is_delivered_behind_what_waited() {
    let data = a_folder().await;
    let (at_rest, journal) = at_rest(&data, Setup::new(MODE).bindings(2).route());
    let control = at_rest.control();
    let dry = RedriveOptions {
        dry_run: true,
        ..RedriveOptions::default()
    };
    let all = matching(of("b0"));
    let would = control.redrive(all.clone(), dry).await.unwrap();
    assert_eq!(words(&would), ["would_move"; 3]);
    let options = RedriveOptions::default();
    let moved = control.redrive(all, options).await.unwrap();
    assert_eq!(words(&moved), ["moved"; 3]);
    let ids = Selection::Ids(moved.iter().map(|result| result.id.clone()).collect());
    let again = control.redrive(ids, options).await.unwrap();
    assert_eq!(words(&again), ["already_redriven"; 3]);
    at_rest.end().await.unwrap();
    drop(journal);

    let fixture = Setup::new(MODE).bindings(2).data(data).start();
    fixture.go_live().await;
    fixture.waits(0, (0, 0, 0)).await;
    fixture.waits(1, (0, 0, 3)).await;
    assert_eq!(fixture.sinks[0].accepted(), [3, 4, 0, 1, 2]);
    assert_eq!(fixture.sinks[1].accepted(), [3, 4], "i22");
    fixture.ledger_balances(0).await;
    fixture.ledger_balances(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_a_queue_is_bounded_at_rest_too_and_a_job_does_not_wait_for_room() {
    let data = a_folder().await;
    // A job leaves half of the bounds to what will arrive.
    let route = Setup::new(MODE).bindings(2).adjust(|spec| {
        spec.queue.max_entries = if spec.name == name("b0") { 4 } else { 8 };
        spec.queue.on_full = OnFull::DropOldest;
    });
    let (at_rest, journal) = at_rest(&data, route.route());
    let options = RedriveOptions::default();
    let control = at_rest.control();
    let results = control.redrive(matching(of("b0")), options).await.unwrap();
    assert_eq!(words(&results), ["moved", "moved", "queue_full"]);
    let job = ended(&at_rest, JobKind::Redrive, of("b1")).await;
    assert_eq!((job.state, job.done), (JobState::Done, 2));
    assert_eq!(job.failed, [("queue_full", 1)].into());
    for binding in ["b0", "b1"] {
        let usage = journal.usage(&key(binding));
        assert_eq!((usage.queue.entries, usage.dead_letters.entries), (4, 1));
    }
    at_rest.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i22_a_binding_that_the_configuration_has_not_is_refused_at_rest_and_can_be_emptied() {
    let data = a_folder().await;
    let (at_rest, journal) = at_rest(&data, Setup::new(MODE).route());
    let options = RedriveOptions::default();
    let all = matching(DeadLetterFilter::default());
    let results = at_rest.control().redrive(all, options).await.unwrap();
    assert_eq!(results.len(), 6);
    for result in results {
        let gone = result.id.binding == key("b1");
        assert_eq!(gone, result.outcome == RedriveOutcome::BindingNotFound);
    }
    let job = ended(&at_rest, JobKind::Delete, of("b1")).await;
    assert_eq!((job.state, job.done), (JobState::Done, 3));
    at_rest.end().await.unwrap();
    assert_eq!(journal.usage(&key("b1")).dead_letters.entries, 0);
    let limit = bridge_core::ReadLimit {
        entries: 9,
        bytes: u64::MAX,
    };
    let queue = journal.read(&key("b0"), View::Queue, None, limit).await;
    assert_eq!(queue.unwrap().len(), 5);
}
