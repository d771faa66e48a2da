//! Fields, types, quantities and variables.

use super::{after, check, refused, with};

#[test]
fn fields() {
    let cases = [
        (
            "a misspelt field",
            with("client_id: plant-7-up", "cleint_id: plant-7-up"),
        ),
        ("dashes for underscores", with("data_dir:", "data-dir:")),
        (
            "camel case",
            with("client_id: plant-7-up", "clientId: plant-7-up"),
        ),
        (
            "an unknown field",
            after("    client_id: plant-7-up", "    colour: blue"),
        ),
        (
            "an unknown field at the top",
            after("data_dir: /var/lib/bridge", "gateway: { listen: x }"),
        ),
        (
            "a misspelt password",
            after("    client_id: plant-7-up", "    pasword: hunter2"),
        ),
        (
            "a field of another place",
            after("      session: plant", "      retain: keep"),
        ),
        ("no data_dir", with("data_dir: /var/lib/bridge\n", "")),
        ("no bridge", with("bridge:\n  id: plant-7\n", "")),
        ("no url", with("    url: mqtt://localhost:1884\n", "")),
        ("no topics", with("      topics: [\"sensors/#\"]\n", "")),
        ("an empty section", with("  id: plant-7", "")),
        ("an empty value", with(" id: plant-7", " id:")),
        ("an empty text", with(" id: plant-7", " id: \"\"")),
        (
            "an empty data_dir",
            with("data_dir: /var/lib/bridge", "data_dir: \"\""),
        ),
        (
            "a data_dir that is a file",
            with("data_dir: /var/lib/bridge", "data_dir: bridge.yaml"),
        ),
    ];
    insta::assert_snapshot!("fields", refused(cases));
}

