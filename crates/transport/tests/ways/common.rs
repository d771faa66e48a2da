//! What these tests share.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Answer, Backoff, Link, Message, Name, NotAdmitted, QoS, Sink, Source, SourceState,
    Subscription, SystemClock, Topic, TopicFilter,
};
use bridge_testkit::{Authority, Identity};
use bridge_transport::{
    Address, Brokers, ClientCertificate, Endpoint, Reader, SessionConfig, Tls, Trust, WebSocket,
    Writer, WriterIdentity,
};

/// How long anything may take before a test says that it does not happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn tcp(port: u16) -> Endpoint {
    Endpoint::tcp(Address {
        host: "127.0.0.1".to_owned(),
        port,
    })
}

pub(crate) fn tls(port: u16, tls: Tls) -> Endpoint {
    Endpoint {
        tls: Some(tls),
        ..tcp(port)
    }
}

pub(crate) fn within_websocket(endpoint: Endpoint) -> Endpoint {
    Endpoint {
        websocket: Some(WebSocket {
            path: "/mqtt".to_owned(),
            headers: Vec::new(),
        }),
        ..endpoint
    }
}

pub(crate) fn trusting(authority: &Authority) -> Tls {
    Tls {
        trust: Trust::File(authority.certificate()),
        ..Tls::default()
    }
}

pub(crate) fn proving(authority: &Authority, client: &Identity) -> Tls {
    Tls {
        client: Some(ClientCertificate {
            certificate: client.certificate.clone(),
            key: client.key.clone(),
        }),
        ..trusting(authority)
    }
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

pub(crate) fn writer(config: SessionConfig) -> Writer {
    Writer::start(
        config,
        WriterIdentity::ClientId,
        Arc::new(SystemClock::new()),
    )
}

pub(crate) fn reader(config: SessionConfig, filter: &str) -> Reader {
    let subscription = Subscription {
        filter: TopicFilter::parse(filter).unwrap(),
        qos: QoS::ExactlyOnce,
        no_local: false,
    };
    Reader::start(config, vec![subscription], Arc::new(SystemClock::new()))
}

pub(crate) fn message(topic: &str, payload: impl Into<Vec<u8>>) -> Message {
    let mut message = Message::new(Topic::parse(topic).unwrap(), payload.into());
    message.qos = QoS::AtLeastOnce;
    message
}

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

/// Publishes until an answer accepts it, as the runtime does.
pub(crate) async fn deliver(writer: &Writer, message: Message) {
    within("the message is delivered", async {
        loop {
            match writer.publish(message.clone()).await {
                Ok(admitted) => {
                    if let Answer::Answered { code, .. } = admitted.await {
                        assert!(!code.is_refusal(), "{code}");
                        return;
                    }
                }
                Err(NotAdmitted::LinkDown) => {
                    up(writer, 0).await;
                }
                Err(NotAdmitted::Refused(why)) => panic!("refused: {why}"),
            }
        }
    })
    .await;
}

/// Takes and settles the next message.
pub(crate) async fn take(reader: &Reader) -> Message {
    let delivery = within("a message comes", reader.next()).await.unwrap();
    delivery.acknowledge.settled();
    delivery.message
}
