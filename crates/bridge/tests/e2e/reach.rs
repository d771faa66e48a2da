//! Brokers behind TLS, WebSocket, Unix sockets and older protocols.

use std::time::Duration;

use bridge_testkit::{
    Authority, BridgeConfig, BridgeProcess, Collector, Feeder, HttpProxy, Identity, Installation,
    Load, Mosquitto, Publish, RawClient, wait_for, wait_until,
};

use crate::setup::{
    BRIDGE, Line, PATIENCE, of_session, publish, subscriber, until_drained, until_queued,
};

/// How many messages show that a way is open in both directions.
const MESSAGES: u64 = 300;

/// A bridge with both of its sessions at the URLs, and with those lines.
async fn bridge(plant: String, cloud: String, lines: &[String]) -> (Installation, BridgeProcess) {
    let mut config = BridgeConfig::between(plant, cloud);
    for line in lines {
        config = config.plant(line).cloud(line);
    }
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    (installation, bridge)
}

/// Lets numbered messages of every QoS cross from one broker to the other, each once.
async fn cross(bridge: &BridgeProcess, source: &Mosquitto, destination: &Mosquitto) {
    let mut subscriber = subscriber(destination.port()).await;
    publish(
        source.port(),
        (0..MESSAGES).map(|number| {
            let mut message = Publish::new("numbers", number.to_string());
            message.qos = u8::try_from(number % 3).unwrap();
            message
        }),
    )
    .await;
    let ledger = until_drained(bridge, MESSAGES).await;
    assert_eq!(ledger.delivered, MESSAGES, "{ledger:?}");
    let mut numbers = Vec::new();
    while numbers.len() < usize::try_from(MESSAGES).unwrap() {
        let Ok(message) = subscriber.recv(Duration::from_secs(10)).await else {
            break;
        };
        let text = String::from_utf8(message.payload.to_vec()).unwrap();
        numbers.push(text.parse().unwrap());
    }
    // A broker keeps the order of what has one QoS.
    for qos in 0..3 {
        let of_qos = |number: &u64| number % 3 == qos;
        let expected: Vec<u64> = (0..MESSAGES).filter(of_qos).collect();
        let come: Vec<u64> = numbers.iter().copied().filter(of_qos).collect();
        assert_eq!(come, expected, "QoS {qos}");
    }
}

