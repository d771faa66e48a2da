//! Dead letters that are redriven in the folder of a bridge that does not run.

use std::collections::BTreeSet;

use bridge_testkit::{BridgeConfig, Installation, Mosquitto, Publish};

use super::sent::Sent;
use crate::restart::until_acknowledged;
use crate::setup::{BRIDGE, asked, publish, said, until, until_live};

const REDRIVEN: u64 = 40;
const KEPT: u64 = 3;

#[tokio::test]
async fn i21_what_was_redriven_while_no_bridge_ran_is_sent_once_when_one_runs_and_nothing_else() {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::builder().acl("topic read #\n").start().await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = Installation::new(&config);
    let mut bridge = installation.bridge(BRIDGE).start().await;
    until_live(&bridge, "all/out", 1).await;
    let topics = |kind: &str, count| -> BTreeSet<String> {
        (0..count).map(|n| format!("{kind}/{n}")).collect()
    };
    let (mended, kept) = (topics("mended", REDRIVEN), topics("kept", KEPT));
    let all = kept.union(&mended);
    publish(
        source.port(),
        all.map(|topic| Publish::new(topic.as_str(), "x")),
    )
    .await;
    until(&bridge, "all are dead letters", |ledger| {
        ledger.dead_letters == REDRIVEN + KEPT
    })
    .await;
    let acknowledged = usize::try_from(REDRIVEN + KEPT).unwrap();
    until_acknowledged(&source, "bridge-plant", acknowledged).await;
    bridge.sigterm();
    assert!(bridge.wait().await.success());

    destination.reload("topic readwrite #\n").await;
    let file = installation.config_path();
    let redrive = format!(
        "dead-letters redrive --offline --config {} --topic mended/# --yes",
        file.display()
    );
    let told = said(&installation, &redrive).await;
    let moved = format!("{REDRIVEN} of {REDRIVEN} moved");
    assert!(told.contains(&moved), "{told}");
    let sent = || Sent::read(&destination.log(), "bridge-cloud");
    assert_eq!(sent().topics().len(), 0, "nobody has sent anything yet");

    bridge.relaunch();
    bridge.ready().await;
    let delivered = until(&bridge, "they are delivered", |ledger| {
        ledger.is_drained() && ledger.delivered == REDRIVEN
    })
    .await;
    let there = (delivered.carried_over, delivered.received);
    assert_eq!(there, (REDRIVEN + KEPT, 0), "{delivered}");
    assert_eq!(delivered.dead_letters, KEPT, "{delivered}");
    until_live(&bridge, "all/out", 2).await;
    // Another process finds nothing left to send.
    bridge.sigterm();
    assert!(bridge.wait().await.success());
    bridge.relaunch();
    bridge.ready().await;
    until_live(&bridge, "all/out", 3).await;
    publish(source.port(), [Publish::new("after", "x")]).await;
    until(&bridge, "what comes now is delivered", |ledger| {
        ledger.delivered == 1
    })
    .await;

    let sent = sent();
    let mut expected: BTreeSet<&str> = mended.iter().map(String::as_str).collect();
    expected.insert("after");
    assert_eq!(sent.topics(), expected);
    assert_eq!(sent.again(), 0, "once each");
    let list = asked(&installation, "dead-letters list DATA").await;
    let letters = list["dead_letters"].as_array().unwrap().iter();
    let left: BTreeSet<_> = letters.map(|l| l["topic"].as_str().unwrap()).collect();
    assert_eq!(left, kept.iter().map(String::as_str).collect());
}
