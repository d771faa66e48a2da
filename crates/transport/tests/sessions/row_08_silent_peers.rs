//! Brokers that are there and do not do what they should.

use std::time::Duration;

use bridge_core::{Answer, QoS, ReasonCode, Sink, Unanswered};
use bridge_testkit::{Behaviour, Mosquitto, Proxy, Reply, ScriptedBroker};
use futures_util::future::join_all;

use crate::common::{admit, code, config, message, publish, up, within, writer};

#[tokio::test]
async fn a_broker_that_answers_pings_and_not_one_publish_is_given_up() {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|received| {
        if received.connection == 0 && received.publish.payload == "stuck" {
            Reply::Silence
        } else {
            Reply::Accept
        }
    }))
    .await;
    let mut settings = config(broker.port(), "w");
    settings.keep_alive = Duration::from_secs(5);
    settings.answer_timeout = Duration::from_secs(3);
    settings.max_in_flight = 2.try_into().unwrap();
    let writer = writer(settings);
    let stuck = admit(&writer, message("t", "stuck", QoS::AtLeastOnce)).await;
    let others = async {
        // The others go on and do not hide it.
        while writer.stats().answer_timeouts == 0 {
            publish(&writer, message("t", "other", QoS::AtLeastOnce)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("it is noticed", others).await;
    assert_eq!(
        within("told", stuck).await,
        Answer::Unanswered(Unanswered::MayHaveBeenSent)
    );
    let answer = publish(&writer, message("t", "stuck", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!(broker.connections(), 2);
}

#[tokio::test]
async fn half_an_exchange_of_qos_2_is_noticed_as_well() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let publish = connection.expect_publish().await;
        connection.pubrec(publish.id, 0).await;
        connection.until_closed().await;
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.answer_timeout = Duration::from_millis(300);
    let writer = writer(settings);
    let answer = publish(&writer, message("t", "x", QoS::ExactlyOnce)).await;
    assert_eq!(answer, Answer::Unanswered(Unanswered::MayHaveBeenSent));
    assert_eq!(writer.stats().answer_timeouts, 1);
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_given_up_at_the_deadline() {
    let broker = Mosquitto::start().await;
    let proxy = Proxy::start(broker.port()).await;
    let mut settings = config(proxy.port(), "w");
    settings.write_timeout = Duration::from_secs(1);
    settings.answer_timeout = Duration::from_secs(60);
    settings.keep_alive = Duration::from_secs(60);
    let writer = writer(settings);
    up(&writer, 0).await;
    proxy.stall();
    let began = std::time::Instant::now();
    let mut stuck = Vec::new();
    for _ in 0..40 {
        let large = message("t", vec![0; 1024 * 1024], QoS::AtLeastOnce);
        match writer.publish(large).await {
            Ok(admitted) => stuck.push(admitted),
            Err(_) => break,
        }
    }
    assert!(!stuck.is_empty());
    for answer in within("all are told", join_all(stuck)).await {
        assert!(matches!(answer, Answer::Unanswered(_)));
    }
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "long before the keep-alive"
    );
    proxy.resume();
    up(&writer, 1).await;
    let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    assert!(!code(&answer).is_refusal());
}

#[tokio::test]
async fn a_broker_that_answers_no_ping_is_given_up() {
    let broker = ScriptedBroker::behaving(Behaviour::new().without_pings()).await;
    let mut settings = config(broker.port(), "w");
    settings.keep_alive = Duration::from_secs(1);
    let writer = writer(settings);
    up(&writer, 1).await;
    assert_eq!(writer.stats().connection_losses, 1);
}

#[tokio::test]
async fn a_broker_that_never_welcomes_is_given_up() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        if connection.number() == 0 {
            connection.expect_connect().await;
            connection.until_closed().await;
        } else {
            connection.accept(&[]).await;
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.connect_timeout = Duration::from_secs(3);
    let writer = writer(settings);
    up(&writer, 0).await;
    let stats = writer.stats();
    assert_eq!((stats.connect_failures, stats.connects), (1, 1));
    assert!(writer.link().is_up());
}
