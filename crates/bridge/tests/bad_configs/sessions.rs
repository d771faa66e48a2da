//! Sessions: URLs, identities, credentials.

use std::fmt::Write as _;

use super::{GOOD, after, check, check_in, refused, with};

const SESSION: &str = "    client_id: plant-7-up";

#[test]
fn urls() {
    let url = |url: &str| with("mqtt://localhost:1884", url);
    let cases = [
        ("no scheme", url("localhost:1884")),
        ("another scheme", url("tcp://localhost:1884")),
        ("another scheme for TLS", url("ssl://broker")),
        ("a Unix socket of another scheme", url("unix:///run/m.sock")),
        (
            "a Unix socket with a relative path",
            url("mqtt+unix://run/m.sock"),
        ),
        (
            "a Unix socket with a long path",
            url(&format!("mqtt+unix:///{}", "x".repeat(107))),
        ),
        (
            "case 33: a password in it",
            url("mqtt://user:hunter2@broker"),
        ),
        (
            "case 33: a password of many signs",
            url("\"mqtt://user:hunter2@:/%#@broker\""),
        ),
        ("no host", url("mqtt://:1884")),
        ("no such host", url("mqtt://bro_ker..example")),
        ("spaces", url("\"mqtt://my broker\"")),
        ("an IPv6 address without brackets", url("mqtt://::1:1884")),
        ("a wrong IPv6 address", url("mqtt://[::g]:1884")),
        ("a wrong IPv4 address", url("mqtt://10.0.0.256")),
        ("port zero", url("mqtt://localhost:0")),
        ("a port beyond the last", url("mqtt://localhost:65536")),
        ("a port of letters", url("mqtt://localhost:mqtt")),
        ("a path", url("mqtt://localhost:1884/mqtt")),
        ("a path of a WebSocket", url("\"wss://broker/a b\"")),
        ("a token in a URL", url("mqtts://broker?token=hunter2")),
        ("an empty list", url("[]")),
        ("a list in a list", url("[[mqtt://localhost]]")),
        ("fields", url("{ host: localhost }")),
        ("a broker twice", url("[mqtts://a, mqtts://b, mqtts://A.]")),
        ("one of a list", url("[mqtts://a, tls://b]")),
    ];
    insta::assert_snapshot!("urls", refused(cases));
}

#[test]
fn i16_identities() {
    let mode = |more: &str| after(SESSION, more);
    let cases = [
        (
            "a nonce for a persistent session",
            mode("    session_mode: persistent\n    client_id_suffix: nonce"),
        ),
        (
            "a hostname for a persistent session",
            mode("    session_mode: persistent\n    client_id_suffix: hostname"),
        ),
        (
            "a suffix for an exclusive session",
            mode("    session_mode: exclusive\n    client_id_suffix: hostname"),
        ),
        ("an exclusive session", mode("    session_mode: exclusive")),
        ("an unknown suffix", mode("    client_id_suffix: host")),
        (
            "an assertion without a suffix",
            mode("    assert_stable_client_identity: true"),
        ),
        (
            "an assertion for an ephemeral session",
            mode("    client_id_suffix: hostname\n    assert_stable_client_identity: true"),
        ),
        (
            "an expiry for an ephemeral session",
            mode("    session_mode: ephemeral\n    session_expiry: 1h"),
        ),
        (
            "an empty client id",
            with("client_id: plant-7-up", "client_id: \"\""),
        ),
        (
            "a zero byte in a client id",
            with("client_id: plant-7-up", "client_id: \"a\\0\""),
        ),
        (
            "one client id twice at one broker",
            GOOD.replace("localhost:1884", "127.0.0.1:1883")
                .replace("plant-7-up", "plant-7"),
        ),
        (
            "a client id that another session publishes with",
            GOOD.replace("localhost:1884", "localhost.:1883")
                .replace("plant-7-up", "plant-7-pub")
                .replace(
                    "        session: cloud",
                    "        session: cloud\n      back:\n        session: plant",
                ),
        ),
        (
            "a client id that is taken at one of the brokers of a list",
            GOOD.replace(
                "mqtt://localhost:1884",
                "[mqtt://elsewhere, mqtt://localhost]",
            )
            .replace("plant-7-up", "plant-7"),
        ),
        (
            "one client id for both connections",
            mode("    publisher_client_id: plant-7-up"),
        ),
    ];
    insta::assert_snapshot!("identities", refused(cases));
}

