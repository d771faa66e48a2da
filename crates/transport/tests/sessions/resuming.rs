//! What a broker keeps for us, and what it has lost.

use std::time::Duration;

use bridge_core::{QoS, Source};
use bridge_testkit::{Mosquitto, Publish, RawClient};
use bridge_transport::{SessionConfig, SessionKind};

use crate::common::{
    code, config, gone, message, next, publish, reader, subscribed, take, within, writer,
};

#[tokio::test]
async fn a_broker_that_restarts_with_its_memory_loses_nothing() {
    restarts_and_loses_nothing(config).await;
}

/// With sessions of that kind.
pub(crate) async fn restarts_and_loses_nothing(session: fn(u16, &str) -> SessionConfig) {
    let mut broker = Mosquitto::builder().persistence(true).start().await;
    let reader = reader(session(broker.port(), "r"), "t");
    subscribed(&reader).await;
    let writer = writer(session(broker.port(), "w"));
    for n in 0..20_u8 {
        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(n % 2)];
        let answer = publish(&writer, message("t", vec![n], qos)).await;
        assert!(!code(&answer).is_refusal());
    }
    let first = next(&reader).await;
    broker.stop().await;
    broker.restart().await;
    subscribed(&reader).await;
    assert_eq!(first.message.payload, vec![0]);
    first.acknowledge.settled();
    for n in 1..20_u8 {
        assert_eq!(take(&reader).await.payload, vec![n], "each once");
    }
    assert_eq!(reader.stats().sessions_lost, 0);
}

#[tokio::test]
async fn an_ephemeral_session_leaves_nothing_behind() {
    leaves_nothing_behind(config).await;
}

/// With sessions of that kind, but for being ephemeral.
pub(crate) async fn leaves_nothing_behind(session: fn(u16, &str) -> SessionConfig) {
    let broker = Mosquitto::start().await;
    let mut settings = session(broker.port(), "r");
    settings.kind = SessionKind::Ephemeral;
    let first = reader(settings.clone(), "t");
    subscribed(&first).await;
    first.close().await;
    gone(&broker, "r", 1).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    source
        .publish(Publish::new("t", "missed").qos(1))
        .await
        .unwrap();
    let second = reader(settings, "t");
    subscribed(&second).await;
    source
        .publish(Publish::new("t", "seen").qos(1))
        .await
        .unwrap();
    assert_eq!(take(&second).await.payload, "seen");
    assert_eq!(second.stats().sessions_lost, 0);
}

#[tokio::test]
async fn retained_messages_come_with_a_new_subscription_and_keep_their_flag() {
    let broker = Mosquitto::start().await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    // Larger than the library's own limit for packets that come in.
    let large = vec![7; 64 * 1024];
    source
        .publish(Publish::new("t", large.clone()).qos(1).retained())
        .await
        .unwrap();
    let first = reader(config(broker.port(), "r"), "t");
    let retained = take(&first).await;
    assert!(retained.retain);
    assert_eq!(retained.payload, large);
    source
        .publish(Publish::new("t", "live").qos(1).retained())
        .await
        .unwrap();
    let live = take(&first).await;
    assert!(live.retain, "as it was published, not as a live message");
    first.close().await;
    gone(&broker, "r", 1).await;

    let second = reader(config(broker.port(), "r"), "t");
    subscribed(&second).await;
    let again = tokio::time::timeout(Duration::from_millis(200), second.next()).await;
    assert!(again.is_err(), "the subscription is not new: {again:?}");
    within("close", second.close()).await;
}
