//! Every way to a broker, and what is said where there is none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Name, SystemClock};
use bridge_testkit::{
    Authority, HttpProxy, Identity, Mosquitto, ScriptedBroker, ScriptedPermit, TlsFront,
    WebSocketFront, wait_until,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::gate::Gate;
use crate::keys::{Origin, Ring};
use crate::{Address, ClientCertificate, Password, Secret, Tls, TlsVersion, Trust, WebSocket};

/// CONNECT of MQTT 5: clean start, a keep-alive of a minute, client id `c`.
const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c";

fn at(host: &str, port: u16) -> Endpoint {
    Endpoint::tcp(Address {
        host: host.to_owned(),
        port,
    })
}

fn tls(host: &str, port: u16, tls: Tls) -> Endpoint {
    Endpoint {
        tls: Some(tls),
        ..at(host, port)
    }
}

fn websocket(port: u16, path: &str) -> Endpoint {
    Endpoint {
        websocket: Some(WebSocket {
            path: path.to_owned(),
            headers: vec![("X-Plant".to_owned(), Secret::new("7".to_owned()))],
        }),
        ..at("127.0.0.1", port)
    }
}

fn trusting(authority: &Authority) -> Tls {
    Tls {
        trust: Trust::File(authority.certificate()),
        ..Tls::default()
    }
}

fn proving(authority: &Authority, client: &Identity) -> Tls {
    Tls {
        client: Some(ClientCertificate {
            certificate: client.certificate.clone(),
            key: client.key.clone(),
        }),
        ..trusting(authority)
    }
}

async fn dial(endpoint: &Endpoint) -> Result<Stream, DialError> {
    dial_with(Pass::default(), endpoint).await
}

async fn dial_with(pass: Pass, endpoint: &Endpoint) -> Result<Stream, DialError> {
    let keys = Ring::new(Origin::new(endpoint, None))
        .take(|_| ())
        .await
        .unwrap();
    let terms = Terms {
        within: Duration::from_secs(10),
        write_timeout: Duration::from_secs(10),
        max_packet_size: 1 << 20,
        pass,
    };
    connect(endpoint, &keys, terms).await
}

/// Says CONNECT, and hears the first byte of the answer.
async fn hello(mut stream: Stream) -> std::io::Result<u8> {
    stream.write_all(CONNECT).await?;
    stream.flush().await?;
    stream.read_u8().await
}

/// Reaches a broker that lets us in.
async fn welcome(endpoint: &Endpoint) {
    let stream = dial(endpoint).await.unwrap();
    assert_eq!(hello(stream).await.unwrap(), 0x20, "{endpoint}: a CONNACK");
}

/// Why there is no way to a broker, at the latest when MQTT is spoken.
async fn no_way(endpoint: &Endpoint) -> String {
    match dial(endpoint).await {
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with(&endpoint.to_string()), "{said}");
            said
        }
        Ok(stream) => hello(stream).await.unwrap_err().to_string(),
    }
}

fn assert_says(said: &str, words: &str) {
    assert!(said.contains(words), "{said:?} does not say {words:?}");
}

// === the fence ===

#[tokio::test]
async fn i18_the_fence_is_below_tls_and_websocket() {
    let authority = Authority::new();
    let broker = ScriptedBroker::accepting().await;
    let in_tls = TlsFront::start(authority.server(), broker.port()).await;
    let in_both = WebSocketFront::builder().start(broker.port()).await;
    let in_both_tls = TlsFront::start(authority.server(), in_both.port()).await;
    for endpoint in [
        at("127.0.0.1", broker.port()),
        tls("127.0.0.1", in_tls.port(), trusting(&authority)),
        websocket(in_both.port(), "/mqtt"),
        Endpoint {
            tls: Some(trusting(&authority)),
            ..websocket(in_both_tls.port(), "/mqtt")
        },
    ] {
        let permit = Arc::<ScriptedPermit>::default();
        permit.grant(1, Duration::MAX, Duration::ZERO);
        let session = Name::parse("s").unwrap();
        let gate = Gate::new(
            session,
            "w",
            Some(permit.clone()),
            Arc::new(SystemClock::new()),
        );
        let pass = gate.admitted().await;
        let mut stream = dial_with(pass.clone(), &endpoint).await.unwrap();
        stream.write_all(CONNECT).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 0x20, "{endpoint}");
        permit.withhold();
        let written = async {
            stream.write_all(b"\xc0\x00").await?;
            stream.flush().await
        };
        let error = written.await.unwrap_err();
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::PermissionDenied,
            "{endpoint}"
        );
        drop(stream);
        let refused = dial_with(pass, &endpoint).await;
        assert!(
            endpoint.tls.is_none() && endpoint.websocket.is_none() || refused.is_err(),
            "{endpoint}: no handshake either"
        );
    }
    wait_until("all are closed", Duration::from_secs(10), || {
        broker.open_connections() == 0
    })
    .await;
    let packets = broker.packets();
    assert_eq!(packets.len(), 4, "one CONNECT each: {packets:?}");
}

