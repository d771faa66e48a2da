//! A redrive while the broker still refuses.

use bridge_testkit::{BridgeConfig, Installation, Mosquitto, PortLease, Publish};
use serde_json::{Value, json};

use crate::admin::{Admin, put_token};
use crate::setup::{BRIDGE, ledger, publish, until};

#[tokio::test]
async fn case_37_a_redrive_that_the_broker_refuses_again_says_so_and_names_the_new_dead_letter() {
    let source = Mosquitto::start().await;
    // It answers what is larger with 0x95.
    let narrow = Mosquitto::builder().message_size_limit(100).start().await;
    let port = PortLease::take();
    let listen = format!("127.0.0.1:{}", port.port());
    let config = BridgeConfig::between(source.url(), narrow.url()).top(format!(
        "admin: {{ listen: \"{listen}\", token_file: token }}"
    ));
    let installation = Installation::new(&config);
    put_token(&installation);
    let bridge = installation.bridge(BRIDGE).start().await;
    let admin = Admin(port.port());
    publish(source.port(), [Publish::new("t", vec![b'x'; 200])]).await;
    until(&bridge, "it is a dead letter", |l| l.dead_letters == 1).await;
    let page = admin.get("/dead-letters").await;
    let mut before = page["items"][0].clone();
    assert_eq!(before["reason"], "packet_too_large");
    assert_eq!(before["cause"], Value::Null);

    for redrives in 1..=3 {
        let body = json!({ "ids": [before["id"]] }).to_string();
        let answer = admin.ask("POST", "/dead-letters/redrive?wait=30", &body);
        let answer = answer.await;
        assert_eq!(answer.status, 207, "{}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        // It did move: what was refused is the message that it has become.
        assert_eq!(
            (&answer["requested"], &answer["moved"]),
            (&json!(1), &json!(1))
        );
        let result = &answer["results"][0];
        assert_eq!(result["id"], before["id"]);
        assert_eq!(result["outcome"], "moved");
        assert_eq!(result["verdict"], "refused");
        assert_eq!(result["reason"], "packet_too_large");

        let new = result["dead_letter"].as_str().unwrap();
        let now = admin.get(&format!("/dead-letters/{new}")).await;
        assert_eq!(now["message_id"], result["message_id"]);
        let cause = json!({ "message_id": before["message_id"], "redrives": redrives });
        assert_eq!(now["cause"], cause);
        assert_eq!(
            (&now["reason"], &now["code"]),
            (&json!("packet_too_large"), &json!(0x95))
        );
        let old = format!("/dead-letters/{}", before["id"].as_str().unwrap());
        assert_eq!(admin.ask("GET", &old, "").await.status, 404);
        assert_eq!(admin.get("/dead-letters").await["total"], 1);
        let again = admin.ask("POST", "/dead-letters/redrive?wait=30", &body);
        let again: Value = serde_json::from_str(&again.await.body).unwrap();
        assert_eq!(again["results"][0]["outcome"], "already_redriven");
        assert_eq!(again["results"][0]["message_id"], now["message_id"]);
        before = now;
    }
    let ledger = ledger(&bridge).await;
    assert!(ledger.balances() && ledger.dead_letters == 1, "{ledger}");
}
