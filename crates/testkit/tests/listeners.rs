//! The ways into a broker besides plain TCP.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the code of tests: failing loudly is what it is for"
)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_testkit::{
    Authority, ClientOptions, Connect, Handshake, HttpProxy, Identity, Mosquitto, Packet,
    RawClient, ScriptedBroker, TlsFront, WebSocketFront, wait_until,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const SOON: Duration = Duration::from_secs(10);

/// Connects, as a client of MQTT; the first four bytes of the answer.
async fn hello(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<[u8; 4]> {
    let connect = Packet::Connect(Connect {
        client_id: "c".to_owned(),
        clean_start: true,
        ..Connect::default()
    });
    stream.write_all(&connect.encode()).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

async fn tls(
    port: u16,
    trusted: &Path,
    client: Option<&Identity>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(trusted).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => config.with_no_client_auth(),
        Some(client) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&client.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&client.key).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![b"mqtt".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

fn accepted(answer: [u8; 4]) -> bool {
    matches!(answer, [0x20, _, 0, 0])
}

#[tokio::test]
async fn one_who_trusts_the_authority_gets_in_by_tls_and_another_does_not() {
    let authority = Authority::new();
    let broker = Mosquitto::builder().tls(&authority.server()).start().await;
    let stream = tls(broker.tls_port(), &authority.certificate(), None).await;
    assert!(accepted(hello(stream.unwrap()).await.unwrap()));
    let stranger = Authority::new();
    let error = tls(broker.tls_port(), &stranger.certificate(), None).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn a_server_whose_certificate_has_expired_is_not_believed() {
    let authority = Authority::new();
    let server = authority.expired_server();
    let broker = Mosquitto::builder().tls(&server).start().await;
    let error = tls(broker.tls_port(), &authority.certificate(), None).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
}

#[tokio::test]
async fn where_a_client_certificate_is_asked_for_only_a_valid_one_of_the_authority_gets_in() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let broker = Mosquitto::builder()
        .mutual_tls(&authority.server(), authority.certificate())
        .start()
        .await;
    let trusted = authority.certificate();
    let enter = async |client: Option<&Identity>| {
        let stream = tls(broker.mutual_tls_port(), &trusted, client).await?;
        hello(stream).await
    };
    let client = authority.client("plant-7");
    assert!(accepted(enter(Some(&client)).await.unwrap()));
    enter(None).await.unwrap_err();
    enter(Some(&authority.expired_client("plant-7")))
        .await
        .unwrap_err();
    enter(Some(&stranger.client("plant-7"))).await.unwrap_err();
}

#[tokio::test]
async fn a_websocket_is_opened_plain_and_in_tls() {
    const UPGRADE: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    async fn upgraded(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        stream.write_all(UPGRADE).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 101");
    }
    let authority = Authority::new();
    let broker = Mosquitto::builder()
        .websocket()
        .secure_websocket(&authority.server())
        .start()
        .await;
    let plain = TcpStream::connect(("127.0.0.1", broker.websocket_port())).await;
    upgraded(plain.unwrap()).await;
    let port = broker.secure_websocket_port();
    let secure = tls(port, &authority.certificate(), None).await;
    upgraded(secure.unwrap()).await;
}

#[tokio::test]
async fn an_address_of_version_6_and_a_unix_socket_are_ways_in() {
    let broker = Mosquitto::builder().ipv6().unix_socket().start().await;
    let stream = TcpStream::connect(("::1", broker.ipv6_port())).await;
    assert!(accepted(hello(stream.unwrap()).await.unwrap()));
    let stream = UnixStream::connect(broker.unix_socket()).await;
    assert!(accepted(hello(stream.unwrap()).await.unwrap()));
}

#[tokio::test]
async fn other_passwords_count_from_the_next_connection_on() {
    let broker = Mosquitto::builder().users([("u", "old")]).start().await;
    let with = |password: &str| ClientOptions::new("c").user("u", password);
    let _: RawClient = with("old").connect(broker.port()).await.unwrap();
    broker.set_users(&[("u", "new")]).await;
    with("old").connect(broker.port()).await.unwrap_err();
    with("new").connect(broker.port()).await.unwrap();
}

#[tokio::test]
async fn a_front_of_tls_tells_what_the_client_has_shown() {
    let authority = Authority::new();
    let client = authority.client("plant-7");
    let broker = ScriptedBroker::accepting().await;
    let front = TlsFront::builder(authority.server())
        .clients_of(authority.certificate())
        .alpn(&["http/1.1", "mqtt"])
        .start(broker.port())
        .await;
    let trusted = authority.certificate();
    let stream = tls(front.port(), &trusted, Some(&client)).await;
    assert!(accepted(hello(stream.unwrap()).await.unwrap()));
    let shown = Handshake {
        server_name: Some("localhost".to_owned()),
        alpn: Some("mqtt".to_owned()),
        client: Some(client.der()),
        is_1_3: true,
    };
    assert_eq!(front.handshakes(), [shown]);
    let without = async { hello(tls(front.port(), &trusted, None).await?).await };
    without.await.unwrap_err();
    wait_until("the failure is told", SOON, || front.failures().len() == 1).await;
}

#[tokio::test]
async fn a_front_of_tls_shows_another_certificate_when_it_is_to() {
    let (old, new) = (Authority::new(), Authority::new());
    let broker = ScriptedBroker::accepting().await;
    let front = TlsFront::builder(old.server()).only_1_2();
    let mut front = front.start(broker.port()).await;
    tls(front.port(), &old.certificate(), None).await.unwrap();
    assert!(!front.handshakes()[0].is_1_3);
    front.present(new.server());
    tls(front.port(), &old.certificate(), None)
        .await
        .unwrap_err();
    tls(front.port(), &new.certificate(), None).await.unwrap();
}

#[tokio::test]
async fn files_of_an_identity_are_replaced_one_by_one() {
    let authority = Authority::new();
    let (one, other) = (authority.client("a"), authority.client("a"));
    let before = one.der();
    one.replace_certificate_with(&other);
    assert_ne!(one.der(), before);
    assert_eq!(one.der(), other.der());
    let key = |identity: &Identity| std::fs::read(&identity.key).unwrap();
    assert_ne!(key(&one), key(&other));
    one.replace_key_with(&other);
    assert_eq!(key(&one), key(&other));
}

/// Asks an HTTP proxy for a tunnel; the status line, and the stream behind it.
async fn tunnel(proxy: &HttpProxy, target: &str, field: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{field}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    (head.lines().next().unwrap().to_owned(), stream)
}

#[tokio::test]
async fn an_http_proxy_leads_where_only_it_knows_the_way() {
    const ALLOWED: &str = "Proxy-Authorization: Basic dTpw\r\n";
    let broker = ScriptedBroker::accepting().await;
    let proxy = HttpProxy::start().await;
    let direct = format!("127.0.0.1:{}", broker.port());
    let (status, stream) = tunnel(&proxy, &direct, "").await;
    assert_eq!(status, "HTTP/1.1 200 Connection established");
    assert!(accepted(hello(stream).await.unwrap()));

    proxy.lead("broker.plant.invalid:8883", broker.port());
    proxy.require("Basic dTpw");
    let (status, _) = tunnel(&proxy, "broker.plant.invalid:8883", "").await;
    assert_eq!(status, "HTTP/1.1 407 Proxy Authentication Required");
    let (_, stream) = tunnel(&proxy, "broker.plant.invalid:8883", ALLOWED).await;
    assert!(accepted(hello(stream).await.unwrap()));
    let (status, _) = tunnel(&proxy, "other.plant.invalid:8883", ALLOWED).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    proxy.answer_with(Some(b"HTTP/1.1 503 Later\r\n\r\n"));
    let (status, _) = tunnel(&proxy, &direct, ALLOWED).await;
    assert_eq!(status, "HTTP/1.1 503 Later");
    let asked = proxy.requests();
    assert_eq!(asked[1].target, "broker.plant.invalid:8883");
    assert_eq!(asked[2].header("proxy-authorization"), Some("Basic dTpw"));
}

#[tokio::test]
async fn a_front_of_websocket_carries_frames_of_any_cut_and_answers_pings() {
    const UPGRADE: &[u8] = b"GET /mqtt?x=1 HTTP/1.1\r\nHost: localhost\r\n\
        Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    let broker = ScriptedBroker::accepting().await;
    let front = WebSocketFront::builder().fragments_of(3).with_pings();
    let front = front.start(broker.port()).await;
    let mut stream = TcpStream::connect(("127.0.0.1", front.port()))
        .await
        .unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert_eq!(String::from_utf8(head).unwrap().lines().last(), Some(""));
    // A mask of zeros leaves the payload as it is.
    let masked = |opcode: u8, payload: &[u8]| {
        let mut frame = vec![
            0x80 | opcode,
            0x80 | u8::try_from(payload.len()).unwrap(),
            0,
            0,
            0,
            0,
        ];
        frame.extend_from_slice(payload);
        frame
    };
    let connect = Packet::Connect(Connect::default()).encode();
    let (one, rest) = connect.split_at(1);
    for frame in [
        masked(2, one),
        masked(2, rest),
        masked(0xA, b"?"),
        masked(9, b"!"),
    ] {
        stream.write_all(&frame).await.unwrap();
    }
    // CONNACK in two fragments, a ping before each; the pong may come anywhere between frames.
    let mut said = vec![0; 3 + (2 + 3) + 3 + (2 + 2) + 3];
    stream.read_exact(&mut said).await.unwrap();
    let pong = [0x8A, 1, b'!'];
    let at = said.windows(3).position(|bytes| bytes == pong).unwrap();
    said.drain(at..at + 3);
    assert_eq!(
        said,
        [
            0x89, 1, b'?', 0x02, 3, 0x20, 3, 0, 0x89, 1, b'?', 0x80, 2, 0, 0
        ]
    );
    stream.write_all(&masked(8, &[0x03, 0xE8])).await.unwrap();
    wait_until("the close is told", SOON, || front.closes() == [Some(1000)]).await;
    assert_eq!(front.pongs(), 1);
    assert_eq!(front.requests()[0].target, "/mqtt?x=1");
    assert!(front.violations().is_empty());
}
