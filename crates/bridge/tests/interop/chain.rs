//! The bridge itself, with the broker that is looked at as its destination and as its source.

use bridge_testkit::{BridgeConfig, ClientOptions, Installation, Mosquitto, Publish, RawClient};
use bridge_transport::Protocol;

use crate::session::{DEADLINE, Place};

const COUNT: u32 = 200;

/// From Mosquitto by one bridge to the broker, and from there by another to a second Mosquitto.
pub(crate) async fn messages_pass_through(place: Place) {
    let (first, last) = (Mosquitto::start().await, Mosquitto::start().await);
    let there = format!("mqtt://127.0.0.1:{}", place.port);
    let protocol = match place.protocol {
        Protocol::V5 => "protocol: 5",
        Protocol::V311 => "protocol: 3.1.1",
    };
    let inward = BridgeConfig::between(first.url(), &there)
        .topics(&["chain/#"])
        .cloud(protocol);
    let outward = BridgeConfig::between(&there, last.url())
        .topics(&["chain/#"])
        .plant(protocol);
    let (inward, outward) = (Installation::new(&inward), Installation::new(&outward));
    let program = env!("CARGO_BIN_EXE_bridge");
    // Who reads first, so that nothing is missed.
    let outward_process = outward.bridge(program).start().await;
    let inward_process = inward.bridge(program).start().await;

    let mut reader = ClientOptions::new("end")
        .connect(last.port())
        .await
        .unwrap();
    assert_eq!(reader.subscribe(&[("chain/#", 1)]).await.unwrap(), [1]);
    let mut writer = RawClient::connect(first.port(), "begin").await.unwrap();
    let messages = (0..COUNT).map(|n| Publish::new("chain/a/b", n.to_string()));
    writer.publish_all(messages, 20).await.expect_all_accepted();
    let received = reader.collect(COUNT as usize, DEADLINE).await.unwrap();
    for (n, message) in received.iter().enumerate() {
        let shown = (message.topic.as_str(), message.text());
        assert_eq!(shown, ("chain/a/b", n.to_string().as_str()));
    }
    for mut process in [inward_process, outward_process] {
        process.sigterm();
        let status = process.wait().await;
        assert!(status.success(), "{status}");
    }
}
