//! Looking at dead letters, and deleting them.

use serde_json::{Value, json};

use crate::fixture::{Fixture, audited, json, logged, problem};

/// A bridge at whose binding `two` these messages were given up on, in this order.
pub(crate) async fn with_dead_letters(messages: &[(&str, &str)]) -> Fixture {
    let fixture = Fixture::start().await;
    fixture.sinks["two"].answer_with(0x99);
    for (topic, payload) in messages {
        fixture.publish(topic, payload).await;
    }
    let count = messages.len();
    fixture
        .binding_until("two", "all are dead letters", |binding| {
            binding["dead_letters"]["entries"] == count
        })
        .await;
    fixture
}

pub(crate) async fn listed(fixture: &Fixture, query: &str) -> Vec<Value> {
    let page = fixture.get(&format!("/api/v1/dead-letters{query}")).await;
    page["items"].as_array().unwrap().clone()
}

/// The ids of all, the oldest first.
pub(crate) async fn ids(fixture: &Fixture) -> Vec<String> {
    let mut all = listed(fixture, "?limit=1000").await;
    all.reverse();
    all.iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn dead_letters_are_listed_newest_first_a_page_at_a_time() {
    let messages: Vec<_> = (0..25).map(|n| (format!("t/{n}"), n.to_string())).collect();
    let messages: Vec<_> = messages.iter().map(|(t, p)| (&**t, &**p)).collect();
    let fixture = with_dead_letters(&messages).await;
    let mut topics = Vec::new();
    let mut path = "/api/v1/dead-letters?limit=10".to_owned();
    loop {
        let page = fixture.get(&path).await;
        assert_eq!(
            (&page["total"], &page["total_is_exact"]),
            (&25.into(), &true.into())
        );
        for item in page["items"].as_array().unwrap() {
            assert!(item.get("payload").is_none());
            topics.push(item["topic"].as_str().unwrap().to_owned());
        }
        let Some(next) = page.get("next") else { break };
        path = format!(
            "/api/v1/dead-letters?limit=10&cursor={}",
            next.as_str().unwrap()
        );
    }
    let expected: Vec<_> = (0..25).rev().map(|n| format!("t/{n}")).collect();
    assert_eq!(topics, expected);
    fixture.stop().await;
}

#[tokio::test]
async fn a_filter_narrows_the_list_down() {
    let fixture = with_dead_letters(&[("a/1", "x"), ("a/2", "y"), ("b/1", "z")]).await;
    for (query, expected) in [
        ("?topic=a/%2B", 2),
        ("?topic=b/%23&route=telemetry&binding=two", 1),
        ("?binding=one", 0),
        ("?reason=payload_format_invalid&since=1h", 3),
        ("?reason=not_authorized", 0),
        ("?until=1h", 0),
        ("?since=2026-01-01T00:00:00Z&until=2999-01-01T00:00:00Z", 3),
    ] {
        assert_eq!(listed(&fixture, query).await.len(), expected, "{query}");
        let path = format!("/api/v1/dead-letters/total{query}");
        let total = fixture.get(&path).await;
        let expected = json!({ "total": expected, "total_is_exact": true });
        assert_eq!(total, expected, "{query}");
    }
    let one = listed(&fixture, "?topic=b/1").await.remove(0);
    let query = format!("?message_id={}", one["message_id"].as_str().unwrap());
    assert_eq!(listed(&fixture, &query).await, [one]);
    for (query, field) in [
        ("?topic=a/%23/b", "topic"),
        ("?route=a b", "route"),
        ("?binding=", "binding"),
        ("?reason=tired", "reason"),
        ("?since=soon", "since"),
        ("?until=-1h", "until"),
        ("?message_id=7", "message_id"),
        ("?limit=0", "limit"),
        ("?limit=1001", "limit"),
        ("?cursor=x", "cursor"),
        ("?cursor=telemetry~two~1", "cursor"),
        ("?reason=expired&reason=expired", "reason"),
        ("?topics=a", "topics"),
    ] {
        let query = query.replace(' ', "%20");
        let response = fixture
            .ask("GET", &format!("/api/v1/dead-letters{query}"))
            .await;
        assert_eq!(
            problem(&response, 422, "invalid")["field"],
            field,
            "{query}"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn one_is_shown_whole_and_that_is_in_the_audit_log() {
    let fixture = with_dead_letters(&[("a/1", "<img onerror=x>"), ("a/2", "ü")]).await;
    let ids = ids(&fixture).await;
    let path = format!("/api/v1/dead-letters/{}", ids[0]);
    let whole = fixture.get(&path).await;
    assert_eq!(whole["payload_text"], "<img onerror=x>");
    assert_eq!(whole["payload"], "PGltZyBvbmVycm9yPXg+");
    assert_eq!(whole["reason"], "payload_format_invalid");
    assert_eq!(
        (&whole["code"], &whole["attempts"]),
        (&0x99.into(), &1.into())
    );
    assert_eq!(whole["properties"]["user_properties"], json!([]));
    let lines = audited(&format!("what=\"{}\"", ids[0]));
    assert!(
        lines.iter().any(|line| line.contains("action=\"read\"")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("who=token ")),
        "{lines:?}"
    );
    assert!(!logged().contains("onerror"), "a payload is in the log");
    for id in [
        "telemetry~two~999999",
        "telemetry~nine~1",
        "nonsense",
        "a~b~c~d",
    ] {
        let response = fixture
            .ask("GET", &format!("/api/v1/dead-letters/{id}"))
            .await;
        problem(&response, 404, "not-found");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn an_export_has_a_line_for_each() {
    let messages: Vec<_> = (0..250)
        .map(|n| (format!("t/{n}"), n.to_string()))
        .collect();
    let messages: Vec<_> = messages.iter().map(|(t, p)| (&**t, &**p)).collect();
    let fixture = with_dead_letters(&messages).await;
    let response = fixture.ask("GET", "/api/v1/dead-letters/export").await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.header("content-type"),
        Some("application/x-ndjson")
    );
    let lines: Vec<Value> = response
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 250);
    assert_eq!(lines[0]["payload_text"], "0");
    let some = fixture
        .ask("GET", "/api/v1/dead-letters/export?topic=t/7")
        .await;
    assert_eq!(some.body.lines().count(), 1);
    assert!(!audited("250 were written").is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_everything_needs_a_confirmation() {
    let fixture = with_dead_letters(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]).await;
    let ids = ids(&fixture).await;
    let path = "/api/v1/dead-letters/delete";
    let both = json!({ "ids": [ids[0], "telemetry~two~999999"] });
    let response = fixture.post(path, &both.to_string()).await;
    assert_eq!(response.status, 207);
    let answer = json(&response);
    assert_eq!(
        (&answer["requested"], &answer["deleted"]),
        (&2.into(), &1.into())
    );
    assert_eq!(answer["results"][0]["outcome"], "deleted");
    assert_eq!(answer["results"][1]["outcome"], "not_found");
    let by_topic = fixture.post(path, "{\"filter\": {\"topic\": \"b\"}}").await;
    assert_eq!(
        (by_topic.status, json(&by_topic)["deleted"].clone()),
        (200, 1.into())
    );
    let everything = fixture.post(path, "{\"filter\": {}}").await;
    problem(&everything, 422, "confirmation-needed");
    assert_eq!(listed(&fixture, "").await.len(), 2);
    let everything = fixture
        .post(path, "{\"filter\": {}, \"confirm\": true}")
        .await;
    assert_eq!(
        (everything.status, json(&everything)["deleted"].clone()),
        (200, 2.into())
    );
    assert_eq!(listed(&fixture, "").await, Vec::<Value>::new());
    let lines = audited("action=\"delete\"");
    for stage in ["begins", "ended"] {
        assert!(
            lines.iter().any(|line| line.contains(stage)),
            "{stage}: {lines:?}"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_meant_has_to_be_clear() {
    let fixture = Fixture::start().await;
    let many = json!({ "ids": vec!["telemetry~two~1"; 10_001] }).to_string();
    for (body, field) in [
        ("{}", "ids"),
        ("{\"ids\": []}", "ids"),
        ("{\"ids\": [\"x\"]}", "ids[0]"),
        ("{\"ids\": [\"a~b~1\"], \"filter\": {}}", "ids"),
        ("{\"ids\": [\"a~b~1\"], \"limit\": 5}", "limit"),
        ("{\"filter\": {\"topic\": \"a\"}, \"limit\": 0}", "limit"),
        ("{\"filter\": {\"topic\": \"#/a\"}}", "topic"),
        (&many, "ids"),
    ] {
        for call in ["redrive", "delete"] {
            let path = format!("/api/v1/dead-letters/{call}");
            let response = fixture.post(&path, body).await;
            let said = problem(&response, 422, "invalid");
            assert_eq!(said["field"], field, "{call} {body:.80}");
        }
    }
    let unknown = fixture
        .post("/api/v1/dead-letters/delete", "{\n \"idz\": []\n}")
        .await;
    let said = problem(&unknown, 422, "invalid");
    assert_eq!(said["line"], 2, "{said}");
    assert!(said["detail"].as_str().unwrap().contains("`idz`"), "{said}");
    fixture.stop().await;
}
