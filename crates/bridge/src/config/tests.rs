mod identity;
mod reach;
mod schema;
mod strange;

use std::path::Path;

use bridge_core::QoS;
use bridge_dlq_admin::{Token, TokenOrigin};
use bridge_lease::{LeaseSettings, PostgresSettings};
use bridge_runtime::{
    DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull, OnExpired, OnFull,
    RetainPolicy,
};
use bridge_transport::{Address, Brokers, Endpoint, Password, Secret, SessionKind};

use super::fields::{Field, Kind, Presence, ROOT, Section};
use super::nonce::Nonce;
use super::yaml::{Node, Value};
use super::*;

/// A machine that a test makes up.
struct Imagined;

impl Host for Imagined {
    fn variable(&self, name: &str) -> Option<Result<String, ()>> {
        match name {
            "ADMIN_TOKEN" => Some(Ok("s3cret-0123456789".to_owned())),
            "CLOUD_PASSWORD" => Some(Ok("s3cret: # \n{".to_owned())),
            "RAW" => Some(Err(())),
            _ => None,
        }
    }

    fn hostname(&self) -> Result<String, String> {
        Ok("edge-1".to_owned())
    }

    fn nonce(&self) -> Nonce {
        Nonce::draw::<String>(Ok(0x0bad_cafe), || unreachable!("there is randomness"))
    }
}

fn examine(text: &str) -> (Option<Config>, Report) {
    examine_bytes(text.as_bytes().to_vec())
}

fn examine_bytes(bytes: Vec<u8>) -> (Option<Config>, Report) {
    let path = Path::new("bridge.yaml");
    match source::Source::decode(path.display().to_string(), bytes) {
        Ok(source) => Config::examine_source(source, path, &Imagined),
        Err(unusable) => {
            let at = unusable.at;
            let report = Report::single(unusable.source, &(at..at), unusable.problem);
            (None, report)
        }
    }
}

fn good(text: &str) -> Config {
    let (config, report) = examine(text);
    config.unwrap_or_else(|| panic!("{}", report.render(Paint::Plain)))
}

fn sample(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn samples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == "yaml"))
        .collect();
    names.sort();
    names
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

#[test]
fn the_minimal_sample_becomes_what_it_says() {
    let config = good(&sample("minimal.yaml"));
    assert_eq!(config.bridge_id, name("plant-7"));
    assert_eq!(config.data_dir, Path::new("/var/lib/bridge"));
    assert_eq!(config.journal.segment_size, 8 << 20);
    assert_eq!(config.admin, None);
    assert_eq!(config.monitor, None);
    assert_eq!(config.drain_timeout, Duration::from_secs(30));
    let plant = &config.sessions[&name("plant")];
    assert_eq!(
        plant.brokers,
        Brokers::one(Endpoint::tcp(Address {
            host: "localhost".to_owned(),
            port: 1883
        }))
    );
    assert_eq!(plant.client_id, "plant-7");
    assert_eq!(plant.publisher_client_id, "plant-7-pub");
    let day = Duration::from_secs(86_400);
    assert_eq!(plant.kind, SessionKind::Persistent { expiry: day });
    assert_eq!(plant.credentials, None);
    let [route] = config.routes.as_slice() else {
        panic!("one route, not {:?}", config.routes);
    };
    assert_eq!(route.source, name("plant"));
    assert_eq!(route.mode, DeliveryMode::StoreAndForward);
    assert_eq!(route.subscriptions[0].filter.as_str(), "sensors/#");
    assert_eq!(route.subscriptions[0].qos, QoS::AtLeastOnce);
    let binding = &route.bindings[0];
    assert_eq!(binding.topic.as_str(), "plants/7/{topic}");
    assert_eq!(binding.qos, None);
    assert_eq!(binding.retain, RetainPolicy::Keep);
    assert_eq!(binding.max_in_flight, plant.max_in_flight);
    assert_eq!(binding.queue.on_full, OnFull::Backpressure);
    assert_eq!(binding.on_expired, OnExpired::Drop);
}

