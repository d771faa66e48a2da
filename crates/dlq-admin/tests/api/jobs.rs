//! Redrives and deletes of any number of dead letters.

use bridge_testkit::wait_for;
use serde_json::Value;

use crate::dead_letters::{listed, with_dead_letters};
use crate::fixture::{Fixture, PATIENCE, audited, json, problem};

async fn until_it_ends(fixture: &Fixture, path: &str) -> Value {
    wait_for("the job ends", PATIENCE, async || {
        let job = fixture.get(path).await;
        (job["state"] != "running").then_some(job)
    })
    .await
}

#[tokio::test]
async fn a_job_moves_all_that_its_filter_takes_and_tells_how_far_it_is() {
    let messages: Vec<_> = (0..300)
        .map(|n| (format!("t/{}", n % 3), n.to_string()))
        .collect();
    let messages: Vec<_> = messages.iter().map(|(t, p)| (&**t, &**p)).collect();
    let fixture = with_dead_letters(&messages).await;
    fixture.sinks["two"].answer_with(0);
    let body = "{\"filter\": {\"topic\": \"t/1\"}, \"job\": true}";
    let response = fixture.post("/api/v1/dead-letters/redrive", body).await;
    assert_eq!(response.status, 202, "{}", response.body);
    let path = response.header("location").unwrap().to_owned();
    assert_eq!(
        path,
        format!("/api/v1/jobs/{}", json(&response)["id"].as_str().unwrap())
    );
    let job = until_it_ends(&fixture, &path).await;
    assert_eq!(
        (&job["state"], &job["kind"]),
        (&"done".into(), &"redrive".into())
    );
    assert_eq!(
        (&job["among"], &job["matched"], &job["done"]),
        (&300.into(), &100.into(), &100.into())
    );
    assert!(job["ended"].is_string());
    assert_eq!(job["held_up"], serde_json::json!([]));
    assert_eq!(listed(&fixture, "?limit=1000").await.len(), 200);
    let id = job["id"].as_str().unwrap();
    wait_for("its end is in the audit log", PATIENCE, async || {
        let lines = audited(id);
        lines
            .iter()
            .any(|line| line.contains("done: 100 of 100"))
            .then_some(())
    })
    .await;
    let body = "{\"filter\": {}, \"confirm\": true, \"job\": true}";
    let response = fixture.post("/api/v1/dead-letters/delete", body).await;
    let job = until_it_ends(&fixture, response.header("location").unwrap()).await;
    assert_eq!(job["done"], 200);
    let jobs = fixture.get("/api/v1/jobs").await;
    assert_eq!(jobs["items"][0]["id"], job["id"], "the newest first");
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2);
    // One that has ended is not disturbed by a cancel.
    let cancelled = fixture.post(&format!("{path}/cancel"), "").await;
    assert_eq!(json(&cancelled)["state"], "done");
    fixture.stop().await;
}

#[tokio::test]
async fn what_makes_no_job_is_said() {
    let fixture = Fixture::start().await;
    for (body, field) in [
        ("{\"ids\": [\"a~b~1\"], \"job\": true}", "ids"),
        (
            "{\"filter\": {\"topic\": \"a\"}, \"job\": true, \"limit\": 5}",
            "limit",
        ),
        (
            "{\"filter\": {\"topic\": \"a\"}, \"job\": true, \"dry_run\": true}",
            "dry_run",
        ),
    ] {
        let response = fixture.post("/api/v1/dead-letters/redrive", body).await;
        assert_eq!(problem(&response, 422, "invalid")["field"], field, "{body}");
    }
    let everything = "{\"filter\": {}, \"job\": true}";
    let response = fixture
        .post("/api/v1/dead-letters/delete", everything)
        .await;
    problem(&response, 422, "confirmation-needed");
    for id in ["nonsense", "019ad4a2-5614-7707-8707-070707070707"] {
        let response = fixture.ask("GET", &format!("/api/v1/jobs/{id}")).await;
        problem(&response, 404, "not-found");
        let response = fixture.post(&format!("/api/v1/jobs/{id}/cancel"), "").await;
        problem(&response, 404, "not-found");
    }
    fixture.stop().await;
}
