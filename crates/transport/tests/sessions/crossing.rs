//! Reading and writing through a real broker.

use crate::common::{admit, code, config, message, publish, reader, subscribed, take, writer};
use bridge_core::{PayloadFormat, Properties, QoS, Sink, Source};
use bridge_testkit::Mosquitto;
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
async fn many_messages_keep_their_order() {
    const COUNT: u32 = 20_000;
    let broker = Mosquitto::start().await;
    let reader = reader(config(broker.port(), "in"), "t");
    let writer = writer(config(broker.port(), "out"));
    subscribed(&reader).await;
    let started = std::time::Instant::now();
    let sending = async {
        let mut answers = Vec::new();
        for n in 0..COUNT {
            let admitted = admit(&writer, message("t", n.to_be_bytes(), QoS::AtLeastOnce));
            answers.push(tokio::spawn(admitted.await));
        }
        join_all(answers).await
    };
    let receiving = async {
        for n in 0..COUNT {
            assert_eq!(take(&reader).await.payload, n.to_be_bytes().as_slice());
        }
    };
    let (answers, ()) = tokio::join!(sending, receiving);
    for answer in answers {
        assert!(!code(&answer.unwrap()).is_refusal());
    }
    eprintln!("{COUNT} in {:?}", started.elapsed());
    assert_eq!(writer.stats().connects, 1);
    assert_eq!(reader.stats().connects, 1);
}
