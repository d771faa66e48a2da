//! The browser, at a page that comes in its own URL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: failing loudly is what they are for"
)]

use bridge_testkit::browser::{Browser, ENTER, SHIFT_TAB, SPACE, Scheme, TAB};
use serde_json::json;

const PAGE: &str = "data:text/html,<title>x</title><button id=a>first</button>\
    <label>name<input id=b></label><p hidden>unseen</p>\
    <script>for (const e of document.querySelectorAll('button, input')) \
    e.onclick = () => { document.title = e.id; console.warn('clicked', e.id) }</script>";

#[tokio::test]
async fn a_browser_sees_clicks_types_and_tells() {
    let browser = Browser::start().await;
    browser.open(PAGE).await;
    browser.sees("first").await;
    assert!(!browser.text().await.contains("unseen"));

    browser.find("//input").await.type_in("abc").await;
    assert_eq!(
        browser
            .run("return [b.value, arguments[0]]", json!([7]))
            .await,
        json!(["abc", 7])
    );
    let button = browser.find("//button[.='first']").await;
    assert_eq!(button.text().await, "first");
    button.click().await;
    browser.until("document.title === 'a'").await;
    assert!(browser.console().await[0].contains("clicked"));

    // The button has the focus; what is in an input is selected when one comes to it.
    browser.press(TAB).await;
    browser.press("d").await;
    assert!(
        browser
            .is("document.activeElement === b && b.value === 'd'")
            .await
    );
    browser.press(SHIFT_TAB).await;
    for key in [ENTER, SPACE] {
        browser.run("document.title = ''", json!([])).await;
        browser.press(key).await;
        browser.until("document.title === 'a'").await;
    }
    let accessible = browser.accessible().await;
    let named = |role: &str, name: &str| accessible.contains(&(role.to_owned(), name.to_owned()));
    assert!(
        named("button", "first") && named("textbox", "name"),
        "{accessible:?}"
    );

    browser.look(Scheme::Dark, 400, 700).await;
    browser
        .until("matchMedia('(prefers-color-scheme: dark)').matches && innerWidth === 400")
        .await;
    browser.look(Scheme::Light, 1280, 800).await;
    browser
        .until("matchMedia('(prefers-color-scheme: light)').matches")
        .await;
    assert!(
        browser.screenshot().await.starts_with("iVBOR"),
        "a PNG in base64"
    );
}