#[test]
fn types() {
    let session = "    client_id: plant-7-up";
    let cases = [
        (
            "a list for a section",
            with("bridge:\n  id: plant-7", "bridge: [plant-7]"),
        ),
        (
            "a text for a section",
            with("bridge:\n  id: plant-7", "bridge: plant-7"),
        ),
        ("a list for a text", with(" id: plant-7", " id: [plant-7]")),
        ("a text for a list", with(r#"["sensors/#"]"#, "sensors/#")),
        (
            "a list in a list",
            with(r#"["sensors/#"]"#, r#"[["sensors/#"]]"#),
        ),
        (
            "a number for a text",
            with("client_id: plant-7-up", "client_id: 7"),
        ),
        (
            "a boolean for a text",
            with("client_id: plant-7-up", "client_id: true"),
        ),
        (
            "case 32: NO",
            with("client_id: plant-7-up", "client_id: NO"),
        ),
        (
            "case 32: 010",
            with("client_id: plant-7-up", "client_id: 010"),
        ),
        (
            "case 32: 1_000",
            with("client_id: plant-7-up", "client_id: 1_000"),
        ),
        (
            "case 32: minutes and seconds",
            with("client_id: plant-7-up", "client_id: 12:30"),
        ),
        (
            "a number for a password",
            after(session, "    username: u\n    password: 12345"),
        ),
        (
            "a text for a number",
            after(session, "    max_in_flight: many"),
        ),
        (
            "a number in quotes",
            after(session, "    max_in_flight: \"10\""),
        ),
        (
            "a number with underscores",
            after(session, "    receive_maximum: 1_000"),
        ),
        (
            "a number that begins with zero",
            after(session, "    receive_maximum: 010"),
        ),
        (
            "a fraction for a number",
            after(session, "    max_in_flight: 1.5"),
        ),
        ("a negative number", after(session, "    max_in_flight: -1")),
        (
            "a number out of range",
            after(session, "    max_in_flight: 257"),
        ),
        (
            "a number beyond counting",
            after(session, "    max_in_flight: 99999999999999999999"),
        ),
        (
            "yes for true",
            after(session, "    allow_plaintext_credentials: yes"),
        ),
        (
            "a number for true",
            after(session, "    allow_plaintext_credentials: 1"),
        ),
        (
            "true in quotes",
            after(session, "    allow_plaintext_credentials: \"true\""),
        ),
        (
            "a wrong word",
            with("    from:", "    delivery: store_and_froward\n    from:"),
        ),
        (
            "no word that is near",
            with("    from:", "    delivery: fast\n    from:"),
        ),
        (
            "a boolean for a QoS",
            after("      session: plant", "      qos: true"),
        ),
        (
            "a QoS that does not exist",
            after("      session: plant", "      qos: 3"),
        ),
        (
            "keep where it means nothing",
            after("      session: plant", "      qos: keep"),
        ),
        (
            "a list for a word",
            after("        session: cloud", "        retain: [keep]"),
        ),
        (
            "a text that goes on in the next line",
            with("client_id: plant-7-up", "client_id: \"plant\\n7\""),
        ),
        (
            "a quote that swallows a secret",
            with(
                "    client_id: plant-7-up",
                "    client_id: \"up\n    password: hunter2\n    username: x\"",
            ),
        ),
        (
            "a key that a terminal would obey",
            after(session, "    \"\\e[31mred\": 1"),
        ),
        (
            "a very long word",
            with(
                "    from:",
                &format!("    delivery: {}\n    from:", "x".repeat(500)),
            ),
        ),
    ];
    insta::assert_snapshot!("types", refused(cases));
}

#[test]
fn quantities() {
    let session = "    client_id: plant-7-up";
    let cases = [
        (
            "a bare number for a duration",
            after(session, "    keep_alive: 30"),
        ),
        (
            "a bare number in quotes",
            after(session, "    keep_alive: \"30\""),
        ),
        (
            "a duration with a space",
            after(session, "    keep_alive: 30 s"),
        ),
        ("an unknown unit", after(session, "    keep_alive: 30sec")),
        (
            "a fraction of a unit",
            after(session, "    keep_alive: 1.5m"),
        ),
        (
            "units in the wrong order",
            after(session, "    keep_alive: 30s1m"),
        ),
        ("a duration of nothing", after(session, "    keep_alive:")),
        ("a keep-alive of zero", after(session, "    keep_alive: 0s")),
        (
            "a keep-alive that is too long",
            after(session, "    keep_alive: 19h"),
        ),
        (
            "a fraction of a second",
            after(session, "    keep_alive: 1500ms"),
        ),
        (
            "an expiry with a fraction",
            after(session, "    session_expiry: 1s1ms"),
        ),
        (
            "an endless duration",
            after(session, "    connect_timeout: 99999999999999999999s"),
        ),
        (
            "a bare number for a size",
            after(session, "    max_packet_size: 1048576"),
        ),
        (
            "a size with a wrong unit",
            after(session, "    max_packet_size: 1 mb"),
        ),
        (
            "a packet size beyond MQTT",
            after(session, "    max_packet_size: 1 GiB"),
        ),
        (
            "a list for a duration",
            after(session, "    keep_alive: [30s]"),
        ),
        (
            "delays the wrong way round",
            after(session, "    reconnect: { min: 1m, max: 10s }"),
        ),
        (
            "a queue of nothing",
            after(
                "        session: cloud",
                "        queue: { max_entries: 0, max_bytes: 0 B }",
            ),
        ),
    ];
    insta::assert_snapshot!("quantities", refused(cases));
}

#[test]
fn variables() {
    let session = "    client_id: plant-7-up";
    let cases = [
        (
            "a variable that is not set",
            with("client_id: plant-7-up", "client_id: ${CLIENT}-up"),
        ),
        (
            "a variable without an end",
            with("client_id: plant-7-up", "client_id: a${CLIENT"),
        ),
        (
            "a variable without a name",
            with("client_id: plant-7-up", "client_id: \"${}\""),
        ),
        (
            "a wrong name",
            with("client_id: plant-7-up", "client_id: ${MY-CLIENT}"),
        ),
        (
            "an empty variable",
            with("client_id: plant-7-up", "client_id: ${EMPTY}"),
        ),
        (
            "what a variable holds is not shown",
            after(session, "    keep_alive: ${SECRET_NUMBER}"),
        ),
        (
            "nor in a URL",
            with("url: mqtt://localhost:1884", "url: ${BROKER}"),
        ),
        (
            "nor as the name of a session",
            with("      session: plant", "      session: ${SECRET_NUMBER}"),
        ),
        (
            "nor as a name",
            with(" id: plant-7\n", " id: ${SECRET_NUMBER}.x\n"),
        ),
        (
            "a default that is wrong",
            after(session, "    keep_alive: ${KEEP_ALIVE:-soon}"),
        ),
        (
            "a variable with a newline at its end",
            with("client_id: plant-7-up", "client_id: ${FROM_FILE}"),
        ),
    ];
    insta::assert_snapshot!("variables", refused(cases));
}

#[test]
fn case_32_variables_are_put_into_scalars_not_into_yaml() {
    let session = "    client_id: plant-7-up";
    for text in [
        // The default holds what would be YAML syntax.
        after(session, "    username: \"${NAME:-a: b # c}\""),
        after(session, "    max_in_flight: ${WINDOW:-7}"),
        after(session, "    max_in_flight: \"${WINDOW:-7}\""),
        after(session, "    keep_alive: ${KEEP_ALIVE:-10s}"),
        after(session, "    allow_plaintext_credentials: ${ALLOW:-true}"),
        after(session, "    username: \"$${NAME} costs 5$\""),
    ] {
        let (said, satisfied) = check(text.as_bytes());
        assert!(satisfied, "{said}");
    }
}
