//! Out of a bridge and into one.

use bridge_testkit::wait_for;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::dead_letters::{ids, listed, with_dead_letters};
use crate::fixture::{Fixture, PATIENCE, TOKEN, json, problem};

const IMPORT: &str = "/api/v1/dead-letters/import";
const LINES: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

async fn exported(fixture: &Fixture) -> String {
    fixture.ask("GET", "/api/v1/dead-letters/export").await.body
}

#[tokio::test]
async fn what_was_exported_and_deleted_is_imported_again() {
    let fixture = with_dead_letters(&[("a", "1"), ("b", "<2>\u{0}"), ("a", "3")]).await;
    let lines = exported(&fixture).await;
    let all = "{\"filter\": {}, \"confirm\": true}";
    fixture.post("/api/v1/dead-letters/delete", all).await;
    let response = fixture.send("POST", IMPORT, &LINES, &lines).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let answer = json(&response);
    assert_eq!(
        (&answer["requested"], &answer["kept"]),
        (&3.into(), &3.into())
    );
    assert_eq!(answer["results"][2]["line"], 3);
    assert_eq!(answer["results"][2]["outcome"], "imported");
    let before: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let again = exported(&fixture).await;
    let after: Vec<Value> = again
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(after.len(), 3);
    for (before, after) in before.iter().zip(&after) {
        for field in [
            "topic",
            "payload",
            "reason",
            "received",
            "first_refusal",
            "properties",
        ] {
            assert_eq!(before[field], after[field], "{field}");
        }
        assert_eq!(after["cause"]["message_id"], before["message_id"]);
    }
    // A client that was cut off asks again.
    let repeated = fixture.send("POST", IMPORT, &LINES, &lines).await;
    assert_eq!(json(&repeated)["results"][0]["outcome"], "already_imported");
    assert_eq!(listed(&fixture, "").await.len(), 3);
    fixture.stop().await;
}

#[tokio::test]
async fn i23_an_import_that_is_not_kept_is_told_and_one_that_is_not_understood_keeps_nothing() {
    let fixture = with_dead_letters(&[("a", "1")]).await;
    let line = exported(&fixture).await;
    let elsewhere = line.replace("\"binding\":\"two\"", "\"binding\":\"gone\"");
    let response = fixture.send("POST", IMPORT, &LINES, &elsewhere).await;
    assert_eq!(response.status, 207, "{}", response.body);
    assert_eq!(
        json(&response)["results"][0]["outcome"],
        "binding_not_found"
    );
    for (bad, field) in [
        (line.replace("\"qos\":1", "\"qos\":3"), "qos"),
        (line.replace("payload_format_invalid", "tired"), "reason"),
        (line.replace("\"topic\":\"a\"", "\"topic\":\"#\""), "topic"),
        (
            line.replace("\"payload\":\"MQ==\"", "\"payload\":\"!\""),
            "payload",
        ),
        (
            line.replacen(
                '{',
                &format!("{{\"reason_string\":\"{}\",", "x".repeat(65_536)),
                1,
            ),
            "reason_string",
        ),
    ] {
        let body = format!("{line}\n{bad}");
        let response = fixture.send("POST", IMPORT, &LINES, &body).await;
        let said = problem(&response, 422, "invalid");
        assert_eq!(
            (&said["field"], &said["line"]),
            (&field.into(), &3.into()),
            "{said}"
        );
    }
    let broken = fixture
        .send("POST", IMPORT, &LINES, &format!("{line}{{"))
        .await;
    assert_eq!(problem(&broken, 400, "malformed-json")["line"], 2);
    let media = fixture.post(IMPORT, &line).await;
    problem(&media, 415, "not-json");
    assert_eq!(ids(&fixture).await.len(), 1);
    fixture.stop().await;
}

#[tokio::test]
async fn i23_a_line_in_the_place_of_an_entry_that_could_not_be_read_is_told_and_the_rest_is_kept() {
    let fixture = with_dead_letters(&[("a", "1")]).await;
    let line = exported(&fixture).await;
    let lost = "{\"id\":\"telemetry~two~7\",\"unreadable\":true}";
    let other = line.replace("\"message_id\":\"0", "\"message_id\":\"1");
    let body = format!("{lost}\n{line}{lost}\n{other}");
    let response = fixture.send("POST", IMPORT, &LINES, &body).await;
    assert_eq!(response.status, 207, "{}", response.body);
    let answer = json(&response);
    assert_eq!(
        (&answer["requested"], &answer["kept"]),
        (&4.into(), &2.into())
    );
    let results = answer["results"].as_array().unwrap();
    let outcomes: Vec<_> = results
        .iter()
        .map(|result| (result["line"].as_u64(), result["outcome"].as_str()))
        .collect();
    let expected = ["unreadable", "imported", "unreadable", "imported"];
    let expected: Vec<_> = (1..).map(Some).zip(expected.map(Some)).collect();
    assert_eq!(outcomes, expected);
    let readable = lost.replace("true", "false");
    let response = fixture.send("POST", IMPORT, &LINES, &readable).await;
    problem(&response, 422, "invalid");
    assert_eq!(listed(&fixture, "").await.len(), 3);
    fixture.stop().await;
}

#[tokio::test]
async fn a_second_import_is_told_to_wait_before_its_lines_are_read() {
    let fixture = with_dead_letters(&[("a", "1")]).await;
    let line = exported(&fixture).await;
    let address = ("127.0.0.1", fixture.port);
    let mut first = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {IMPORT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        line.len()
    );
    first.write_all(head.as_bytes()).await.unwrap();
    let import = async || fixture.send("POST", IMPORT, &LINES, "").await;
    let refused = wait_for("the second is refused", PATIENCE, async || {
        let response = import().await;
        (response.status != 200).then_some(response)
    });
    let refused = refused.await;
    problem(&refused, 429, "too-many-jobs");
    assert!(refused.header("retry-after").is_some());
    drop(first);
    wait_for("the first is over", PATIENCE, async || {
        (import().await.status == 200).then_some(())
    })
    .await;
    fixture.stop().await;
}
