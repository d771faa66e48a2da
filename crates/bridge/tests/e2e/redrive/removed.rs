//! Dead letters of a binding that the configuration has no more.

use bridge_testkit::{Mosquitto, PortLease, numbered, wait_for};
use serde_json::{Value, json};

use crate::admin::{Admin, installation};
use crate::setup::{BRIDGE, PATIENCE, publish};

const SENT: u64 = 12;

#[tokio::test]
async fn i22_a_removed_binding_keeps_its_dead_letters_and_they_are_not_sent_elsewhere() {
    let source = Mosquitto::start().await;
    let stays = Mosquitto::start().await;
    let goes = Mosquitto::builder().acl("topic read #\n").start().await;
    let port = PortLease::take();
    let both = installation(&source, &[("stays", &stays), ("goes", &goes)], &port);
    let mut bridge = both.bridge(BRIDGE).start().await;
    let admin = Admin(port.port());
    publish(source.port(), (0..SENT).map(|n| numbered("t", n, 64))).await;
    wait_for("all are dead letters", PATIENCE, async || {
        let page = admin.get("/dead-letters").await;
        (page["total"] == SENT).then_some(())
    })
    .await;
    bridge.sigterm();
    assert!(bridge.wait().await.success());

    // The broker would take them now; the configuration has no such binding any more.
    goes.reload("topic readwrite #\n").await;
    let config = std::fs::read_to_string(both.config_path()).unwrap();
    let kept = config
        .lines()
        .filter(|line| !line.trim().starts_with("goes:"));
    let without: String = kept.flat_map(|line| [line, "\n"]).collect();
    assert!(!without.contains("goes"), "{without}");
    std::fs::write(both.config_path(), without).unwrap();
    bridge.relaunch();
    bridge.ready().await;

    let page = admin.get("/dead-letters?binding=goes&limit=5").await;
    assert_eq!(
        (&page["total"], &page["total_is_exact"]),
        (&json!(SENT), &json!(true))
    );
    for item in page["items"].as_array().unwrap() {
        assert_eq!(item["configured"], false, "{item}");
        assert_eq!(item["binding"], "goes");
    }
    let id = page["items"][0]["id"].as_str().unwrap();
    let whole = admin.get(&format!("/dead-letters/{id}")).await;
    assert_eq!(whole["configured"], false);

    let by_filter = json!({ "filter": { "binding": "goes" } });
    for (path, body) in [
        ("/dead-letters/redrive", by_filter.clone()),
        ("/dead-letters/redrive?wait=30", json!({ "ids": [id] })),
        (
            "/dead-letters/redrive",
            json!({ "filter": {}, "confirm": true, "dry_run": true }),
        ),
    ] {
        let answer = admin.ask("POST", path, &body.to_string()).await;
        assert_eq!(answer.status, 207, "{body}: {}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(answer["moved"], 0, "{body}");
        let results = answer["results"].as_array().unwrap();
        let asked = if body["ids"].is_array() { 1 } else { SENT };
        assert_eq!(results.len() as u64, asked, "{body}");
        for result in results {
            assert_eq!(result["outcome"], "binding_not_found", "{result}");
        }
    }
    assert_eq!(admin.get("/dead-letters").await["total"], SENT);
    assert_eq!(goes.log().matches("Received PUBLISH").count(), 0);

    let export = admin
        .ask("GET", "/dead-letters/export?binding=goes", "")
        .await;
    assert_eq!(export.status, 200);
    let lines: Vec<Value> = export
        .body
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len() as u64, SENT);
    for (number, line) in (0..).zip(&lines) {
        let text = line["payload"].as_str().unwrap();
        assert!(!text.is_empty(), "{number}: {line}");
        assert_eq!(line["binding"], "goes");
    }
    let one = json!({ "ids": [id] }).to_string();
    let answer = admin.ask("POST", "/dead-letters/delete", &one).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(admin.get("/dead-letters").await["total"], SENT - 1);
    let answer = admin
        .ask("POST", "/dead-letters/delete", &by_filter.to_string())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(admin.get("/dead-letters").await["total"], 0);

    bridge.kill().await;
    bridge.relaunch();
    bridge.ready().await;
    assert_eq!(
        admin.get("/dead-letters").await["total"],
        0,
        "deleted for good"
    );
}
