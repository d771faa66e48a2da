//! What goes wrong between the page and the bridge, and what the page says of it.

use std::time::Duration;

use bridge_testkit::Publish;
use serde_json::json;
use tokio::time::sleep;

use crate::desk::Desk;
use crate::stage::{Stage, TOKEN};

/// Keeps in `window.waited` that the page has told to wait, with a button that cannot be pressed:
/// that is so for a second or two.
const NOTE: &str = "window.waited = false; new MutationObserver(() => { \
    const told = document.body.innerText.includes('Too many wrong tokens'); \
    if (told && document.querySelector('form button')?.disabled) window.waited = true; \
    }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true })";

/// Guesses from where the browser is, faster than guesses are looked at.
async fn guess(stage: &Stage) {
    loop {
        let token = "wrong-fedcba9876543210";
        let answer = stage.ask_with(token, "GET", "/api/v1/bridge", "").await;
        let status = answer.unwrap().status;
        assert!(matches!(status, 401 | 429), "{status}");
    }
}

#[tokio::test]
async fn a_wrong_token_and_too_many_of_them_are_told_apart() {
    let stage = Stage::start().await;
    let desk = Desk::at(&stage).await;
    let browser = &desk.browser;
    desk.log_in("wrong-0123456789abcdef").await;
    browser.sees("That is not the token of this bridge.").await;
    browser.run(NOTE, json!([])).await;
    let too_many = async {
        let answered = "!document.querySelector('form button').disabled";
        while !browser.is("window.waited").await {
            browser.until(answered).await;
            desk.log_in("wrong-0123456789abcdef").await;
            browser.until(&format!("window.waited || {answered}")).await;
        }
    };
    // A person alone is too slow for that on a slow machine.
    tokio::select! {
        () = too_many => {}
        () = guess(&stage) => {}
    }
    // One waits, and then the right one opens. The guesses of others are waited for as well.
    let inside = "document.body.innerText.includes('Routes and their bindings')";
    let button = "document.querySelector('form button')";
    while !browser.is(inside).await {
        browser.until(&format!("!{button}.disabled")).await;
        desk.log_in(TOKEN).await;
        browser
            .until(&format!("{inside} || {button}?.disabled === false"))
            .await;
    }
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

/// The answers about bindings, and lists of dead letters, are held until they are let go; how many
/// were asked for is counted.
const HELD: &str = "const ask = window.fetch; \
    window.asked = { bindings: 0, letters: 0 }; \
    const gates = {}; \
    for (const what of ['bindings', 'letters']) \
      gates[what] = new Promise((resolve) => { window[`let_${what}`] = resolve }); \
    window.fetch = async (path, options) => { \
      const what = path === '/api/v1/bindings' ? 'bindings' \
        : path.startsWith('/api/v1/dead-letters?') ? 'letters' : ''; \
      if (what) { window.asked[what] += 1; await gates[what]; } \
      return ask(path, options); \
    }";

#[tokio::test]
async fn a_list_that_is_slow_to_come_is_asked_for_once() {
    let stage = Stage::start().await;
    stage.publish([Publish::new("sensors/kiln", "1")]).await;
    stage.dead_letters(1).await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    browser.run(HELD, json!([])).await;
    browser.until("asked.bindings === 1").await;
    // One goes on while the view before still waits for its answer.
    desk.go("#/dead-letters").await;
    browser.until("asked.letters === 1").await;
    browser.run("let_bindings()", json!([])).await;
    // It has been as long as views are shown before they are asked for again.
    sleep(Duration::from_secs(4)).await;
    assert!(browser.is("asked.letters === 1").await);
    browser.run("let_letters()", json!([])).await;
    browser.sees("sensors/kiln").await;
    // From now on it is looked at again.
    stage.publish([Publish::new("sensors/oven", "2")]).await;
    browser.sees("Others have come or gone: look again").await;
}
