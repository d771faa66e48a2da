//! The way through the night call without a mouse.

use bridge_testkit::Publish;
use bridge_testkit::browser::{ENTER, ESCAPE, SHIFT_TAB, SPACE, TAB};

use crate::desk::Desk;
use crate::stage::{Stage, TOKEN};

/// Whether one sees where the focus is.
const SEEN: &str = "(e => { \
        const of = e.type === 'radio' ? e.nextElementSibling : e; \
        return getComputedStyle(of).outlineStyle !== 'none' })(document.activeElement)";

/// Goes on by `key` until the focus is on what has that name.
async fn reach(desk: &Desk, key: &str, name: &str) {
    let mut passed = Vec::new();
    for _ in 0..80 {
        desk.browser.press(key).await;
        let focused = desk.focused().await;
        if focused != "BODY" {
            let seen = desk.browser.is(SEEN).await;
            assert!(seen, "one does not see that the focus is on {focused:?}");
        }
        if focused == name {
            return;
        }
        passed.push(focused);
    }
    panic!("{name:?} is not reached; on the way were {passed:?}");
}

#[tokio::test]
async fn the_night_call_needs_no_mouse() {
    let stage = Stage::start().await;
    stage
        .publish([
            Publish::new("sensors/boiler", "1"),
            Publish::new("sensors/kiln", "2"),
        ])
        .await;
    stage.dead_letters(2).await;
    stage.mend().await;
    let desk = Desk::at(&stage).await;
    let browser = &desk.browser;

    // The field of the token has the focus.
    browser.press(TOKEN).await;
    browser.press(ENTER).await;
    browser.sees("telemetry/cloud has 2 dead letters.").await;
    reach(&desk, TAB, "Look at them").await;
    browser.press(ENTER).await;
    // The overview says as much: what is new is where the focus is.
    browser
        .until("document.activeElement.innerText === 'Dead letters'")
        .await;
    browser.sees("2 dead letters").await;
    reach(&desk, TAB, "search").await;
    browser.press("sensors/kiln").await;
    browser.press(ENTER).await;
    browser.sees("1 dead letter found").await;
    reach(&desk, TAB, "sensors/kiln").await;
    browser.press(ENTER).await;
    browser.sees("Payload").await;
    reach(&desk, TAB, "← Dead letters").await;
    browser.press(ENTER).await;
    browser.sees("1 dead letter found").await;
    reach(&desk, TAB, "Select all on this page").await;
    browser.press(SPACE).await;
    browser.sees("1 selected").await;

    // A question is left by escape, and the focus is where it was.
    reach(&desk, SHIFT_TAB, "Redrive selected").await;
    browser.press(ENTER).await;
    browser.sees("Redrive 1 dead letter?").await;
    browser.press(ESCAPE).await;
    browser.until("!document.querySelector('dialog')").await;
    assert_eq!(desk.focused().await, "Redrive selected");
    browser.press(ENTER).await;
    browser.sees("Redrive 1 dead letter?").await;
    // The focus does not leave the dialog.
    reach(&desk, TAB, "Cancel").await;
    reach(&desk, TAB, "Redrive").await;
    browser.press(ENTER).await;
    browser.sees("1 delivered").await;
    browser
        .until("document.getElementById('said').textContent === '1 delivered'")
        .await;
    reach(&desk, TAB, "Close").await;
    browser.press(ENTER).await;
    browser.sees("No dead letter matches.").await;

    // From the top one jumps over the bar.
    desk.go("#/").await;
    browser.sees("Routes and their bindings").await;
    reach(&desk, SHIFT_TAB, "Skip to content").await;
    browser.press(ENTER).await;
    assert!(browser.is("document.activeElement.id === 'content'").await);
    reach(&desk, SHIFT_TAB, "Log out").await;
    browser.press(ENTER).await;
    browser.sees("You have logged out.").await;
}

#[tokio::test]
async fn what_is_over_and_goes_from_the_list_does_not_take_the_focus_along() {
    let mut stage = Stage::start().await;
    stage.publish([Publish::new("sensors/kiln", "1")]).await;
    stage.dead_letters(1).await;
    stage.historian.stop().await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    browser.sees("Session historian is not connected").await;
    browser.sees("telemetry/cloud has 1 dead letter.").await;
    reach(&desk, TAB, "Look at it").await;
    stage.historian.restart().await;
    browser
        .until("!document.body.innerText.includes('Session historian')")
        .await;
    assert_eq!(desk.focused().await, "Look at it");
}
