//! Dead letters for which there is no room, and what the log says of the many.

use bridge_testkit::{BridgeConfig, Publish, wait_for, wait_until};

use crate::judged::{Judged, refusing};
use crate::setup::{PATIENCE, asked, publish, until, until_drained, until_live};

const KEPT: usize = 2;
const SENT: u64 = 5;

fn bounded(config: BridgeConfig, on_full: &str) -> BridgeConfig {
    config.binding(format!(
        "dead_letters: {{ max_entries: {KEPT}, on_full: {on_full} }}"
    ))
}

/// A bridge that has been given five messages which are refused, and may keep two.
async fn overflowing(on_full: &str) -> Judged {
    let judged = Judged::start(refusing("bad", 0x99), |config| bounded(config, on_full)).await;
    until_live(&judged.bridge, "all/out", 1).await;
    let messages = (0..SENT).map(|number| Publish::new("bad", number.to_string()));
    publish(judged.source.port(), messages).await;
    wait_for("all are refused", PATIENCE, async || {
        let refused = [("outcome", "refused")];
        let metrics = judged.bridge.metrics().await;
        (metrics.whole("bridge_publish_total", &refused) == Some(SENT)).then_some(())
    })
    .await;
    judged
}

/// Their payloads, the oldest first.
async fn kept(judged: &Judged) -> Vec<String> {
    let list = asked(&judged.installation, "dead-letters list DATA").await;
    let mut payloads = Vec::new();
    for letter in list["dead_letters"].as_array().unwrap().iter().rev() {
        let id = letter["id"].as_str().unwrap();
        let whole = asked(
            &judged.installation,
            &format!("dead-letters show DATA {id}"),
        )
        .await;
        let letter = &whole["dead_letters"][0];
        payloads.push(letter["payload_text"].as_str().unwrap().to_owned());
    }
    payloads
}

async fn overflow(judged: &Judged, policy: &str) -> Option<u64> {
    let metrics = judged.bridge.metrics().await;
    metrics.whole("bridge_dead_letter_overflow_total", &[("policy", policy)])
}

#[tokio::test]
async fn i13_full_dead_letters_keep_the_first_and_count_what_they_discard() {
    let judged = overflowing("discard_newest").await;
    let ledger = until_drained(&judged.bridge, SENT).await;
    assert_eq!((ledger.dead_letters, ledger.dropped), (2, 3), "{ledger}");
    assert_eq!(kept(&judged).await, ["0", "1"], "the first tell the story");
    assert_eq!(overflow(&judged, "discard_newest").await, Some(3));
    assert_eq!(overflow(&judged, "hold").await, Some(0));
    let full = [("policy", "dead_letters_full")];
    let metrics = judged.bridge.metrics().await;
    assert_eq!(metrics.whole("bridge_dropped_total", &full), Some(3));
    let log = judged.bridge.output();
    assert_eq!(log.matches("the dead letters are full").count(), 1, "{log}");
    // What is accepted goes on.
    judged.publish(&["fine"]).await;
    let ledger = until_drained(&judged.bridge, SENT + 1).await;
    assert_eq!(ledger.delivered, 1, "{ledger}");
}

#[tokio::test]
async fn i13_full_dead_letters_that_hold_keep_all_and_acknowledge_nothing_for_it() {
    let mut judged = overflowing("hold").await;
    wait_for("two are kept and three are held", PATIENCE, async || {
        let metrics = judged.bridge.metrics().await;
        let whole = |name: &str| metrics.whole(name, &[]).unwrap();
        let kept = whole("bridge_dead_letters");
        let held = whole("bridge_dead_letters_held");
        let in_progress = whole("bridge_in_progress");
        ((kept, held, in_progress) == (2, 3, 3)).then_some(())
    })
    .await;
    assert_eq!(overflow(&judged, "hold").await, Some(3));
    assert_eq!(overflow(&judged, "discard_newest").await, Some(0));
    judged.publish(&["fine"]).await;
    until_delivered(&judged, 1).await;
    let acknowledged = || {
        let log = judged.source.log();
        log.matches("Received PUBACK from bridge-plant ").count()
    };
    // In the order of arrival: what has come since is acknowledged behind what is held.
    wait_until("the source is told of what is kept", PATIENCE, || {
        acknowledged() >= KEPT
    })
    .await;
    assert_eq!(acknowledged(), KEPT, "what is held is not acknowledged");

    // Room for all: the source sends again what it was not told of.
    judged.bridge.sigterm();
    assert!(judged.bridge.wait().await.success());
    let more = BridgeConfig::between(judged.source.url(), judged.line.url());
    judged.installation.reconfigure(&more);
    judged.bridge.relaunch();
    judged.bridge.ready().await;
    let ledger = until(&judged.bridge, "all are kept", |ledger| {
        ledger.dead_letters == SENT
    })
    .await;
    assert_eq!((ledger.dropped, ledger.queued), (0, 0), "{ledger}");
    assert_eq!(kept(&judged).await, ["0", "1", "2", "3", "4"]);
}

/// Waits until so many are delivered, also while others are held.
async fn until_delivered(judged: &Judged, messages: u64) {
    wait_for("what is accepted goes on", PATIENCE, async || {
        let metrics = judged.bridge.metrics().await;
        let delivered = metrics.whole("bridge_delivered_total", &[]);
        (delivered == Some(messages)).then_some(())
    })
    .await;
}
