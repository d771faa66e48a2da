//! What goes wrong between the page and the bridge, and what the page says of it.

use crate::desk::Desk;
use crate::stage::{Stage, TOKEN};

#[tokio::test]
async fn a_wrong_token_and_too_many_of_them_are_told_apart() {
    let stage = Stage::start().await;
    let desk = Desk::at(&stage).await;
    desk.log_in("wrong-0123456789abcdef").await;
    desk.browser
        .sees("That is not the token of this bridge.")
        .await;
    for _ in 0..30 {
        if desk.browser.text().await.contains("Too many wrong tokens") {
            break;
        }
        desk.browser
            .until("!document.querySelector('form button').disabled")
            .await;
        desk.log_in("wrong-0123456789abcdef").await;
        desk.browser.until("!document.querySelector('form button').disabled || document.body.innerText.includes('Too many')").await;
    }
    desk.browser.sees("Too many wrong tokens").await;
    assert!(
        desk.browser
            .is("document.querySelector('form button').disabled")
            .await
    );
    // One waits, and then the right one opens.
    desk.browser
        .until("!document.querySelector('form button').disabled")
        .await;
    desk.log_in(TOKEN).await;
    desk.browser.sees("Routes and their bindings").await;
}

#[tokio::test]
async fn a_session_that_ends_asks_for_the_token_and_goes_on_where_one_was() {
    let stage = Stage::start().await;
    let desk = Desk::logged_in(&stage).await;
    desk.go("#/dead-letters?search=sensors/kiln").await;
    desk.browser.sees("No dead letter matches.").await;
    desk.browser.forget_cookies().await;
    desk.browser.sees("Your session has ended.").await;
    desk.log_in(TOKEN).await;
    desk.browser.sees("No dead letter matches.").await;
    assert!(
        desk.browser
            .url()
            .await
            .ends_with("#/dead-letters?search=sensors/kiln")
    );
}

#[tokio::test]
async fn a_bridge_that_does_not_answer_is_told_and_so_is_its_return() {
    let mut stage = Stage::start().await;
    let desk = Desk::logged_in(&stage).await;
    stage.bridge.kill().await;
    desk.browser.sees("The bridge does not answer.").await;
    // What was seen stays, and is marked as old.
    desk.browser.sees("Routes and their bindings").await;
    assert!(
        desk.browser
            .is("document.body.classList.contains('stale')")
            .await
    );
    stage.bridge.relaunch();
    stage.bridge.ready().await;
    // Page sessions end with the process.
    desk.browser.sees("Your session has ended.").await;
    desk.log_in(TOKEN).await;
    desk.browser.sees("All is well.").await;
    assert!(
        desk.browser
            .is("document.getElementById('banner').hidden")
            .await
    );
}

#[tokio::test]
async fn a_session_without_its_broker_is_what_needs_attention() {
    let mut stage = Stage::start().await;
    stage.historian.stop().await;
    let desk = Desk::logged_in(&stage).await;
    desk.browser
        .sees("Session historian is not connected to mqtt://127.0.0.1")
        .await;
    desk.browser.sees("link down").await;
    stage.historian.restart().await;
    desk.browser.sees("All is well.").await;
}
