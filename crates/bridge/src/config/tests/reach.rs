//! How brokers are reached, from the file to its place.

use std::path::PathBuf;

use bridge_testkit::{Authority, Identity};
use bridge_transport::{
    ClientCertificate, HttpProxy, Place, Protocol, QosUnavailable, RetainUnavailable,
    SessionConfig, StatusTopic, Tls, TlsVersion, Trust, WebSocket,
};

use super::*;

/// A configuration whose destination `s` has `fields`.
fn text(fields: &str) -> String {
    let indented = fields.replace('\n', "\n    ");
    format!(
        "bridge: {{ id: b }}\ndata_dir: d\nsessions:\n  a: {{ url: mqtt://localhost, client_id: a }}\n  \
         s:\n    client_id: s\n    {indented}\nroutes:\n  r:\n    from: {{ session: a, topics: [x] }}\n    \
         bindings: {{ b: {{ session: s }} }}\n"
    )
}

fn session(fields: &str) -> SessionConfig {
    good(&text(fields)).sessions[&name("s")].clone()
}

/// The warnings about a configuration that can be used.
fn warnings(fields: &str) -> Vec<String> {
    let (config, report) = examine(&text(fields));
    assert!(config.is_some(), "{}", report.render(Paint::Plain));
    report.warnings().map(|w| w.problem.to_string()).collect()
}

fn address(host: &str, port: u16) -> Address {
    Address {
        host: host.to_owned(),
        port,
    }
}

#[test]
fn brokers_are_one_or_a_list() {
    let one = session("url: mqtt://h");
    assert_eq!(one.brokers, Brokers::one(Endpoint::tcp(address("h", 1883))));
    let list = session("url: [mqtt://h, mqtt+unix:///run/m, ws://h/m]\nfail_back: 90s");
    let brokers: Vec<String> = list.brokers.iter().map(ToString::to_string).collect();
    assert_eq!(
        brokers,
        ["mqtt://h:1883", "mqtt+unix:///run/m", "ws://h:80/m"]
    );
    assert_eq!(list.brokers.fail_back, Some(Duration::from_secs(90)));
}

#[test]
fn every_field_of_a_way_reaches_its_place() {
    let authority = Authority::new();
    let Identity { certificate, key } = authority.client("bridge");
    let ca = authority.certificate();
    let folder = tempfile::tempdir().unwrap();
    let in_file = folder.path().join("header");
    std::fs::write(&in_file, "of a file\n").unwrap();
    let session = session(&format!(
        r#"url: [wss://h:8443/mqtt?v=5, mqtts://h, mqtt+unix:///run/m]
tls:
  ca_file: {ca}
  certificate_file: {certificate}
  key_file: {key}
  server_name: other.example
  minimum_version: 1.3
  alpn: [mqtt, x]
websocket:
  headers: {{ X-Tenant: "${{NOBODY:-7}}7", Authorization: Bearer t }}
  header_files: {{ X-Key: {in_file} }}
proxy: {{ url: "http://[::1]:3128", username: u, password: p }}
protocol: "5"
on_qos_unavailable: downgrade
on_retain_unavailable: strip
status: {{ topic: bridges/b, online: up, offline: down }}"#,
        ca = ca.display(),
        certificate = certificate.display(),
        key = key.display(),
        in_file = in_file.display(),
    ));
    let tls = Tls {
        trust: Trust::File(ca),
        client: Some(ClientCertificate { certificate, key }),
        server_name: Some("other.example".to_owned()),
        minimum: TlsVersion::V1_3,
        alpn: vec!["mqtt".to_owned(), "x".to_owned()],
    };
    let header = |name: &str, value: &str| (name.to_owned(), Secret::new(value.to_owned()));
    let proxy = HttpProxy {
        address: address("::1", 3128),
        credentials: Some(("u".to_owned(), Password::Text(Secret::new("p".to_owned())))),
    };
    let first = Endpoint {
        place: Place::Tcp(address("h", 8443)),
        tls: Some(tls.clone()),
        websocket: Some(WebSocket {
            path: "/mqtt?v=5".to_owned(),
            headers: vec![
                header("X-Tenant", "77"),
                header("Authorization", "Bearer t"),
                header("X-Key", "of a file"),
            ],
        }),
        proxy: Some(proxy.clone()),
    };
    let second = Endpoint {
        place: Place::Tcp(address("h", 8883)),
        tls: Some(tls),
        websocket: None,
        proxy: Some(proxy),
    };
    let third = Endpoint {
        place: Place::Unix(PathBuf::from("/run/m")),
        tls: None,
        websocket: None,
        proxy: None,
    };
    let brokers: Vec<&Endpoint> = session.brokers.iter().collect();
    assert_eq!(brokers, [&first, &second, &third]);
    assert_eq!(session.protocol, Protocol::V5);
    assert_eq!(session.qos_unavailable, QosUnavailable::Downgrade);
    assert_eq!(session.retain_unavailable, RetainUnavailable::Strip);
    let status = StatusTopic {
        topic: bridge_core::Topic::parse("bridges/b").unwrap(),
        online: "up".to_owned(),
        offline: "down".to_owned(),
    };
    assert_eq!(session.status, Some(status));
}

