use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::handshake::server::{
    ErrorResponse, Request as Asked, Response,
};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use super::*;
use crate::Secret;

fn endpoint() -> Endpoint {
    Endpoint::tcp(Address {
        host: "broker".to_owned(),
        port: 80,
    })
}

fn settings(headers: &[(&str, &str)]) -> WebSocket {
    let headers = headers.iter();
    WebSocket {
        path: "/mqtt".to_owned(),
        headers: headers
            .map(|&(name, value)| (name.to_owned(), Secret::new(value.to_owned())))
            .collect(),
    }
}

#[expect(
    clippy::result_large_err,
    clippy::unnecessary_wraps,
    reason = "as the library wants it"
)]
fn agree(_: &Asked, mut response: Response) -> Result<Response, ErrorResponse> {
    let agreed = HeaderValue::from_static("mqtt");
    response
        .headers_mut()
        .insert(header::SEC_WEBSOCKET_PROTOCOL, agreed);
    Ok(response)
}

/// Our end, and the broker's.
async fn pair() -> (Framed<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = duplex(1 << 20);
    let request = request(&endpoint(), &settings(&[])).unwrap();
    let (ours, theirs) = tokio::join!(
        Framed::open(near, request, 1 << 20),
        accept_hdr_async(far, agree)
    );
    (ours.unwrap(), theirs.unwrap())
}

fn binary(bytes: &[u8]) -> Message {
    Message::Binary(Bytes::copy_from_slice(bytes))
}

#[test]
fn case_23_the_host_has_no_scope_and_no_trailing_dot_and_the_usual_port_is_left_out() {
    for (host, port, expected) in [
        ("broker.", 80, "broker"),
        ("broker", 8080, "broker:8080"),
        ("fe80::1%eth0", 9001, "[fe80::1]:9001"),
        ("::1", 80, "[::1]"),
    ] {
        let host = host.to_owned();
        let endpoint = Endpoint::tcp(Address { host, port });
        let request = request(&endpoint, &settings(&[])).unwrap();
        assert_eq!(request.headers()["host"], expected);
    }
}

#[test]
fn a_header_of_the_protocol_is_not_given_twice_and_one_that_is_none_is_told_without_its_value() {
    for (name, value) in [
        ("Sec-WebSocket-Key", "x"),
        ("upgrade", "h2c"),
        ("not a name", "x"),
        ("X-Token", "sec\nret"),
    ] {
        let fault = request(&endpoint(), &settings(&[(name, value)])).unwrap_err();
        assert!(fault.to_string().contains(name), "{fault}");
        assert!(!fault.to_string().contains("ret"), "{fault}");
    }
    let request = request(&endpoint(), &settings(&[("Host", "other.example")])).unwrap();
    assert_eq!(request.headers()["host"], "other.example");
    let odd = WebSocket {
        path: "no slash, a space".to_owned(),
        headers: Vec::new(),
    };
    assert!(matches!(
        super::request(&endpoint(), &odd),
        Err(Fault::WebSocketPath { .. })
    ));
}

#[tokio::test]
async fn frames_are_joined_to_one_stream_of_bytes_whatever_is_in_between() {
    let (mut ours, mut theirs) = pair().await;
    for message in [
        binary(b"ab"),
        Message::Ping(Bytes::from_static(b"?")),
        binary(b""),
        binary(b"cdef"),
    ] {
        theirs.send(message).await.unwrap();
    }
    let mut read = [0; 3];
    ours.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"abc");
    ours.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"def");
    let pong = theirs.next().await.unwrap().unwrap();
    assert_eq!(pong, Message::Pong(Bytes::from_static(b"?")));
}

#[tokio::test]
async fn what_is_written_goes_out_in_frames_of_bounded_length() {
    let (mut ours, mut theirs) = pair().await;
    let written: Vec<u8> = (0..=255).cycle().take(2 * OUR_FRAME + 7).collect();
    let read = async {
        let mut read = Vec::new();
        while read.len() < written.len() {
            let Message::Binary(frame) = theirs.next().await.unwrap().unwrap() else {
                panic!("only binary frames are sent");
            };
            assert!(frame.len() <= OUR_FRAME);
            read.extend_from_slice(&frame);
        }
        read
    };
    let write = async {
        ours.write_all(&written).await.unwrap();
        ours.flush().await.unwrap();
    };
    assert!(tokio::join!(write, read).1 == written);
}

#[tokio::test]
async fn a_text_frame_is_an_error() {
    let (mut ours, mut theirs) = pair().await;
    theirs.send(Message::Text("hello".into())).await.unwrap();
    let error = ours.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("text frame"), "{error}");
}

#[tokio::test]
async fn a_frame_larger_than_allowed_is_not_read() {
    let (mut ours, mut theirs) = pair().await;
    let sending = tokio::spawn(async move {
        let _ = theirs.send(binary(&vec![0; THEIR_FRAME + 1])).await;
        theirs
    });
    let error = ours.read_u8().await.unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
    drop(ours);
    sending.await.unwrap();
}

#[tokio::test]
async fn a_normal_close_is_the_end_and_another_one_says_why() {
    let (mut ours, mut theirs) = pair().await;
    theirs.send(binary(b"z")).await.unwrap();
    theirs.close(None).await.unwrap();
    let mut read = Vec::new();
    ours.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"z");
    let answer = theirs.next().await.unwrap().unwrap();
    assert!(matches!(answer, Message::Close(_)), "{answer:?}");

    let (mut ours, mut theirs) = pair().await;
    let why = CloseFrame {
        code: CloseCode::Policy,
        reason: "go away".into(),
    };
    theirs.close(Some(why)).await.unwrap();
    let error = ours.read_u8().await.unwrap_err().to_string();
    assert!(
        error.contains("1008") && error.contains("go away"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_ends_without_a_word_is_the_end_as_well() {
    let (mut ours, theirs) = pair().await;
    drop(theirs);
    let mut read = Vec::new();
    ours.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"");
    assert!(ours.write_all(b"x").await.is_err() || ours.flush().await.is_err());
}
