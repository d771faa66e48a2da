//! Many messages under way at a time, in order.

use bridge_core::QoS;
use bridge_testkit::Mosquitto;
use futures_util::future::join_all;

use crate::common::{admit, code, config, message, reader, subscribed, take, writer};

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
