//! Topics, payloads and properties come from strangers: they are text, whatever they look like.

use bridge_testkit::{Property, Publish, wait_for};
use serde_json::json;

use crate::desk::Desk;
use crate::stage::{PATIENCE, Stage};

const MARKUP: &str = "<img src=x onerror=document.title='taken'>";
const SCRIPT: &str = "</pre><script>document.title='taken'</script><svg onload=alert(1)>";

/// Whether the page holds nothing but what its own files make.
const OWN: &str = "document.querySelectorAll('img').length === 1 \
    && document.querySelectorAll('script').length === 1 \
    && !document.querySelector('iframe, object, embed, svg[onload], [onerror], [onload]') \
    && !document.title.includes('taken')";

#[tokio::test]
async fn a_topic_and_a_payload_that_are_markup_stay_text() {
    let stage = Stage::start().await;
    let topic = format!("sensors/{MARKUP}");
    let payload = json!({ "name": MARKUP, "text": SCRIPT }).to_string();
    let message = Publish::new(topic.as_str(), payload)
        .with(Property::user(MARKUP, SCRIPT))
        .with(Property::ContentType(MARKUP.to_owned()));
    let reversed = Publish::new("sensors/\u{202e}gnp.exe", vec![0xff, b'<', 0]);
    stage.publish([message, reversed]).await;
    stage.dead_letters(2).await;

    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    desk.go("#/dead-letters").await;
    browser.sees(&topic).await;
    // What would turn the rest of the line around is written out.
    browser.sees("sensors/\\u{202e}gnp.exe").await;
    assert!(browser.is(OWN).await);

    desk.go(&format!("#/dead-letters?search={}", "sensors/%2B"))
        .await;
    browser.sees("2 dead letters found").await;
    let link = "//a[contains(., 'onerror')]";
    browser.find(link).await.click().await;
    browser.sees("\"name\": ").await;
    for (view, shown) in [("Text", SCRIPT), ("Hex", "3c 69 6d 67"), ("JSON", MARKUP)] {
        desk.click("label", view).await;
        browser.sees(shown).await;
        assert!(browser.is(OWN).await, "{view}");
    }
    browser.sees(MARKUP).await;
    desk.click("button", "Redrive").await;
    browser.sees("Redrive 1 dead letter?").await;
    assert!(browser.is(OWN).await);
    desk.click("button", "Redrive").await;
    browser.sees("deferred").await;
    assert!(browser.is(OWN).await);
    desk.click("button", "Close").await;

    // Bytes that are no text are shown as bytes.
    browser.find("//a[contains(., 'exe')]").await.click().await;
    browser.sees("not UTF-8").await;
    browser.sees("ff 3c 00").await;
    assert_eq!(desk.violations().await, Vec::<String>::new());
}

/// The policy holds where the page itself would fail.
#[tokio::test]
async fn the_browser_refuses_markup_of_strings_and_code_from_elsewhere() {
    let stage = Stage::start().await;
    let desk = Desk::at(&stage).await;
    let refused = desk
        .browser
        .run(
            "try { document.body.innerHTML = arguments[0]; return false } \
             catch (error) { return error instanceof TypeError }",
            json!([MARKUP]),
        )
        .await;
    assert_eq!(refused, json!(true));
    let inline = "const s = document.createElement('style'); s.textContent = 'body { opacity: 0 }'; \
                  document.head.append(s); return getComputedStyle(document.body).opacity";
    assert_eq!(desk.browser.run(inline, json!([])).await, json!("1"));
    // The browser tells of each in its own time.
    let mut told = Vec::new();
    wait_for("both are told", PATIENCE, async || {
        told.extend(desk.violations().await);
        (told.len() >= 2).then_some(())
    })
    .await;
}