#[test]
fn what_a_way_leaves_open_is_a_warning() {
    for (fields, expected) in [
        ("url: mqtts://h", None),
        (
            "url: mqtts://h\ntls: { insecure_skip_verify: true }",
            Some("any certificate is accepted"),
        ),
        (
            "url: [mqtts://h, mqtt://i]",
            Some("`mqtt://i:1883` is not encrypted"),
        ),
        ("url: [mqtts://h, mqtt://localhost:1]", None),
        (
            "url: ws://h\nusername: u\nallow_plaintext_credentials: true",
            Some("the credentials cross the network in the clear, to `h:80`"),
        ),
        (
            "url: mqtts://h\nproxy: { url: \"http://p:1\", username: u }\nallow_plaintext_credentials: true",
            Some("the credentials cross the network in the clear, to the proxy `p:1`"),
        ),
        (
            "url: wss://h\nusername: u\nallow_plaintext_credentials: true",
            None,
        ),
        ("url: mqtt+unix:///run/m\nusername: u", None),
        (
            "url: mqtts://h\nprotocol: 3.1.1",
            Some(
                "MQTT 3.1.1 has no words for `refusals`, `message_expiry`, `properties` and `takeover`",
            ),
        ),
        (
            "url: mqtts://h\nstatus: { topic: s }\nclient_id_suffix: nonce",
            Some("every replica that shares this file"),
        ),
        (
            "url: mqtts://h\nstatus: { topic: \"${NOBODY:-s}\" }\nclient_id_suffix: nonce",
            None,
        ),
    ] {
        let said = warnings(fields);
        let fits = match expected {
            None => said.is_empty(),
            Some(expected) => said.len() == 1 && said[0].starts_with(expected),
        };
        assert!(fits, "{fields}: {said:?}");
    }
}

#[test]
fn what_mqtt_3_1_1_cannot_say_is_said_of_what_it_touches() {
    let unsaid = |text: &str| -> String {
        let (config, report) = examine(text);
        assert!(config.is_some(), "{}", report.render(Paint::Plain));
        let notes = report.warnings().map(|w| w.problem.notes().join("\n"));
        notes.collect()
    };
    let written = text("url: mqtts://h\nprotocol: 3.1.1");
    assert_eq!(good(&written).sessions[&name("s")].protocol, Protocol::V311);
    for (qos, blind) in [("keep", true), ("0", false), ("1", true), ("2", true)] {
        let with = written.replace("{ session: s }", &format!("{{ session: s, qos: {qos} }}"));
        assert_eq!(unsaid(&with).contains("refusals"), blind, "{qos}");
    }
    let read = written
        .replace("{ session: a, topics: [x] }", "{ session: s, topics: [x] }")
        .replace("{ session: s }", "{ session: a }");
    let said = unsaid(&read);
    assert!(
        !said.contains("refusals"),
        "nothing is published there: {said}"
    );
    assert!(said.contains("session_expiry") && !said.contains("shared_subscriptions"));
    let shared = read.replace("[x]", "[$share/g/x]");
    assert!(unsaid(&shared).contains("shared_subscriptions"));
    let ephemeral = read.replace(
        "protocol: 3.1.1",
        "protocol: 3.1.1\n    session_mode: ephemeral",
    );
    assert!(!unsaid(&ephemeral).contains("session_expiry"));
}

#[test]
fn a_client_id_is_as_long_as_its_protocol_allows() {
    let long = |fields: &str| {
        let fields = format!("url: mqtts://h\n{fields}");
        let said = warnings(&fields);
        said.iter().any(|w| w.contains("24 bytes"))
    };
    let suffix = "client_id_suffix: nonce\npublisher_client_id: fifteen-letters";
    assert!(
        !long(&format!("{suffix}\nprotocol: 3.1.1")),
        "it is not used"
    );
    let named = text("url: mqtts://h\nprotocol: 3.1.1")
        .replace("client_id: s\n", "client_id: twenty-four-characters-x\n");
    let (_, report) = examine(&named);
    assert!(report.render(Paint::Plain).contains("24 bytes"));
    let (_, report) = examine(&named.replace("protocol: 3.1.1", "protocol: 5"));
    assert_eq!(report.warnings().count(), 0);
}

#[test]
fn a_window_is_narrow_where_a_broker_cannot_ask_for_it() {
    let window = |fields: &str| session(fields).max_in_flight.get();
    assert_eq!(window("url: mqtts://h"), 100);
    assert_eq!(window("url: mqtts://h\nprotocol: 3.1.1"), 20);
    let wide = "url: mqtts://h\nprotocol: 3.1.1\nmax_in_flight: 21";
    assert_eq!(window(wide), 21);
    let doubted = |qos: &str| {
        let (_, report) =
            examine(&text(wide).replace("topics: [x]", &format!("topics: [x], qos: {qos}")));
        report
            .render(Paint::Plain)
            .contains("up to 21 messages may be unanswered")
    };
    assert!(doubted("2") && !doubted("1"));
}

#[test]
fn places_that_are_shared_are_known() {
    let refused = |fields: &str, with: &str| {
        let text = text(fields).replace("client_id: a }", with);
        let (config, report) = examine(&text);
        config.is_none().then(|| report.render(Paint::Plain))
    };
    let same_id = "client_id: s }";
    let taken = "the session `a` already connects to localhost:1883 as `s`";
    let said = refused("url: [mqtt://h, mqtt://127.0.0.1]", same_id).unwrap();
    assert!(said.contains(taken), "{said}");
    assert_eq!(refused("url: [mqtt://h, mqtt://i]", same_id), None);
    let status = "client_id: a, status: { topic: t } }";
    let said = refused(
        "url: [mqtt://h, mqtt://localhost]\nstatus: { topic: t }",
        status,
    )
    .unwrap();
    assert!(
        said.contains("the session `a` already tells its status there"),
        "{said}"
    );
    assert_eq!(refused("url: mqtt://h\nstatus: { topic: t }", status), None);
    // The broker that is local to a proxy is not ours.
    let proxied = "url: mqtt://localhost\nproxy: { url: \"http://p:1\" }";
    assert_eq!(refused(proxied, same_id), None);
}