// === TLS ===

#[tokio::test]
async fn a_broker_is_believed_by_the_authority_that_issued_its_certificate() {
    let authority = Authority::new();
    let broker = Mosquitto::builder().tls(&authority.server()).start().await;
    for host in ["127.0.0.1", "localhost"] {
        welcome(&tls(host, broker.tls_port(), trusting(&authority))).await;
    }
}

#[tokio::test]
async fn case_23_a_trailing_dot_is_not_a_part_of_the_server_name() {
    let authority = Authority::new();
    let broker = ScriptedBroker::accepting().await;
    let front = TlsFront::start(authority.server(), broker.port()).await;
    welcome(&tls("localhost.", front.port(), trusting(&authority))).await;
    let asked = front.handshakes().remove(0).server_name;
    assert_eq!(asked.as_deref(), Some("localhost"));
}

#[tokio::test]
async fn what_is_wrong_with_a_brokers_certificate_is_told_with_a_remedy() {
    let authority = Authority::new();
    let broker = ScriptedBroker::accepting().await;
    let mut front = TlsFront::start(authority.server(), broker.port()).await;
    let here = |tls_of| tls("127.0.0.1", front.port(), tls_of);
    let endpoint = here(trusting(&authority));

    let stranger = Authority::new();
    assert_says(&no_way(&here(trusting(&stranger))).await, "tls.ca_file");
    front.present(authority.expired_server());
    assert_says(&no_way(&endpoint).await, "expired");
    front.present(authority.server_named(&["plant.example"]));
    let said = no_way(&endpoint).await;
    assert_says(&said, "plant.example");
    assert_says(&said, "tls.server_name");

    let named = Tls {
        server_name: Some("plant.example".to_owned()),
        ..trusting(&authority)
    };
    welcome(&tls("127.0.0.1", front.port(), named)).await;
    let unverified = Tls {
        trust: Trust::InsecureSkipVerify,
        ..Tls::default()
    };
    welcome(&tls("127.0.0.1", front.port(), unverified)).await;
}

#[tokio::test]
async fn versions_and_protocols_are_agreed_on_or_their_lack_is_told() {
    let authority = Authority::new();
    let broker = ScriptedBroker::accepting().await;
    let old = TlsFront::builder(authority.server()).only_1_2();
    let old = old.start(broker.port()).await;
    welcome(&tls("127.0.0.1", old.port(), trusting(&authority))).await;
    let new_only = Tls {
        minimum: TlsVersion::V1_3,
        ..trusting(&authority)
    };
    let said = no_way(&tls("127.0.0.1", old.port(), new_only.clone())).await;
    assert_says(&said, "tls.minimum_version");

    let front = TlsFront::builder(authority.server()).alpn(&["mqtt"]);
    let front = front.start(broker.port()).await;
    let offering = |names: &[&str]| Tls {
        alpn: names.iter().map(|&name| name.to_owned()).collect(),
        ..new_only.clone()
    };
    welcome(&tls("127.0.0.1", front.port(), offering(&["x", "mqtt"]))).await;
    let agreed = front.handshakes().remove(0);
    assert_eq!(agreed.alpn.as_deref(), Some("mqtt"));
    assert!(agreed.is_1_3);
    let said = no_way(&tls("127.0.0.1", front.port(), offering(&["x"]))).await;
    assert_says(&said, "tls.alpn");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let authority = Authority::new();
    let client = authority.client("plant-7");
    let broker = ScriptedBroker::accepting().await;
    let asking = || TlsFront::builder(authority.server()).clients_of(authority.certificate());
    for front in [
        asking().start(broker.port()).await,
        asking().only_1_2().start(broker.port()).await,
    ] {
        let here = |tls_of| tls("127.0.0.1", front.port(), tls_of);
        welcome(&here(proving(&authority, &client))).await;
        let shown = front.handshakes().remove(0).client;
        assert_eq!(shown, Some(client.der()));

        let said = no_way(&here(trusting(&authority))).await;
        assert_says(&said, "tls.certificate_file");
        let stranger = Authority::new().client("plant-7");
        assert_ne!(stranger.certificate, client.certificate);
        let expired = authority.expired_client("plant-7");
        let said = no_way(&here(proving(&authority, &expired))).await;
        assert_says(&said, "does not accept our client certificate");
    }
}

