//! What a list tells of many dead letters of several reasons and times.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    DeadLetterInfo, Destination, Message, MessageId, Placement, Reason, ReasonCode, Seq, Store,
    StoredMessage, Timestamp, Topic,
};
use bridge_runtime::{
    DeadLetterFilter, DeadLetterId, DeliveryMode, JobKind, JobState, RedriveOptions, Selection,
    Total,
};

use crate::fixture::{Fixture, Setup, key, name};
use crate::job::ended;

const REASONS: [Reason; 4] = [
    Reason::Expired,
    Reason::Broker(ReasonCode::NOT_AUTHORIZED),
    // The same by name.
    Reason::PacketTooLarge,
    Reason::Broker(ReasonCode::new(0x95)),
];

/// A dead letter, as far as filters go by it.
#[derive(Debug)]
struct Known {
    id: DeadLetterId,
    reason: Reason,
    at: Timestamp,
    topic: Topic,
}

/// Puts dead letters of all reasons at two bindings, given up on in another order than they came.
async fn filled(fixture: &Fixture, count: u64) -> Vec<Known> {
    let mut known = Vec::new();
    for number in 0..count {
        let binding = key(&format!("b{}", number % 2));
        let reason = REASONS[usize::try_from(number / 2 % 4).unwrap()];
        let at = Timestamp::from_millis(number * 7_919 % 101 * 100_000_000);
        let topic = Topic::parse(&format!("t/{}", number % 3)).unwrap();
        let stored = StoredMessage {
            id: MessageId::new(at, rand::random()),
            cause: None,
            session: name("source"),
            received: Timestamp::from_millis(number),
            message: Message::new(topic.clone(), "x"),
        };
        let destination = Destination {
            binding: binding.clone(),
            placement: Placement::DeadLetter(DeadLetterInfo {
                reason,
                reason_string: None,
                first_refusal: Timestamp::default(),
                last_refusal: at,
                attempts: 1,
            }),
        };
        let put = fixture.store.put(Arc::new(stored), vec![destination]);
        let seq = put.await.unwrap();
        known.push(Known {
            id: DeadLetterId { binding, seq },
            reason,
            at,
            topic,
        });
    }
    known
}

fn takes(filter: &DeadLetterFilter, known: &Known) -> bool {
    filter.takes_binding(&known.id.binding)
        && filter
            .reason
            .is_none_or(|reason| reason.as_str() == known.reason.as_str())
        && filter.since.is_none_or(|since| known.at >= since)
        && filter.until.is_none_or(|until| known.at < until)
        && filter
            .topic
            .as_ref()
            .is_none_or(|t| t.matches(&known.topic))
}

