//! What a broker says it takes is kept to, on every connection anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bridge_core::{Link, LocalRefusal, Message, NotAdmitted, QoS, ReasonCode, Sink};
use bridge_testkit::{
    Behaviour, ConnAck, Cut, Packet, Property, Proxy, Reply, ScriptedBroker, wait_until,
};
use bridge_transport::Writer;
use futures_util::future::join_all;

use crate::common::{DEADLINE, admit, code, config, message, publish, up, within, writer};

/// A broker whose Receive Maximum on each connection is the next of these.
fn receive_maxima(maxima: &'static [u16]) -> Behaviour {
    Behaviour::new().connacks(move |connection| ConnAck {
        properties: maxima
            .get(connection)
            .map(|maximum| Property::ReceiveMaximum(*maximum))
            .into_iter()
            .collect(),
        ..ConnAck::default()
    })
}

#[tokio::test]
async fn no_more_is_open_than_the_receive_maximum_allows_in_the_first_burst_too() {
    let (most, connects) = (Arc::new(AtomicUsize::new(0)), [5_u16, 2, 9]);
    let broker = ScriptedBroker::start({
        let most = Arc::clone(&most);
        move |mut connection| {
            let most = Arc::clone(&most);
            async move {
                let maximum = connects[connection.number().min(2)];
                connection
                    .accept(&[Property::ReceiveMaximum(maximum)])
                    .await;
                // As many as may be open, and not one more, while nothing is answered.
                let mut ids = Vec::new();
                for _ in 0..maximum {
                    ids.push(connection.expect_publish().await.id);
                }
                let more =
                    tokio::time::timeout(Duration::from_millis(150), connection.read_packet());
                assert!(more.await.is_err(), "more than {maximum} open");
                most.fetch_max(usize::from(maximum), Ordering::SeqCst);
                if connection.number() < 2 {
                    return;
                }
                for id in ids {
                    connection.puback(id, 0).await;
                }
                connection.behave(&Behaviour::new()).await;
            }
        }
    })
    .await;
    let writer = Arc::new(writer(config(broker.port(), "w")));
    // A backlog of 50, sent again as often as needed.
    let delivering = (0..50_u8).map(|n| {
        let writer = Arc::clone(&writer);
        tokio::spawn(async move {
            loop {
                let answer = publish(&writer, message("t", vec![n], QoS::AtLeastOnce)).await;
                if matches!(answer, bridge_core::Answer::Answered { .. }) {
                    return;
                }
            }
        })
    });
    for delivered in within("all are delivered", join_all(delivering)).await {
        delivered.unwrap();
    }
    assert_eq!(broker.connections(), 3);
}

#[tokio::test]
async fn the_window_follows_the_receive_maximum_down_and_up_and_to_its_absence() {
    let broker = ScriptedBroker::behaving(receive_maxima(&[20, 3, 300])).await;
    let proxy = Proxy::start(broker.port()).await;
    let writer = writer(config(proxy.port(), "w"));
    for (epoch, expected) in [(1, 20), (2, 3), (3, 100), (4, 100)] {
        up(&writer, epoch - 1).await;
        let Link::Up { limits, .. } = writer.link() else {
            panic!("down");
        };
        assert_eq!(limits.window, expected, "connection {epoch}");
        for n in 0..50_u8 {
            let answer = publish(&writer, message("t", vec![n], QoS::AtLeastOnce)).await;
            assert_eq!(code(&answer), ReasonCode::SUCCESS);
        }
        proxy.cut(Cut::Finish);
    }
}

async fn refusal(writer: &Writer, message: Message) -> LocalRefusal {
    up(writer, 0).await;
    match writer.publish(message).await {
        Err(NotAdmitted::Refused(why)) => why,
        Err(NotAdmitted::LinkDown) => panic!("the link is down"),
        Ok(_) => panic!("it was admitted"),
    }
}

