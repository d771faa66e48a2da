//! A connection ends, and every message on it hears so exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bridge_core::{Answer, Link, NotAdmitted, QoS, ReasonCode, Sink, Unanswered};
use bridge_testkit::{AckKind, Behaviour, Cut, Packet, Proxy, Reply, ScriptedBroker};
use futures_util::future::join_all;

use crate::common::{admit, code, config, message, publish, up, within, writer};

const MAY_HAVE_BEEN_SENT: Answer = Answer::Unanswered(Unanswered::MayHaveBeenSent);

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

/// How many bytes the kernel has for that port of 127.0.0.1 that have not arrived there.
fn waits_to_be_sent_to(port: u16) -> u64 {
    let remote = format!("0100007F:{port:04X}");
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let waiting = sockets.lines().filter_map(|socket| {
        let mut fields = socket.split_whitespace().skip(2);
        let is_it = fields.next()? == remote;
        let (to_send, _) = fields.nth(1)?.split_once(':')?;
        let to_send = u64::from_str_radix(to_send, 16).ok()?;
        is_it.then_some(to_send)
    });
    waiting.sum()
}

/// While the client is busy writing it takes nothing new; whoever ends it must tell those too.
async fn all_are_told_that_it_has_ended(cut: bool) {
    let broker = ScriptedBroker::behaving(Behaviour::new().reply(|_| Reply::Silence)).await;
    let proxy = Proxy::start(broker.port()).await;
    let mut settings = config(proxy.port(), "w");
    settings.write_timeout = Duration::from_secs(60);
    settings.answer_timeout = Duration::from_secs(if cut { 60 } else { 6 });
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
    bridge_testkit::wait_until("it is being written", crate::common::DEADLINE, || {
        waits_to_be_sent_to(proxy.port()) > 0
    })
    .await;
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

/// One message in each state that a window knows, and the connection ends.
#[tokio::test]
async fn case_09_whatever_its_state_a_message_ends_once_and_nothing_of_it_is_sent_again() {
    let broker = ScriptedBroker::start(|mut connection| async move {
        let connect = connection.expect_connect().await;
        assert!(connect.clean_start, "nothing is to be resumed");
        connection.connack(&[]).await;
        if connection.number() > 0 {
            connection.behave(&Behaviour::new()).await;
            return;
        }
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(connection.expect_publish().await.id);
        }
        connection.puback(ids[0], 0).await;
        connection.pubrec(ids[2], 0).await;
        connection.pubrec(ids[3], 0).await;
        for _ in 0..2 {
            connection.expect_ack(AckKind::PubRel).await;
        }
        connection.pubcomp(ids[3], 0).await;
        connection.close();
    })
    .await;
    let writer = writer(config(broker.port(), "w"));
    let mut answers = Vec::new();
    for (payload, qos) in [
        ("acknowledged", QoS::AtLeastOnce),
        ("open", QoS::AtLeastOnce),
        ("released", QoS::ExactlyOnce),
        ("completed", QoS::ExactlyOnce),
    ] {
        answers.push(admit(&writer, message("t", payload, qos)).await);
    }
    let answers = within("all are told", join_all(answers)).await;
    for n in [0, 3] {
        assert_eq!(code(&answers[n]), ReasonCode::SUCCESS, "message {n}");
    }
    for n in [1, 2] {
        assert_eq!(answers[n], MAY_HAVE_BEEN_SENT, "message {n}");
    }
    // What comes on the next connections is what is published there, and nothing else.
    loop {
        let answer = publish(&writer, message("t", "new", QoS::AtLeastOnce)).await;
        if matches!(answer, Answer::Answered { .. }) {
            break;
        }
    }
    let later = broker.packets().into_iter().filter(|(n, _)| *n > 0);
    for (connection, packet) in later {
        match packet {
            Packet::Connect(_) | Packet::PingReq | Packet::Disconnect(_) => {}
            Packet::Publish(publish) if publish.payload == "new" => {}
            other => panic!("connection {connection} was sent {other:?}"),
        }
    }
    let stats = writer.stats();
    assert_eq!(stats.admitted, stats.answered + stats.unanswered);
}

/// Identifiers are given anew many times over while the very first message is still open.
#[tokio::test]
async fn the_order_is_kept_across_a_wrap_of_packet_ids_though_one_stays_open() {
    const COUNT: u32 = 5_000;
    let broker = ScriptedBroker::start(|mut connection| async move {
        connection.accept(&[]).await;
        let held = connection.expect_publish().await;
        let (mut next, mut last_id) = (1_u32, held.id);
        let mut wraps = 0;
        while next < COUNT {
            let publish = connection.expect_publish().await;
            assert_ne!(publish.id, held.id, "this one is in use");
            assert_eq!(publish.payload, next.to_be_bytes().as_slice());
            wraps += usize::from(publish.id < last_id);
            last_id = publish.id;
            connection.puback(publish.id, 0).await;
            next += 1;
        }
        assert!(wraps > 10, "identifiers were given anew {wraps} times");
        connection.puback(held.id, 0x87).await;
        connection.behave(&Behaviour::new()).await;
    })
    .await;
    let mut settings = config(broker.port(), "w");
    settings.answer_timeout = Duration::from_secs(60);
    let writer = writer(settings);
    let held = admit(&writer, message("t", 0_u32.to_be_bytes(), QoS::AtLeastOnce)).await;
    let mut others = tokio::task::JoinSet::new();
    for n in 1..COUNT {
        let admitted = admit(&writer, message("t", n.to_be_bytes(), QoS::AtLeastOnce)).await;
        others.spawn(admitted);
    }
    for answer in others.join_all().await {
        assert_eq!(code(&answer), ReasonCode::SUCCESS);
    }
    let answer = within("the first is answered", held).await;
    assert_eq!(code(&answer), ReasonCode::NOT_AUTHORIZED);
    assert_eq!(broker.connections(), 1);
}
