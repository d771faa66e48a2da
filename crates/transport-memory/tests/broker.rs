//! The broker consumed directly: what it delivers to whom, and what it refuses.
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping it"
)]

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Answer, Delivery, LocalRefusal, ManualClock, Message, Name, NotAdmitted, QoS, ReasonCode, Sink,
    Source, SourceState, Subscription, Timestamp, Topic, TopicFilter,
};
use bridge_transport_memory::{Bounds, MemoryBroker, MemorySource, Options, Published};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn filter(text: &str) -> TopicFilter {
    TopicFilter::parse(text).unwrap()
}

fn asking(text: &str) -> Subscription {
    Subscription {
        filter: filter(text),
        qos: QoS::AtLeastOnce,
        no_local: false,
    }
}

fn message(topic: &str, payload: &str) -> Message {
    Message::new(Topic::parse(topic).unwrap(), payload.to_owned())
}

fn broker(options: Options) -> (MemoryBroker, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
    (MemoryBroker::new(options, clock.clone()), clock)
}

/// What is delivered without waiting.
fn deliver(source: &MemorySource) -> Option<Delivery> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match source.next().as_mut().poll(&mut context) {
        std::task::Poll::Ready(delivery) => delivery,
        std::task::Poll::Pending => None,
    }
}

fn payload(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.message.payload).unwrap()
}

/// Settles what is delivered without waiting, and says what it was.
fn drain(source: &MemorySource) -> Vec<String> {
    let mut got = Vec::new();
    while let Some(delivery) = deliver(source) {
        got.push(payload(&delivery).to_owned());
        delivery.acknowledge.settled();
    }
    got
}

fn publish(broker: &MemoryBroker, topic: &str, payload: &str) -> Published {
    broker.publish(&name("writer"), message(topic, payload))
}

#[tokio::test]
async fn each_client_gets_one_copy_and_each_share_group_one() {
    let (broker, _) = broker(Options::default());
    let both = broker.source(name("both"), &[asking("a/+"), asking("+/b")]);
    let other = broker.source(name("other"), &[asking("#")]);
    let first = broker.source(name("first"), &[asking("$share/g/a/#")]);
    let second = broker.source(name("second"), &[asking("$share/g/a/#")]);
    assert_eq!(publish(&broker, "a/b", "1"), Published::To(3));
    assert_eq!(publish(&broker, "c/b", "2"), Published::To(2));
    assert_eq!(publish(&broker, "$SYS/b", "3"), Published::To(0));
    assert_eq!(drain(&both), ["1", "2"]);
    assert_eq!(drain(&other), ["1", "2"]);
    let shared: Vec<_> = [drain(&first), drain(&second)].concat();
    assert_eq!(shared, ["1"]);
}

