//! What is wrong with a configuration, and how the operator is told: every text is a snapshot.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; what fails here fails the test"
)]

mod admin;
mod file;
mod lease;
mod reach;
mod routes;
mod sessions;
mod values;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A configuration with nothing wrong in it; each case spoils it in one place.
const GOOD: &str = r#"bridge:
  id: plant-7
data_dir: /var/lib/bridge
sessions:
  plant:
    url: mqtt://localhost:1883
    client_id: plant-7
  cloud:
    url: mqtt://localhost:1884
    client_id: plant-7-up
routes:
  telemetry:
    from:
      session: plant
      topics: ["sensors/#"]
    bindings:
      cloud:
        session: cloud
        topic: "plants/7/{topic}"
"#;

/// The good configuration with one text, which is there exactly once, replaced by another.
fn with(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from:?} is there once");
    GOOD.replace(from, to)
}

/// A line added behind another.
fn after(line: &str, more: &str) -> String {
    with(line, &format!("{line}\n{more}"))
}

/// What `bridge check` says of `text`, and whether it is satisfied.
fn check(text: &[u8]) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bridge.yaml"), text).unwrap();
    check_in(folder.path(), "bridge.yaml")
}

fn check_in(folder: &Path, file: &str) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_bridge"))
        .args(["check", file])
        .current_dir(folder)
        .env_clear()
        .env("BROKER", "mqtt://user:hunter2@broker")
        .env("SECRET_NUMBER", "hunter2")
        .env("EMPTY", "")
        .env("FROM_FILE", "plant-7\n")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "", "nothing but the report is said");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains("hunter2"), "a secret is shown:\n{said}");
    let control = said.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "a terminal would obey:\n{said}");
    (said, output.status.code() == Some(0))
}

/// What is said of each case, for a snapshot. Each is refused.
fn refused<T: AsRef<[u8]>>(cases: impl IntoIterator<Item = (&'static str, T)>) -> String {
    let mut all = String::new();
    for (name, text) in cases {
        let (said, satisfied) = check(text.as_ref());
        assert!(!satisfied, "{name}: is not refused");
        writeln!(all, "### {name}\n\n{said}").unwrap();
    }
    all
}

#[test]
fn the_good_configuration_is_good() {
    let (said, satisfied) = check(GOOD.as_bytes());
    assert!(satisfied, "{said}");
    insta::assert_snapshot!(said, @"ok: bridge.yaml: sessions 2, routes 1, bindings 1");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let text = r#"bridge: { id: plant 7 }
data_dri: /var/lib/bridge
sessions:
  plant: { url: tcp://localhost, client_id: 7, keepalive: 30 }
  cloud: { url: "mqtt://u:hunter2@cloud", client_id: up, keep_alive: 30, password: hunter2 }
routes:
  telemetry:
    from: { session: plnat, topics: ["sensors/#/x", "ok/+"], qos: yes }
    bindings:
      cloud: { session: cloud, topic: "plants/{topik}", max_in_flight: many }
      other: { session: cloud, retain: [], queue: { max_entries: 0, max_bytes: 1024 } }
  empty:
    from: {}
monitor: { listen: localhost }
"#;
    insta::assert_snapshot!("at_once", refused([("a file full of mistakes", text)]));
}

#[test]
fn what_is_doubtful_is_a_warning() {
    let text = with(
        r#"["sensors/#"]"#,
        r#"["sensors/#", "sensors/1", "sensors/#", " x"]"#,
    )
    .replace(
        "routes:",
        "  spare: { url: mqtt://localhost:1885, client_id: spare }\nroutes:",
    );
    let (said, satisfied) = check(text.as_bytes());
    assert!(satisfied, "{said}");
    insta::assert_snapshot!("warnings", said);
}