fn tls(authority: &Authority, client: Option<&Identity>) -> String {
    let ca = authority.certificate();
    let client = client.map_or_else(String::new, |Identity { certificate, key }| {
        let (certificate, key) = (certificate.display(), key.display());
        format!(", certificate_file: {certificate}, key_file: {key}")
    });
    format!("tls: {{ ca_file: {}{client} }}", ca.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_cross_by_tls_with_a_client_certificate() {
    let authority = Authority::new();
    let server = authority.server();
    let broker = || Mosquitto::builder().mutual_tls(&server, authority.certificate());
    let (source, destination) = (broker().start().await, broker().start().await);
    let client = authority.client_until("bridge", 2045, 1, 1);
    let url = |broker: &Mosquitto| format!("mqtts://localhost:{}", broker.mutual_tls_port());
    let lines = [tls(&authority, Some(&client))];
    let (_installation, bridge) = bridge(url(&source), url(&destination), &lines).await;
    cross(&bridge, &source, &destination).await;
    let metrics = bridge.metrics().await;
    for (session, role) in [("plant", "reader"), ("cloud", "writer")] {
        let labels = [("session", session), ("role", role)];
        let name = "bridge_tls_certificate_expiry_timestamp_seconds";
        assert_eq!(metrics.whole(name, &labels), Some(2_366_841_600));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_cross_by_secure_websocket() {
    let authority = Authority::new();
    let server = authority.server();
    let broker = || Mosquitto::builder().secure_websocket(&server);
    let (source, destination) = (broker().start().await, broker().start().await);
    let url = |b: &Mosquitto| format!("wss://localhost:{}/mqtt", b.secure_websocket_port());
    let lines = [
        tls(&authority, None),
        "websocket: { headers: { X-Plant: \"7\" } }".to_owned(),
    ];
    let (_installation, bridge) = bridge(url(&source), url(&destination), &lines).await;
    cross(&bridge, &source, &destination).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_cross_by_a_proxy_that_asks_for_a_password() {
    let authority = Authority::new();
    let server = authority.server_named(&["broker.example"]);
    let broker = || Mosquitto::builder().tls(&server);
    let (source, destination) = (broker().start().await, broker().start().await);
    let proxy = HttpProxy::start().await;
    // `bridge:secret`
    proxy.require("Basic YnJpZGdlOnNlY3JldA==");
    proxy.lead("broker.example:8883", source.tls_port());
    proxy.lead("broker.example:8884", destination.tls_port());
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let lines = [
        tls(&authority, None),
        format!(
            "proxy: {{ url: \"http://localhost:{}\", username: bridge, password_file: {} }}",
            proxy.port(),
            password.display()
        ),
    ];
    let urls = ["mqtts://broker.example", "mqtts://broker.example:8884"].map(str::to_owned);
    let [plant, cloud] = urls;
    let (_installation, bridge) = bridge(plant, cloud, &lines).await;
    cross(&bridge, &source, &destination).await;
    assert_eq!(proxy.requests().len(), 2, "{:?}", proxy.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_cross_by_unix_socket() {
    let broker = || Mosquitto::builder().unix_socket();
    let (source, destination) = (broker().start().await, broker().start().await);
    let url = |broker: &Mosquitto| format!("mqtt+unix://{}", broker.unix_socket().display());
    let (_installation, bridge) = bridge(url(&source), url(&destination), &[]).await;
    cross(&bridge, &source, &destination).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_23_messages_cross_by_ipv6() {
    let broker = || Mosquitto::builder().ipv6();
    let (source, destination) = (broker().start().await, broker().start().await);
    let url = |broker: &Mosquitto| format!("\"mqtt://[::1]:{}\"", broker.ipv6_port());
    let (_installation, bridge) = bridge(url(&source), url(&destination), &[]).await;
    cross(&bridge, &source, &destination).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_cross_by_mqtt_3_1_1() {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::start().await;
    let lines = ["protocol: 3.1.1".to_owned()];
    let (_installation, bridge) = bridge(source.url(), destination.url(), &lines).await;
    cross(&bridge, &source, &destination).await;
    let said = bridge.output();
    let once = said.matches("protocol_without").count();
    assert_eq!(once, 2, "each connection says once what is lost:\n{said}");
    assert!(!said.contains("config_warning"), "and nobody else:\n{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_12_the_next_broker_of_a_list_is_used_at_once_and_the_first_when_it_is_back() {
    let source = Mosquitto::start().await;
    let (mut first, second) = (Mosquitto::start().await, Mosquitto::start().await);
    first.stop().await;
    let list = format!("[\"{}\", \"{}\"]", first.url(), second.url());
    let config = BridgeConfig::between(source.url(), list).cloud("fail_back: 1s");
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    let mut at_second = subscriber(second.port()).await;
    publish(source.port(), [Publish::new("a", "1")]).await;
    let came = at_second.recv(PATIENCE).await.unwrap();
    assert_eq!(came.payload.as_ref(), b"1");
    let failures = of_session(
        &bridge,
        "bridge_mqtt_session_connect_failures_total",
        "cloud",
    )
    .await;
    assert_eq!(failures, 1, "the first was tried once, and then the second");
    first.restart().await;
    let mut at_first = subscriber(first.port()).await;
    // Messages go to the second until the first is there again; from then on to the first.
    let mut number = 2_u64;
    let back = loop {
        publish(source.port(), [Publish::new("a", number.to_string())]).await;
        until_drained(&bridge, number).await;
        if let Ok(came) = at_first.recv(Duration::from_millis(100)).await {
            break came;
        }
        assert!(number < 200, "the first is not used again");
        number += 1;
    };
    // On a slow machine it may be an earlier one than the latest.
    let back = back.text().parse::<u64>().unwrap();
    assert!((2..=number).contains(&back), "{back} of {number}");
    let connects = of_session(&bridge, "bridge_mqtt_session_connects_total", "cloud").await;
    assert_eq!(connects, 2, "{}", bridge.output());
    // And when the first is away once more, to the second.
    first.stop().await;
    publish(source.port(), [Publish::new("a", "last")]).await;
    loop {
        let came = at_second.recv(PATIENCE).await.unwrap();
        if came.payload.as_ref() == b"last" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_authority_is_told_and_nothing_is_sent_in_the_clear() {
    let (authority, other) = (Authority::new(), Authority::new());
    let source = Mosquitto::start().await;
    let destination = Mosquitto::builder().tls(&authority.server()).start().await;
    let url = format!("mqtts://localhost:{}", destination.tls_port());
    let config = BridgeConfig::between(source.url(), url).cloud(tls(&other, None));
    let installation = Installation::new(&config);
    let mut bridge = installation.bridge(BRIDGE).start().await;
    publish(source.port(), [Publish::new("a", "1")]).await;
    until_queued(&bridge, 1).await;
    assert_eq!(
        of_session(&bridge, "bridge_mqtt_session_connects_total", "cloud").await,
        0
    );
    wait_until("why is told", PATIENCE, || {
        let said = bridge.output();
        said.contains("no authority that is trusted here")
    })
    .await;
    // With the right one it goes on.
    bridge.sigterm();
    bridge.wait().await;
    let url = format!("mqtts://localhost:{}", destination.tls_port());
    let config = BridgeConfig::between(source.url(), url).cloud(tls(&authority, None));
    installation.reconfigure(&config);
    let mut subscriber = subscriber(destination.port()).await;
    bridge.relaunch();
    bridge.ready().await;
    let came = subscriber.recv(PATIENCE).await.unwrap();
    assert_eq!(came.payload.as_ref(), b"1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_renewed_under_load_and_nothing_is_lost() {
    let load = Load {
        messages: 10_000,
        size: 64,
    };
    let source = Mosquitto::builder().persistence(true).start().await;
    let destination = Mosquitto::builder()
        .persistence(true)
        .users([("bridge", "first")])
        .config_line("allow_anonymous true")
        .start()
        .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "first\n").unwrap();
    let config = BridgeConfig::between(source.url(), destination.url())
        .cloud("username: bridge")
        .cloud(format!("password_file: {}", file.display()));
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    let collector = Collector::start(destination.port(), "load/#").await;
    let feeder = Feeder::start(source.port(), "load/a", load);
    let connects = || of_session(&bridge, "bridge_mqtt_session_connects_total", "cloud");
    for (renewed, at) in [("second", 2_000), ("third", 5_000)] {
        collector.until(at, PATIENCE).await;
        let before = connects().await;
        std::fs::write(&file, renewed).unwrap();
        destination.set_users(&[("bridge", renewed)]).await;
        wait_for("the new password is used", PATIENCE, async || {
            (connects().await > before).then_some(())
        })
        .await;
    }
    feeder.finish().await;
    collector
        .until(load.messages, Duration::from_secs(60))
        .await;
    collector.barrier().await;
    assert_eq!(collector.tally().missing(load.messages), Vec::<u64>::new());
    let ledger = until_drained(&bridge, load.messages).await;
    assert_eq!(ledger.dead_letters, 0, "{ledger:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_08_a_status_topic_says_whether_the_session_is_there() {
    let topic = "bridges/test/status";
    let line = Line::start(|config| config.cloud(format!("status: {{ topic: {topic} }}"))).await;
    let mut watcher = line.subscriber().await;
    let mut bridge = line.bridge;
    let next = async |watcher: &mut RawClient, said: &str| loop {
        let message = watcher.recv(PATIENCE).await.unwrap();
        assert_eq!(message.topic, topic);
        if message.payload.as_ref() == said.as_bytes() {
            return;
        }
    };
    next(&mut watcher, "online").await;
    bridge.kill().await;
    next(&mut watcher, "offline").await;
    bridge.relaunch();
    next(&mut watcher, "online").await;
    bridge.sigterm();
    assert!(bridge.wait().await.success());
    next(&mut watcher, "offline").await;
    // Whoever comes later is told as well.
    let mut late = subscriber(line.destination.port()).await;
    let retained = late.recv(PATIENCE).await.unwrap();
    assert!(retained.retain, "{retained:?}");
    assert_eq!(retained.payload.as_ref(), b"offline");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_24_a_certificate_is_renewed_one_file_after_the_other_and_nothing_is_lost() {
    let load = Load {
        messages: 4_000,
        size: 64,
    };
    let authority = Authority::new();
    let server = authority.server();
    let source = Mosquitto::builder().persistence(true).start().await;
    let destination = Mosquitto::builder()
        .mutual_tls(&server, authority.certificate())
        .start()
        .await;
    let folder = tempfile::tempdir().unwrap();
    let files = Identity {
        certificate: folder.path().join("client.pem"),
        key: folder.path().join("client.key"),
    };
    let (old, new) = (
        authority.client_until("bridge", 2044, 1, 1),
        authority.client_until("bridge", 2045, 1, 1),
    );
    std::fs::copy(&old.certificate, &files.certificate).unwrap();
    std::fs::copy(&old.key, &files.key).unwrap();
    let url = format!("mqtts://localhost:{}", destination.mutual_tls_port());
    let config = BridgeConfig::between(source.url(), url).cloud(tls(&authority, Some(&files)));
    let installation = Installation::new(&config);
    let bridge = installation.bridge(BRIDGE).start().await;
    let collector = Collector::start(destination.port(), "load/#").await;
    let feeder = Feeder::start(source.port(), "load/a", load);
    collector.until(500, PATIENCE).await;
    // One after the other, as whoever renews them writes them.
    std::fs::copy(&new.certificate, &files.certificate).unwrap();
    let not_yet = || bridge.output().contains("session_keys_not_renewed");
    wait_until("the half pair is seen", PATIENCE, not_yet).await;
    std::fs::copy(&new.key, &files.key).unwrap();
    let renewed = || bridge.output().contains("session_keys_renewed");
    wait_until("the keys are renewed", PATIENCE, renewed).await;
    wait_for("the new certificate is in use", PATIENCE, async || {
        let name = "bridge_tls_certificate_expiry_timestamp_seconds";
        let labels = [("session", "cloud"), ("role", "writer")];
        let expiry = bridge.metrics().await.whole(name, &labels);
        (expiry == Some(2_366_841_600)).then_some(())
    })
    .await;
    feeder.finish().await;
    collector.until(load.messages, PATIENCE).await;
    until_drained(&bridge, load.messages).await;
}
