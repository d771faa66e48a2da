//! What is no request that can be answered gets a problem that says why, whatever it is.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Fixture, TOKEN, problem};

#[tokio::test]
async fn i25_what_is_wrong_with_a_request_is_said() {
    let fixture = Fixture::start().await;
    let nothing = fixture.ask("GET", "/api/v1/nothing").await;
    problem(&nothing, 404, "not-found");
    problem(&fixture.ask("GET", "/nothing").await, 404, "not-found");
    let method = fixture.ask("PUT", "/api/v1/bridge").await;
    problem(&method, 405, "method-not-allowed");
    assert_eq!(method.header("allow"), Some("GET,HEAD"));
    for (method, path) in [
        ("GET", "/api/v1/dead-letters/%FF"),
        ("GET", "/api/v1/jobs/%FF"),
        ("POST", "/api/v1/jobs/%c3/cancel"),
        ("POST", "/api/v1/bindings/telemetry/%FF/pause"),
        ("POST", "/api/v1/bindings/%FF/two/resume"),
        ("POST", "/api/v1/routes/%FF/inject"),
        ("GET", "/page/%FF"),
        ("GET", "/%FF"),
        ("OPTIONS", "*"),
        ("GET", "/api/v1/bridge/"),
        ("GET", "/API/v1/bridge"),
    ] {
        let body = "{\"topic\": \"a\"}";
        let media = [("content-type", "application/json")];
        let response = fixture.send(method, path, &media, body).await;
        problem(&response, 404, "not-found");
    }
    for (method, path) in [
        ("POST", "/"),
        ("DELETE", "/api/v1/dead-letters/a~b~1"),
        ("PUT", "/api/v1/dead-letters/redrive"),
        ("GET", "/api/v1/bindings/telemetry/two/pause"),
    ] {
        let response = fixture.ask(method, path).await;
        problem(&response, 405, "method-not-allowed");
        assert!(response.header("allow").is_some(), "{method} {path}");
    }
    let query = fixture.ask("GET", "/api/v1/bridge?x=1").await;
    assert_eq!(problem(&query, 422, "invalid")["field"], "x");

    let session = "/api/v1/session";
    let text = [("content-type", "text/plain")];
    problem(
        &fixture.send("POST", session, &text, "{}").await,
        415,
        "not-json",
    );
    problem(
        &fixture.send("POST", session, &[], "{}").await,
        415,
        "not-json",
    );
    let broken = problem(
        &fixture.post(session, "{\n  \"token\": oh").await,
        400,
        "malformed-json",
    );
    assert_eq!(
        (&broken["line"], &broken["column"]),
        (&2.into(), &12.into())
    );
    let large = format!("{{\"token\": \"{}\"}}", "x".repeat(2 << 20));
    problem(&fixture.post(session, &large).await, 413, "too-large");
    fixture.stop().await;
}

#[tokio::test]
async fn every_answer_has_the_headers_of_safety() {
    let fixture = Fixture::start().await;
    for response in [
        fixture.ask("GET", "/api/v1/bridge").await,
        fixture.ask("GET", "/").await,
        fixture.anonymous("GET", "/api/v1/bridge").await,
    ] {
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(response.header(name), Some(value), "{response:?}");
        }
        let kept = response.header("cache-control").unwrap();
        let is_page = response.header("etag").is_some();
        assert_eq!(kept, if is_page { "no-cache" } else { "no-store" });
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn the_page_is_open_to_all_and_what_it_shows_is_not() {
    let fixture = Fixture::start().await;
    let page = fixture.anonymous("GET", "/").await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let scripts = page.body.split("src=\"").skip(1);
    for address in scripts.map(|rest| rest.split('"').next().unwrap()) {
        assert_eq!(
            fixture.anonymous("GET", address).await.status,
            200,
            "{address}"
        );
    }
    for nowhere in [
        "/page/",
        "/page/nothing.js",
        "/page/../Cargo.toml",
        "/page/%2e%2e/Cargo.toml",
    ] {
        assert_eq!(
            fixture.anonymous("GET", nowhere).await.status,
            404,
            "{nowhere}"
        );
    }
    assert_eq!(fixture.anonymous("POST", "/").await.status, 405);
    fixture.stop().await;
}

#[tokio::test]
async fn i25_a_defect_is_an_answer_that_gives_nothing_away() {
    let fixture = Fixture::start().await;
    fixture.has_a_defect(true);
    let response = fixture.ask("GET", "/api/v1/bridge").await;
    let said = problem(&response, 500, "defect").to_string();
    assert!(!said.contains("on purpose"), "{said}");
    fixture.has_a_defect(false);
    fixture.get("/api/v1/bridge").await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_bridge_that_stops_says_so() {
    let fixture = Fixture::start().await;
    fixture.is_stopping();
    let response = fixture.ask("GET", "/api/v1/bridge").await;
    problem(&response, 503, "stopping");
    assert!(response.header("retry-after").is_some());
    // That it is stopping is told to those who may know.
    let anonymous = fixture.anonymous("GET", "/api/v1/bridge").await;
    problem(&anonymous, 401, "not-logged-in");
    fixture.stop().await;
}

/// What comes back on a connection after `request`, when nothing more is sent.
async fn raw(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(40), read).await;
    // A reset ends it as well.
    let _ = read.expect("the connection is held");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn who_sends_slowly_is_not_waited_for() {
    let fixture = Fixture::start().await;
    let post = format!(
        "POST /api/v1/session HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    let (head, body) = tokio::join!(
        raw(
            fixture.port,
            b"GET /api/v1/bridge HTTP/1.1\r\nhost: x\r\nx-slow: "
        ),
        raw(fixture.port, post.as_bytes()),
    );
    assert!(!head.contains("200"), "{head}");
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    fixture.get("/api/v1/bridge").await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_body_that_comes_slowly() {
    let fixture = Fixture::start().await;
    let address = ("127.0.0.1", fixture.port);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /api/v1/dead-letters/import HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/x-ndjson\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut goes_on = [0; 25];
    stream.read_exact(&mut goes_on).await.unwrap();
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    let answered = tokio::spawn(async move {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let began = std::time::Instant::now();
    fixture.stop().await;
    // A body may take longer.
    assert!(began.elapsed() < Duration::from_secs(8));
    let answer = answered.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test]
async fn i25_what_is_no_http_ends_nothing_but_its_connection() {
    let fixture = Fixture::start().await;
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(100_000));
    for request in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n\0\0\0\0",
        long.as_bytes(),
        b"POST /api/v1/session HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\
          content-type: application/json\r\nconnection: close\r\n\r\nzz\r\n",
    ] {
        let answer = raw(fixture.port, request).await;
        assert!(!answer.contains(" 200 "), "{answer}");
        assert!(!answer.contains(" 500 "), "{answer}");
    }
    fixture.get("/api/v1/bridge").await;
    fixture.stop().await;
}
