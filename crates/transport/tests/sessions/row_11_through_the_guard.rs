//! Whatever MQTT lies in, it goes through the guard: its answers, its bounds and its deadlines are
//! the same.

use std::time::{Duration, Instant};

use bridge_core::{Answer, ReasonCode, Sink, Unanswered};
use bridge_testkit::{
    Ack, AckKind, Authority, Behaviour, Packet, Proxy, Publish, Reply, ScriptedBroker, TlsFront,
    WebSocketFront, wait_until,
};
use bridge_transport::{Brokers, Endpoint, SessionConfig, Tls, Trust};
use futures_util::future::join_all;

use crate::common::{DEADLINE, reader, session, take, tcp, up, within, writer};
use crate::ways::{deliver, message, proving, tls, trusting, within_websocket};

#[derive(Debug, Clone, Copy)]
enum Way {
    Tls,
    TlsWithClientCertificate,
    WebSocket,
    SecureWebSocket,
}

const WAYS: [Way; 4] = [
    Way::Tls,
    Way::TlsWithClientCertificate,
    Way::WebSocket,
    Way::SecureWebSocket,
];

/// A way to a broker, and what it is made of.
struct Path {
    endpoint: Endpoint,
    /// In front of all the rest.
    proxy: Proxy,
    _authority: Authority,
    _websocket: Option<WebSocketFront>,
    _tls: Option<TlsFront>,
}

impl Path {
    async fn to(broker: u16, way: Way) -> Self {
        let authority = Authority::new();
        let websocket = match way {
            Way::WebSocket | Way::SecureWebSocket => {
                // Frames that end in the middle of a packet.
                let front = WebSocketFront::builder().fragments_of(7);
                Some(front.start(broker).await)
            }
            Way::Tls | Way::TlsWithClientCertificate => None,
        };
        let inner = websocket.as_ref().map_or(broker, WebSocketFront::port);
        let front = TlsFront::builder(authority.server());
        let tls_front = match way {
            Way::WebSocket => None,
            Way::Tls | Way::SecureWebSocket => Some(front.start(inner).await),
            Way::TlsWithClientCertificate => {
                let front = front.clients_of(authority.certificate());
                Some(front.start(inner).await)
            }
        };
        let proxy = Proxy::start(tls_front.as_ref().map_or(inner, TlsFront::port)).await;
        let port = proxy.port();
        let endpoint = match way {
            Way::Tls => tls(port, trusting(&authority)),
            Way::TlsWithClientCertificate => {
                tls(port, proving(&authority, &authority.client("plant-7")))
            }
            Way::WebSocket => within_websocket(tcp(port)),
            Way::SecureWebSocket => within_websocket(tls(port, trusting(&authority))),
        };
        Self {
            endpoint,
            proxy,
            _authority: authority,
            _websocket: websocket,
            _tls: tls_front,
        }
    }

    fn session(&self, client_id: &str) -> SessionConfig {
        session(Brokers::one(self.endpoint.clone()), client_id)
    }
}

#[tokio::test]
async fn i01_every_code_reaches_its_own_message_by_every_way() {
    let behaviour = Behaviour::new().reply(|received| Reply::Code(received.publish.payload[0]));
    let broker = ScriptedBroker::behaving(behaviour).await;
    for (n, way) in WAYS.into_iter().enumerate() {
        let path = Path::to(broker.port(), way).await;
        let writer = writer(path.session("w"));
        up(&writer, 0).await;
        let mut answers = Vec::new();
        for code in 0..=u8::MAX {
            let admitted = within("admitted", writer.publish(message("t", vec![code]))).await;
            answers.push(tokio::spawn(admitted.unwrap()));
        }
        for (code, answer) in (0..=u8::MAX).zip(within("answered", join_all(answers)).await) {
            let Answer::Answered { code: said, .. } = answer.unwrap() else {
                panic!("{way:?}: no answer to the message that asks for 0x{code:02x}");
            };
            assert_eq!(said, ReasonCode::new(code), "{way:?}");
        }
        assert_eq!(broker.connections(), n + 1, "{way:?}");
        within("it closes", writer.close()).await;
    }
}

