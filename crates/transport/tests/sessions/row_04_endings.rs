//! A broker ends the connection: by a takeover, idle or under load, by any other word, or by none.

use std::sync::Arc;

use bridge_core::{Answer, QoS, ReasonCode, Sink, Unanswered};
use bridge_testkit::{Ack, AckKind, Behaviour, Packet, ScriptedBroker};
use futures_util::future::join_all;

use crate::common::{admit, code, config, message, publish, up, within, writer};

const MAY_HAVE_BEEN_SENT: Answer = Answer::Unanswered(Unanswered::MayHaveBeenSent);

#[tokio::test]
async fn an_idle_connection_that_is_taken_over_is_counted_and_made_anew() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        if connection.number() == 0 {
            connection.disconnect(0x8E).await;
        } else {
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let writer = writer(config(broker.port(), "w"));
    up(&writer, 1).await;
    let stats = writer.stats();
    assert_eq!((stats.takeovers, stats.connection_losses), (1, 1));
    let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
}

#[tokio::test]
async fn a_takeover_in_the_middle_of_a_burst_is_seen_though_our_writes_fail() {
    const ROUNDS: usize = 10;
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        if connection.number() < ROUNDS {
            connection.expect_publish().await;
            connection.disconnect(0x8E).await;
            // Closed with unread publishes behind it: the client's writes fail.
        } else {
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let writer = Arc::new(writer(config(broker.port(), "w")));
    for round in 0..ROUNDS {
        up(&writer, round as u64).await;
        let mut answers = Vec::new();
        while let Ok(admitted) = writer
            .publish(message("t", vec![7; 4096], QoS::AtLeastOnce))
            .await
        {
            answers.push(tokio::spawn(admitted));
        }
        for answer in within("all are told", join_all(answers)).await {
            assert!(matches!(answer.unwrap(), Answer::Unanswered(_)));
        }
    }
    up(&writer, ROUNDS as u64).await;
    let stats = writer.stats();
    assert_eq!(stats.connection_losses, ROUNDS as u64);
    // The kernel may throw the last bytes away with the connection: most are seen, not all.
    assert!(
        stats.takeovers >= ROUNDS as u64 / 2,
        "{} of {ROUNDS} seen",
        stats.takeovers
    );
}

#[tokio::test]
async fn a_disconnect_with_an_unknown_code_is_an_end_like_any_other() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        if connection.number() == 0 {
            connection.disconnect(0xE5).await;
        } else {
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let writer = writer(config(broker.port(), "w"));
    up(&writer, 1).await;
    assert_eq!(writer.stats().takeovers, 0);
    assert_eq!(writer.stats().connection_losses, 1);
}

#[tokio::test]
async fn an_answer_in_one_segment_with_a_disconnect_counts() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let first = connection.expect_publish().await;
        connection.expect_publish().await;
        let mut bytes = Packet::Ack(Ack::new(AckKind::PubAck, first.id, 0x87)).encode();
        bytes.extend([0xE0, 1, 0x8E]);
        connection.send(&bytes).await;
    })
    .await;
    let writer = writer(config(broker.port(), "w"));
    let refused = admit(&writer, message("t", "1", QoS::AtLeastOnce)).await;
    let unanswered = admit(&writer, message("t", "2", QoS::AtLeastOnce)).await;
    assert_eq!(
        code(&within("first", refused).await),
        ReasonCode::NOT_AUTHORIZED
    );
    assert_eq!(within("second", unanswered).await, MAY_HAVE_BEEN_SENT);
    assert_eq!(writer.stats().takeovers, 1);
}