#[test]
fn doubtful_identities() {
    let old = |more: &str| after(SESSION, &format!("    protocol: 3.1.1\n{more}"));
    let mut all = String::new();
    for (name, text) in [
        (
            "a sign of topics in a client id",
            with("client_id: plant-7-up", "client_id: plant/7"),
        ),
        (
            "a sign of topics in the other client id",
            after(SESSION, "    publisher_client_id: plant+7"),
        ),
        (
            "a long and unusual client id on MQTT 3.1.1",
            old("    publisher_client_id: x").replace("plant-7-up", "\"the cloud of plant 7, up\""),
        ),
        (
            "a shared subscription with one client id",
            with("[\"sensors/#\"]", "[\"$share/all/sensors/#\"]"),
        ),
    ] {
        let (said, satisfied) = check(text.as_bytes());
        assert!(satisfied, "{name}:\n{said}");
        writeln!(all, "### {name}\n\n{said}").unwrap();
    }
    insta::assert_snapshot!("doubtful_identities", all);
}

#[test]
fn i16_what_identities_allow() {
    for more in [
        "    client_id_suffix: nonce",
        "    client_id_suffix: hostname",
        "    session_mode: persistent\n    session_expiry: 7d",
        "    session_mode: ephemeral",
        "    session_mode: persistent\n    client_id_suffix: hostname\n    assert_stable_client_identity: true",
    ] {
        let (said, satisfied) = check(after(SESSION, more).as_bytes());
        assert!(satisfied, "{more}:\n{said}");
    }
    // The same client id at two brokers is nobody's business.
    let (said, satisfied) = check(GOOD.replace("plant-7-up", "plant-7").as_bytes());
    assert!(satisfied, "{said}");
}

#[test]
fn credentials() {
    let cloud = |more: &str| {
        after(SESSION, more).replace("mqtt://localhost:1884", "mqtt://cloud.example.com")
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    std::fs::write(folder.path().join("binary"), b"hunter2\xff").unwrap();
    std::fs::write(folder.path().join("large"), vec![b'x'; 70_000]).unwrap();
    let mut all = String::new();
    for (name, text) in [
        (
            "a password over plain TCP",
            cloud("    username: u\n    password: hunter2"),
        ),
        ("a user name over plain TCP", cloud("    username: u")),
        (
            "a password without a user name",
            after(SESSION, "    password: hunter2"),
        ),
        (
            "two passwords",
            after(
                SESSION,
                "    username: u\n    password: hunter2\n    password_file: empty",
            ),
        ),
        (
            "an empty password",
            after(SESSION, "    username: u\n    password: \"\""),
        ),
        (
            "no such file",
            after(SESSION, "    username: u\n    password_file: missing"),
        ),
        (
            "a folder",
            after(SESSION, "    username: u\n    password_file: ."),
        ),
        (
            "an empty file",
            after(SESSION, "    username: u\n    password_file: empty"),
        ),
        (
            "a binary file",
            after(SESSION, "    username: u\n    password_file: binary"),
        ),
        (
            "a large file",
            after(SESSION, "    username: u\n    password_file: large"),
        ),
        (
            "the line of a secret, for another mistake",
            with(
                "  cloud:\n    url: mqtt://localhost:1884\n    client_id: plant-7-up",
                "  cloud: { url: mqtt://localhost:1884, client_id: up, username: u, password: hunter2, keep_alive: 5 }",
            ),
        ),
    ] {
        std::fs::write(folder.path().join("bridge.yaml"), text).unwrap();
        let (said, satisfied) = check_in(folder.path(), "bridge.yaml");
        assert!(!satisfied, "{name}: is not refused");
        writeln!(all, "### {name}\n\n{said}").unwrap();
    }
    insta::assert_snapshot!("credentials", all);
}

#[test]
fn case_33_a_password_may_hold_any_sign() {
    let text = after(SESSION, "    username: u\n    password: \"hunter2@:/%#\"");
    let (said, satisfied) = check(text.as_bytes());
    assert!(satisfied, "{said}");
}

#[test]
fn names_and_references() {
    let cases = [
        (
            "no session",
            with("      session: plant", "      session: moon"),
        ),
        (
            "a misspelt session",
            with("        session: cloud", "        session: clod"),
        ),
        (
            "a name with a space",
            with("  cloud:\n    url", "  the cloud:\n    url"),
        ),
        ("an empty name", with("  telemetry:", "  \"\":")),
        (
            "a name that is too long",
            with("  telemetry:", &format!("  {}:", "x".repeat(65))),
        ),
        (
            "no sessions",
            "bridge: { id: x }\ndata_dir: x\nsessions: {}\nroutes: {}\n".to_owned(),
        ),
        (
            "no bindings",
            with(
                "      cloud:\n        session: cloud\n        topic: \"plants/7/{topic}\"\n",
                "      {}\n",
            ),
        ),
        (
            "an empty session",
            with(
                "    url: mqtt://localhost:1884\n    client_id: plant-7-up\n",
                "",
            ),
        ),
    ];
    insta::assert_snapshot!("names", refused(cases));
}
