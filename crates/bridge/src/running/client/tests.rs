//! The client with what no bridge does: silence, half an answer, another place, no HTTP.

use std::time::Duration;

use bridge_transport::Secret;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::running::access::TokenSource;

const TOKEN: &str = "swordfish-0123456789abcdef";

/// A server that reads one request, writes `answer`, and then holds the connection or ends it.
async fn server(answer: &'static str, hold: bool) -> (Client, JoinHandle<(String, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") && !request.ends_with(b"{}") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        if !hold {
            stream.shutdown().await.unwrap();
        }
        (String::from_utf8(request).unwrap(), stream)
    });
    let token = Token {
        text: Secret::new(TOKEN.to_owned()),
        source: TokenSource::Environment,
    };
    let place = Place::of_url(&url).unwrap();
    let client = Client::new(place, token, None, Duration::from_millis(300));
    (client, task)
}

async fn failure_of(answer: &'static str, hold: bool) -> Failure {
    let (client, task) = server(answer, hold).await;
    let failure = client.get("/api/v1/bindings").await.unwrap_err();
    task.await.unwrap();
    assert!(!format!("{failure:?} {failure}").contains("swordfish"));
    failure
}

#[tokio::test]
async fn a_request_has_the_token_in_its_header_alone() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"items\": []}";
    let (client, task) = server(answer, true).await;
    let got = client.get("/api/v1/bindings").await.unwrap();
    assert_eq!(
        (got.status, got.body),
        (StatusCode::OK, json!({ "items": [] }))
    );
    let (request, _stream) = task.await.unwrap();
    assert!(
        request.starts_with("GET /api/v1/bindings HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains(&format!("authorization: Bearer {TOKEN}\r\n")),
        "{request}"
    );
    let Whom::Bridge(place) = client.whom() else {
        panic!("it is asked over the network");
    };
    assert!(
        request.contains(&format!("host: {}\r\n", place.authority())),
        "{request}"
    );
}

#[tokio::test]
async fn silence_has_an_end_before_an_answer_and_within_one() {
    let failure = failure_of("", true).await;
    assert!(
        matches!(
            failure,
            Failure::Late {
                changing: false,
                ..
            }
        ),
        "{failure}"
    );
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    let failure = failure_of(half, true).await;
    assert!(matches!(failure, Failure::Late { .. }), "{failure}");
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_none() {
    for cut in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ] {
        let failure = failure_of(cut, false).await;
        assert!(matches!(failure, Failure::Lost { .. }), "{cut}: {failure}");
    }
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n";
    let (client, task) = server(chunked, false).await;
    let mut stream = client.stream("/api/v1/dead-letters/export").await.unwrap();
    assert_eq!(stream.next().await.unwrap().as_deref(), Some(&b"{}\n"[..]));
    let failure = stream.next().await.unwrap_err();
    assert!(matches!(failure, Failure::Lost { .. }), "{failure}");
    task.await.unwrap();
}

#[tokio::test]
async fn who_asked_for_a_change_is_told_that_it_may_have_begun() {
    let (client, task) = server("", false).await;
    let failure = client
        .post("/x", &json!({}), Duration::ZERO)
        .await
        .unwrap_err();
    task.await.unwrap();
    let help = failure.help().unwrap();
    assert!(help.contains("what the bridge has begun"), "{help}");
}

#[tokio::test]
async fn what_is_no_admin_api_is_told_and_never_followed() {
    for foreign in [
        "220 mail.example.com ESMTP\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 400 Bad\r\ncontent-type: application/problem+json\r\ncontent-length: 1\r\n\r\n{",
    ] {
        let failure = failure_of(foreign, false).await;
        assert!(
            matches!(failure, Failure::Foreign { .. }),
            "{foreign}: {failure:?}"
        );
    }
}

#[tokio::test]
async fn a_problem_is_told_in_the_words_of_the_bridge() {
    let slowed = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\n\
                  retry-after: 2\r\ncontent-length: 72\r\n\r\n\
                  {\"title\": \"Too many\", \"detail\": \"wait a moment\", \"field\": \"x\", \"new\": 1}";
    let failure = failure_of(slowed, true).await;
    assert_eq!(failure.status(), Some(429));
    let told = failure.to_string();
    assert!(
        told.ends_with("429 Too many: wait a moment (`x`); try again in 2s"),
        "{told}"
    );
}