#[tokio::test]
async fn no_local_leaves_out_what_the_client_itself_published() {
    let (broker, _) = broker(Options::default());
    let mine = Subscription {
        no_local: true,
        ..asking("#")
    };
    let source = broker.source(name("me"), &[mine]);
    let sink = broker.sink(name("me"));
    let answer = sink.publish(message("t", "own")).await.unwrap().await;
    let Answer::Answered { code, .. } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(code, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    publish(&broker, "t", "theirs");
    assert_eq!(drain(&source), ["theirs"]);
}

#[tokio::test]
async fn a_source_that_waits_is_woken_by_a_publish() {
    let (broker, _) = broker(Options::default());
    let source = broker.source(name("reader"), &[asking("#")]);
    let waiting = tokio::spawn(async move { source.next().await.map(|d| d.message.payload) });
    tokio::task::yield_now().await;
    publish(&broker, "t", "now");
    assert_eq!(waiting.await.unwrap().unwrap(), "now");
}

#[tokio::test]
async fn what_is_left_or_dropped_comes_again_and_says_so() {
    let (broker, clock) = broker(Options::default());
    let source = broker.source(name("reader"), &[asking("#")]);
    publish(&broker, "t", "1");
    deliver(&source).unwrap().acknowledge.leave();
    clock.advance(Duration::from_secs(1));
    drop(deliver(&source).unwrap());
    assert!(deliver(&source).is_none(), "it rests");
    clock.advance(Duration::from_secs(1));
    let again = deliver(&source).unwrap();
    assert!(again.redelivered);
    again.acknowledge.settled();
    let standing = broker.standing(&name("reader"), &filter("#")).unwrap();
    assert_eq!((standing.held.entries, standing.in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn consumed_directly_the_ceiling_dead_letters_while_the_source_waits() {
    let options = Options {
        max_deliveries: NonZeroU32::new(3).unwrap(),
        ..Options::default()
    };
    let broker = MemoryBroker::new(options, Arc::new(TokioClock::new()));
    let source = broker.source(name("reader"), &[asking("#")]);
    publish(&broker, "t", "poison");
    // One is left, one hangs, one is dropped.
    source.next().await.unwrap().acknowledge.leave();
    let hanging = source.next().await.unwrap();
    drop(source.next().await.unwrap());
    hanging.acknowledge.settled();
    assert!(deliver(&source).is_none());
    let dead = broker.dead_letters(&name("reader"), &filter("#"));
    assert_eq!((dead.len(), dead[0].failures), (1, 3));
    let standing = broker.standing(&name("reader"), &filter("#")).unwrap();
    assert_eq!((standing.held.entries, standing.owned), (0, false));
}

/// The runtime's own time, which stands still until everyone waits.
#[derive(Debug)]
struct TokioClock(tokio::time::Instant);

impl TokioClock {
    fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl bridge_core::Clock for TokioClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000).after(self.0.elapsed())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

#[tokio::test]
async fn a_closed_source_leaves_all_it_had_to_the_next_one_of_its_client() {
    let (broker, _) = broker(Options::default());
    let source = broker.source(name("reader"), &[asking("#")]);
    publish(&broker, "t", "1");
    publish(&broker, "t", "2");
    let open = deliver(&source).unwrap();
    source.close().await;
    assert_eq!(source.state(), SourceState::Down);
    assert!(source.next().await.is_none());
    publish(&broker, "t", "3");
    let next = broker.source(name("reader"), &[asking("#")]);
    open.acknowledge.settled();
    assert_eq!(drain(&next), ["1", "2", "3"], "the old right is void");
    // Another of the same client takes over.
    let last = broker.source(name("reader"), &[asking("#")]);
    assert_eq!(next.state(), SourceState::Down);
    last.unsubscribe();
    assert_eq!(publish(&broker, "t", "4"), Published::To(0));
}

#[tokio::test]
async fn no_more_is_in_flight_than_the_window_allows() {
    let (broker, _) = broker(Options {
        max_in_flight: NonZeroU16::new(2).unwrap(),
        ..Options::default()
    });
    let source = broker.source(name("reader"), &[asking("a"), asking("b")]);
    for topic in ["a", "b", "a", "b"] {
        publish(&broker, topic, topic);
    }
    let (first, _second) = (deliver(&source).unwrap(), deliver(&source).unwrap());
    assert!(deliver(&source).is_none());
    first.acknowledge.settled();
    assert!(deliver(&source).is_some());
}

#[tokio::test]
async fn a_full_subscription_refuses_for_now_and_nobody_gets_half() {
    let (broker, _) = broker(Options {
        waiting: Bounds {
            max_entries: 1,
            max_bytes: 100,
        },
        ..Options::default()
    });
    let slow = broker.source(name("slow"), &[asking("a")]);
    let other = broker.source(name("other"), &[asking("#")]);
    let sink = broker.sink(name("writer"));
    let code = async |message| match sink.publish(message).await.unwrap().await {
        Answer::Answered { code, .. } => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(message("a", "1")).await, ReasonCode::SUCCESS);
    assert_eq!(drain(&other), ["1"]);
    assert_eq!(code(message("a", "2")).await, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(drain(&other), [""; 0]);
    let mut careless = message("a", "3");
    careless.qos = QoS::AtMostOnce;
    code(careless).await;
    assert_eq!(drain(&other), ["3"]);
    let standing = broker.standing(&name("slow"), &filter("a")).unwrap();
    assert_eq!((standing.held.entries, standing.dropped), (1, 1));
    assert_eq!(drain(&slow), ["1"]);
    assert_eq!(code(message("a", "4")).await, ReasonCode::SUCCESS);
    let large = sink.publish(message("a", &"x".repeat(101))).await;
    assert!(matches!(
        large.err(),
        Some(NotAdmitted::Refused(LocalRefusal::PacketTooLarge { .. }))
    ));
    sink.close().await;
    let closed = sink.publish(message("a", "5")).await;
    assert_eq!(closed.err(), Some(NotAdmitted::LinkDown));
}

#[tokio::test]
async fn a_retained_message_is_there_for_who_comes_later_until_it_is_cleared() {
    let (broker, _) = broker(Options::default());
    let retained = |payload: &str| {
        let mut message = message("t", payload);
        message.retain = true;
        message
    };
    for payload in ["old", "new"] {
        broker.publish(&name("writer"), retained(payload));
    }
    let late = broker.source(name("late"), &[asking("#")]);
    let delivery = deliver(&late).unwrap();
    assert_eq!((payload(&delivery), delivery.message.retain), ("new", true));
    let shared = broker.source(name("shared"), &[asking("$share/g/#")]);
    assert_eq!(drain(&shared), [""; 0], "MQTT 5 §4.8.2");
    broker.publish(&name("writer"), retained(""));
    let later = broker.source(name("later"), &[asking("#")]);
    assert_eq!(drain(&later), [""; 0]);
}

#[tokio::test]
async fn a_broker_that_does_not_retain_says_so() {
    let (broker, _) = broker(Options {
        retained: None,
        ..Options::default()
    });
    let sink = broker.sink(name("writer"));
    let mut retained = message("t", "x");
    retained.retain = true;
    assert_eq!(
        sink.publish(retained).await.err(),
        Some(NotAdmitted::Refused(LocalRefusal::RetainUnavailable))
    );
}

#[tokio::test]
async fn i19_a_mark_reaches_the_subscriptions_that_its_owner_reads_and_no_other() {
    let (broker, _) = broker(Options::default());
    let source = broker.source(
        name("me"),
        &[asking("a/#"), asking("$share/g/a/#"), asking("b")],
    );
    let other = broker.source(name("other"), &[asking("a/#")]);
    source.mark_subscription_owned(&filter("a/b/+"), None);
    let owned = |client: &str, stream: &str| {
        let standing = broker.standing(&name(client), &filter(stream));
        standing.unwrap().owned
    };
    assert!(owned("me", "a/#"), "its owner reads a part of it");
    assert!(!owned("me", "b") && !owned("me", "$share/g/a/#") && !owned("other", "a/#"));
    source.mark_subscription_owned(&filter("$share/g/a/#"), Some("g"));
    assert!(owned("me", "$share/g/a/#"));
    drop(other);
}
