//! Closing, in the middle of work.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Answer, NotAdmitted, QoS, Sink, Source, Unanswered};
use bridge_testkit::{
    Behaviour, Mosquitto, Packet, Proxy, Publish, RawClient, Reply, ScriptedBroker, wait_until,
};

use crate::common::{
    DEADLINE, admit, config, gone, kept_for, message, next, reader, subscribed, up, within, writer,
};

#[tokio::test]
async fn closing_with_a_full_window_answers_everything_and_says_goodbye() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let mut ids = Vec::new();
        for _ in 0..10 {
            ids.push(connection.expect_publish().await.id);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for id in ids {
            connection.puback(id, 0).await;
        }
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.max_in_flight = NonZeroU16::new(10).unwrap();
    let writer = Arc::new(writer(settings));
    let mut answers = Vec::new();
    for n in 0..10_u8 {
        answers.push(tokio::spawn(
            admit(&writer, message("t", vec![n], QoS::AtLeastOnce)).await,
        ));
    }
    let waiting = tokio::spawn({
        let writer = Arc::clone(&writer);
        async move {
            writer
                .publish(message("t", "11", QoS::AtLeastOnce))
                .await
                .err()
        }
    });
    wait_until("the window is full", DEADLINE, || {
        broker.publish_count() == 10
    })
    .await;
    within("it closes", writer.close()).await;
    for answer in answers {
        assert!(matches!(answer.await.unwrap(), Answer::Answered { .. }));
    }
    assert_eq!(waiting.await.unwrap(), Some(NotAdmitted::LinkDown));
    let late = writer.publish(message("t", "12", QoS::AtLeastOnce)).await;
    assert!(matches!(late, Err(NotAdmitted::LinkDown)));
    wait_until("the broker hears goodbye", DEADLINE, || {
        matches!(broker.packets().last(), Some((_, Packet::Disconnect(_))))
    })
    .await;
    assert_eq!(
        broker.publish_count(),
        10,
        "what was not admitted is not sent"
    );
}

#[tokio::test]
async fn closing_does_not_wait_for_ever_and_the_sum_is_right() {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|received| match received.nth {
        0..3 => Reply::Accept,
        _ => Reply::Silence,
    }))
    .await;
    let mut settings = config(broker.port(), "w");
    settings.answer_timeout = Duration::from_secs(3);
    let writer = writer(settings);
    let mut answers = Vec::new();
    for n in 0..10_u8 {
        answers.push(tokio::spawn(
            admit(&writer, message("t", vec![n], QoS::AtLeastOnce)).await,
        ));
    }
    within("it closes", writer.close()).await;
    let (mut answered, mut unknown, mut never) = (0, 0, 0);
    for answer in answers {
        match answer.await.unwrap() {
            Answer::Answered { .. } => answered += 1,
            Answer::Unanswered(Unanswered::MayHaveBeenSent | Unanswered::SteppedDown) => {
                unknown += 1;
            }
            Answer::Unanswered(Unanswered::NeverSent) => never += 1,
            failed @ Answer::Failed { .. } => panic!("no broker answers {failed:?}"),
        }
    }
    assert_eq!((answered, unknown + never), (3, 7));
    let stats = writer.stats();
    assert_eq!(stats.admitted, stats.answered + stats.unanswered);
}

#[tokio::test]
async fn a_reader_sends_the_acknowledgements_given_before_it_goes() {
    let broker = Mosquitto::start().await;
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    let first = reader(config(broker.port(), "r"), "t");
    subscribed(&first).await;
    for n in 0..60_u8 {
        source
            .publish(Publish::new("t", vec![n]).qos(1))
            .await
            .unwrap();
    }
    for _ in 0..60 {
        next(&first).await.acknowledge.settled();
    }
    within("it closes", first.close()).await;
    assert!(first.next().await.is_none());

    gone(&broker, "r", 1).await;
    assert_eq!(kept_for(&broker, "r").await, []);
}

#[tokio::test]
async fn closing_without_a_connection_is_quick_and_may_be_asked_twice() {
    let broker = ScriptedBroker::accepting().await;
    let writer = writer(config(broker.port(), "w"));
    up(&writer, 0).await;
    drop(broker);
    within("closes", async {
        tokio::join!(writer.close(), writer.close())
    })
    .await;
    let nowhere = reader(config(1, "r"), "t");
    within("closes", nowhere.close()).await;
    assert!(nowhere.next().await.is_none());
}

/// The line holds most of it back, so that all three kinds come about.
#[tokio::test]
async fn acknowledged_and_unknown_and_never_sent_add_up_when_a_full_window_is_closed() {
    const COUNT: usize = 60;
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|received| match received.nth {
        0..5 => Reply::Accept,
        _ => Reply::Silence,
    }))
    .await;
    let proxy = Proxy::start(broker.port()).await;
    let mut settings = config(proxy.port(), "w");
    settings.answer_timeout = Duration::from_secs(5);
    let writer = writer(settings);
    let mut answers = Vec::new();
    for n in 0..COUNT {
        if n == 10 {
            wait_until("ten arrive and five are answered", DEADLINE, || {
                broker.publish_count() == 10 && writer.stats().answered == 5
            })
            .await;
            proxy.stall();
        }
        // More than all buffers on the way can hold, so that the last ones never begin.
        let size = if n < 10 { 1 } else { 512 * 1024 };
        let message = message("t", vec![0; size], QoS::AtLeastOnce);
        answers.push(tokio::spawn(admit(&writer, message).await));
    }
    within("it closes", writer.close()).await;
    let (mut answered, mut unknown, mut never) = (0, 0, 0);
    for answer in answers {
        match within("told", answer).await.unwrap() {
            Answer::Answered { .. } => answered += 1,
            Answer::Unanswered(Unanswered::MayHaveBeenSent | Unanswered::SteppedDown) => {
                unknown += 1;
            }
            Answer::Unanswered(Unanswered::NeverSent) => never += 1,
            failed @ Answer::Failed { .. } => panic!("no broker answers {failed:?}"),
        }
    }
    assert_eq!((answered, answered + unknown + never), (5, COUNT));
    assert!(never > 0, "the last ones never began");
    proxy.resume();
    wait_until("the connection ends", DEADLINE, || {
        broker.open_connections() == 0
    })
    .await;
    let seen = broker.publish_count();
    assert!(
        seen <= answered + unknown,
        "{seen} were seen, {unknown} unknown"
    );
    let stats = writer.stats();
    assert_eq!(stats.admitted, stats.answered + stats.unanswered);
}
