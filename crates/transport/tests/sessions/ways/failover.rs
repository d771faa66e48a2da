//! Brokers that stand in for one another.

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_core::{Sink, Source};
use bridge_testkit::{Behaviour, ConnAck, Cut, Mosquitto, Proxy, ScriptedBroker, wait_until};
use bridge_transport::{Brokers, SessionStats};

use crate::common::{DEADLINE, reader, session, subscribed, take, tcp, up, within, writer};
use crate::ways::{deliver, message};

#[tokio::test]
async fn case_12_the_next_broker_is_used_within_a_step_when_the_first_is_away() {
    let second = Mosquitto::start().await;
    let mut first = Proxy::start(second.port()).await;
    first.refuse().await;
    let brokers = Brokers {
        first: tcp(first.port()),
        rest: vec![tcp(second.port())],
        fail_back: None,
    };
    let writer = writer(session(brokers, "w"));
    up(&writer, 0).await;
    deliver(&writer, message("t", "1")).await;
    assert_eq!(
        writer.stats().connect_failures,
        1,
        "one attempt at the first"
    );
    within("it closes", writer.close()).await;
}

#[tokio::test]
async fn case_12_the_next_broker_is_used_when_the_first_refuses() {
    let refusing = Behaviour::new().connacks(|_| ConnAck {
        code: 0x88,
        ..ConnAck::default()
    });
    let first = ScriptedBroker::behaving(refusing).await;
    let second = ScriptedBroker::accepting().await;
    let brokers = Brokers {
        first: tcp(first.port()),
        rest: vec![tcp(second.port())],
        fail_back: None,
    };
    let writer = writer(session(brokers, "w"));
    up(&writer, 0).await;
    assert_eq!((first.connections(), second.connections()), (1, 1));
    within("it closes", writer.close()).await;
}

#[tokio::test]
async fn case_12_the_first_is_used_again_when_asked_to_and_nothing_is_lost() {
    let broker = Mosquitto::start().await;
    let mut first = Proxy::start(broker.port()).await;
    first.refuse().await;
    let second = Proxy::start(broker.port()).await;
    let brokers = Brokers {
        first: tcp(first.port()),
        rest: vec![tcp(second.port())],
        fail_back: Some(Duration::from_millis(100)),
    };
    let writer = writer(session(brokers, "w"));
    up(&writer, 0).await;
    deliver(&writer, message("t", "1")).await;
    assert_eq!(second.connections(), 1);
    first.accept().await;
    up(&writer, 1).await;
    deliver(&writer, message("t", "2")).await;
    wait_until("the second is left", DEADLINE, || {
        broker.log().contains("Client w disconnected.")
    })
    .await;
    assert!(first.connections() >= 2, "a look, and the connection");
    assert_eq!(second.connections(), 1);
    let stats = writer.stats();
    assert_eq!(
        (stats.connects, stats.connection_losses),
        (2, 0),
        "{stats:?}"
    );
    within("it closes", writer.close()).await;
}

#[tokio::test]
async fn case_12_a_reader_goes_back_to_the_first_and_misses_nothing() {
    let broker = Mosquitto::start().await;
    let mut first = Proxy::start(broker.port()).await;
    first.refuse().await;
    let second = Proxy::start(broker.port()).await;
    let brokers = Brokers {
        first: tcp(first.port()),
        rest: vec![tcp(second.port())],
        fail_back: Some(Duration::from_millis(100)),
    };
    let reader = reader(session(brokers, "r"), "t");
    subscribed(&reader).await;
    assert_eq!((first.connections(), second.connections()), (0, 1));
    let writer = writer(session(Brokers::one(tcp(broker.port())), "w"));
    first.accept().await;
    // What comes while it moves waits at the broker.
    let mut sent = 0_u32;
    let moved = |stats: SessionStats| stats.connected && stats.connects == 2;
    while !moved(reader.stats()) || sent < 50 {
        deliver(&writer, message("t", sent.to_be_bytes())).await;
        sent += 1;
    }
    let mut missing: BTreeSet<u32> = (0..sent).collect();
    while !missing.is_empty() {
        let payload = take(&reader).await.payload;
        missing.remove(&u32::from_be_bytes(payload[..].try_into().unwrap()));
    }
    let stats = reader.stats();
    assert_eq!(stats.connection_losses, 0, "{stats:?}");
    assert_eq!(second.connections(), 1);
    within("they close", async {
        tokio::join!(writer.close(), reader.close())
    })
    .await;
}

#[tokio::test]
async fn case_12_another_broker_has_lost_no_session_and_one_that_forgot_ours_has() {
    let brokers = Mosquitto::builder().persistence(false);
    let (first, mut second) = (brokers.clone().start().await, brokers.start().await);
    let mut ways = [
        Proxy::start(first.port()).await,
        Proxy::start(second.port()).await,
    ];
    let reader = reader(
        session(
            Brokers {
                first: tcp(ways[0].port()),
                rest: vec![tcp(ways[1].port())],
                fail_back: None,
            },
            "r",
        ),
        "t",
    );
    subscribed(&reader).await;
    // There for the first time, back again, and there once more when it has forgotten.
    for (connects, (to, lost)) in (2..).zip([(1, 0), (0, 0), (1, 1)]) {
        if lost > 0 {
            second.kill().await;
            second.restart().await;
        }
        ways[to].accept().await;
        ways[1 - to].refuse().await;
        ways[1 - to].cut(Cut::Finish);
        wait_until("it is at the other one", DEADLINE, || {
            reader.stats().connects == connects
        })
        .await;
        subscribed(&reader).await;
        let stats = reader.stats();
        assert_eq!(stats.sessions_lost, lost, "{connects}: {stats:?}");
    }
    within("it closes", reader.close()).await;
}
