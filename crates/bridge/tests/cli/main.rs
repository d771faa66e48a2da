//! The command line as an operator and a script meet it.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; what fails here fails the test"
)]

mod admin;
mod offline;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

const TWO_ROUTES: &str = r#"bridge: { id: plant-7 }
data_dir: /var/lib/bridge
sessions:
  plant: { url: "mqtt://localhost:1883", client_id: "plant-7${REPLICA:-}" }
  cloud: { url: "mqtt://localhost:1884", client_id: plant-7-up, max_in_flight: 20 }
routes:
  telemetry:
    from: { session: plant, topics: ["sensors/#", "$share/group/sensors/+/state"] }
    bindings:
      cloud: { session: cloud, topic: "plants/7/{topic}" }
      levels: { session: cloud, topic: "rooms/{topic[2]}", qos: 0, retain: never, max_in_flight: 1 }
  alarms:
    from: { session: plant, topics: ["alarms/#"], qos: 2 }
    delivery: direct_hold
    send_retry_budget: 90s
    bindings:
      cloud: { session: cloud, retain: always }
  commands:
    from: { session: cloud, topics: ["commands/#"] }
    delivery: outbox
    bindings:
      plant: { session: plant, on_expired: dead_letter, queue: { max_entries: 10, on_full: drop_newest } }
"#;

fn bridge(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bridge"))
        .args(args)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap()
}

/// What is said, where, and with which exit status.
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    let mut all = format!("exit status {code}\n");
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if !bytes.is_empty() {
            write!(all, "--- {name}\n{}", text(bytes)).unwrap();
        }
    }
    all
}

fn folder_with(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bridge.yaml"), text).unwrap();
    folder
}

