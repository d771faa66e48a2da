use std::fmt::Write as _;
use std::path::Path;

use bridge_core::QoS;
use bridge_runtime::{DeliveryMode, OnExpired, OnFull, RetainPolicy};
use bridge_transport::{Address, Brokers, Endpoint, Password, Secret, SessionKind};
use proptest::prelude::*;

use super::fields::{Field, Kind, Presence, ROOT, Section};
use super::yaml::{Node, Value};
use super::*;

/// A machine that a test makes up.
struct Imagined;

impl Host for Imagined {
    fn variable(&self, name: &str) -> Option<Result<String, ()>> {
        match name {
            "CLOUD_PASSWORD" => Some(Ok("s3cret: # \n{".to_owned())),
            "RAW" => Some(Err(())),
            _ => None,
        }
    }

    fn hostname(&self) -> Result<String, String> {
        Ok("edge-1".to_owned())
    }

    fn nonce(&self) -> String {
        "0badcafe".to_owned()
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
      one: { session: b, topic: z2, queue: { max_entries: 3, max_bytes: 4 KiB, on_full: drop_newest } }
"#,
    );
    assert_eq!(config.data_dir, Path::new("data"));
    assert_eq!(config.journal.segment_size, 1 << 20);
    assert_eq!(config.drain_timeout, Duration::from_secs(5));
    assert_eq!(config.monitor, Some("[::1]:9090".parse().unwrap()));
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
}

#[test]
fn secrets_are_in_no_debug_output() {
    let text = sample("reference.yaml");
    let config = good(&text);
    assert!(!format!("{config:?}").contains("s3cret"));
    let (_, report) = examine("password: s3cret\n");
    assert!(!format!("{report:?}").contains("s3cret"), "{report:?}");
}

