//! Source brokers with their ways.

use bridge_testkit::{
    Ack, AckKind, Behaviour, BridgeConfig, BridgeProcess, Installation, Mosquitto, Packet,
    Property, Publish, RawClient, ScriptedBroker, wait_for, wait_until,
};
use tokio::sync::watch;

use crate::setup::{BRIDGE, Line, PATIENCE, of_session, publish};

/// A bridge between two scripted brokers.
struct Scripted {
    source: ScriptedBroker,
    destination: ScriptedBroker,
    _installation: Installation,
    bridge: BridgeProcess,
}

impl Scripted {
    async fn start(source: ScriptedBroker, topics: &[&str]) -> Self {
        let destination = ScriptedBroker::accepting().await;
        let config = BridgeConfig::between(source.url(), destination.url()).topics(topics);
        let installation = Installation::new(&config);
        let bridge = installation.bridge(BRIDGE).start().await;
        Self {
            source,
            destination,
            _installation: installation,
            bridge,
        }
    }

    /// The topics of what has arrived, once so many have.
    async fn arrived(&self, count: usize) -> Vec<Publish> {
        wait_until("the messages arrive", PATIENCE, || {
            self.destination.publish_count() >= count
        })
        .await;
        let arrived = self.destination.publishes().into_iter();
        arrived.map(|received| received.publish).collect()
    }

    /// Waits until the bridge has acknowledged these packet identifiers at the source.
    async fn acknowledged(&self, ids: &[u16]) {
        let acknowledged = |id: u16| {
            let ack = Packet::Ack(Ack::new(AckKind::PubAck, id, 0));
            let packets = self.source.packets();
            packets.iter().any(|(_, packet)| *packet == ack)
        };
        wait_until("all are acknowledged", PATIENCE, || {
            ids.iter().all(|id| acknowledged(*id))
        })
        .await;
    }
}

#[tokio::test]
async fn case_18_a_large_retained_message_crosses_and_the_limit_is_declared() {
    let source = Mosquitto::start().await;
    publish(
        source.port(),
        [Publish::new("big", vec![7; 64 << 10]).retained()],
    )
    .await;
    let line = Line::between(source, Mosquitto::start().await, |config| config).await;
    line.drained(1).await;
    let mut late = line.subscriber().await;
    assert_eq!(late.recv(PATIENCE).await.unwrap().payload.len(), 64 << 10);

    let scripted = ScriptedBroker::accepting().await;
    let config = BridgeConfig::between(scripted.url(), line.destination.url())
        .plant("max_packet_size: 16 KiB");
    let installation = Installation::new(&config);
    let _bridge = installation.bridge(BRIDGE).start().await;
    let declared = scripted.connects()[0].property(|property| match property {
        Property::MaximumPacketSize(bytes) => Some(*bytes),
        _ => None,
    });
    assert_eq!(declared, Some(16 << 10));
}

#[tokio::test]
async fn case_18_a_message_over_the_limit_is_no_endless_redelivery() {
    let source = Mosquitto::start().await;
    publish(
        source.port(),
        [Publish::new("big", vec![7; 64 << 10]).retained()],
    )
    .await;
    let line = Line::between(source, Mosquitto::start().await, |config| {
        config.plant("max_packet_size: 16 KiB")
    })
    .await;
    let mut subscriber = line.subscriber().await;
    line.publish([Publish::new("small", "1"), Publish::new("small", "2")])
        .await;
    let arrived = subscriber.collect(2, PATIENCE).await.unwrap();
    assert!(arrived.iter().all(|message| message.topic == "small"));
    let connects = of_session(&line.bridge, "bridge_mqtt_session_connects_total", "plant");
    assert_eq!(connects.await, 1);
}