#[test]
fn every_field_reaches_its_place() {
    let config = good(
        r#"
bridge: { id: b }
data_dir: data
journal: { segment_size: 1 MiB }
drain_timeout: 5s
admin: { listen: "[::1]:8081", token: "0123456789abcdef" }
monitor: { listen: "[::1]:9090" }
sessions:
  a:
    url: mqtt://[fe80::1%25eth0]:1884
    client_id: a
    publisher_client_id: a-writes
    session_mode: persistent
    client_id_suffix: hostname
    assert_stable_client_identity: true
    session_expiry: 2h
    username: u
    password: "${CLOUD_PASSWORD}"
    allow_plaintext_credentials: true
    keep_alive: 7s
    connect_timeout: 1s
    answer_timeout: 2s
    write_timeout: 3s
    reconnect: { min: 10ms, max: 20ms }
    max_in_flight: 5
    receive_maximum: 6
    max_packet_size: 1 KiB
  b: { url: mqtt://localhost, client_id: b, client_id_suffix: nonce, max_in_flight: 17 }
routes:
  r:
    from: { session: a, topics: [x/#, k], qos: 2 }
    delivery: direct_hold
    send_retry_budget: 9s
    bindings:
      one: { session: b, strip_prefix: "", add_prefix: "p/", qos: 0, retain: always, max_in_flight: 2 }
      two: { session: b, topic: "{route}/{topic}", qos: 2, retain: never, on_expired: dead_letter }
  s:
    from: { session: a, topics: [z] }
    delivery: outbox
    bindings:
      one: { session: b, topic: z2, queue: { max_entries: 3, max_bytes: 4 KiB, on_full: drop_newest }, deferred: { window: 1h, retry_interval: 9s, max_entries: 4, max_bytes: 5 KiB }, dead_letters: { max_entries: 6, max_bytes: 7 KiB, on_full: hold } }
"#,
    );
    assert_eq!(config.data_dir, Path::new("data"));
    assert_eq!(config.journal.segment_size, 1 << 20);
    assert_eq!(config.drain_timeout, Duration::from_secs(5));
    assert_eq!(config.monitor, Some("[::1]:9090".parse().unwrap()));
    let admin = config.admin.unwrap();
    assert_eq!(admin.listen, "[::1]:8081".parse().unwrap());
    let token = Token::parse("0123456789abcdef").unwrap();
    assert_eq!(admin.token, TokenOrigin::Text(token));
    assert_eq!(admin.tls, None);
    let a = &config.sessions[&name("a")];
    assert_eq!(a.brokers.to_string(), "mqtt://[fe80::1%eth0]:1884");
    assert_eq!(a.client_id, "a-edge-1");
    assert_eq!(a.publisher_client_id, "a-writes-edge-1");
    let expiry = Duration::from_secs(7_200);
    assert_eq!(a.kind, SessionKind::Persistent { expiry });
    let credentials = a.credentials.as_ref().unwrap();
    assert_eq!(credentials.username, "u");
    let password = credentials.password.as_ref().unwrap();
    let expected = Secret::new("s3cret: # \n{".to_owned());
    assert_eq!(*password, Password::Text(expected));
    assert_eq!(a.keep_alive, Duration::from_secs(7));
    assert_eq!(a.connect_timeout, Duration::from_secs(1));
    assert_eq!(a.answer_timeout, Duration::from_secs(2));
    assert_eq!(a.write_timeout, Duration::from_secs(3));
    assert_eq!(a.backoff.delay(9, u32::MAX), Duration::from_millis(20));
    assert_eq!(a.max_in_flight.get(), 5);
    assert_eq!(a.receive_maximum.get(), 6);
    assert_eq!(a.max_packet_size, 1_024);
    let b = &config.sessions[&name("b")];
    assert_eq!(b.client_id, "b-0badcafe");
    assert_eq!(b.publisher_client_id, "b-0badcafe-pub");
    assert_eq!(b.kind, SessionKind::Ephemeral);
    let [r, s] = config.routes.as_slice() else {
        panic!("two routes");
    };
    assert_eq!(r.subscriptions.len(), 2);
    assert_eq!(r.subscriptions[1].qos, QoS::ExactlyOnce);
    let send_retry_budget = Duration::from_secs(9);
    assert_eq!(r.mode, DeliveryMode::DirectHold { send_retry_budget });
    let [one, two] = r.bindings.as_slice() else {
        panic!("two bindings");
    };
    assert_eq!(one.topic.as_str(), "p/{topic}");
    assert_eq!(one.qos, Some(QoS::AtMostOnce));
    assert_eq!(one.retain, RetainPolicy::Always);
    assert_eq!(one.max_in_flight.get(), 2);
    assert_eq!(two.qos, Some(QoS::ExactlyOnce));
    assert_eq!(two.retain, RetainPolicy::Never);
    assert_eq!(two.on_expired, OnExpired::DeadLetter);
    assert_eq!(two.max_in_flight.get(), 17, "the session's");
    assert_eq!(s.mode, DeliveryMode::Outbox);
    let queue = s.bindings[0].queue;
    assert_eq!((queue.max_entries, queue.max_bytes), (3, 4_096));
    assert_eq!(queue.on_full, OnFull::DropNewest);
    let deferral = DeferralSpec {
        window: Duration::from_secs(3_600),
        retry_interval: Duration::from_secs(9),
        max_entries: 4,
        max_bytes: 5_120,
    };
    assert_eq!(s.bindings[0].deferral, deferral);
    let dead_letters = DeadLetterBounds {
        max_entries: 6,
        max_bytes: 7_168,
        on_full: OnDeadLettersFull::Hold,
    };
    assert_eq!(s.bindings[0].dead_letters, dead_letters);
    assert_eq!(one.deferral.window, Duration::from_secs(900));
    assert_eq!(one.dead_letters.on_full, OnDeadLettersFull::DiscardNewest);
}

#[test]
fn a_lease_reaches_its_place() {
    let with = |bridge: &str, lease: &str| {
        let text = format!(
            "bridge: {bridge}\ndata_dir: d\nlease: {lease}\nsessions:\n  \
             a: {{ url: mqtt://localhost, client_id: a, session_mode: exclusive }}\nroutes:\n  \
             r: {{ from: {{ session: a, topics: [x] }}, bindings: {{ out: {{ session: a, add_prefix: y/ }} }} }}\n"
        );
        good(&text).lease.unwrap()
    };
    let lease = with("{ id: b }", "{ store: file, path: bridge.lease }");
    assert_eq!(lease.store, LeaseStore::File("bridge.lease".into()));
    assert_eq!(lease.name, name("b"), "that of the bridge");
    assert_eq!(lease.instance_id, "edge-1", "that of the machine");
    assert_eq!(lease.settings, LeaseSettings::default());

    let lease = with(
        "{ id: b, instance_id: b-0 }",
        "{ store: postgres, url: postgres://u@db/x, name: c, lease_ttl: 2s, renew_interval: 500ms, step_down_grace: 1s }",
    );
    let database = PostgresSettings::parse("postgres://u@db/x").unwrap();
    assert_eq!(lease.store, LeaseStore::Postgres(Box::new(database)));
    assert_eq!((lease.name, lease.instance_id.as_str()), (name("c"), "b-0"));
    let [ttl, renew, grace] = [2000, 500, 1000].map(Duration::from_millis);
    assert_eq!(
        lease.settings,
        LeaseSettings::new(ttl, renew, grace).unwrap()
    );
}

#[test]
fn secrets_are_in_no_debug_output() {
    let text = sample("reference.yaml");
    let config = good(&text);
    assert!(!format!("{config:?}").contains("s3cret"));
    let (_, report) = examine("password: s3cret\n");
    assert!(!format!("{report:?}").contains("s3cret"), "{report:?}");
}

/// Every field with its section's path.
fn all_fields() -> Vec<(String, &'static Field)> {
    fn walk(path: &str, section: &'static Section, all: &mut Vec<(String, &'static Field)>) {
        for field in section.fields {
            let path = format!("{path}.{}", field.name);
            if let Kind::Section(inner) | Kind::Named(inner, _) = field.kind {
                walk(&path, inner, all);
            }
            all.push((path, field));
        }
    }
    let mut all = Vec::new();
    walk("", &ROOT, &mut all);
    all
}

#[test]
fn every_default_and_every_bound_can_be_read() {
    for (path, field) in all_fields() {
        let Presence::Default(text) = field.presence else {
            continue;
        };
        match field.kind {
            Kind::Duration { min, max } => {
                let read = |text| quantity::duration(text).unwrap();
                assert!((read(min)..=read(max)).contains(&read(text)), "{path}");
            }
            Kind::Size { min, max } => {
                let read = |text| quantity::size(text).unwrap();
                assert!((read(min)..=read(max)).contains(&read(text)), "{path}");
            }
            Kind::Count { min, max } => {
                assert!((min..=max).contains(&text.parse().unwrap()), "{path}");
            }
            Kind::Flag => assert!(matches!(text, "true" | "false"), "{path}"),
            Kind::Choice(words) => {
                assert!(words.iter().any(|(word, _)| *word == text), "{path}");
            }
            Kind::Text => {}
            other => panic!("{path}: a default for {other:?}"),
        }
    }
}

#[test]
fn the_reference_sample_shows_every_field_with_its_default() {
    let text = sample("reference.yaml");
    for (path, field) in all_fields() {
        let lines: Vec<&str> = text
            .lines()
            .map(|line| line.trim_start_matches([' ', '#']))
            .filter(|line| line.starts_with(&format!("{}:", field.name)))
            .collect();
        let inline = text.contains(&format!(" {}: ", field.name));
        assert!(
            !lines.is_empty() || inline,
            "{path} is not in the reference"
        );
        // Where several sections have a field of that name, one line shows each default.
        let unlike = ["delivery", "min", "max"];
        if let Presence::Default(default) = field.presence
            && !unlike.contains(&field.name)
        {
            let shown = lines.iter().any(|line| {
                line.contains(default) || line.contains(default.trim_start_matches('0'))
            });
            assert!(shown, "{path}: {default} is not in {lines:?}");
        }
    }
}
