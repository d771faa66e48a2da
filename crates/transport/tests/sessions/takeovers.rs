//! Another client has our client id: who is thrown out gives way, and says what is wrong.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_core::{Answer, QoS, Sink, Source};
use bridge_testkit::{
    Behaviour, Mosquitto, Publish, RawClient, Reply, ScriptedBroker, ScriptedPermit, wait_for,
    wait_until,
};
use bridge_transport::{Protocol, Reader, SessionConfig, Writer};
use tracing::Level;

use crate::common::{
    DEADLINE, clock, config, message, publish, subscribed, subscription, up, within, writer,
};
use crate::logs::Lines;

const LOST: &str = "session_connection_lost";
const TAKEN_OVER: &str = "session_taken_over";
const SUSPECTED: &str = "session_collision_suspected";

/// How often something of that name was logged.
fn count(lines: &Lines, name: &str) -> usize {
    lines.names().iter().filter(|n| *n == name).count()
}

fn version(mut settings: SessionConfig, protocol: Protocol) -> SessionConfig {
    settings.protocol = protocol;
    settings
}

/// How many messages were accepted of those that the writer was given, until `end`.
async fn publish_until(writer: &Writer, end: Instant) -> u32 {
    let mut accepted = 0;
    while Instant::now() < end {
        let sent = writer.publish(message("t", "x", QoS::AtLeastOnce)).await;
        if let Ok(admitted) = sent
            && let Answer::Answered { .. } = within("an answer or none", admitted).await
        {
            accepted += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    accepted
}

#[tokio::test]
async fn i17_two_sessions_with_one_client_id_both_go_on_and_give_way_more_and_more() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::behaving(Behaviour::new().takeover()).await;
    let [one, other] = [(); 2].map(|()| writer(config(broker.port(), "w")));
    let end = Instant::now() + Duration::from_secs(8);
    let accepted = tokio::join!(publish_until(&one, end), publish_until(&other, end));
    // Each connects, comes again at once, and after 1, 2 and 4 s; one may be ahead by a turn.
    let connects = broker.connections();
    assert!((6..=12).contains(&connects), "{connects} connects");
    assert!(accepted.0 > 50 && accepted.1 > 50, "{accepted:?}");
    let takeovers = one.stats().takeovers + other.stats().takeovers;
    assert!(takeovers >= 4, "{takeovers}");
    let text = lines.text();
    let levels = lines.levels(TAKEN_OVER);
    let warnings = levels.iter().filter(|level| **level == Level::WARN).count();
    assert_eq!(
        (warnings, levels.len() as u64),
        (2, takeovers),
        "{levels:?}"
    );
    assert!(
        levels.ends_with(&[Level::ERROR, Level::ERROR]),
        "{levels:?}"
    );
    for cure in [
        "two instances run with the same client_id",
        "`client_id_suffix: hostname` (or `nonce`)",
        "`session_mode: exclusive` with a `lease`",
    ] {
        assert!(text.contains(cure), "{text}");
    }
    assert_eq!(count(&lines, SUSPECTED), 0);

    // One stops: the other is there when its penalty is over, and stays.
    within("one stops", one.close()).await;
    let began = Instant::now();
    up(&other, 0).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    publish(&other, message("t", "x", QoS::AtLeastOnce)).await;
}

#[tokio::test]
async fn i17_with_a_shared_subscription_the_first_takeover_is_an_error_already() {
    for (filter, level, says) in [
        ("t", Level::WARN, "once is nothing to worry about"),
        ("$share/g/t", Level::ERROR, "each needs its own"),
    ] {
        let lines = Lines::listen();
        let broker = ScriptedBroker::behaving(Behaviour::new().takeover()).await;
        let reader = crate::common::reader(config(broker.port(), "r"), filter);
        subscribed(&reader).await;
        let mut other = RawClient::connect(broker.port(), "r").await.unwrap();
        wait_until("the takeover is counted", DEADLINE, || {
            reader.stats().takeovers == 1
        })
        .await;
        let text = lines.text();
        assert_eq!(lines.levels(TAKEN_OVER), [level]);
        assert!(text.contains(says), "{text}");
        // It costs nothing.
        let began = Instant::now();
        other.until_closed(DEADLINE).await.unwrap();
        subscribed(&reader).await;
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn i17_an_exclusive_session_blames_one_without_its_lease_and_waits_until_that_is_renewed() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::behaving(Behaviour::new().takeover()).await;
    let permit = Arc::new(ScriptedPermit::default());
    let mut until = Duration::from_secs(3600);
    permit.grant(1, until, Duration::ZERO);
    let reader = Reader::start_with_permit(
        config(broker.port(), "r"),
        vec![subscription("$share/g/t", QoS::AtLeastOnce)],
        clock(),
        permit.clone(),
    );
    for takeovers in 1..=2 {
        subscribed(&reader).await;
        let other = RawClient::connect(broker.port(), "r").await.unwrap();
        wait_until("the takeover is counted", DEADLINE, || {
            reader.stats().takeovers == takeovers
        })
        .await;
        // The other may be there by right, and this one not have heard of it: half a second is as
        // good as for ever.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(broker.connections() as u64, 2 * takeovers);
        until += Duration::from_secs(1);
        permit.grant(1, until, Duration::ZERO);
        drop(other);
    }
    subscribed(&reader).await;
    assert_eq!(lines.levels(TAKEN_OVER), [Level::ERROR, Level::ERROR]);
    let text = lines.text();
    assert!(text.contains("does not ask for its lease"), "{text}");
}

#[tokio::test]
async fn i17_what_a_broker_does_that_only_closes_is_suspected_from_the_third_time_on() {
    for protocol in [Protocol::V5, Protocol::V311] {
        let lines = Lines::listen();
        let broker = ScriptedBroker::accepting().await;
        let writer = writer(version(config(broker.port(), "w"), protocol));
        for epoch in 0..5 {
            up(&writer, epoch).await;
            broker.close_all();
        }
        up(&writer, 5).await;
        let stats = writer.stats();
        assert_eq!((stats.connection_losses, stats.takeovers), (5, 0));
        assert_eq!(stats.suspected_collisions, 3, "{protocol}");
        assert_eq!((count(&lines, LOST), count(&lines, SUSPECTED)), (2, 3));
        let text = lines.text();
        for cure in [
            "two instances run with the same client_id",
            "`client_id_suffix: hostname` (or `nonce`)",
            "`session_mode: exclusive` with a `lease`",
        ] {
            assert!(text.contains(cure), "{text}");
        }
    }
}

#[tokio::test]
async fn i17_a_reader_that_is_only_closed_suspects_a_collision_too() {
    let broker = ScriptedBroker::accepting().await;
    let reader = crate::common::reader(config(broker.port(), "r"), "t");
    for _ in 0..3 {
        subscribed(&reader).await;
        broker.close_all();
        wait_until("the reader notices", DEADLINE, || !reader.stats().connected).await;
    }
    wait_until("it is suspected", DEADLINE, || {
        reader.stats().suspected_collisions == 1
    })
    .await;
}

#[tokio::test]
async fn i17_a_burst_that_is_cut_off_again_and_again_is_suspected_too() {
    // With everything under way no message is singled out.
    let behaviour = Behaviour::new().reply(|received| {
        if received.nth % 20 == 19 {
            Reply::Close
        } else {
            Reply::Silence
        }
    });
    let broker = ScriptedBroker::behaving(behaviour).await;
    let writer = writer(config(broker.port(), "w"));
    for epoch in 0..3 {
        up(&writer, epoch).await;
        let burst = (0..20).map(|_| writer.publish(message("t", "x", QoS::AtLeastOnce)));
        for admitted in futures_util::future::join_all(burst).await {
            within("it is told", admitted.unwrap()).await;
        }
    }
    up(&writer, 3).await;
    assert_eq!(writer.stats().suspected_collisions, 1);
}

#[tokio::test]
async fn i06_a_message_that_costs_the_connection_is_no_collision_and_is_not_slowed_down() {
    let lines = Lines::listen();
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|_| Reply::Close)).await;
    let writer = writer(version(config(broker.port(), "w"), Protocol::V311));
    let began = Instant::now();
    for epoch in 0..10 {
        up(&writer, epoch).await;
        let answer = publish(&writer, message("bad", "x", QoS::AtLeastOnce)).await;
        assert!(matches!(answer, Answer::Unanswered(_)));
    }
    up(&writer, 10).await;
    // 200 ms each at most, by the back-off of these tests.
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(writer.stats().suspected_collisions, 0);
    assert_eq!((count(&lines, LOST), count(&lines, SUSPECTED)), (10, 0));
}

