//! What the tests of this crate share.
#![allow(
    clippy::async_yields_async,
    reason = "an admitted message is a future of its answer"
)]

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Admitted, Answer, Backoff, Clock, Delivery, Link, Message, Name, NotAdmitted, QoS, ReasonCode,
    Sink, Source, SourceState, Subscription, SystemClock, Topic, TopicFilter,
};
use bridge_testkit::{ClientOptions, Mosquitto, Publish, wait_until};
use bridge_transport::{Address, Brokers, Endpoint, Reader, SessionConfig, Writer, WriterIdentity};

/// How long anything may take before a test says that it does not happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A port of this machine.
pub(crate) fn tcp(port: u16) -> Endpoint {
    Endpoint::tcp(Address {
        host: "127.0.0.1".to_owned(),
        port,
    })
}

/// A session that is quick to try again.
pub(crate) fn session(brokers: Brokers, client_id: &str) -> SessionConfig {
    SessionConfig {
        connect_timeout: Duration::from_secs(5),
        backoff: Backoff::try_new(Duration::from_millis(20), Duration::from_millis(200)).unwrap(),
        receive_maximum: NonZeroU16::new(100).unwrap(),
        ..SessionConfig::new(Name::parse("plant").unwrap(), brokers, client_id)
    }
}

/// A session towards a port of this machine, quick to try again and to give up.
pub(crate) fn config(port: u16, client_id: &str) -> SessionConfig {
    SessionConfig {
        answer_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(5),
        ..session(Brokers::one(tcp(port)), client_id)
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

pub(crate) fn writer(config: SessionConfig) -> Writer {
    Writer::start(config, WriterIdentity::ClientId, clock())
}

pub(crate) fn subscription(filter: &str, qos: QoS) -> Subscription {
    Subscription {
        filter: TopicFilter::parse(filter).unwrap(),
        qos,
        no_local: false,
    }
}

pub(crate) fn reader(config: SessionConfig, filter: &str) -> Reader {
    Reader::start(
        config,
        vec![subscription(filter, QoS::ExactlyOnce)],
        clock(),
    )
}

/// A message of that QoS.
pub(crate) fn message(topic: &str, payload: impl Into<Vec<u8>>, qos: QoS) -> Message {
    let mut message = Message::new(Topic::parse(topic).unwrap(), payload.into());
    message.qos = qos;
    message
}

/// Waits, with the deadline of all tests.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}

/// Waits until the link is up, with a higher epoch than `after`.
pub(crate) async fn up(writer: &Writer, after: u64) -> u64 {
    within("the link comes up", async {
        let mut link = writer.link();
        loop {
            match link {
                Link::Up { epoch, .. } if epoch > after => return epoch,
                seen => link = writer.changed(seen).await,
            }
        }
    })
    .await
}

pub(crate) async fn subscribed(reader: &Reader) {
    within("the reader is subscribed", async {
        let mut state = reader.state();
        while state != SourceState::Subscribed {
            state = reader.state_changed(state).await;
        }
    })
    .await;
}

/// Waits until a broker has taken in that a client said goodbye so many times, and with it all that was said
/// before: until then a new connection of the client would cut that off.
pub(crate) async fn gone(broker: &Mosquitto, client_id: &str, times: usize) {
    let line = format!("Client {client_id} disconnected.");
    wait_until("the client is gone", DEADLINE, || {
        broker.log().matches(&line).count() >= times
    })
    .await;
}

/// What the broker has kept for that client, which is gone.
pub(crate) async fn kept_for(broker: &Mosquitto, client_id: &str) -> Vec<Publish> {
    let mut after = ClientOptions::new(client_id)
        .resumed(Duration::from_secs(60))
        .connect(broker.port())
        .await
        .unwrap();
    after
        .collect_until_quiet(Duration::from_millis(300))
        .await
        .unwrap()
}

/// Publishes as soon as the link lets it.
pub(crate) async fn admit(writer: &Writer, message: Message) -> Admitted {
    within("the message is admitted", async {
        loop {
            match writer.publish(message.clone()).await {
                Ok(admitted) => return admitted,
                Err(NotAdmitted::LinkDown) => {
                    up(writer, 0).await;
                }
                Err(NotAdmitted::Refused(why)) => panic!("refused: {why}"),
            }
        }
    })
    .await
}

pub(crate) async fn publish(writer: &Writer, message: Message) -> Answer {
    let admitted = admit(writer, message).await;
    within("the answer comes", admitted).await
}

/// The code of an answer that was given.
pub(crate) fn code(answer: &Answer) -> ReasonCode {
    match answer {
        Answer::Answered { code, .. } => *code,
        other => panic!("no answer: {other:?}"),
    }
}

pub(crate) async fn next(reader: &Reader) -> Delivery {
    within("a message comes", reader.next())
        .await
        .unwrap_or_else(|| panic!("the reader is closed"))
}

/// Takes the next messages and settles none.
pub(crate) async fn receive(reader: &Reader, count: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for _ in 0..count {
        deliveries.push(next(reader).await);
    }
    deliveries
}

/// Takes and settles the next message.
pub(crate) async fn take(reader: &Reader) -> Message {
    let delivery = next(reader).await;
    delivery.acknowledge.settled();
    delivery.message
}