#[tokio::test]
async fn the_last_answer_and_the_goodbye_of_a_broker_are_heard_by_every_way() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let first = connection.expect_publish().await;
        connection.expect_publish().await;
        let mut bytes = Packet::Ack(Ack::new(AckKind::PubAck, first.id, 0x87)).encode();
        bytes.extend([0xE0, 1, 0x8E]);
        connection.send(&bytes).await;
        connection.finish().await;
    })
    .await;
    for way in WAYS {
        let path = Path::to(broker.port(), way).await;
        let writer = writer(path.session("w"));
        up(&writer, 0).await;
        let refused = writer.publish(message("t", "1")).await.unwrap();
        let unanswered = writer.publish(message("t", "2")).await.unwrap();
        let Answer::Answered { code, .. } = within("the first", refused).await else {
            panic!("{way:?}: the answer before the goodbye was lost");
        };
        assert_eq!(code, ReasonCode::NOT_AUTHORIZED, "{way:?}");
        let unanswered = within("the second", unanswered).await;
        let unknown = Answer::Unanswered(Unanswered::MayHaveBeenSent);
        assert_eq!(unanswered, unknown, "{way:?}");
        wait_until("the takeover is counted", DEADLINE, || {
            writer.stats().takeovers == 1
        })
        .await;
    }
}

#[tokio::test]
async fn a_packet_larger_than_declared_ends_the_connection_by_every_way() {
    for way in WAYS {
        let broker = ScriptedBroker::start(|mut connection| async move {
            connection.accept(&[]).await;
            let subscribe = connection.expect_subscribe().await;
            connection.suback(subscribe.id, &[2]).await;
            if connection.number() == 0 {
                // The header alone: its length is enough.
                connection.send(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]).await;
                connection.until_closed().await;
            } else {
                let message = Publish::new("t", "x").id(1);
                connection.publish(message).await;
                connection.behave(&Behaviour::new()).await;
            }
        })
        .await;
        let path = Path::to(broker.port(), way).await;
        let reader = reader(path.session("r"), "t");
        assert_eq!(take(&reader).await.payload, "x", "{way:?}");
        assert_eq!(reader.stats().connection_losses, 1, "{way:?}");
    }
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_given_up_at_the_deadline_by_every_way() {
    let broker = ScriptedBroker::accepting().await;
    for way in WAYS {
        let path = Path::to(broker.port(), way).await;
        let mut settings = path.session("w");
        settings.write_timeout = Duration::from_millis(500);
        settings.answer_timeout = Duration::from_secs(60);
        settings.keep_alive = Duration::from_secs(60);
        let writer = writer(settings);
        up(&writer, 0).await;
        path.proxy.stall();
        let began = Instant::now();
        let mut stuck = Vec::new();
        for _ in 0..20 {
            // More than all buffers on the way can hold.
            let large = message("t", vec![0; 1024 * 1024]);
            match writer.publish(large).await {
                Ok(admitted) => stuck.push(admitted),
                Err(_) => break,
            }
        }
        assert!(!stuck.is_empty(), "{way:?}");
        for answer in within("all are told", join_all(stuck)).await {
            assert!(matches!(answer, Answer::Unanswered(_)), "{way:?}");
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{way:?}: long before the keep-alive"
        );
        path.proxy.resume();
        up(&writer, 1).await;
        deliver(&writer, message("t", "x")).await;
        within("it closes", writer.close()).await;
    }
}

#[tokio::test]
async fn nothing_of_mqtt_is_said_to_whom_the_session_does_not_trust_nor_without_its_certificate() {
    let broker = ScriptedBroker::accepting().await;
    let (ours, stranger) = (Authority::new(), Authority::new());
    let mut all = Vec::new();
    for (what, server, asks, trust) in [
        (
            "another authority",
            stranger.server(),
            false,
            trusting(&ours),
        ),
        ("the system's roots", ours.server(), false, Tls::default()),
        ("expired", ours.expired_server(), false, trusting(&ours)),
        (
            "another name",
            ours.server_named(&["broker.invalid"]),
            false,
            trusting(&ours),
        ),
        (
            "no client certificate",
            ours.server(),
            true,
            trusting(&ours),
        ),
        (
            "a client certificate of another authority",
            ours.server(),
            true,
            proving(&ours, &stranger.client("plant-7")),
        ),
        (
            "an expired client certificate",
            ours.server(),
            true,
            proving(&ours, &ours.expired_client("plant-7")),
        ),
    ] {
        let mut front = TlsFront::builder(server);
        if asks {
            front = front.clients_of(ours.certificate());
        }
        let front = front.start(broker.port()).await;
        let writer = writer(session(Brokers::one(tls(front.port(), trust)), "w"));
        all.push((what, front, writer));
    }
    for (what, _, writer) in &all {
        wait_until(what, DEADLINE, || writer.stats().connect_failures >= 2).await;
        assert_eq!(writer.stats().connects, 0, "{what}");
    }
    assert_eq!(broker.connections(), 0);

    // Who trusts anyone gets through to anyone, and only then.
    let front = TlsFront::start(stranger.expired_server(), broker.port()).await;
    let blind = Tls {
        trust: Trust::InsecureSkipVerify,
        ..Tls::default()
    };
    let writer = writer(session(Brokers::one(tls(front.port(), blind)), "w"));
    up(&writer, 0).await;
    assert_eq!(broker.connections(), 1);
}
