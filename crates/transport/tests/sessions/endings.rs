//! A connection ends, and every message on it hears so exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bridge_core::{Answer, Link, NotAdmitted, QoS, ReasonCode, Sink, Unanswered};
use bridge_testkit::{Ack, AckKind, Behaviour, Cut, Packet, Proxy, Reply, ScriptedBroker};
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

#[tokio::test]
async fn i01_a_lost_connection_is_never_counted_as_a_refusal() {
    let broker =
        ScriptedBroker::behaving(
            Behaviour::new().reply(|received| match received.connection {
                0 => Reply::Close,
                _ => Reply::Accept,
            }),
        )
        .await;
    let writer = writer(config(broker.port(), "w"));
    let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    assert_eq!(answer, MAY_HAVE_BEEN_SENT);
    let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!(writer.stats().refused, 0);
    assert_eq!(
        broker.publish_count(),
        2,
        "the library must not send anything again"
    );
}

#[tokio::test]
async fn what_never_reached_the_socket_is_known_from_what_may_have() {
    let proxy_to = ScriptedBroker::behaving(Behaviour::new().reply(|_| Reply::Silence)).await;
    let proxy = Proxy::start(proxy_to.port()).await;
    let writer = writer(config(proxy.port(), "w"));
    let sent = admit(&writer, message("t", "sent", QoS::AtLeastOnce)).await;
    bridge_testkit::wait_until("it arrives", crate::common::DEADLINE, || {
        proxy_to.publish_count() == 1
    })
    .await;
    proxy.stall();
    // More than all buffers on the way can hold, so that the last ones never begin.
    let mut stuck = Vec::new();
    for _ in 0..60 {
        let large = message("t", vec![0; 1024 * 1024], QoS::AtLeastOnce);
        stuck.push(admit(&writer, large).await);
    }
    proxy.cut(Cut::Reset);
    assert_eq!(within("sent", sent).await, MAY_HAVE_BEEN_SENT);
    let answers = within("stuck", join_all(stuck)).await;
    let first_never = answers
        .iter()
        .position(|answer| *answer == Answer::Unanswered(Unanswered::NeverSent))
        .expect("some never began");
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n < first_never {
            MAY_HAVE_BEEN_SENT
        } else {
            Answer::Unanswered(Unanswered::NeverSent)
        };
        assert_eq!(*answer, expected, "message {n}");
    }
}

/// While the client is busy writing it takes nothing new; whoever ends it must tell those too.
async fn all_are_told_that_it_has_ended(cut: bool) {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|_| Reply::Silence)).await;
    let proxy = Proxy::start(broker.port()).await;
    let mut settings = config(proxy.port(), "w");
    settings.write_timeout = Duration::from_secs(60);
    settings.answer_timeout = Duration::from_secs(if cut { 60 } else { 2 });
    let writer = writer(settings);
    let mut all = vec![admit(&writer, message("t", "open", QoS::AtLeastOnce)).await];
    bridge_testkit::wait_until("it arrives", crate::common::DEADLINE, || {
        broker.publish_count() == 1
    })
    .await;
    proxy.stall();
    // More than all buffers on the way can hold.
    let large = message("t", vec![0; 48 * 1024 * 1024], QoS::AtLeastOnce);
    all.push(admit(&writer, large).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..50 {
        all.push(admit(&writer, message("t", "x", QoS::AtLeastOnce)).await);
    }
    if cut {
        proxy.cut(Cut::Reset);
    }
    let answers = within("all are told", join_all(all)).await;
    assert_eq!(answers[..2], [MAY_HAVE_BEEN_SENT, MAY_HAVE_BEEN_SENT]);
    let never = vec![Answer::Unanswered(Unanswered::NeverSent); 50];
    assert_eq!(answers[2..], never);
}

#[tokio::test]
async fn what_the_client_had_not_looked_at_is_told_when_the_connection_ends() {
    all_are_told_that_it_has_ended(true).await;
}

#[tokio::test]
async fn what_the_client_had_not_looked_at_is_told_when_we_give_the_connection_up() {
    all_are_told_that_it_has_ended(false).await;
}

#[tokio::test]
async fn publishing_without_a_connection_says_so_at_once() {
    let broker = ScriptedBroker::accepting().await;
    let mut proxy = Proxy::start(broker.port()).await;
    proxy.refuse().await;
    let writer = writer(config(proxy.port(), "w"));
    let refused = writer.publish(message("t", "x", QoS::AtLeastOnce)).await;
    assert!(matches!(refused, Err(NotAdmitted::LinkDown)));
    assert_eq!(writer.link(), Link::Down);
    bridge_testkit::wait_until("attempts fail", crate::common::DEADLINE, || {
        writer.stats().connect_failures > 1
    })
    .await;
    proxy.accept().await;
    assert_eq!(up(&writer, 0).await, 1);
}

#[tokio::test]
async fn who_waits_for_a_place_is_told_when_the_connection_ends() {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|_| Reply::Silence)).await;
    let proxy = Proxy::start(broker.port()).await;
    let mut config = config(proxy.port(), "w");
    config.max_in_flight = 1.try_into().unwrap();
    let writer = Arc::new(writer(config));
    let first = admit(&writer, message("t", "1", QoS::AtLeastOnce)).await;
    let waiting = tokio::spawn({
        let writer = Arc::clone(&writer);
        async move {
            writer
                .publish(message("t", "2", QoS::AtLeastOnce))
                .await
                .err()
        }
    });
    bridge_testkit::wait_until("it arrives", crate::common::DEADLINE, || {
        broker.publish_count() == 1
    })
    .await;
    proxy.cut(Cut::Reset);
    let told = within("the waiting one is told", waiting).await.unwrap();
    assert_eq!(told, Some(NotAdmitted::LinkDown));
    assert_eq!(within("the first", first).await, MAY_HAVE_BEEN_SENT);
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_keeps_its_place_until_it_comes() {
    let held = Arc::new(AtomicUsize::new(0));
    let broker = ScriptedBroker::start({
        let held = Arc::clone(&held);
        move |mut connection| {
            let held = Arc::clone(&held);
            async move {
                connection.accept(&[]).await;
                let first = connection.expect_publish().await;
                held.store(1, Ordering::SeqCst);
                // Nothing else may come while the first is open.
                let early =
                    tokio::time::timeout(Duration::from_millis(200), connection.read_packet())
                        .await;
                assert!(early.is_err(), "sent beyond the window: {early:?}");
                connection.puback(first.id, 0).await;
                connection.behave(&Behaviour::new()).await;
            }
        }
    })
    .await;
    let mut config = config(broker.port(), "w");
    config.max_in_flight = 1.try_into().unwrap();
    let writer = writer(config);
    drop(admit(&writer, message("t", "1", QoS::AtLeastOnce)).await);
    let answer = publish(&writer, message("t", "2", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!(held.load(Ordering::SeqCst), 1);
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