#[tokio::test]
async fn i05_what_the_broker_cannot_take_is_refused_here_and_costs_nothing() {
    let broker = ScriptedBroker::behaving(Behaviour::new().connack([
        Property::MaximumPacketSize(200),
        Property::RetainAvailable(0),
        Property::MaximumQos(1),
    ]))
    .await;
    let writer = writer(config(broker.port(), "w"));
    let large = message("t", vec![0; 200], QoS::AtLeastOnce);
    assert_eq!(
        refusal(&writer, large).await,
        LocalRefusal::PacketTooLarge {
            // Type, two bytes of length, topic, packet id, no properties, payload.
            size: 1 + 2 + 3 + 2 + 1 + 200,
            maximum: 200
        }
    );
    let mut retained = message("t", "x", QoS::AtLeastOnce);
    retained.retain = true;
    assert_eq!(
        refusal(&writer, retained).await,
        LocalRefusal::RetainUnavailable
    );
    assert_eq!(
        refusal(&writer, message("t", "x", QoS::ExactlyOnce)).await,
        LocalRefusal::QosUnavailable {
            maximum: QoS::AtLeastOnce
        }
    );
    let mut hollow = message("t", "x", QoS::AtLeastOnce);
    hollow.properties.content_type = Some("a\0b".to_owned());
    assert_eq!(
        refusal(&writer, hollow).await,
        LocalRefusal::PropertyInvalid
    );
    let mut long = message("t", "x", QoS::AtLeastOnce);
    long.properties.user_properties = vec![("k".to_owned(), "v".repeat(65_536))];
    assert_eq!(refusal(&writer, long).await, LocalRefusal::PropertyInvalid);

    let answer = publish(&writer, message("t", "x", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!((broker.connections(), broker.publish_count()), (1, 1));
}

#[tokio::test]
async fn a_packet_of_exactly_the_maximum_size_goes_and_one_byte_more_does_not() {
    const MAXIMUM: u32 = 1000;
    let broker =
        ScriptedBroker::behaving(Behaviour::new().connack([Property::MaximumPacketSize(MAXIMUM)]))
            .await;
    let writer = writer(config(broker.port(), "w"));
    let of_size = |payload: usize| {
        let mut message = message("topic", vec![1; payload], QoS::AtLeastOnce);
        message.properties.message_expiry = Some(60);
        message.properties.user_properties = vec![("k".to_owned(), "v".to_owned())];
        message
    };
    // Fixed header 3, topic 7, packet id 2, property length 1, expiry 5, user property 7.
    let fits = 1000 - 25;
    let answer = publish(&writer, of_size(fits)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert!(matches!(
        refusal(&writer, of_size(fits + 1)).await,
        LocalRefusal::PacketTooLarge {
            size: 1001,
            maximum: 1000
        }
    ));
    let sent = broker.packets().into_iter().find_map(|(_, packet)| {
        matches!(packet, Packet::Publish(_)).then(|| packet.encode().len())
    });
    assert_eq!(sent, Some(1000));
}

#[tokio::test]
async fn what_we_take_is_declared_in_the_connect() {
    let broker = ScriptedBroker::accepting().await;
    let mut settings = config(broker.port(), "r");
    settings.receive_maximum = 17.try_into().unwrap();
    settings.max_packet_size = 70_000;
    let reader = crate::common::reader(settings, "t");
    crate::common::subscribed(&reader).await;
    wait_until("the CONNECT is recorded", DEADLINE, || {
        !broker.connects().is_empty()
    })
    .await;
    let connect = broker.connects().remove(0);
    assert!(connect.properties.contains(&Property::ReceiveMaximum(17)));
    assert!(
        connect
            .properties
            .contains(&Property::MaximumPacketSize(70_000))
    );
    assert!(
        connect
            .properties
            .contains(&Property::SessionExpiry(86_400))
    );
    assert!(!connect.clean_start);
}

#[tokio::test]
async fn i05_a_large_message_that_waited_is_refused_here_when_the_maximum_has_shrunk() {
    let broker = ScriptedBroker::behaving(
        Behaviour::new()
            .connacks(|connection| ConnAck {
                properties: vec![Property::MaximumPacketSize(if connection == 0 {
                    10_000
                } else {
                    100
                })],
                ..ConnAck::default()
            })
            .reply(|received| match received.connection {
                0 => Reply::Silence,
                _ => Reply::Accept,
            }),
    )
    .await;
    let proxy = Proxy::start(broker.port()).await;
    let mut settings = config(proxy.port(), "w");
    settings.max_in_flight = 1.try_into().unwrap();
    let writer = Arc::new(writer(settings));
    let first = admit(&writer, message("t", "first", QoS::AtLeastOnce)).await;
    let large = message("t", vec![0; 5_000], QoS::AtLeastOnce);
    let waiting = tokio::spawn({
        let (writer, large) = (Arc::clone(&writer), large.clone());
        async move { writer.publish(large).await.err() }
    });
    wait_until("the first arrives", DEADLINE, || {
        broker.publish_count() == 1
    })
    .await;
    proxy.cut(Cut::Reset);
    let told = within("the waiting one is told", waiting).await.unwrap();
    assert_eq!(told, Some(NotAdmitted::LinkDown));
    let unanswered = within("the first is told", first).await;
    assert!(matches!(unanswered, bridge_core::Answer::Unanswered(_)));
    up(&writer, 1).await;
    assert!(matches!(
        refusal(&writer, large).await,
        LocalRefusal::PacketTooLarge { maximum: 100, .. }
    ));
    let answer = publish(&writer, message("t", "small", QoS::AtLeastOnce)).await;
    assert_eq!(code(&answer), ReasonCode::SUCCESS);
    assert_eq!(
        broker.connections(),
        2,
        "a large message costs no connection"
    );
    let seen = broker.publishes();
    assert!(seen.iter().all(|seen| seen.publish.payload.len() < 100));
}