#[tokio::test]
async fn a_subscription_that_is_refused_by_closing_is_no_collision() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        connection.expect_subscribe().await;
    })
    .await;
    let reader = crate::common::reader(config(broker.port(), "r"), "t");
    wait_until("it is tried again and again", DEADLINE, || {
        reader.stats().connection_losses >= 6
    })
    .await;
    assert_eq!(reader.stats().suspected_collisions, 0);
    within("close", reader.close()).await;
}

#[tokio::test]
async fn a_broker_that_restarts_again_and_again_is_no_collision() {
    let mut broker = Mosquitto::start().await;
    let writer = writer(config(broker.port(), "w"));
    for epoch in 0..5 {
        up(&writer, epoch).await;
        let failures = writer.stats().connect_failures;
        broker.kill().await;
        wait_until("an attempt fails", DEADLINE, || {
            writer.stats().connect_failures > failures
        })
        .await;
        broker.restart().await;
    }
    up(&writer, 5).await;
    let stats = writer.stats();
    assert_eq!(
        (stats.connection_losses, stats.suspected_collisions),
        (5, 0)
    );
}

#[tokio::test]
async fn a_shared_subscription_gives_each_message_to_one_of_those_that_have_an_id_each() {
    const MESSAGES: usize = 300;
    let broker = Mosquitto::start().await;
    let filters = vec![subscription("$share/g/t/#", QoS::AtLeastOnce)];
    let readers: Vec<_> = ["r-1", "r-2", "r-3"]
        .map(|client_id| {
            let mut settings = config(broker.port(), client_id);
            settings.receive_maximum = NonZeroU16::new(10).unwrap();
            Reader::start(settings, filters.clone(), clock())
        })
        .into();
    for reader in &readers {
        subscribed(reader).await;
    }
    let mut source = RawClient::connect(broker.port(), "source").await.unwrap();
    let messages = (0..MESSAGES).map(|n| Publish::new("t/x", n.to_string()).qos(1));
    let published = tokio::spawn(async move {
        source.publish_all(messages, 50).await.expect_all_accepted();
    });
    let mut taken = Vec::new();
    let mut parts = [0_usize; 3];
    while taken.len() < MESSAGES {
        let nexts = readers.iter().map(|reader| Box::pin(reader.next()));
        let nexts = futures_util::future::select_all(nexts);
        let (delivery, which, _) = within("a message comes", nexts).await;
        let delivery = delivery.unwrap();
        delivery.acknowledge.settled();
        taken.push(delivery.message.payload);
        parts[which] += 1;
    }
    published.await.unwrap();
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), MESSAGES, "each once");
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
    for reader in &readers {
        assert_eq!(reader.stats().takeovers, 0);
    }
}

#[tokio::test]
async fn i17_two_sessions_at_a_mosquitto_that_only_closes_suspect_each_other() {
    let broker = Mosquitto::start().await;
    let [one, other] = [(); 2].map(|()| writer(config(broker.port(), "w")));
    let suspected = wait_for("a collision is suspected", DEADLINE, async || {
        let stats = [one.stats(), other.stats()];
        let suspected = stats.map(|stats| stats.suspected_collisions);
        (suspected[0] + suspected[1] >= 2).then_some(suspected)
    })
    .await;
    assert_eq!(
        (one.stats().takeovers, other.stats().takeovers),
        (0, 0),
        "{suspected:?}"
    );
    within("one stops", one.close()).await;
    up(&other, 0).await;
    publish(&other, message("t", "x", QoS::AtLeastOnce)).await;
}