#[tokio::test]
async fn case_19_ready_is_said_after_the_broker_has_granted_the_subscriptions() {
    let granting = watch::Sender::new(false);
    let may_grant = granting.subscribe();
    let source = ScriptedBroker::start(move |mut connection| {
        let mut may_grant = may_grant.clone();
        async move {
            connection.accept(&[]).await;
            let subscribe = connection.expect_subscribe().await;
            may_grant.wait_for(|may| *may).await.unwrap();
            connection
                .suback(subscribe.id, &vec![1; subscribe.filters.len()])
                .await;
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let destination = ScriptedBroker::accepting().await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = Installation::new(&config);
    let process = installation
        .bridge(BRIDGE)
        .ready_path("/readyz?level=connected");
    let mut bridge = process.start().await;
    wait_until("SUBSCRIBE comes", PATIENCE, || {
        let packets = source.packets();
        packets
            .iter()
            .any(|(_, packet)| matches!(packet, Packet::Subscribe(_)))
    })
    .await;
    for path in ["/readyz", "/readyz?level=subscribed", "/readyz?level=full"] {
        let answer = bridge.get(path).await.unwrap();
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
        assert!(answer.body.contains("plant"), "{path}: {}", answer.body);
    }
    granting.send_replace(true);
    wait_for("ready", PATIENCE, async || {
        (bridge.get("/readyz").await.unwrap().status == 200).then_some(())
    })
    .await;
    bridge.sigterm();
    assert!(bridge.wait().await.success());
}

#[tokio::test]
async fn case_19_a_source_that_has_forgotten_us_is_subscribed_again_and_that_is_counted() {
    const LOST: &str = "bridge_mqtt_session_lost_total";
    let source = Mosquitto::start().await;
    let mut line = Line::between(source, Mosquitto::start().await, |config| config).await;
    let mut subscriber = line.subscriber().await;
    line.publish([Publish::new("before", "1")]).await;
    assert_eq!(subscriber.recv(PATIENCE).await.unwrap().topic, "before");
    assert_eq!(of_session(&line.bridge, LOST, "plant").await, 0);
    for restarts in 1..=2 {
        line.source.restart().await;
        wait_for(
            "the session is lost and subscribed again",
            PATIENCE,
            async || {
                let lost = of_session(&line.bridge, LOST, "plant").await;
                let ready = line.bridge.get("/readyz").await.unwrap().status == 200;
                (lost == restarts && ready).then_some(())
            },
        )
        .await;
        line.publish([Publish::new("after", restarts.to_string())])
            .await;
        let arrived = subscriber.recv(PATIENCE).await.unwrap();
        assert_eq!(
            (arrived.topic.as_str(), arrived.text()),
            ("after", restarts.to_string().as_str())
        );
    }
}

#[tokio::test]
async fn case_30_everything_is_not_what_a_broker_says_of_itself() {
    for filter in ["#", "$share/g/#", "+/#"] {
        let source = Mosquitto::builder()
            .config_line("sys_interval 1")
            .start()
            .await;
        let line = Line::between(source, Mosquitto::start().await, |config| {
            config.topics(&[filter])
        })
        .await;
        // What the destination says of itself does not match `#` there either.
        let mut subscriber = line.subscriber().await;
        let mut observer = RawClient::connect(line.source.port(), "observer")
            .await
            .unwrap();
        observer.subscribe(&[("$SYS/#", 0)]).await.unwrap();
        let retained = observer.collect(30, PATIENCE).await.unwrap();
        assert!(
            retained
                .iter()
                .all(|message| message.topic.starts_with("$SYS/"))
        );
        line.publish([Publish::new("ours/1", "x")]).await;
        assert_eq!(subscriber.recv(PATIENCE).await.unwrap().topic, "ours/1");
        let ledger = line.drained(1).await;
        assert_eq!(
            (ledger.received, ledger.delivered),
            (1, 1),
            "{filter}: {ledger}"
        );
        assert_eq!(
            of_session(&line.bridge, "bridge_source_received_total", "plant").await,
            1
        );
    }
}

#[tokio::test]
async fn case_30_a_broker_that_sends_it_all_the_same_is_acknowledged_and_nothing_is_forwarded() {
    let sent = [
        Publish::new("$SYS/broker/uptime", "1").id(1),
        Publish::new("$internal", "2").id(2),
        Publish::new("ours/1", "3").id(3),
    ];
    let source = ScriptedBroker::behaving(Behaviour::new().after_subscribe(sent)).await;
    let scripted = Scripted::start(source, &["#"]).await;
    scripted.acknowledged(&[1, 2, 3]).await;
    let arrived = scripted.arrived(1).await;
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].topic, "ours/1");
    let unrouted = of_session(&scripted.bridge, "bridge_source_unrouted_total", "plant");
    assert_eq!(unrouted.await, 2);
}

/// A QoS 1 PUBLISH with a topic of any bytes.
fn publish_bytes(id: u16, topic: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
    body.extend_from_slice(topic);
    body.extend_from_slice(&id.to_be_bytes());
    body.push(0);
    body.extend_from_slice(payload);
    assert!(body.len() < 128, "one byte of remaining length");
    let mut packet = vec![0x32, u8::try_from(body.len()).unwrap()];
    packet.extend_from_slice(&body);
    packet
}

#[tokio::test]
async fn case_31_a_topic_that_is_none_is_set_aside_and_what_is_behind_it_crosses() {
    const INVALID: &str = "bridge_mqtt_session_invalid_topics_total";
    const BROKEN: [&[u8]; 6] = [
        b"nul\0nul",
        b"not/\xC3\x28/utf-8",
        b"surrogate/\xED\xA0\x80",
        b"wild/+",
        b"wild/#",
        b"",
    ];
    let payload: Vec<u8> = (0..100_u8).map(|n| n.wrapping_mul(151) ^ 0xA5).collect();
    let sent = payload.clone();
    let source = ScriptedBroker::start(move |mut connection| {
        let payload = sent.clone();
        async move {
            connection.accept(&[]).await;
            let subscribe = connection.expect_subscribe().await;
            connection.suback(subscribe.id, &[1]).await;
            for (id, topic) in (1..).zip(BROKEN) {
                connection.send(&publish_bytes(id, topic, b"broken")).await;
            }
            connection
                .send(&publish_bytes(100, b"fine", &payload))
                .await;
            connection.behave(&Behaviour::new()).await;
        }
    })
    .await;
    let scripted = Scripted::start(source, &["#"]).await;
    scripted.acknowledged(&[1, 2, 3, 4, 5, 6, 100]).await;
    let arrived = scripted.arrived(1).await;
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].topic, "fine");
    assert_eq!(arrived[0].payload, payload);
    assert_eq!(of_session(&scripted.bridge, INVALID, "plant").await, 6);
    assert_eq!(scripted.source.connections(), 1, "no loop of reconnects");
}
