//! Routes: filters, templates, prefixes, loops, and fields that do nothing.

use super::{GOOD, after, check, refused, with};

#[test]
fn filters() {
    let topics = |topics: &str| with(r#"["sensors/#"]"#, topics);
    let cases = [
        ("no filter", topics("[]")),
        ("an empty filter", topics(r#"[""]"#)),
        ("# in the middle", topics(r#"["sensors/#/x"]"#)),
        ("# in a level", topics(r#"["sensors/x#"]"#)),
        ("+ in a level", topics(r#"["sensors+/x"]"#)),
        (
            "a share group without a filter",
            topics(r#"["$share/group"]"#),
        ),
        (
            "a share group without a name",
            topics(r#"["$share//sensors/#"]"#),
        ),
        (
            "a wildcard in a share group",
            topics(r#"["$share/+/sensors"]"#),
        ),
        ("a zero byte", topics(r#"["a\0b"]"#)),
        (
            "a filter that is too long",
            topics(&format!("[\"{}\"]", "x/".repeat(40_000))),
        ),
        ("the second of three", topics(r#"["a", "b/#/c", "d"]"#)),
    ];
    insta::assert_snapshot!("filters", refused(cases));
}

#[test]
fn no_local_where_it_cannot_be_or_does_nothing() {
    let asked = |more: &str| {
        after("    url: mqtt://localhost:1883", more)
            .replace("session: plant\n", "session: plant\n      no_local: true\n")
    };
    let status = "    status: { topic: bridges/7 }";
    let cases = [
        (
            "on a shared subscription",
            asked(status).replace("sensors/#", "$share/g/sensors/#"),
        ),
        (
            "on MQTT 3.1.1",
            asked(&format!("    protocol: 3.1.1\n{status}")),
        ),
        (
            "where the session is written to as well",
            asked(status).replace("session: cloud", "session: plant"),
        ),
        ("where nothing is published", asked("    keep_alive: 30s")),
        (
            "not a flag",
            asked(status).replace("no_local: true", "no_local: 1"),
        ),
    ];
    insta::assert_snapshot!("no_local", refused(cases));
    let (said, satisfied) = check(asked(status).as_bytes());
    assert!(
        satisfied,
        "the status of a session that is only read from: {said}"
    );
}

#[test]
fn templates() {
    let topic = |topic: &str| with(r#""plants/7/{topic}""#, topic);
    let cases = [
        ("an empty template", topic(r#""""#)),
        ("an unknown placeholder", topic(r#""plants/{topik}""#)),
        ("a placeholder without an end", topic(r#""plants/{topic""#)),
        ("a brace without a beginning", topic(r#""plants/topic}""#)),
        ("a level of letters", topic(r#""plants/{topic[last]}""#)),
        ("an empty range", topic(r#""{topic[2..1]}""#)),
        ("a wildcard", topic(r#""plants/+/{topic}""#)),
        ("in a block text", topic("|-\n          plants/#")),
        (
            "a level that no topic has",
            topic(r#""x/{topic[2]}""#).replace("sensors/#", "sensors/+"),
        ),
        (
            "nothing left of the topic",
            topic(r#""{topic[1..]}""#).replace("sensors/#", "sensors"),
        ),
    ];
    insta::assert_snapshot!("templates", refused(cases));
}

#[test]
fn case_29_prefixes() {
    let prefix = |fields: &str| with(r#"topic: "plants/7/{topic}""#, fields);
    let cases = [
        (
            "beside a template",
            after("        session: cloud", "        strip_prefix: sensors/"),
        ),
        ("half a level to strip", prefix("strip_prefix: sensors")),
        ("half a level to add", prefix("add_prefix: plants")),
        ("a wildcard", prefix("add_prefix: \"plants/+/\"")),
        ("a wildcard to strip", prefix("strip_prefix: \"sensors/#\"")),
        (
            "not at the front of the filter",
            prefix("strip_prefix: plants/"),
        ),
        (
            "a lone #",
            prefix("strip_prefix: sensors/").replace("sensors/#", "#"),
        ),
        ("a lone slash", prefix("strip_prefix: /")),
        (
            "a filter equal to the prefix",
            prefix("strip_prefix: sensors/").replace("sensors/#", "sensors/"),
        ),
    ];
    insta::assert_snapshot!("prefixes", refused(cases));
    for (fields, filter) in [
        ("strip_prefix: \"\"", "sensors/#"),
        ("add_prefix: \"\"", "sensors/#"),
        ("strip_prefix: sensors/", "sensors/#"),
        ("strip_prefix: sensors/", "$share/group/sensors/#"),
        ("strip_prefix: /", "/#"),
        ("strip_prefix: //", "//#"),
        ("add_prefix: /", "sensors/#"),
        ("add_prefix: //", "#"),
        ("add_prefix: \"{topic}/\"", "#"),
        (
            "{ }\n        strip_prefix: sensors/1/\n        add_prefix: x/",
            "sensors/1/#",
        ),
    ] {
        let text = prefix(fields.trim_start_matches("{ }\n        ")).replace("sensors/#", filter);
        let (said, satisfied) = check(text.as_bytes());
        assert!(satisfied, "{fields}:\n{said}");
    }
}

/// The good configuration, and a way back.
fn back(filter: &str, topic: &str) -> String {
    format!(
        "{GOOD}  back:\n    from: {{ session: cloud, topics: [\"{filter}\"] }}\n    bindings: {{ plant: {{ session: plant, topic: \"{topic}\" }} }}\n"
    )
}

#[test]
fn case_10_loops() {
    let both = back("#", "{topic}")
        .replace("sensors/#", "#")
        .replace("plants/7/{topic}", "{topic}");
    let own =
        |topic: &str| with("session: cloud", "session: plant").replace("plants/7/{topic}", topic);
    let cases = [
        ("# in both directions", both.clone()),
        (
            "the same broker by another name",
            both.replace("session: cloud, topics", "session: alias, topics")
                .replace(
                    "routes:",
                    "  alias: { url: \"mqtt://127.0.0.1:1884\", client_id: alias }\nroutes:",
                ),
        ),
        ("into its own filter", own("sensors/again/{topic}")),
        ("onto its own topic", own("{topic}")),
        (
            "a prefix taken off again",
            back("plants/7/#", "{topic[2..]}"),
        ),
        ("prefixes that grow", back("#", "sensors/{topic}")),
    ];
    insta::assert_snapshot!("loops", refused(cases));
    for (name, text) in [
        ("apart by topics", back("commands/#", "{topic}")),
        ("apart by a prefix", back("commands/#", "sensors/{topic}")),
        ("to another topic of the same broker", own("copies/{topic}")),
        (
            "there and back once",
            back("plants/7/#", "from-cloud/{topic}"),
        ),
        // What comes back with a prefix is taken once more, and then no longer.
        (
            "twice through one route",
            back("a/#", "b/{topic}")
                .replace(r#"["sensors/#"]"#, r#"["a/#", "b/#"]"#)
                .replace("plants/7/{topic}", "{topic}"),
        ),
        // A wildcard takes none of the broker's own topics.
        ("$SYS", back("#", "{topic}").replace("sensors/#", "$SYS/#")),
    ] {
        let (said, satisfied) = check(text.as_bytes());
        assert!(satisfied, "{name}:\n{said}");
    }
}

#[test]
fn fields_that_do_nothing() {
    let cases = [
        (
            "a budget without direct_hold",
            with("    from:", "    send_retry_budget: 30s\n    from:"),
        ),
        (
            "a queue with direct_hold",
            with("    from:", "    delivery: direct_hold\n    from:").replace(
                "        session: cloud",
                "        session: cloud\n        queue: { max_entries: 5 }",
            ),
        ),
        (
            "a second chance with direct_hold",
            with("    from:", "    delivery: direct_hold\n    from:").replace(
                "        session: cloud",
                "        session: cloud\n        deferred: { window: 1h }",
            ),
        ),
        (
            "dead letters without end",
            GOOD.replace(
                "        session: cloud",
                "        session: cloud\n        dead_letters: { max_entries: 0, on_full: drop }",
            ),
        ),
        (
            "a listener without a port",
            format!("{GOOD}monitor: {{ listen: 127.0.0.1 }}\n"),
        ),
        (
            "a listener by name",
            format!("{GOOD}monitor: {{ listen: \"localhost:9090\" }}\n"),
        ),
        (
            "a listener on a port alone",
            format!("{GOOD}monitor: {{ listen: \":9090\" }}\n"),
        ),
    ];
    insta::assert_snapshot!("effects", refused(cases));
}
