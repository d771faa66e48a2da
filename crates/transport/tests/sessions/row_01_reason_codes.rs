//! The broker's answer belongs to one message, whatever it says.

use std::num::NonZeroU16;

use bridge_core::{Acknowledgement, Answer, Message, QoS, ReasonCode, Sink};
use bridge_testkit::{Ack, AckKind, Behaviour, Packet, Property, Reply, ScriptedBroker};
use futures_util::future::join_all;

use crate::common::{admit, code, config, message, publish, within, writer};

/// A message whose topic says which code it shall be answered with.
pub(crate) fn asking_for(code: u8, qos: QoS) -> Message {
    message(&format!("answer/{code:02x}"), vec![code], qos)
}

/// Answers with the code that a topic asks for.
pub(crate) fn as_asked() -> Behaviour {
    Behaviour::new().reply(|received| {
        let asked = received.publish.topic.strip_prefix("answer/").unwrap();
        Reply::Code(u8::from_str_radix(asked, 16).unwrap())
    })
}

/// Every code once, each between two successes; all of them are under way at the same time.
async fn every_code_reaches_its_own_message(qos: QoS) {
    let broker = ScriptedBroker::behaving(as_asked()).await;
    let writer = writer(config(broker.port(), "w"));
    let mut asked = Vec::new();
    let mut answers = Vec::new();
    for code in 0..=u8::MAX {
        for code in [0x00, code, 0x10] {
            asked.push(ReasonCode::new(code));
            answers.push(tokio::spawn(admit(&writer, asking_for(code, qos)).await));
        }
    }
    let answers = within("all are answered", join_all(answers)).await;
    for (asked, answer) in asked.into_iter().zip(answers) {
        let answered = code(&answer.unwrap());
        if qos == QoS::ExactlyOnce && !asked.is_refusal() {
            // A success here is only half of it: what PUBCOMP says is the end of the exchange.
            assert_eq!(answered, ReasonCode::SUCCESS, "asked for {asked:?}");
        } else {
            assert_eq!(answered, asked);
        }
    }
    assert_eq!(broker.connections(), 1, "no answer may cost the connection");
    let stats = writer.stats();
    assert_eq!((stats.answered, stats.unanswered), (3 * 256, 0));
    writer.close().await;
}

#[tokio::test]
async fn i01_every_code_of_a_puback_reaches_its_own_message() {
    every_code_reaches_its_own_message(QoS::AtLeastOnce).await;
}

#[tokio::test]
async fn i01_every_code_of_a_pubrec_reaches_its_own_message() {
    every_code_reaches_its_own_message(QoS::ExactlyOnce).await;
}

/// Nothing is answered before the window is full; then everything is, the last first.
#[tokio::test]
async fn i01_every_code_finds_its_message_in_a_full_window_whatever_the_order() {
    const WINDOW: usize = 64;
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        loop {
            let mut waiting = Vec::new();
            while waiting.len() < WINDOW {
                match connection.read_packet().await {
                    Some(Packet::Publish(publish)) => waiting.push(publish),
                    Some(_) => {}
                    None => return,
                }
            }
            for publish in waiting.into_iter().rev() {
                let asked = publish.topic.strip_prefix("answer/").unwrap();
                let code = u8::from_str_radix(asked, 16).unwrap();
                connection.puback(publish.id, code).await;
            }
        }
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.max_in_flight = NonZeroU16::new(WINDOW.try_into().unwrap()).unwrap();
    let writer = writer(settings);
    let mut answers = Vec::new();
    // Every other one is a success: 512 messages, eight windows.
    for asked in (0..=u8::MAX).flat_map(|code| [code, 0x00]) {
        let admitted = admit(&writer, asking_for(asked, QoS::AtLeastOnce)).await;
        answers.push((asked, tokio::spawn(admitted)));
    }
    for (asked, answer) in answers {
        let answer = within("it is answered", answer).await.unwrap();
        assert_eq!(code(&answer), ReasonCode::new(asked));
    }
    assert_eq!(broker.connections(), 1, "no answer may cost the connection");
}

#[tokio::test]
async fn every_code_of_a_pubcomp_reaches_its_own_message() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        while let Some(packet) = connection.read_packet().await {
            match packet {
                Packet::Publish(publish) => connection.pubrec(publish.id, 0).await,
                Packet::Ack(ack) if ack.kind == AckKind::PubRel => {
                    connection
                        .pubcomp(ack.id, u8::try_from(ack.id).unwrap())
                        .await;
                }
                _ => {}
            }
        }
    })
    .await;
    let mut config = config(broker.port(), "w");
    config.max_in_flight = NonZeroU16::new(256).unwrap();
    let writer = writer(config);
    let mut answers = Vec::new();
    for n in 0..255_u8 {
        answers.push(admit(&writer, message("t", vec![n], QoS::ExactlyOnce)).await);
    }
    let answers = within("all are answered", join_all(answers)).await;
    // Packet identifiers begin at 1 and are given in order.
    for (answer, expected) in answers.iter().zip(1..=255_u8) {
        assert_eq!(code(answer), ReasonCode::new(expected));
    }
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn the_brokers_own_words_come_along_also_with_an_unknown_code() {
    for answered in [0x87, 0xE5] {
        let broker = ScriptedBroker::behaving(Behaviour::new().reply(move |received| {
            let ack = Packet::Ack(Ack {
                kind: AckKind::PubAck,
                id: received.publish.id,
                code: answered,
                properties: vec![
                    Property::user("detail", "x"),
                    Property::ReasonString("not on a Sunday".to_owned()),
                ],
            });
            Reply::Bytes(ack.encode())
        }))
        .await;
        let writer = writer(config(broker.port(), "w"));
        let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
        let expected = Answer::Answered {
            by: Acknowledgement::PubAck,
            code: ReasonCode::new(answered),
            reason_string: Some("not on a Sunday".to_owned()),
        };
        assert_eq!(answer, expected);
    }
}
