//! Connections of which one side knows nothing any more.

use std::time::Duration;

use bridge_core::{QoS, Source, SourceState};
use bridge_testkit::{
    Behaviour, Cut, Mosquitto, Proxy, Publish, RawClient, ScriptedBroker, wait_until,
};
use bridge_transport::{Reader, SessionConfig};

use crate::common::{DEADLINE, config, message, reader, subscribed, take, up, within, writer};

/// A session with the shortest keep-alive there is.
fn watchful(port: u16, client_id: &str) -> SessionConfig {
    SessionConfig {
        keep_alive: Duration::from_secs(1),
        ..config(port, client_id)
    }
}

async fn notices(reader: &Reader) {
    wait_until("it is noticed", DEADLINE, || {
        reader.state() == SourceState::Down
    })
    .await;
}

#[tokio::test]
async fn case_11_a_reader_that_hears_nothing_any_more_notices_and_comes_back() {
    let broker = Mosquitto::start().await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(watchful(proxy.port(), "r"), "t");
    subscribed(&reader).await;
    proxy.stall();
    notices(&reader).await;
    proxy.resume();
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    source.publish(Publish::new("t", "x").qos(1)).await.unwrap();
    assert_eq!(take(&reader).await.payload, "x");
}

#[tokio::test]
async fn a_reader_whose_acknowledgements_arrive_nowhere_gets_the_messages_again() {
    let broker = Mosquitto::start().await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(watchful(proxy.port(), "r"), "t");
    subscribed(&reader).await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    source.publish(Publish::new("t", "x").qos(1)).await.unwrap();
    let delivery = crate::common::next(&reader).await;
    proxy.stall();
    delivery.acknowledge.settled();
    notices(&reader).await;
    // What is stuck on the way arrives nowhere, ever.
    proxy.cut(Cut::Reset);
    proxy.resume();
    let again = crate::common::next(&reader).await;
    assert_eq!(again.message.payload, "x");
    assert!(again.redelivered);
    again.acknowledge.settled();
}

/// While a client writes, the library sends no ping, and QoS 0 has no answer: only a question of
/// our own finds out that nobody is there.
#[tokio::test]
async fn a_writer_of_qos_0_alone_notices_that_nobody_listens() {
    let broker = Mosquitto::start().await;
    let proxy = Proxy::start(broker.port()).await;
    let writer = writer(watchful(proxy.port(), "w"));
    up(&writer, 0).await;
    proxy.stall();
    let noticed = async {
        while writer.stats().connection_losses == 0 {
            if let Ok(admitted) =
                bridge_core::Sink::publish(&writer, message("t", "x", QoS::AtMostOnce)).await
            {
                admitted.await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("it is noticed", noticed).await;
    proxy.resume();
    up(&writer, 1).await;
}

#[tokio::test]
async fn a_keep_alive_that_the_broker_switched_off_does_not_blind_us() {
    let behaviour = Behaviour::new().connack([bridge_testkit::Property::ServerKeepAlive(0)]);
    let broker = ScriptedBroker::behaving(behaviour).await;
    let proxy = Proxy::start(broker.port()).await;
    let reader = reader(watchful(proxy.port(), "r"), "t");
    subscribed(&reader).await;
    proxy.stall();
    notices(&reader).await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_happens_is_asked_and_stays() {
    let broker = Mosquitto::start().await;
    // Without a question the broker would give both up after one and a half times that.
    let quiet = |client_id| SessionConfig {
        keep_alive: Duration::from_secs(6),
        ..config(broker.port(), client_id)
    };
    let reader = reader(quiet("r"), "t");
    subscribed(&reader).await;
    let writer = writer(quiet("w"));
    up(&writer, 0).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(reader.stats().connection_losses, 0);
    assert_eq!(writer.stats().connection_losses, 0);
}
