//! What one does besides: pausing a binding, sending a test message, moving very many.

use bridge_testkit::Publish;
use serde_json::json;

use crate::desk::Desk;
use crate::stage::{PATIENCE, Stage, subscriber, until_topic};

#[tokio::test]
async fn a_binding_is_paused_and_resumed_and_a_test_message_tells_what_became_of_it() {
    let stage = Stage::start().await;
    let mut at_historian = subscriber(&stage.historian).await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    let pause = "//button[@aria-label='Pause telemetry/historian']";
    browser.find(pause).await.click().await;
    browser
        .sees("telemetry/historian is paused by hand; 0 messages in the queue.")
        .await;
    stage
        .publish([Publish::new("sensors/line-1/speed", "1")])
        .await;
    browser
        .sees("telemetry/historian is paused by hand; 1 message in the queue.")
        .await;

    desk.go("#/test-message").await;
    browser.sees("all its bindings, as if it had come").await;
    desk.fill("topic", "sensors/boiler").await;
    desk.fill("payload", "<b>test</b>").await;
    desk.click("button", "Send").await;
    browser.sees("It is stored as").await;
    // The cloud denies it, and the other one is paused.
    browser.sees("deferred").await;
    browser.sees("queued").await;

    // What the route does not take is said, and where.
    desk.fill("topic", "elsewhere").await;
    desk.click("button", "Send").await;
    browser
        .until("document.querySelector('.result .bad') !== null")
        .await;

    desk.go("#/").await;
    let resume = "//button[@aria-label='Resume telemetry/historian']";
    browser.find(resume).await.click().await;
    browser
        .until("!document.body.innerText.includes('paused by hand')")
        .await;
    stage
        .publish([Publish::new("sensors/line-1/last", "")])
        .await;
    let came = until_topic(&mut at_historian, "sensors/line-1/last").await;
    let own = |topic: &str, payload: &str| (topic.to_owned(), payload.to_owned());
    let expected = [
        own("sensors/line-1/speed", "1"),
        own("sensors/boiler", "<b>test</b>"),
    ];
    assert_eq!(came, expected);
    assert_eq!(desk.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn very_many_become_a_job_that_tells_how_far_it_is() {
    let stage = Stage::start().await;
    let mut at_cloud = subscriber(&stage.cloud).await;
    let numbers = 0..1_200_u32;
    let denied = numbers.map(|n| Publish::new("sensors/boiler", n.to_string()));
    stage.publish(denied).await;
    stage.dead_letters(1_200).await;
    stage.mend().await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    desk.go("#/dead-letters").await;
    browser.sees("1,200 dead letters").await;

    // A page at a time, the newest first, and back.
    let first = "document.querySelector('tbody tr').dataset.id";
    let newest = browser.run(&format!("return {first}"), json!([])).await;
    desk.click("button", "Older →").await;
    browser.sees("page 2").await;
    assert!(!browser.is(&format!("{first} === {newest}")).await);
    desk.click("button", "← Newer").await;
    browser.sees("page 1").await;
    assert!(browser.is(&format!("{first} === {newest}")).await);

    desk.click("button", "Redrive all 1,200").await;
    browser.sees("as a job").await;
    desk.click("button", "Redrive").await;
    browser.sees("It has begun").await;
    desk.click("a", "To the jobs").await;
    browser.sees("done").await;
    browser.sees("looked at 1,200 of 1,200, 1,200 match").await;
    stage.dead_letters(0).await;
    let came = at_cloud.collect(1_200, PATIENCE).await.unwrap();
    let texts: Vec<_> = came
        .iter()
        .map(|message| message.text().to_owned())
        .collect();
    let expected: Vec<_> = (0..1_200_u32).map(|n| n.to_string()).collect();
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn a_job_that_gets_no_further_says_where_and_why_until_it_does() {
    let stage = Stage::with_cloud(", queue: { max_entries: 4 }").await;
    let denied = (0..5).map(|n| Publish::new("sensors/boiler", n.to_string()));
    stage.publish(denied).await;
    stage.dead_letters(5).await;
    stage.mend().await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    let pause = "//button[@aria-label='Pause telemetry/cloud']";
    browser.find(pause).await.click().await;
    browser
        .sees("telemetry/cloud is paused by hand; 0 messages in the queue.")
        .await;
    let path = "/api/v1/dead-letters/redrive";
    let body = json!({ "filter": { "topic": "sensors/boiler" }, "job": true }).to_string();
    let begun = stage.ask("POST", path, &body).await.unwrap();
    assert_eq!(begun.status, 202, "{}", begun.body);

    desk.go("#/jobs").await;
    browser.sees("held up at telemetry/cloud: queue full").await;
    browser.sees("running").await;
    // It leaves half of the room to what arrives.
    stage.dead_letters(3).await;

    desk.go("#/").await;
    let resume = "//button[@aria-label='Resume telemetry/cloud']";
    browser.find(resume).await.click().await;
    desk.go("#/jobs").await;
    browser.sees("looked at 5 of 5, 5 match").await;
    browser
        .until("document.querySelector('tbody').innerText.includes('done')")
        .await;
    assert!(!browser.text().await.contains("held up"));
    stage.dead_letters(0).await;
}
