//! What is denied is allowed later, on the same connection.

use std::time::Duration;

use bridge_core::{QoS, ReasonCode};
use bridge_testkit::Mosquitto;

use crate::common::{code, config, message, publish, within, writer};

#[tokio::test]
async fn i01_what_an_acl_denies_is_accepted_on_the_same_connection_once_it_is_allowed() {
    let broker = Mosquitto::builder()
        .acl("topic write open/#\n")
        .start()
        .await;
    let writer = writer(config(broker.port(), "w"));
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let denied = publish(&writer, message("closed/1", "x", qos)).await;
        assert_eq!(code(&denied), ReasonCode::NOT_AUTHORIZED);
        let open = publish(&writer, message("open/1", "x", qos)).await;
        assert!(!code(&open).is_refusal());
    }
    broker.reload("topic write #\n").await;
    within("the new ACL holds", async {
        loop {
            let answer = publish(&writer, message("closed/1", "x", QoS::AtLeastOnce)).await;
            if !code(&answer).is_refusal() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let answer = publish(&writer, message("closed/1", "x", QoS::ExactlyOnce)).await;
    assert!(!code(&answer).is_refusal());
    assert_eq!(writer.stats().connects, 1);
}