#[tokio::test]
async fn mosquitto_says_whether_it_wants_another_client_certificate() {
    let authority = Authority::new();
    let builder = Mosquitto::builder().mutual_tls(&authority.server(), authority.certificate());
    let broker = builder.start().await;
    let here = |tls_of| tls("127.0.0.1", broker.mutual_tls_port(), tls_of);
    let client = authority.client("plant-7");
    welcome(&here(proving(&authority, &client))).await;
    let said = no_way(&here(trusting(&authority))).await;
    assert_says(&said, "tls.certificate_file");
    let strangers = Authority::new();
    let stranger = strangers.client("plant-7");
    let said = no_way(&here(proving(&authority, &stranger))).await;
    assert_says(&said, "does not accept our client certificate");
}

#[tokio::test]
async fn a_port_that_speaks_something_else_is_told() {
    let authority = Authority::new();
    let broker = Mosquitto::builder().tls(&authority.server()).start().await;
    let said = no_way(&tls("127.0.0.1", broker.port(), trusting(&authority))).await;
    assert_says(&said, "use mqtt://");
    let behind = ScriptedBroker::accepting().await;
    let front = TlsFront::start(authority.server(), behind.port()).await;
    assert_says(
        &no_way(&at("127.0.0.1", front.port())).await,
        "use mqtts://",
    );
    let said = no_way(&websocket(front.port(), "/")).await;
    assert_says(&said, "use mqtts:// or wss://");

    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        loop {
            let (mut stream, _) = other.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    assert_says(&no_way(&at("127.0.0.1", port)).await, "use ws://");
    let said = no_way(&tls("127.0.0.1", port, trusting(&authority))).await;
    assert_says(&said, "use mqtt:// or ws://");
    answering.abort();

    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gone.local_addr().unwrap().port();
    let resetting = tokio::spawn(async move {
        loop {
            // What is left unread makes a reset of the close.
            let (stream, _) = gone.accept().await.unwrap();
            stream.readable().await.unwrap();
        }
    });
    let said = no_way(&websocket(port, "/")).await;
    assert_says(&said, "if it speaks plain MQTT, mqtt://");
    resetting.abort();
}

// === WebSocket ===

#[tokio::test]
async fn a_broker_is_reached_by_websocket_plain_and_in_tls() {
    let authority = Authority::new();
    let builder = Mosquitto::builder().websocket();
    let broker = builder.secure_websocket(&authority.server()).start().await;
    welcome(&websocket(broker.websocket_port(), "/mqtt")).await;
    let secure = Endpoint {
        tls: Some(trusting(&authority)),
        ..websocket(broker.secure_websocket_port(), "/mqtt")
    };
    welcome(&secure).await;
}

#[tokio::test]
async fn a_websocket_is_asked_for_by_path_and_headers() {
    let broker = ScriptedBroker::accepting().await;
    let front = WebSocketFront::builder().start(broker.port()).await;
    welcome(&websocket(front.port(), "/mqtt/7?key=a%20b")).await;
    let request = front.requests().remove(0);
    assert_eq!(request.target, "/mqtt/7?key=a%20b");
    assert_eq!(request.header("x-plant"), Some("7"));
    assert_eq!(request.header("sec-websocket-protocol"), Some("mqtt"));
    let host = format!("127.0.0.1:{}", front.port());
    assert_eq!(request.header("host"), Some(host.as_str()));
}

#[tokio::test]
async fn an_answer_that_opens_no_websocket_is_told() {
    let broker = ScriptedBroker::accepting().await;
    for (answer, words) in [
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "websocket.headers"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "none at this path"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP 200"),
        ("HTTP/1.1 503 Later\r\n\r\n", "HTTP 503"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "no WebSocket"),
        ("HTTP/1.1 101 Yes\r\nUpgrade: h2c\r\n\r\n", "no WebSocket"),
        ("", "closed"),
    ] {
        let front = WebSocketFront::builder().answering(answer.as_bytes());
        let front = front.start(broker.port()).await;
        assert_says(&no_way(&websocket(front.port(), "/")).await, words);
    }
    let front = WebSocketFront::builder().without_subprotocol();
    let front = front.start(broker.port()).await;
    assert_says(
        &no_way(&websocket(front.port(), "/")).await,
        "subprotocol mqtt",
    );
    let front = WebSocketFront::builder().subprotocol("amqp");
    let front = front.start(broker.port()).await;
    assert_says(
        &no_way(&websocket(front.port(), "/")).await,
        "subprotocol mqtt",
    );
}

// === the proxy ===

fn by_proxy(endpoint: Endpoint, proxy: &HttpProxy, password: Option<&str>) -> Endpoint {
    Endpoint {
        proxy: Some(crate::HttpProxy {
            address: Address {
                host: "127.0.0.1".to_owned(),
                port: proxy.port(),
            },
            credentials: password.map(|password| {
                let password = Secret::new(password.to_owned());
                ("u".to_owned(), Password::Text(password))
            }),
        }),
        ..endpoint
    }
}

#[tokio::test]
async fn a_proxy_leads_to_names_that_only_it_knows_and_everything_else_is_inside() {
    let authority = Authority::new();
    let broker = ScriptedBroker::accepting().await;
    let websockets = WebSocketFront::builder().start(broker.port()).await;
    let server = authority.server_named(&["broker.plant.example"]);
    let front = TlsFront::start(server, websockets.port()).await;
    let proxy = HttpProxy::start().await;
    proxy.lead("broker.plant.example:443", front.port());
    proxy.require("Basic dTpw");
    let inside = Endpoint {
        tls: Some(trusting(&authority)),
        websocket: websocket(0, "/mqtt").websocket,
        ..at("broker.plant.example", 443)
    };
    welcome(&by_proxy(inside.clone(), &proxy, Some("p"))).await;
    let host = websockets.requests().remove(0);
    assert_eq!(host.header("host"), Some("broker.plant.example"));

    let said = no_way(&by_proxy(inside.clone(), &proxy, Some("x"))).await;
    assert_says(&said, "refuses the user name or the password");
    let said = no_way(&by_proxy(inside.clone(), &proxy, None)).await;
    assert_says(&said, "proxy.username");
    proxy.answer_with(Some(b"HTTP/1.1 403 Forbidden\r\n\r\n"));
    assert_says(&no_way(&by_proxy(inside, &proxy, None)).await, "HTTP 403");
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_told_as_the_proxy() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let mut endpoint = at("broker.plant.example", 8883);
    endpoint.proxy = Some(crate::HttpProxy {
        address: Address {
            host: "127.0.0.1".to_owned(),
            port,
        },
        credentials: None,
    });
    let said = no_way(&endpoint).await;
    assert_says(&said, "the proxy: cannot connect to 127.0.0.1");
}

// === other places ===

#[tokio::test]
async fn case_23_a_broker_is_reached_by_ipv6_and_by_unix_socket() {
    let broker = Mosquitto::builder().ipv6().unix_socket().start().await;
    welcome(&at("::1", broker.ipv6_port())).await;
    let local = |path: PathBuf| Endpoint {
        place: Place::Unix(path),
        ..at("", 0)
    };
    welcome(&local(broker.unix_socket().to_owned())).await;
    let said = no_way(&local("/nowhere/at/all".into())).await;
    assert_says(&said, "is the broker running");
}

#[tokio::test]
async fn one_that_accepts_and_says_nothing_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let authority = Authority::new();
    for endpoint in [
        tls("127.0.0.1", port, trusting(&authority)),
        websocket(port, "/"),
        Endpoint {
            proxy: Some(crate::HttpProxy {
                address: Address {
                    host: "127.0.0.1".to_owned(),
                    port,
                },
                credentials: None,
            }),
            ..at("broker", 1883)
        },
    ] {
        let keys = Ring::new(Origin::new(&endpoint, None))
            .take(|_| ())
            .await
            .unwrap();
        let terms = Terms {
            within: Duration::from_millis(100),
            write_timeout: Duration::from_secs(10),
            max_packet_size: 1 << 20,
            pass: Pass::default(),
        };
        let error = connect(&endpoint, &keys, terms).await.unwrap_err();
        assert_says(&error.to_string(), "timed out after 100ms");
    }
}
