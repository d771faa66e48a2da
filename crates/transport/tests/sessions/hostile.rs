//! Bytes that are no MQTT, at any moment.

use std::time::Duration;

use bridge_core::{QoS, ReasonCode};
use bridge_testkit::{Behaviour, ScriptedBroker};

use crate::common::{code, config, message, publish, within, writer};

#[tokio::test]
async fn i25_no_bytes_of_a_broker_end_a_session_for_good() {
    const ROUNDS: usize = 40;
    // Any generator will do that gives the same bytes each time.
    let random = |mut state: u64| {
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[1]
        })
    };
    let broker = ScriptedBroker::start(move |mut connection| async move {
        let number = connection.number();
        // Instead of a CONNACK, or after it, or in the middle of what is under way.
        if number < ROUNDS / 4 {
            connection.expect_connect().await;
        } else {
            connection.accept(&[]).await;
        }
        if number < ROUNDS {
            if number > ROUNDS / 2 {
                connection.expect_publish().await;
            }
            let kind = 0x20 + u8::try_from(number % 14).unwrap() * 0x10;
            let mut junk = vec![kind, 30];
            junk.extend(random(number as u64).take(300));
            connection.send(&junk).await;
            return;
        }
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.backoff =
        bridge_core::Backoff::try_new(Duration::from_millis(1), Duration::from_millis(5)).unwrap();
    let writer = writer(settings);
    within("it recovers", async {
        loop {
            let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
            if broker.connections() > ROUNDS {
                assert_eq!(code(&answer), ReasonCode::SUCCESS);
                return;
            }
        }
    })
    .await;
}
