//! Sessions towards the broker that is looked at.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Answer, Backoff, Message, Name, NotAdmitted, QoS, Sink, Source, SourceState, Subscription,
    SystemClock, Topic, TopicFilter,
};
use bridge_transport::{
    Address, Brokers, Endpoint, Protocol, Reader, SessionConfig, Writer, WriterIdentity,
};

/// How long anything may take that has to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A broker, and what is spoken with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
}

impl Place {
    fn config(self, client_id: &str) -> SessionConfig {
        let address = Address {
            host: "127.0.0.1".to_owned(),
            port: self.port,
        };
        let ms = Duration::from_millis;
        SessionConfig {
            protocol: self.protocol,
            answer_timeout: Duration::from_secs(8),
            backoff: Backoff::try_new(ms(20), ms(200)).unwrap(),
            ..SessionConfig::new(
                Name::parse("there").unwrap(),
                Brokers::one(Endpoint::tcp(address)),
                client_id,
            )
        }
    }

    pub(crate) async fn writer(self, client_id: &str) -> Writer {
        let config = self.config(client_id);
        let clock = Arc::new(SystemClock::new());
        let writer = Writer::start(config, WriterIdentity::ClientId, clock);
        up(&writer).await;
        writer
    }

    /// Subscribed, with the highest QoS.
    pub(crate) async fn reader(self, client_id: &str, filters: &[&str]) -> Reader {
        let filters = filters.iter().map(|filter| Subscription {
            filter: TopicFilter::parse(filter).unwrap(),
            qos: QoS::ExactlyOnce,
            no_local: false,
        });
        let clock = Arc::new(SystemClock::new());
        let reader = Reader::start(self.config(client_id), filters.collect(), clock);
        within("the reader is subscribed", async {
            let mut state = reader.state();
            while state != SourceState::Subscribed {
                state = reader.state_changed(state).await;
            }
        })
        .await;
        reader
    }
}

pub(crate) async fn up(writer: &Writer) {
    within("the link comes up", async {
        let mut link = writer.link();
        while !link.is_up() {
            link = writer.changed(link).await;
        }
    })
    .await;
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}

pub(crate) fn message(topic: &str, payload: impl Into<Vec<u8>>, qos: QoS) -> Message {
    let mut message = Message::new(Topic::parse(topic).unwrap(), payload.into());
    message.qos = qos;
    message
}

/// Publishes once, as soon as the link lets it.
pub(crate) async fn publish(writer: &Writer, message: Message) -> Answer {
    within("the message is answered", async {
        loop {
            match writer.publish(message.clone()).await {
                Ok(admitted) => return admitted.await,
                Err(NotAdmitted::LinkDown) => up(writer).await,
                Err(NotAdmitted::Refused(why)) => panic!("refused: {why}"),
            }
        }
    })
    .await
}

/// Publishes once, and insists that it is accepted.
pub(crate) async fn deliver(writer: &Writer, message: Message) {
    let answer = publish(writer, message).await;
    let accepted = matches!(&answer, Answer::Answered { code, .. } if !code.is_refusal());
    assert!(accepted, "{answer:?}");
}

/// Takes and settles the next message.
pub(crate) async fn take(reader: &Reader) -> Message {
    let delivery = within("a message comes", reader.next()).await;
    let delivery = delivery.expect("the reader is open");
    delivery.acknowledge.settled();
    delivery.message
}
