//! How many dead letters there are, where the bridge has not looked at all of them.

use bridge_testkit::Publish;
use serde_json::json;

use crate::desk::Desk;
use crate::stage::Stage;

/// From now on each list comes as one that has taken too long to be counted to its end; whether
/// one does, depends on the machine.
const CUT_OFF: &str = "const ask = window.fetch; \
    window.fetch = async (path, options) => { \
      const answer = await ask(path, options); \
      if (!path.startsWith('/api/v1/dead-letters?')) return answer; \
      const page = await answer.json(); \
      return Response.json({ ...page, total: 1, total_is_exact: false }); \
    }";

#[tokio::test]
async fn what_was_not_counted_to_its_end_is_told_as_that_and_counted_whole_when_asked_for() {
    let stage = Stage::start().await;
    let denied = ["1", "2", "3"].map(|text| Publish::new("sensors/boiler", text));
    stage.publish(denied).await;
    stage.dead_letters(3).await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    browser.run(CUT_OFF, json!([])).await;
    desk.go("#/dead-letters?search=sensors/boiler").await;
    browser.sees("at least 1 dead letter found").await;
    browser.sees("Redrive all that match").await;

    desk.click("button", "Count them all").await;
    browser.sees("3 dead letters found").await;
    let text = browser.text().await;
    assert!(text.contains("Redrive all 3"), "{text}");
    for gone in ["at least", "Count them all"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    assert_eq!(desk.violations().await, Vec::<String>::new());
}
