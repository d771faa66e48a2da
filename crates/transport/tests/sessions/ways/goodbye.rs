//! A goodbye is heard, and nothing said before it is lost, whatever MQTT lies in.

use bridge_core::{Sink, Source};
use bridge_testkit::{
    Authority, Mosquitto, Packet, Publish, RawClient, ScriptedBroker, TlsFront, WebSocketFront,
    wait_until,
};
use bridge_transport::{Brokers, Endpoint};

use crate::common::{
    DEADLINE, gone, kept_for, reader, session, subscribed, tcp, up, within, writer,
};
use crate::ways::{tls, trusting, within_websocket};

/// Acknowledges messages and says goodbye at once; the broker has none of them left.
async fn loses_no_acknowledgement(broker: &Mosquitto, endpoint: Endpoint, client_id: &str) {
    let mut source = RawClient::connect(broker.port(), &format!("{client_id}-source"))
        .await
        .unwrap();
    let reader = reader(session(Brokers::one(endpoint), client_id), client_id);
    subscribed(&reader).await;
    for n in 0..60_u8 {
        let publish = Publish::new(client_id, vec![n]).qos(1);
        source.publish(publish).await.unwrap();
    }
    for _ in 0..60 {
        let delivery = within("a message comes", reader.next()).await.unwrap();
        delivery.acknowledge.settled();
    }
    within("it closes", reader.close()).await;
    gone(broker, client_id, 1).await;
    assert_eq!(kept_for(broker, client_id).await, [], "{client_id}");
}

#[tokio::test]
async fn a_goodbye_loses_no_acknowledgement_by_any_way() {
    let authority = Authority::new();
    let broker = Mosquitto::builder()
        .tls(&authority.server())
        .websocket()
        .secure_websocket(&authority.server())
        .unix_socket()
        .start()
        .await;
    let by_tls = |port| tls(port, trusting(&authority));
    let secure = within_websocket(by_tls(broker.secure_websocket_port()));
    let unix = Endpoint {
        place: bridge_transport::Place::Unix(broker.unix_socket().to_owned()),
        ..tcp(0)
    };
    let plain = within_websocket(tcp(broker.websocket_port()));
    tokio::join!(
        loses_no_acknowledgement(&broker, by_tls(broker.tls_port()), "tls"),
        loses_no_acknowledgement(&broker, plain, "ws"),
        loses_no_acknowledgement(&broker, secure, "wss"),
        loses_no_acknowledgement(&broker, unix, "unix"),
    );
}

#[tokio::test]
async fn tls_and_websocket_are_closed_in_their_own_words_after_the_goodbye() {
    let authority = Authority::new();
    let broker = ScriptedBroker::accepting().await;
    let websockets = WebSocketFront::builder().start(broker.port()).await;
    let front = TlsFront::start(authority.server(), websockets.port()).await;
    let secure = within_websocket(tls(front.port(), trusting(&authority)));
    let writer = writer(session(Brokers::one(secure), "w"));
    up(&writer, 0).await;
    within("it closes", writer.close()).await;
    wait_until("the WebSocket is closed", DEADLINE, || {
        !websockets.closes().is_empty()
    })
    .await;
    assert!(matches!(
        broker.packets().last(),
        Some((_, Packet::Disconnect(_)))
    ));
    assert_eq!(websockets.violations(), Vec::<String>::new());
}
