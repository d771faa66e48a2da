//! Reading and writing through a real broker.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{
    DEADLINE, admit, code, config, message, publish, reader, subscribed, take, up, writer,
};
use bridge_core::{Answer, PayloadFormat, Properties, QoS, Sink, Source};
use bridge_testkit::{Cut, Mosquitto, Proxy, wait_until};
use bytes::Bytes;
use futures_util::future::join_all;

#[tokio::test]
async fn every_qos_crosses_with_all_its_properties() {
    let broker = Mosquitto::start().await;
    let reader = reader(config(broker.port(), "in"), "t/#");
    let writer = writer(config(broker.port(), "out"));
    subscribed(&reader).await;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut sent = message("t/ü/1", vec![0, 255, 10], qos);
        sent.properties = Properties {
            payload_format: Some(PayloadFormat::Bytes),
            message_expiry: Some(60),
            content_type: Some("application/x".to_owned()),
            response_topic: Some("answers/here".to_owned()),
            correlation_data: Some(Bytes::from_static(&[1, 0, 2])),
            user_properties: vec![
                ("b".to_owned(), "1".to_owned()),
                ("a".to_owned(), "2".to_owned()),
                ("b".to_owned(), "3".to_owned()),
            ],
        };
        let answer = publish(&writer, sent.clone()).await;
        assert!(!code(&answer).is_refusal());
        assert_eq!(take(&reader).await, sent);
    }
    reader.close().await;
    writer.close().await;
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn nothing_is_lost_though_both_lines_are_cut_again_and_again() {
    const COUNT: u32 = 1_500;
    const CUTS: u64 = 10;
    let broker = Mosquitto::start().await;
    let (inward, outward) = (
        Proxy::start(broker.port()).await,
        Proxy::start(broker.port()).await,
    );
    let reader = reader(config(inward.port(), "in"), "t");
    let writer = writer(config(outward.port(), "out"));
    subscribed(&reader).await;
    // What is not answered is sent again by the caller, and by nobody else.
    let sending = async {
        let mut open: Vec<u32> = (0..COUNT).collect();
        while !open.is_empty() {
            let mut answers = Vec::new();
            for n in &open {
                // Slow enough for the cuts to come in between.
                tokio::time::sleep(Duration::from_micros(300)).await;
                let message = message("t", n.to_be_bytes(), QoS::AtLeastOnce);
                let admitted = admit(&writer, message).await;
                answers.push(tokio::spawn(admitted));
            }
            let answers = join_all(answers).await;
            open = open
                .into_iter()
                .zip(answers)
                .filter(|(_, answer)| matches!(answer, Ok(Answer::Unanswered(_))))
                .map(|(n, _)| n)
                .collect();
        }
    };
    let cutting = async {
        for round in 0..CUTS {
            up(&writer, round).await;
            subscribed(&reader).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            let how = if round % 2 == 0 {
                Cut::Reset
            } else {
                Cut::Finish
            };
            outward.cut(how);
            inward.cut(how);
            wait_until("both notice", DEADLINE, || {
                reader.stats().connection_losses > round && writer.stats().connection_losses > round
            })
            .await;
        }
    };
    let receiving = async {
        let mut seen = BTreeSet::new();
        while seen.len() < COUNT as usize {
            let payload = take(&reader).await.payload;
            seen.insert(u32::from_be_bytes(payload.as_ref().try_into().unwrap()));
        }
    };
    tokio::join!(sending, cutting, receiving);
    let (sent, received) = (writer.stats(), reader.stats());
    assert_eq!(sent.admitted, sent.answered + sent.unanswered);
    assert_eq!(
        (sent.connection_losses, received.connection_losses),
        (CUTS, CUTS)
    );
    assert_eq!(received.sessions_lost, 0);
}
