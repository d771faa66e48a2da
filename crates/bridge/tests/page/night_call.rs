//! The call at night: where is my message, why did it stop, and let it go on.

use bridge_testkit::Publish;
use serde_json::json;

use crate::desk::Desk;
use crate::stage::{Stage, TOKEN, TOO_LARGE, subscriber, until_topic};

const READING: &str = r#"{"value":412.80,"unit":"C"}"#;

#[tokio::test]
async fn the_night_call_finds_reads_mends_and_redrives_what_an_acl_denied() {
    let stage = Stage::start().await;
    let mut at_cloud = subscriber(&stage.cloud).await;
    let mut at_historian = subscriber(&stage.historian).await;
    let denied = "sensors/boiler-3/temperature";
    let messages = ["1", "2", READING]
        .map(|payload| Publish::new(denied, payload.to_owned()))
        .into_iter()
        .chain([
            Publish::new("sensors/boiler-3/pressure", "7"),
            Publish::new("sensors/line-1/speed", "8"),
        ]);
    stage.publish(messages).await;
    stage.dead_letters(4).await;

    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    browser.sees("telemetry/cloud has 4 dead letters.").await;
    desk.click("a", "Look at them").await;
    browser.sees("4 dead letters").await;
    desk.fill("search", "sensors/+/temperature").await;
    desk.click("button", "Search").await;
    browser.sees("3 dead letters found").await;
    // The newest first.
    desk.click("a", denied).await;
    browser.sees("not_authorized").await;
    browser.sees("\"value\": 412.80,\n").await;
    browser.sees("telemetry/cloud").await;

    stage.mend().await;
    desk.click("a", "← Dead letters").await;
    desk.click("button", "Redrive all 3").await;
    browser.sees("Redrive 3 dead letters?").await;
    desk.click("button", "Redrive").await;
    browser.sees("3 delivered").await;
    desk.click("button", "Close").await;
    browser.sees("No dead letter matches.").await;
    stage.dead_letters(1).await;

    // The token is nowhere but in the head of who knows it.
    assert!(!browser.url().await.contains(TOKEN));
    assert!(
        browser
            .is("localStorage.length + sessionStorage.length === 0")
            .await
    );
    let cookies = browser.cookies().await;
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    assert_eq!(cookies[0]["httpOnly"], json!(true));
    assert_eq!(cookies[0]["sameSite"], json!("Strict"));
    assert!(!cookies[0]["value"].as_str().unwrap().contains(TOKEN));
    assert_eq!(desk.violations().await, Vec::<String>::new());
    assert!(!stage.bridge.output().contains(TOKEN));

    // The mended binding has each once, in their order; the other one has seen none again.
    let last = [Publish::new("sensors/line-1/last", "")];
    stage.publish(last).await;
    let came = until_topic(&mut at_cloud, "plants/7/sensors/line-1/last").await;
    let own = |topic: &str, payload: &str| (topic.to_owned(), payload.to_owned());
    let there = format!("plants/7/{denied}");
    let redriven = ["1", "2", READING].map(|payload| own(&there, payload));
    let mut expected = vec![own("plants/7/sensors/line-1/speed", "8")];
    expected.extend(redriven);
    assert_eq!(came, expected);
    let came = until_topic(&mut at_historian, "sensors/line-1/last").await;
    assert_eq!(came.len(), 5, "{came:?}");

    desk.click("button", "Log out").await;
    browser.sees("You have logged out.").await;
    assert_eq!(browser.cookies().await.len(), 0);
}

#[tokio::test]
async fn what_is_refused_again_and_what_somebody_else_moved_is_told_for_each() {
    let stage = Stage::start().await;
    let denied = ["a", "b", "c"].map(|n| Publish::new(format!("sensors/{n}"), n.to_owned()));
    stage.publish(denied).await;
    stage.dead_letters(3).await;
    let desk = Desk::logged_in(&stage).await;
    desk.go("#/dead-letters").await;
    desk.browser.sees("3 dead letters").await;
    let other = Desk::logged_in(&stage).await;
    other.go("#/dead-letters?search=sensors/b").await;
    other.browser.sees("1 dead letter found").await;

    // Somebody else deletes one of them, which takes a second thought.
    other.click("button", "Delete all 1").await;
    other.browser.sees("They are gone for good").await;
    other.click("button", "Delete for good").await;
    assert!(
        other
            .browser
            .is("document.querySelector('dialog input:focus')")
            .await
    );
    other
        .click("label", "Yes, delete 1 dead letter for good")
        .await;
    other.click("button", "Delete for good").await;
    other.browser.sees("1 deleted").await;

    // The list does not move under the hand; that it is out of date is told.
    desk.browser
        .sees("Others have come or gone: look again")
        .await;
    assert_eq!(
        desk.browser
            .run(
                "return document.querySelectorAll('tbody tr').length",
                json!([])
            )
            .await,
        json!(3)
    );
    for row in 1..=3 {
        let path = format!("//tbody/tr[{row}]//input");
        desk.browser.find(&path).await.click().await;
    }
    desk.browser.sees("3 selected").await;
    desk.click("button", "Redrive selected").await;
    desk.browser.sees("Redrive 3 dead letters?").await;
    desk.click("button", "Redrive").await;
    desk.browser.sees("not found").await;
    // What the ACL still denies is held for its second chance, and the answer says so.
    desk.browser.sees("deferred").await;
    desk.browser
        .sees("somebody redrove or deleted it before")
        .await;
    desk.click("button", "Close").await;
    desk.browser.sees("There are no dead letters.").await;
}

#[tokio::test]
async fn case_37_what_is_refused_again_is_told_with_its_reason_and_the_new_dead_letter() {
    let stage = Stage::start().await;
    let large = "long ".repeat(TOO_LARGE / 5);
    stage
        .publish([Publish::new("sensors/line-1/log", large)])
        .await;
    stage.dead_letters(1).await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    desk.go("#/dead-letters").await;
    desk.click("a", "sensors/line-1/log").await;
    browser
        .until("document.querySelector('.payload') !== null")
        .await;
    browser.sees("packet_too_large").await;
    // So much is not shown unasked.
    let length = "document.querySelector('.payload').textContent.length";
    assert!(browser.is(&format!("{length} < 20000")).await);
    desk.click("button", "Show all of it").await;
    browser.until(&format!("{length} === {TOO_LARGE}")).await;

    desk.click("button", "Redrive").await;
    browser.sees("Redrive 1 dead letter?").await;
    desk.click("button", "Redrive").await;
    browser.sees("1 refused again").await;
    browser
        .sees("packet_too_large; it is a dead letter again")
        .await;
    desk.click("a", "Look at it").await;
    browser.sees("redriven 1 time").await;
    assert!(!browser.is("document.querySelector('dialog')").await);
}
