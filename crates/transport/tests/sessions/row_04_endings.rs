//! A broker ends the connection: by a takeover, idle or under load, by any other word, or by none.

use bridge_core::{Answer, QoS, ReasonCode, Sink, Unanswered};
use bridge_testkit::{
    Ack, AckKind, Behaviour, ClientOptions, Packet, Protocol, Reply, ScriptedBroker, wait_until,
};
use futures_util::future::join_all;

use crate::common::{DEADLINE, admit, code, config, message, publish, up, within, writer};

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
    let mut takeovers = 0;
    for _ in 0..ROUNDS {
        let broker = ScriptedBroker::start(|mut connection| async move {
            connection.accept(&[]).await;
            if connection.number() == 0 {
                connection.expect_publish().await;
                connection.disconnect(0x8E).await;
                // Closed with unread publishes behind it: the client's writes fail.
            } else {
                connection.behave(&Behaviour::new()).await;
            }
        })
        .await;
        // Each a session of its own: a second takeover in a row has to wait.
        let writer = writer(config(broker.port(), "w"));
        up(&writer, 0).await;
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
        up(&writer, 1).await;
        let stats = writer.stats();
        assert_eq!(stats.connection_losses, 1);
        takeovers += stats.takeovers;
    }
    // The kernel may throw the last bytes away with the connection: most are seen, not all.
    assert!(
        takeovers >= ROUNDS as u64 / 2,
        "{takeovers} of {ROUNDS} seen"
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

/// MQTT 3.1.1 has no word for it: the connection ends, again and again for as long as both clients
/// insist.
#[tokio::test]
async fn a_takeover_on_mqtt_3_1_1_is_a_lost_connection_and_every_message_on_it_is_told() {
    let behaviour = Behaviour::new().takeover().reply(|_| Reply::Silence);
    let broker = ScriptedBroker::behaving(behaviour).await;
    let mut settings = config(broker.port(), "w");
    settings.protocol = bridge_transport::Protocol::V311;
    let writer = writer(settings);
    let mut answers = Vec::new();
    for n in 0..20_u8 {
        answers.push(admit(&writer, message("t", vec![n], QoS::AtLeastOnce)).await);
    }
    wait_until("all arrive", DEADLINE, || broker.publish_count() == 20).await;
    let mut other = ClientOptions::new("w")
        .protocol(Protocol::V311)
        .connect(broker.port())
        .await
        .unwrap();
    let answers = within("all are told", join_all(answers)).await;
    assert_eq!(answers, vec![MAY_HAVE_BEEN_SENT; 20]);
    // We come back, and it is the other that is thrown out.
    other.until_closed(DEADLINE).await.unwrap();
    up(&writer, 1).await;
    let stats = writer.stats();
    assert_eq!((stats.connection_losses, stats.takeovers), (1, 0));
}