/// Each alone and all together.
fn filters() -> Vec<DeadLetterFilter> {
    let reasons = [None, Some(Reason::Expired), Some(Reason::PacketTooLarge)];
    let instants = [0, 1, 37, 101].map(|n| Some(Timestamp::from_millis(n * 100_000_000)));
    let instants: Vec<_> = [None].into_iter().chain(instants).collect();
    let mut filters = Vec::new();
    for binding in [None, Some(name("b1"))] {
        for reason in reasons {
            for since in &instants {
                for until in &instants {
                    filters.push(DeadLetterFilter {
                        binding: binding.clone(),
                        reason,
                        since: *since,
                        until: *until,
                        ..DeadLetterFilter::default()
                    });
                }
            }
        }
    }
    filters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_full_and_its_total_exact_by_reason_time_and_binding() {
    let setup = Setup::new(DeliveryMode::StoreAndForward).bindings(2);
    let fixture = setup.start();
    let known = filled(&fixture, 120).await;
    let control = fixture.runtime.control();
    for filter in filters() {
        let taken = known.iter().rev().filter(|known| takes(&filter, known));
        let taken: Vec<&DeadLetterId> = taken.map(|known| &known.id).collect();
        let mut pages = taken.chunks(25);
        let mut cursor = None;
        loop {
            let page = control.list(&filter, 25, cursor.as_ref()).await.unwrap();
            let total = control.total(&filter, Duration::ZERO).await;
            assert_eq!(total, Ok(page.total), "{filter:?}");
            assert_eq!(page.total, Total::Exact(taken.len() as u64), "{filter:?}");
            let found = page.entries.iter().map(|entry| &entry.id);
            let expected = pages.next().unwrap_or_default();
            assert!(found.eq(expected.iter().copied()), "{filter:?}");
            cursor = page.next;
            if cursor.is_none() {
                assert_eq!(pages.next(), None, "{filter:?}");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_and_what_comes_changes_the_total_of_its_reason() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    let mut known = filled(&fixture, 40).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter {
        reason: Some(Reason::Expired),
        ..DeadLetterFilter::default()
    };
    let total = async || control.list(&filter, 1, None).await.unwrap().total;
    assert_eq!(total().await, Total::Exact(10));
    known.retain(|known| known.reason == Reason::Expired);
    let gone = known.drain(..3).map(|known| known.id).collect();
    control.delete(Selection::Ids(gone)).await.unwrap();
    assert_eq!(total().await, Total::Exact(7));
    let one = Selection::Ids(vec![known[0].id.clone()]);
    let redriven = control
        .redrive(one, RedriveOptions::default())
        .await
        .unwrap();
    assert!(redriven[0].outcome.is_success());
    assert_eq!(total().await, Total::Exact(6));
    filled(&fixture, 8).await;
    assert_eq!(total().await, Total::Exact(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_one_reason_looks_at_nothing_else() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    filled(&fixture, 80).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter {
        reason: Some(Reason::Expired),
        ..DeadLetterFilter::default()
    };
    let job = control.start_job(JobKind::Delete, filter).unwrap();
    let job = ended(&fixture, &job).await;
    assert_eq!(job.state, JobState::Done);
    assert_eq!(
        (job.among, job.looked_at, job.matched, job.done),
        (20, 20, 20, 20)
    );
    let left = control.list(&DeadLetterFilter::default(), 1, None).await;
    assert_eq!(left.unwrap().total, Total::Exact(60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_looked_for_among_those_of_the_reason_only() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    let known = filled(&fixture, 80).await;
    let control = fixture.runtime.control();
    let filter = DeadLetterFilter {
        reason: Some(Reason::PacketTooLarge),
        topic: Some("t/1".parse().unwrap()),
        ..DeadLetterFilter::default()
    };
    let page = control.list(&filter, 100, None).await.unwrap();
    let taken = known.iter().rev().filter(|known| takes(&filter, known));
    let taken: Vec<Seq> = taken.map(|known| known.id.seq).collect();
    let all = control.total(&filter, Duration::from_secs(20)).await;
    assert_eq!(all, Ok(Total::Exact(taken.len() as u64)));
    let no_time = control.total(&filter, Duration::ZERO).await;
    assert_eq!(no_time, Ok(Total::AtLeast(0)));
    let found: Vec<Seq> = page.entries.iter().map(|entry| entry.id.seq).collect();
    assert_eq!(found, taken);
    assert_eq!(page.total, Total::Exact(taken.len() as u64));
}

/// Has the disk lose all messages that are in the journal.
fn lose_all(fixture: &Fixture) {
    let segments = std::fs::read_dir(fixture.data.path().join("journal")).unwrap();
    for segment in segments {
        let path = segment.unwrap().path();
        let header = std::fs::read(&path).unwrap()[..8192].to_vec();
        let len = std::fs::metadata(&path).unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let lost = usize::try_from(len).unwrap() - header.len();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0xaa; lost], 8192).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_has_no_more_entries_than_were_asked_for_when_none_can_be_read() {
    let fixture = Setup::new(DeliveryMode::StoreAndForward)
        .bindings(2)
        .start();
    let known = filled(&fixture, 60).await;
    lose_all(&fixture);
    let control = fixture.runtime.control();
    let by_topic = DeadLetterFilter {
        topic: Some("t/#".parse().unwrap()),
        ..DeadLetterFilter::default()
    };
    for filter in [DeadLetterFilter::default(), by_topic] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = control.list(&filter, 25, cursor.as_ref()).await.unwrap();
            assert!(page.entries.is_empty());
            assert!(page.unreadable.len() <= 25, "{}", page.unreadable.len());
            found.extend(page.unreadable);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let expected = known.iter().rev().map(|known| &known.id);
        assert!(found.iter().eq(expected), "{filter:?}");
    }
}
