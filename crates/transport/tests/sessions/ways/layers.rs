//! MQTT is the same whatever it lies in.

use bridge_core::{Sink, Source};
use bridge_testkit::{Authority, Mosquitto, ScriptedBroker, TlsFront, WebSocketFront, wait_until};
use bridge_transport::{Brokers, Endpoint, Place};

use crate::common::{DEADLINE, reader, session, subscribed, take, tcp, within, writer};
use crate::ways::{deliver, message, proving, tls, trusting, within_websocket};

/// Larger than any buffer on the way.
const LARGE: usize = 300_000;
/// Mosquitto 2.0.11 is slow by WebSocket: what was seen fits 4 KiB at a time, ten times a second.
const LARGE_FOR_ITS_WEBSOCKET: usize = 10_000;

/// Sends messages from a writer to a reader, small ones and a large one.
async fn crosses(endpoint: Endpoint, large: usize) {
    let brokers = Brokers::one(endpoint);
    let reader = reader(session(brokers.clone(), "r"), "t");
    subscribed(&reader).await;
    let writer = writer(session(brokers, "w"));
    for length in [0, 1, 1_000, large, 2] {
        deliver(&writer, message("t", vec![7; length])).await;
        assert_eq!(take(&reader).await.payload, vec![7; length]);
    }
    within("they close", async {
        tokio::join!(writer.close(), reader.close())
    })
    .await;
    for stats in [writer.stats(), reader.stats()] {
        assert_eq!(stats.connects, 1);
        assert_eq!(stats.connection_losses, 0);
    }
}

#[tokio::test]
async fn messages_cross_by_tls_and_with_a_client_certificate() {
    let authority = Authority::new();
    let broker = Mosquitto::builder()
        .tls(&authority.server())
        .mutual_tls(&authority.server(), authority.certificate())
        .start()
        .await;
    crosses(tls(broker.tls_port(), trusting(&authority)), LARGE).await;
    let proof = proving(&authority, &authority.client("plant-7"));
    crosses(tls(broker.mutual_tls_port(), proof), LARGE).await;
}

#[tokio::test]
async fn messages_cross_by_websocket_plain_and_in_tls() {
    let authority = Authority::new();
    let broker = Mosquitto::builder()
        .websocket()
        .secure_websocket(&authority.server())
        .start()
        .await;
    crosses(
        within_websocket(tcp(broker.websocket_port())),
        LARGE_FOR_ITS_WEBSOCKET,
    )
    .await;
    let secure = tls(broker.secure_websocket_port(), trusting(&authority));
    crosses(within_websocket(secure), LARGE_FOR_ITS_WEBSOCKET).await;
}

#[tokio::test]
async fn messages_cross_by_unix_socket() {
    let broker = Mosquitto::builder().unix_socket().start().await;
    crosses(
        Endpoint {
            place: Place::Unix(broker.unix_socket().to_owned()),
            ..tcp(0)
        },
        LARGE,
    )
    .await;
}

#[tokio::test]
async fn a_large_message_crosses_by_websocket_within_tls() {
    let authority = Authority::new();
    let broker = Mosquitto::start().await;
    let websockets = WebSocketFront::builder().start(broker.port()).await;
    let front = TlsFront::start(authority.server(), websockets.port()).await;
    let secure = tls(front.port(), trusting(&authority));
    crosses(within_websocket(secure), LARGE).await;
    assert_eq!(websockets.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn packets_are_joined_from_fragments_of_any_cut_with_pings_in_between() {
    let broker = Mosquitto::start().await;
    let front = WebSocketFront::builder().fragments_of(3).with_pings();
    let front = front.start(broker.port()).await;
    let brokers = Brokers::one(within_websocket(tcp(front.port())));
    let reader = reader(session(brokers.clone(), "r"), "t");
    subscribed(&reader).await;
    let writer = writer(session(brokers, "w"));
    for n in 0..20_u8 {
        deliver(&writer, message("t", vec![n; 100])).await;
        assert_eq!(take(&reader).await.payload, vec![n; 100]);
    }
    assert!(front.pongs() > 0, "pings are answered");
    within("they close", async {
        tokio::join!(writer.close(), reader.close())
    })
    .await;
    assert_eq!(front.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn mqtt_in_text_frames_is_an_error_and_tried_again() {
    let broker = ScriptedBroker::accepting().await;
    let front = WebSocketFront::builder().as_text();
    let front = front.start(broker.port()).await;
    let brokers = Brokers::one(within_websocket(tcp(front.port())));
    let writer = writer(session(brokers, "w"));
    wait_until("it fails twice", DEADLINE, || {
        writer.stats().connect_failures >= 2
    })
    .await;
    assert_eq!(writer.stats().connects, 0);
}
