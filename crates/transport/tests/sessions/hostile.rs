//! Whatever a broker says: no panic, no memory out of proportion, and the session comes back.
//!
//! `fuzz/fuzz_targets/guard.rs` runs the same conversation with inputs that a fuzzer thinks of.

mod conversation;

use std::time::Duration;

use bridge_core::{QoS, ReasonCode};
use bridge_testkit::{Ack, AckKind, Behaviour, Packet, ScriptedBroker, wait_until};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::common::{DEADLINE, code, config, message, publish, up, within, writer};
use crate::logs::Lines;

/// Scripts that say most of what a broker says, well-formed and in turn.
fn seeds() -> Vec<Vec<u8>> {
    // CONNACK, hear and answer SUBSCRIBE, a message of each QoS, hear and answer, PUBREL.
    let reading = [
        &[0, 15, 1, 15][..],
        &[2, 0x10, 2, b't', b'h', b'i', 2, 0x12, 1, b't', b'x', 15, 11],
        &[2, 0x14, 1, b't', b'x', 15, 1, 11, 6, 15, 11],
    ]
    .concat();
    // CONNACK, then answers to what is published.
    let writing = [&[0, 15][..], &[1; 12], &[15, 11]].concat();
    let refusing = [&[0, 15, 11][..], &[5, 0x40, 2, 0xE5, 0, 15, 11].repeat(3)].concat();
    [
        (0, &reading),
        (1, &reading),
        (2, &writing),
        (3, &writing),
        (2, &refusing),
    ]
    .map(|(flags, script)| [&[flags][..], script].concat())
    .to_vec()
}

/// Runs a script; a task that panics would be made anew, and only the log would tell.
async fn converse(input: &[u8]) {
    let lines = Lines::listen();
    let folder = tempfile::tempdir().unwrap();
    conversation::converse(input, &folder.path().join("broker")).await;
    assert!(lines.names().contains(&"session_connected".to_owned()));
    assert!(!lines.text().contains("task failed"), "{}", lines.text());
}

#[tokio::test]
async fn i25_conversations_that_are_in_order_up_to_a_point_end_well() {
    for seed in seeds() {
        for end in (1..=seed.len()).step_by(5) {
            converse(&seed[..end]).await;
        }
    }
}

#[tokio::test]
async fn i25_mutated_conversations_end_well() {
    let mut random = StdRng::seed_from_u64(7);
    let seeds = seeds();
    for _ in 0..60 {
        let mut script = seeds[random.random_range(0..seeds.len())].clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..script.len());
            match random.random_range(0..4) {
                0 => script[at] ^= 1 << random.random_range(0..8),
                1 => script[at] = random.random(),
                2 => drop(script.remove(at)),
                _ => script.insert(at, random.random()),
            }
            if script.is_empty() {
                break;
            }
        }
        converse(&script).await;
    }
}

#[tokio::test]
async fn i25_random_bytes_end_well() {
    let mut random = StdRng::seed_from_u64(8);
    for _ in 0..40 {
        let length = random.random_range(0..300);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        converse(&bytes).await;
    }
}

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

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_connection_with_the_code_and_the_line_that_say_so() {
    // Before the CONNACK or after it, what is sent, what the bridge disconnects with and logs.
    const CASES: [(bool, &[u8], u8, &str); 16] = [
        (
            false,
            &[0x30, 5, 0, 1, b't', 0, b'x'],
            0x82,
            "PUBLISH before its CONNACK",
        ),
        (false, &[0xD0, 0], 0x82, "PINGRESP before its CONNACK"),
        (false, &[0xF0, 2, 0x18, 0], 0x82, "sent AUTH"),
        (true, &[0x20, 3, 0, 0, 0], 0x82, "sent CONNACK"),
        (true, &[0x20, 3, 0, 0x87, 0], 0x82, "sent CONNACK"),
        (true, &[0x40, 2, 0, 9], 0x82, "PUBACK for packet id 9"),
        (true, &[0x50, 2, 0, 9], 0x82, "PUBREC for packet id 9"),
        (true, &[0x70, 2, 0, 9], 0x82, "PUBCOMP for packet id 9"),
        (true, &[0x90, 4, 0, 9, 0, 0], 0x82, "SUBACK for packet id 9"),
        (
            true,
            &[0xB0, 4, 0, 9, 0, 0],
            0x82,
            "UNSUBACK for packet id 9",
        ),
        (
            true,
            &[0x82, 7, 0, 1, 0, 0, 1, b'#', 0],
            0x82,
            "sent SUBSCRIBE",
        ),
        (true, &[0xC0, 0], 0x82, "sent PINGREQ"),
        (true, &[0xD0, 1, 0], 0x81, "malformed PINGRESP"),
        (true, &[0x32, 3, 0, 1, b't'], 0x81, "malformed PUBLISH"),
        (
            true,
            &[0x30, 0xFF, 0xFF, 0xFF, 0x7F],
            0x95,
            "a packet of 268435460 bytes",
        ),
        (
            true,
            &[0xE0, 0xFF, 0xFF, 0xFF, 0xFF, 1],
            0x81,
            "length takes more than four",
        ),
    ];
    let lines = Lines::listen();
    let broker = ScriptedBroker::start(|mut connection| async move {
        let Some((welcomed, bytes, code, _)) = CASES.get(connection.number()) else {
            return connection.behave(&Behaviour::new()).await;
        };
        connection.expect_connect().await;
        if *welcomed {
            connection.connack(&[]).await;
        }
        connection.send(bytes).await;
        match connection.expect_packet().await {
            Packet::Disconnect(said) => assert_eq!(said.code, *code, "after {bytes:02x?}"),
            other => panic!("no DISCONNECT after {bytes:02x?} but {other:?}"),
        }
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.backoff =
        bridge_core::Backoff::try_new(Duration::from_millis(1), Duration::from_millis(5)).unwrap();
    let writer = writer(settings);
    within("the session comes back", async {
        let mut epoch = 0;
        while broker.connections() <= CASES.len() {
            epoch = up(&writer, epoch).await;
        }
    })
    .await;
    let text = lines.text();
    for (_, _, _, line) in CASES {
        assert!(text.contains(line), "{line}: {text}");
    }
    drop(writer);
}

#[tokio::test]
async fn what_is_odd_and_in_order_costs_nothing() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        // Nothing asked for it, but nothing in the standard forbids it.
        connection.send(&[0xD0, 0]).await;
        // A release of what is not known, with and without a code.
        for code in [0x00, 0x92] {
            connection.ack(AckKind::PubRel, 7, code).await;
            let answer = connection.expect_ack(AckKind::PubComp).await;
            assert_eq!(answer, Ack::new(AckKind::PubComp, 7, 0x92));
        }
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    let writer = writer(config(broker.port(), "w"));
    wait_until("the releases are answered", DEADLINE, || {
        let packets = broker.packets();
        let answers = packets.iter().filter(|(_, p)| matches!(p, Packet::Ack(_)));
        answers.count() == 2
    })
    .await;
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let answer = publish(&writer, message("t", "x", qos)).await;
        assert_eq!(code(&answer), ReasonCode::SUCCESS);
    }
    assert_eq!(broker.connections(), 1);
}