#[test]
fn every_sample_is_good_and_matches_the_schema() {
    let schema = json_schema();
    let names = samples();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let text = sample(&name);
        let (config, report) = examine(&text);
        assert!(config.is_some(), "{}", report.render(Paint::Plain));
        assert_eq!(report.warnings().count(), 0, "{name}");
        let source = source::Source::new(name.clone(), text);
        let root = yaml::parse(&source).unwrap_or_else(|_| panic!("{name} is YAML"));
        let wrong = against(&schema, &json(&root), "");
        assert_eq!(wrong, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = json_schema();
    let minimal = sample("minimal.yaml");
    for (from, to) in [
        ("data_dir", "data_dri"),
        ("qos: 1", "qos: 3"),
        ("{ id: plant-7 }", "plant-7"),
        ("{ id: plant-7 }", "{ id: 7 }"),
        ("[\"sensors/#\"]", "[]"),
        ("[\"sensors/#\"]", "sensors/#"),
        ("client_id: plant-7-up", "client_id: up, keep_alive: 30"),
        ("client_id: plant-7-up", "client_id: up, keep_alive: \"30\""),
        ("client_id: plant-7-up", "client_id: up, max_in_flight: 257"),
        (
            "client_id: plant-7-up",
            "client_id: up, max_packet_size: 1mb",
        ),
        (
            "client_id: plant-7-up",
            "client_id: up, session_mode: clean",
        ),
        (
            "client_id: plant-7-up",
            "client_id: up, allow_plaintext_credentials: \"yes\"",
        ),
        (", client_id: plant-7-up", ""),
        ("  telemetry:", "  a b:"),
    ] {
        let minimal = minimal.replace(
            "topics: [\"sensors/#\"] }",
            "topics: [\"sensors/#\"], qos: 1 }",
        );
        assert!(minimal.contains(from), "{from}");
        let text = minimal.replace(from, to);
        assert!(examine(&text).0.is_none(), "{to} is read");
        let source = source::Source::new("x".to_owned(), text);
        let root = yaml::parse(&source).unwrap_or_else(|_| panic!("YAML"));
        assert!(
            !against(&schema, &json(&root), "").is_empty(),
            "{to} is valid"
        );
    }
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
        let unlike = ["allow_plaintext_credentials", "delivery", "min", "max"];
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

#[test]
fn the_schema_is_published_as_it_is() {
    insta::assert_snapshot!("schema", format!("{:#}", json_schema()));
}

#[test]
fn a_maze_of_aliases_is_no_deeper_than_its_bound() {
    let mut text = "a0: &a0 x\n".to_owned();
    for level in 1..2_000 {
        let below = level - 1;
        writeln!(text, "a{level}: &a{level} [*a{below}]").unwrap();
    }
    let (config, report) = examine(&text);
    assert!(config.is_none());
    let said = report.render(Paint::Plain);
    assert!(said.contains("stand for too much"), "{said}");
}

#[test]
fn a_large_file_of_mistakes_is_refused_quickly() {
    let mut text = "sessions:\n".to_owned();
    while text.len() < 1_000_000 {
        let number = text.len();
        writeln!(
            text,
            "  s{number}: {{ url: mqtt://h, client_id: x, colour: blue }}"
        )
        .unwrap();
    }
    let started = std::time::Instant::now();
    let (config, report) = examine(&text);
    assert!(config.is_none());
    assert!(report.errors().count() <= 500);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_long_chain_of_routes_is_refused_and_not_followed_for_ever() {
    let mut text =
        "bridge: { id: b }\ndata_dir: d\nsessions:\n  s: { url: mqtt://h, client_id: x }\nroutes:\n"
            .to_owned();
    for hop in 0..3_000 {
        let next = hop + 1;
        writeln!(
            text,
            "  r{hop}: {{ from: {{ session: s, topics: [t{hop}] }}, bindings: {{ b: {{ session: s, topic: t{next} }} }} }}"
        )
        .unwrap();
    }
    let (config, report) = examine(&text);
    assert!(config.is_none());
    let said = report.render(Paint::Plain);
    assert!(said.contains("passes through 64 bindings"), "{said}");
}

#[test]
fn templates_that_double_the_topic_end() {
    let mut text =
        "bridge: { id: b }\ndata_dir: d\nsessions:\n  s: { url: mqtt://h, client_id: x }\nroutes:\n"
            .to_owned();
    for hop in 0..40 {
        let next = hop + 1;
        writeln!(
            text,
            "  r{hop}: {{ from: {{ session: s, topics: [t{hop}/#] }}, bindings: {{ b: {{ session: s, topic: \"t{next}/{{topic}}/{{topic}}\" }} }} }}"
        )
        .unwrap();
    }
    assert!(examine(&text).0.is_some());
}

/// A piece of YAML that means something here, or nothing.
fn piece() -> impl Strategy<Value = String> {
    let words = vec![
        "bridge",
        "id",
        "data_dir",
        "sessions",
        "routes",
        "from",
        "topics",
        "bindings",
        "url",
        "client_id",
        "password",
        "qos",
        "queue",
        ":",
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a",
        "!!str ",
        "|\n",
        ">-\n",
        "\"",
        "'",
        "#",
        " # ",
        "---\n",
        "?",
        "<<",
        "~",
        "${X}",
        "${",
        "$${",
        "\t",
        "\u{feff}",
        "\r\n",
        "mqtt://",
        "é",
        "🔥",
        "\\",
        "%",
        "sensors/#",
        "{topic[1]}",
        "{topic",
        "30s",
        "010",
        "null",
    ];
    prop_oneof![
        8 => prop::sample::select(words).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

/// The reference with a secret in it, and one other line of it spoilt.
fn spoilt() -> impl Strategy<Value = String> {
    let piece = prop::collection::vec(piece(), 1..4).prop_map(|pieces| pieces.concat());
    (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0..12_usize,
        piece,
    )
        .prop_map(|(line, at, length, piece)| {
            let text = sample("reference.yaml")
                .replace("${CLOUD_PASSWORD:-only-for-this-sample}", "hunter2");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let line = line.index(lines.len());
            if !lines[line].contains("hunter2") {
                let mut chars: Vec<char> = lines[line].chars().collect();
                let at = at.index(chars.len() + 1);
                let end = (at + length).min(chars.len());
                chars.splice(at..end, piece.chars());
                lines[line] = chars.into_iter().collect();
            }
            lines.join("\n")
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn i25_no_text_is_a_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        let (config, report) = examine(&pieces.concat());
        prop_assert!(config.is_some() || report.errors().count() > 0);
        report.render(Paint::Coloured);
    }

    #[test]
    fn a_secret_is_not_shown_whatever_else_is_wrong(text in spoilt()) {
        let (_, report) = examine(&text);
        let said = report.render(Paint::Plain);
        prop_assert!(!said.contains("hunter2"), "{}", said);
    }

    #[test]
    fn i25_no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (config, report) = examine_bytes(bytes);
        prop_assert!(config.is_some() || report.errors().count() > 0);
        report.render(Paint::Plain);
    }

    #[test]
    fn i25_no_change_of_a_good_file_is_a_panic(
        at in any::<prop::sample::Index>(),
        length in 0..30_usize,
        with in prop::collection::vec(piece(), 0..4),
    ) {
        let mut text: Vec<char> = sample("reference.yaml").chars().collect();
        let at = at.index(text.len());
        let end = (at + length).min(text.len());
        text.splice(at..end, with.concat().chars());
        let (config, report) = examine(&text.iter().collect::<String>());
        prop_assert!(config.is_some() || report.errors().count() > 0);
        report.render(Paint::Plain);
    }
}

/// A tree as a YAML 1.2 reader makes JSON of it.
fn json(node: &Node) -> serde_json::Value {
    use serde_json::json;
    match &node.value {
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), json(&entry.node)))
            .collect(),
        Value::Scalar { text, plain: true } => match text.as_str() {
            "true" => json!(true),
            "false" => json!(false),
            "" | "~" | "null" => json!(null),
            text => text
                .parse::<u64>()
                .map_or_else(|_| json!(text), |number| json!(number)),
        },
        Value::Scalar { text, .. } => json!(text),
    }
}

/// What of `value` is against `schema`, for the words that our schema uses; any other word is a
/// failure, so that none is overlooked.
fn against(schema: &serde_json::Value, value: &serde_json::Value, path: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$schema" | "title" | "description" | "default" | "$comment" => true,
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_u64(),
                other => panic!("type {other}"),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_u64().is_some_and(|v| v >= rule.as_u64().unwrap()),
            "maximum" => value.as_u64().is_some_and(|v| v <= rule.as_u64().unwrap()),
            "pattern" => {
                let pattern = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "minItems" => value.as_array().is_none_or(|v| !v.is_empty()),
            "minProperties" => value.as_object().is_none_or(|v| !v.is_empty()),
            "anyOf" => {
                let mut rules = rule.as_array().unwrap().iter();
                rules.any(|rule| against(rule, value, path).is_empty())
            }
            "required" => {
                let mut names = rule.as_array().unwrap().iter();
                names.all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    wrong.extend(against(rule, item, &format!("{path}[]")));
                }
                true
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(name) {
                        wrong.extend(against(rule, value, &format!("{path}.{name}")));
                    }
                }
                true
            }
            "propertyNames" => {
                for name in value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name)
                {
                    let name = serde_json::Value::from(name.as_str());
                    wrong.extend(against(rule, &name, path));
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| known.get(name).is_none()) {
                        if rule.is_boolean() {
                            wrong.push(format!("{path}.{name}: unknown"));
                        } else {
                            wrong.extend(against(rule, value, &format!("{path}.{name}")));
                        }
                    }
                }
                true
            }
            other => panic!("the schema has the word {other}"),
        };
        if !holds {
            wrong.push(format!("{path}: {word}"));
        }
    }
    wrong
}
