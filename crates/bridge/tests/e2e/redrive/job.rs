//! A job whose process is killed.

use bridge_testkit::wait_for;
use serde_json::{Value, json};

use super::{Night, PATIENCE, size, until};

/// Begins the redrive of all.
async fn begin(night: &Night) -> String {
    let body = json!({ "filter": { "binding": "out" }, "job": true }).to_string();
    let admin = night.admin();
    let answer = admin.ask("POST", "/dead-letters/redrive", &body).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let job: Value = serde_json::from_str(&answer.body).unwrap();
    format!("/jobs/{}", job["id"].as_str().unwrap())
}

#[tokio::test]
async fn i21_a_job_that_is_killed_in_the_middle_loses_none_and_the_next_one_goes_on() {
    let count = size("BRIDGE_REDRIVE_JOB", 2_000);
    let mut night = Night::with_dead_letters(count).await;
    let admin = night.admin();
    let mut left = count as u64;
    for _ in 0..2 {
        // Nothing is answered: a job that waits for the queue to become short does not end before
        // it is killed.
        night.line.stall_answers();
        let job = begin(&night).await;
        wait_for("it is at work", PATIENCE, async || {
            let job = admin.get(&job).await;
            (job["done"].as_u64().unwrap() > 0).then_some(())
        })
        .await;
        let now = night.kill().await;
        assert!(0 < now && now < left, "{now} of {left}: not in the middle");
        left = now;
        night.line.resume();
        night.relaunch().await;
        until(&night.bridge, "what had moved is delivered", |ledger| {
            ledger.is_drained() && ledger.dead_letters == left
        })
        .await;
        assert_eq!(
            admin.ask("GET", &job, "").await.status,
            404,
            "a job ends with its process"
        );
    }
    let job = begin(&night).await;
    let ended = wait_for("it ends", PATIENCE, async || {
        let job = admin.get(&job).await;
        (job["state"] != "running").then_some(job)
    })
    .await;
    assert_eq!(ended["state"], "done", "{ended}");
    for count in ["among", "looked_at", "matched", "done"] {
        assert_eq!(ended[count], left, "{count}: {ended}");
    }
    assert_eq!(ended["failed"], json!({}));
    night.all_came(count).await;
}
