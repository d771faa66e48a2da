//! More messages of QoS 2 are refused than the window has places.

use std::num::NonZeroU16;

use bridge_core::{QoS, ReasonCode};
use bridge_testkit::ScriptedBroker;

use crate::common::{admit, code, config, publish, within, writer};
use crate::row_01_reason_codes::{as_asked, asking_for};

#[tokio::test]
async fn i02_more_refused_qos_2_messages_than_the_window_hold_up_nothing() {
    let broker = ScriptedBroker::behaving(as_asked()).await;
    let mut config = config(broker.port(), "w");
    config.max_in_flight = NonZeroU16::new(4).unwrap();
    let writer = writer(config);
    for round in 0..50 {
        let answer = publish(&writer, asking_for(0x87, QoS::ExactlyOnce)).await;
        assert_eq!(code(&answer), ReasonCode::NOT_AUTHORIZED, "round {round}");
    }
    let answer = publish(&writer, asking_for(0x00, QoS::ExactlyOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!(writer.stats().refused, 50);
    assert_eq!(broker.connections(), 1);
}

#[tokio::test]
async fn i02_refusals_of_qos_2_that_come_all_at_once_let_those_between_them_pass() {
    let broker = ScriptedBroker::behaving(as_asked()).await;
    let mut config = config(broker.port(), "w");
    config.max_in_flight = NonZeroU16::new(4).unwrap();
    let writer = writer(config);
    let mut answers = Vec::new();
    for n in 0..200 {
        let asked = if n % 5 == 4 { 0x00 } else { 0x87 };
        let admitted = admit(&writer, asking_for(asked, QoS::ExactlyOnce)).await;
        answers.push((asked, tokio::spawn(admitted)));
    }
    for (asked, answer) in answers {
        let answer = within("it is answered", answer).await.unwrap();
        assert_eq!(code(&answer), ReasonCode::new(asked));
    }
    assert_eq!(broker.connections(), 1);
}
