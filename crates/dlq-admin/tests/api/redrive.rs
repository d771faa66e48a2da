//! Sending dead letters on.

use bridge_testkit::wait_until;
use serde_json::json;

use crate::dead_letters::{ids, listed, with_dead_letters};
use crate::fixture::{PATIENCE, audited, json, problem};

const REDRIVE: &str = "/api/v1/dead-letters/redrive";

#[tokio::test]
async fn i22_a_redrive_reaches_the_binding_that_gave_up_and_no_other() {
    let fixture = with_dead_letters(&[("a", "1"), ("b", "2")]).await;
    let before = ids(&fixture).await;
    fixture.sinks["two"].answer_with(0);
    let body = json!({ "ids": before }).to_string();
    let response = fixture.post(&format!("{REDRIVE}?wait=20"), &body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let answer = json(&response);
    assert_eq!(
        (&answer["requested"], &answer["moved"]),
        (&2.into(), &2.into())
    );
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(
            (&result["outcome"], &result["verdict"]),
            (&"moved".into(), &"delivered".into())
        );
        assert!(result["message_id"].is_string(), "{result}");
    }
    for (binding, sink) in &fixture.sinks {
        assert_eq!(sink.accepted(), ["1", "2"], "{binding}");
    }
    assert_eq!(ids(&fixture).await, Vec::<String>::new());
    let lines = audited("action=\"redrive\"");
    let of_these: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(&before[0]))
        .collect();
    assert!(
        of_these.len() >= 2,
        "before it begins, and after: {lines:?}"
    );
    fixture.stop().await;
}

#[tokio::test]
async fn i23_not_all_moved_is_207_with_a_reason_for_each() {
    let fixture = with_dead_letters(&[("a", "1")]).await;
    let id = ids(&fixture).await.remove(0);
    fixture.sinks["two"].answer_with(0);
    let body = json!({ "ids": [id, "telemetry~two~999999", "telemetry~gone~1"] }).to_string();
    let response = fixture.post(REDRIVE, &body).await;
    assert_eq!(response.status, 207, "{}", response.body);
    let answer = json(&response);
    let outcomes: Vec<_> = (0..3)
        .map(|n| answer["results"][n]["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["moved", "not_found", "not_found"]);
    let again = fixture
        .post(REDRIVE, &json!({ "ids": [id] }).to_string())
        .await;
    assert_eq!(again.status, 207);
    let result = json(&again)["results"][0].clone();
    assert_eq!(result["outcome"], "already_redriven");
    assert_eq!(result["message_id"], answer["results"][0]["message_id"]);
    let delete = "/api/v1/dead-letters/delete";
    let deleted = fixture
        .post(delete, &json!({ "ids": [id] }).to_string())
        .await;
    let deleted = json(&deleted)["results"][0].clone();
    assert_eq!(deleted["outcome"], "already_redriven");
    assert_eq!(deleted["message_id"], result["message_id"]);
    fixture.stop().await;
}

#[tokio::test]
async fn case_37_a_redrive_that_is_refused_again_says_so_and_names_the_new_entry() {
    let fixture = with_dead_letters(&[("a", "1")]).await;
    let id = ids(&fixture).await.remove(0);
    let body = json!({ "ids": [id] }).to_string();
    let response = fixture.post(&format!("{REDRIVE}?wait=20"), &body).await;
    assert_eq!(response.status, 207, "{}", response.body);
    let result = json(&response)["results"][0].clone();
    assert_eq!(
        (&result["outcome"], &result["verdict"]),
        (&"moved".into(), &"refused".into())
    );
    assert_eq!(result["reason"], "payload_format_invalid");
    let new = result["dead_letter"].as_str().unwrap();
    assert_ne!(new, id);
    let whole = fixture.get(&format!("/api/v1/dead-letters/{new}")).await;
    assert_eq!(whole["message_id"], result["message_id"]);
    assert_eq!(whole["cause"]["redrives"], 1);
    assert_eq!(ids(&fixture).await, [new]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_dry_run_says_what_would_move_and_moves_nothing() {
    let fixture = with_dead_letters(&[("a", "1"), ("b", "2"), ("a", "3")]).await;
    let body = json!({ "filter": { "topic": "a" }, "dry_run": true }).to_string();
    let response = fixture.post(REDRIVE, &body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let answer = json(&response);
    assert_eq!(answer["moved"], 2);
    assert_eq!(answer["results"][0]["outcome"], "would_move");
    assert_eq!(listed(&fixture, "").await.len(), 3);
    let lines = audited("redrive, dry run");
    assert!(
        lines.iter().any(|line| line.contains("2 of 2 would move")),
        "{lines:?}"
    );
    fixture.stop().await;
}

#[tokio::test]
async fn a_filter_redrives_the_oldest_and_everything_needs_a_confirmation() {
    let fixture = with_dead_letters(&[("a", "1"), ("b", "2"), ("a", "3")]).await;
    fixture.sinks["two"].answer_with(0);
    let body = json!({ "filter": { "topic": "a" }, "limit": 1 }).to_string();
    let response = fixture.post(REDRIVE, &body).await;
    assert_eq!(
        (response.status, json(&response)["moved"].clone()),
        (200, 1.into())
    );
    wait_until("the oldest arrives", PATIENCE, || {
        fixture.sinks["two"].accepted() == ["1"]
    })
    .await;
    let everything = fixture.post(REDRIVE, "{\"filter\": {}}").await;
    problem(&everything, 422, "confirmation-needed");
    let everything = fixture
        .post(REDRIVE, "{\"filter\": {}, \"confirm\": true}")
        .await;
    assert_eq!(
        (everything.status, json(&everything)["moved"].clone()),
        (200, 2.into())
    );
    wait_until("the others arrive in their order", PATIENCE, || {
        fixture.sinks["two"].accepted() == ["1", "2", "3"]
    })
    .await;
    fixture.stop().await;
}