#[test]
fn check_answers_people() {
    let folder = folder_with(TWO_ROUTES);
    let good = said(&bridge(folder.path(), &["check", "bridge.yaml"]));
    insta::assert_snapshot!(good, @r"
    exit status 0
    --- stdout
    ok: bridge.yaml: sessions 2, routes 3, bindings 4
    ");
}

#[test]
fn check_answers_scripts() {
    let spoilt = TWO_ROUTES
        .replace("session: cloud, retain", "session: clod, retain")
        .replace("send_retry_budget: 90s", "send_retry_budget: 90")
        .replace("\"commands/#\"", "\"commands/#\", \"commands/x\"");
    let folder = folder_with(&spoilt);
    insta::assert_snapshot!(
        "check_json_bad",
        said(&bridge(folder.path(), &["check", "--json", "bridge.yaml"]))
    );
    let folder = folder_with(TWO_ROUTES);
    let good = said(&bridge(folder.path(), &["check", "--json", "bridge.yaml"]));
    insta::assert_snapshot!("check_json_good", good);
}

#[test]
fn a_warning_fails_where_that_is_asked_for() {
    let doubtful = TWO_ROUTES
        .replace("max_in_flight: 20", "protocol: 3.1.1")
        .replace("mqtt://localhost:1884", "mqtts://broker.example.com")
        .replace(
            "client_id: plant-7-up",
            "client_id: plant-7-up, tls: { insecure_skip_verify: true }",
        );
    let folder = folder_with(&doubtful);
    let mut all = String::new();
    for args in [
        vec!["check", "bridge.yaml"],
        vec!["check", "bridge.yaml", "--deny-warnings"],
        vec!["check", "bridge.yaml", "--deny-warnings", "--json"],
    ] {
        let answer = said(&bridge(folder.path(), &args));
        writeln!(all, "### bridge {}\n{answer}", args.join(" ")).unwrap();
    }
    insta::assert_snapshot!("check_deny_warnings", all);
    let folder = folder_with(TWO_ROUTES);
    let good = bridge(folder.path(), &["check", "bridge.yaml", "--deny-warnings"]);
    assert!(good.status.success(), "{}", said(&good));
}

#[test]
fn explain_says_what_becomes_of_a_topic() {
    let folder = folder_with(TWO_ROUTES);
    let mut all = String::new();
    for args in [
        vec!["explain", "sensors/boiler/1"],
        vec!["explain", "sensors/state"],
        vec!["explain", "sensors/1/state"],
        vec!["explain", "alarms/fire"],
        vec!["explain", "commands/stop"],
        vec!["explain", "nothing/takes/this"],
        vec!["explain", "alarms/fire", "--session", "cloud"],
        vec!["explain", "alarms/fire", "--session", "moon"],
        vec!["explain", "alarms/#"],
        vec!["explain", ""],
    ] {
        let asked = args.join(" ");
        let args = [args, vec!["--config", "bridge.yaml"]].concat();
        let answer = said(&bridge(folder.path(), &args));
        writeln!(all, "### bridge {asked}\n{answer}").unwrap();
    }
    insta::assert_snapshot!("explain", all);
}

#[test]
fn explain_answers_scripts() {
    let folder = folder_with(TWO_ROUTES);
    for (topic, snapshot) in [
        ("sensors/state", "explain_json"),
        ("alarms/fire", "explain_json_direct"),
        ("nothing", "explain_json_nothing"),
    ] {
        let args = ["explain", topic, "--json", "--config", "bridge.yaml"];
        insta::assert_snapshot!(snapshot, said(&bridge(folder.path(), &args)));
    }
}

#[test]
fn explain_of_a_bad_file_says_what_is_wrong() {
    let folder = folder_with("bridge: { id: x }\n");
    let output = bridge(folder.path(), &["explain", "a", "--config", "bridge.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("the field `sessions` is missing"), "{error}");
}

#[test]
fn i25_a_bad_file_stops_the_start() {
    let folder = folder_with(&TWO_ROUTES.replace("retain: always", "retian: always"));
    insta::assert_snapshot!(
        "run_bad",
        said(&bridge(folder.path(), &["run", "--config", "bridge.yaml"]))
    );
}

#[test]
fn what_stops_the_service_is_in_its_log() {
    let folder = folder_with(
        &TWO_ROUTES
            .replace("/var/lib/bridge", "bridge.yaml/data")
            .replace(
                "topics: [\"alarms/#\"]",
                "topics: [\"alarms/#\", \"alarms/x\"]",
            ),
    );
    let args = ["run", "bridge.yaml", "--log-format", "json"];
    let output = bridge(folder.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let lines = String::from_utf8(output.stderr).unwrap();
    let events: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 2, "{lines}");
    assert_eq!(events[0]["event"], "config_warning");
    assert_eq!(events[0]["level"], "WARN");
    assert_eq!(events[1]["event"], "failed");
    assert_eq!(events[1]["level"], "ERROR");
    let time = events[1]["timestamp"].as_str().unwrap();
    assert_eq!(time.len(), "2025-11-30T07:00:00.042Z".len(), "{time}");
    let text = said(&bridge(folder.path(), &["run", "bridge.yaml"]));
    assert!(text.contains(" WARN bridge.yaml:13:"), "{text}");
    assert!(
        !text.contains('\x1b'),
        "no colours where no terminal is: {text}"
    );
}

#[test]
fn the_file_comes_from_argument_option_or_environment() {
    let folder = folder_with(TWO_ROUTES);
    for args in [
        vec!["check", "bridge.yaml"],
        vec!["check", "--config", "bridge.yaml"],
    ] {
        let output = bridge(folder.path(), &args);
        assert!(output.status.success(), "{}", said(&output));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_bridge"))
        .arg("check")
        .current_dir(folder.path())
        .env_clear()
        .env("BRIDGE_CONFIG", "bridge.yaml")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    // An argument is nearer than the environment.
    let output = Command::new(env!("CARGO_BIN_EXE_bridge"))
        .args(["check", "missing.yaml"])
        .current_dir(folder.path())
        .env_clear()
        .env("BRIDGE_CONFIG", "bridge.yaml")
        .output()
        .unwrap();
    assert!(said(&output).contains("missing.yaml"), "{}", said(&output));
    let output = bridge(folder.path(), &["check"]);
    let answer = said(&output);
    assert!(answer.contains("/etc/bridge/bridge.yaml"), "{answer}");
}

#[test]
fn case_33_a_password_file_is_beside_the_file() {
    let folder = folder_with(&TWO_ROUTES.replace(
        "client_id: plant-7-up,",
        "client_id: plant-7-up, username: u, password_file: secrets/cloud,",
    ));
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    std::fs::write(folder.path().join("secrets/cloud"), "p@:/%#\n").unwrap();
    let file = folder.path().join("bridge.yaml");
    let output = bridge(Path::new("/"), &["check", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_schema_is_json() {
    let output = bridge(Path::new("/"), &["schema"]);
    assert!(output.status.success());
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["properties"]["routes"].is_object());
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = bridge(Path::new("/"), &["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["explain", "dead-letters", "verify"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_version_is_the_crates() {
    let output = bridge(Path::new("/"), &["--version"]);
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(version, format!("bridge {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn only_what_logs_has_options_for_the_log() {
    for command in [
        "check",
        "explain",
        "queue status",
        "dead-letters list",
        "schema",
    ] {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.push("--help");
        let help = said(&bridge(Path::new("/"), &args));
        assert!(!help.contains("--log"), "{command}: {help}");
    }
    let folder = folder_with(TWO_ROUTES);
    let ran = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bridge"));
        command.args(args).env("BRIDGE_LOG", "bridge=loud");
        command.current_dir(folder.path()).output().unwrap()
    };
    let checked = ran(&["check", "bridge.yaml"]);
    assert!(checked.status.success(), "{}", said(&checked));
    let run = said(&ran(&["run", "bridge.yaml"]));
    assert!(run.contains("--log"), "{run}");
}

#[test]
fn a_wrong_command_line_is_explained() {
    for (args, hint) in [
        (vec!["chekc"], "check"),
        (vec!["run", "--log", "bridge=loud", "x.yaml"], "--log"),
        (vec!["run", "--log-format", "xml", "x.yaml"], "json"),
        (
            vec!["dead-letters", "show", "data", "1"],
            "32 hexadecimal digits",
        ),
        (
            vec!["check", "a.yaml", "--config", "b.yaml"],
            "cannot be used with",
        ),
    ] {
        let output = bridge(Path::new("/"), &args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(hint), "{args:?}: {error}");
    }
}
