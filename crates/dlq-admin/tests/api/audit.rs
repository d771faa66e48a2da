//! What was done is in the audit log, whatever became of who asked.

use bridge_testkit::wait_for;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::dead_letters::with_dead_letters;
use crate::fixture::{Fixture, PATIENCE, TOKEN, audited};

/// The lines of the call that is about `what`, once its end is among them.
async fn lines_of(what: &str) -> Vec<String> {
    wait_for("its end is in the audit log", PATIENCE, async || {
        let first = audited(what).into_iter().next()?;
        let call = first.split_whitespace().find(|w| w.starts_with("call="));
        let lines = audited(&format!("{} ", call.unwrap()));
        let ended = |line: &String| line.contains("stage=\"ended\"");
        lines.iter().any(ended).then_some(lines)
    })
    .await
}

/// How many ids each line has that says what came of entries.
fn ids_that_came(lines: &[String], outcome: &str) -> Vec<usize> {
    let outcome = format!("outcome={outcome}");
    let came = lines
        .iter()
        .filter(|line| line.contains("stage=\"came\"") && line.contains(&outcome));
    came.map(|line| line.matches("telemetry~two~").count())
        .collect()
}

/// Sends a request, and does not wait for the answer.
async fn send_and_hold(fixture: &Fixture, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", fixture.port))
        .await
        .unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn the_outcome_of_a_redrive_is_in_the_log_when_who_asked_has_hung_up() {
    let fixture = with_dead_letters(&[("gone/a", "1"), ("gone/b", "2")]).await;
    let pause = "/api/v1/bindings/telemetry/two";
    fixture.post(&format!("{pause}/pause"), "").await;
    fixture.sinks["two"].answer_with(0);
    let body = json!({ "filter": { "topic": "gone/#" } }).to_string();
    let redrive = "/api/v1/dead-letters/redrive?wait=60";
    let asked = send_and_hold(&fixture, redrive, &body).await;
    fixture
        .binding_until("two", "both are in the queue", |binding| {
            binding["queue"]["entries"] == 2
        })
        .await;
    drop(asked);
    fixture.post(&format!("{pause}/resume"), "").await;
    let lines = lines_of("gone/#").await;
    let stages: Vec<_> = ["begins", "came", "ended"]
        .iter()
        .map(|stage| {
            let stage = format!("stage=\"{stage}\"");
            lines.iter().filter(|line| line.contains(&stage)).count()
        })
        .collect();
    assert_eq!(stages, [1, 1, 1], "{lines:?}");
    assert_eq!(ids_that_came(&lines, "moved, delivered"), [2], "{lines:?}");
    assert!(lines[2].contains("outcome=2 of 2 moved"), "{lines:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn every_id_is_in_the_log_whether_it_was_named_or_a_filter_took_it() {
    let topics: Vec<_> = (0..230).map(|n| format!("each/{}", n % 2)).collect();
    let messages: Vec<_> = topics.iter().map(|topic| (topic.as_str(), "x")).collect();
    let fixture = with_dead_letters(&messages).await;
    let by_filter = json!({ "filter": { "topic": "each/0" } }).to_string();
    fixture
        .post("/api/v1/dead-letters/delete", &by_filter)
        .await;
    let lines = lines_of("each/0").await;
    assert_eq!(ids_that_came(&lines, "deleted"), [100, 15]);

    let mut ids = crate::dead_letters::ids(&fixture).await;
    assert_eq!(ids.len(), 115);
    // Not the ids of another test.
    ids[0] = "telemetry~two~987654321".to_owned();
    let by_ids = json!({ "ids": ids }).to_string();
    fixture.post("/api/v1/dead-letters/delete", &by_ids).await;
    let lines = lines_of("115 entries: telemetry~two~987654321 ").await;
    let begins = lines.iter().filter(|line| line.contains("\"begins\""));
    let begins: Vec<_> = begins
        .map(|line| line.matches("telemetry~two~").count())
        .collect();
    assert_eq!(begins, [20, 95], "all, before it begins");
    assert_eq!(ids_that_came(&lines, "deleted"), [100, 14]);
    assert_eq!(ids_that_came(&lines, "not_found"), [1]);
    fixture.stop().await;
}

#[tokio::test]
async fn what_a_job_does_is_in_the_log_with_each_id() {
    let messages = [("job/of/audit", "x"); 70];
    let fixture = with_dead_letters(&messages).await;
    let body = json!({ "filter": { "topic": "job/of/audit" }, "job": true }).to_string();
    fixture.post("/api/v1/dead-letters/delete", &body).await;
    let lines = lines_of("job/of/audit").await;
    assert_eq!(
        ids_that_came(&lines, "deleted by job")
            .iter()
            .sum::<usize>(),
        70
    );
    let ended = lines.last().unwrap();
    assert!(ended.contains("done: 70 of 70, 0 not"), "{ended}");
    fixture.stop().await;
}

#[tokio::test]
async fn an_export_that_does_not_begin_has_its_end_in_the_log() {
    let mut fixture = Fixture::start().await;
    fixture.stop_what_is_behind().await;
    let export = "/api/v1/dead-letters/export?topic=never/began";
    assert_eq!(fixture.ask("GET", export).await.status, 503);
    let lines = lines_of("never/began").await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("outcome=the bridge stops"), "{lines:?}");
    fixture.stop().await;
}
