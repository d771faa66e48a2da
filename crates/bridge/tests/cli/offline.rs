//! What an operator sees of a data folder, with and without a bridge in it.

mod changing;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bridge_core::{
    BindingKey, Cause, DeadLetterInfo, DeferInfo, Destination, Message, MessageId, Move, Name,
    Placement, Reason, ReasonCode, Seq, Store as _, StoredMessage, Timestamp, Topic,
};
use bridge_queue::{Journal, JournalOptions};

use super::{bridge, said};

const NOON: u64 = 1_764_504_000_000;

fn id(number: u64) -> MessageId {
    MessageId::new(Timestamp::from_millis(NOON + number), [7; 10])
}

fn stored(number: u64, topic: &str, payload: &[u8]) -> StoredMessage {
    StoredMessage {
        id: id(number),
        cause: None,
        session: Name::parse("plant").unwrap(),
        received: Timestamp::from_millis(NOON + number),
        message: Message::new(Topic::parse(topic).unwrap(), payload.to_vec()),
    }
}

fn refused(reason: Reason, said: Option<&str>, after: u64) -> DeadLetterInfo {
    DeadLetterInfo {
        reason,
        reason_string: said.map(str::to_owned),
        first_refusal: Timestamp::from_millis(NOON + after),
        last_refusal: Timestamp::from_millis(NOON + after + 500),
        attempts: 2,
    }
}

async fn put(journal: &Journal, key: &str, message: StoredMessage, placement: Placement) -> Seq {
    let binding: BindingKey = key.parse().unwrap();
    let to = vec![Destination { binding, placement }];
    journal.put(Arc::new(message), to).await.unwrap()
}

/// A data folder `data` in which something of everything waits; the journal is still open.
async fn a_folder() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) =
        Journal::open(&folder.path().join("data"), JournalOptions::default()).unwrap();
    for number in 0..3 {
        let message = stored(number, "sensors/boiler/1", b"21.5");
        put(&journal, "telemetry/cloud", message, Placement::Queue).await;
    }
    let message = stored(10, "sensors/boiler/2", b"22");
    let seq = put(&journal, "telemetry/cloud", message, Placement::Queue).await;
    let deferred = Move::Defer {
        binding: "telemetry/cloud".parse().unwrap(),
        seq,
        info: DeferInfo {
            reason: Reason::Broker(ReasonCode::NOT_AUTHORIZED),
            first_refusal: Timestamp::from_millis(NOON),
            last_refusal: Timestamp::from_millis(NOON),
            attempts: 1,
            overtaken: false,
        },
    };
    journal.apply(deferred).await.unwrap();
    let payload_format = Reason::Broker(ReasonCode::new(0x99));
    let mut hostile = stored(20, "sensors/\u{1b}[2Jx", b"line one\nline two \x1b[31m");
    hostile.message.properties.content_type = Some("text/plain\r\nid: forged".to_owned());
    hostile.message.properties.user_properties = vec![("k\u{202e}".to_owned(), "v".to_owned())];
    hostile.cause = Some(Cause {
        id: id(19),
        redrives: 1,
    });
    let info = refused(payload_format, Some("not \u{9b}31m JSON"), 30);
    put(
        &journal,
        "telemetry/cloud",
        hostile,
        Placement::DeadLetter(info),
    )
    .await;
    let mut binary = stored(21, "sensors/boiler/3", &[0, 159, 146, 150, 65]);
    binary.message.retain = true;
    binary.message.properties.correlation_data = Some(vec![1, 2].into());
    let info = refused(Reason::PacketTooLarge, None, 20);
    put(
        &journal,
        "telemetry/levels",
        binary,
        Placement::DeadLetter(info),
    )
    .await;
    let old = stored(22, "alarms/fire", b"!");
    let info = refused(Reason::Expired, None, 10);
    put(&journal, "alarms/cloud", old, Placement::DeadLetter(info)).await;
    journal.flush().await.unwrap();
    (folder, journal)
}

/// Flips a bit of what is first stored with `payload`.
fn spoil(folder: &Path, payload: &[u8]) {
    let segment = folder.join("data/journal/0000000000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let mut windows = bytes.windows(payload.len());
    let at = windows.position(|window| window == payload).unwrap();
    *bytes.get_mut(at).unwrap() ^= 1;
    std::fs::write(&segment, bytes).unwrap();
}

fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// What the commands answer, one behind the other, with ages left out.
fn asked(folder: &Path, commands: &[&str]) -> String {
    let mut all = String::new();
    for command in commands {
        let args: Vec<&str> = command.split(' ').collect();
        let mut answer = said(&bridge(folder, &args));
        if *command == "queue status data" {
            // How wide its columns are depends on the ages.
            let words = answer
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>());
            answer = words.map(|words| words.join(" ") + "\n").collect();
        }
        writeln!(all, "### bridge {command}\n{answer}").unwrap();
    }
    assert!(
        all.chars().all(|c| c == '\n' || !c.is_control()),
        "something acts on the terminal: {all:?}"
    );
    let age = regex_lite::Regex::new(r"\d+d \d+h").unwrap();
    let all = age.replace_all(&all, "[age]");
    let age = regex_lite::Regex::new(r#""oldest_age_seconds": \d+"#).unwrap();
    age.replace_all(&all, r#""oldest_age_seconds": 0"#)
        .into_owned()
}

#[tokio::test]
async fn what_is_in_a_folder_is_shown_to_people() {
    let (folder, journal) = a_folder().await;
    journal.close();
    let before = files(folder.path());
    let answers = asked(
        folder.path(),
        &[
            "journal inspect data",
            "journal verify data",
            "queue status data",
            "dead-letters list data",
            "dead-letters list data --limit 1",
            "dead-letters list data --route telemetry --binding levels",
            "dead-letters list data --reason packet_too_large",
            "dead-letters list data --topic sensors/boiler/#",
            "dead-letters list data --route nowhere",
            &format!("dead-letters show data {}", id(20)),
            &format!("dead-letters show data {} --hex", id(20)),
            &format!("dead-letters show data {}", id(21)),
            &format!("dead-letters show data {}", id(99)),
        ],
    );
    insta::assert_snapshot!("offline", answers);
    assert_eq!(files(folder.path()), before, "looking changed something");
}

#[tokio::test]
async fn what_is_in_a_folder_is_shown_to_scripts() {
    let (folder, journal) = a_folder().await;
    journal.close();
    let answers = asked(
        folder.path(),
        &[
            "journal inspect data --json",
            "queue status data --json",
            "dead-letters list data --json --limit 2",
            &format!("dead-letters show data {} --json", id(20)),
        ],
    );
    insta::assert_snapshot!("offline_json", answers);
    let raw = ["dead-letters", "show", "data", &id(21).to_string(), "--raw"];
    let output = bridge(folder.path(), &raw);
    assert_eq!(output.stdout, [0, 159, 146, 150, 65]);
}

/// The names of all fields of `value`, but for those of a message's properties.
fn fields(value: &serde_json::Value, all: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (name, value) in map {
                all.insert(name.clone());
                if name != "properties" {
                    fields(value, all);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, all)),
        _ => {}
    }
}

#[tokio::test]
async fn the_book_names_every_field_of_the_answers_to_scripts() {
    const PAGE: &str = include_str!("../../../../docs/src/operations.md");
    let (folder, journal) = a_folder().await;
    journal.close();
    spoil(folder.path(), b"21.5");
    let mut all = BTreeSet::new();
    for command in [
        "journal verify data --json",
        "queue status data --json",
        "dead-letters list data --json",
        &format!("dead-letters show data {} --json", id(20)),
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let answer = bridge(folder.path(), &args).stdout;
        fields(&serde_json::from_slice(&answer).unwrap(), &mut all);
    }
    assert!(all.len() > 40, "found only {all:?}");
    let is_named =
        |name: &str| PAGE.contains(&format!("`{name}`")) || PAGE.contains(&format!("`{name}[]`"));
    let missing: Vec<_> = all.iter().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "operations.md lacks {missing:?}");
}

#[tokio::test]
async fn damage_is_told_with_its_place_and_what_was_there() {
    let (folder, journal) = a_folder().await;
    journal.close();
    spoil(folder.path(), b"21.5");
    let answers = asked(
        folder.path(),
        &[
            "journal verify data",
            "journal verify data --json",
            "journal inspect data",
        ],
    );
    insta::assert_snapshot!("offline_damaged", answers);
}

#[tokio::test]
async fn a_dead_letter_that_is_damaged_is_not_just_said_to_be_absent() {
    let (folder, journal) = a_folder().await;
    journal.close();
    spoil(folder.path(), b"line one");
    let asked = ["dead-letters", "show", "data", &id(20).to_string()];
    let answer = said(&bridge(folder.path(), &asked));
    assert!(answer.starts_with("exit status 1"), "{answer}");
    assert!(answer.contains("there is no dead letter"), "{answer}");
    assert!(answer.contains("the journal is damaged"), "{answer}");
    let sound = ["dead-letters", "show", "data", &id(21).to_string()];
    let answer = said(&bridge(folder.path(), &sound));
    assert!(answer.starts_with("exit status 0"), "{answer}");
}

#[tokio::test]
async fn a_bridge_at_work_is_looked_at_and_not_disturbed() {
    let (folder, journal) = a_folder().await;
    for command in [
        "journal inspect data",
        "journal verify data",
        "queue status data",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let answer = said(&bridge(folder.path(), &args));
        let holder = format!("a bridge is at work here (process {}", std::process::id());
        assert!(answer.starts_with("exit status 0"), "{answer}");
        assert!(answer.contains(&holder), "{answer}");
    }
    let args = ["journal", "verify", "data", "--json"];
    let answer = String::from_utf8(bridge(folder.path(), &args).stdout).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["bridge"]["running"], true);
    assert_eq!(answer["whole"], true);
    let message = stored(50, "sensors/boiler/1", b"23");
    put(&journal, "telemetry/cloud", message, Placement::Queue).await;
}

#[test]
fn a_folder_that_cannot_be_looked_into_is_exit_2() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let answers = asked(
        folder.path(),
        &[
            "journal inspect nowhere",
            "journal verify empty",
            "queue status empty",
            "dead-letters list empty",
        ],
    );
    insta::assert_snapshot!("offline_nowhere", answers);
}

#[tokio::test]
async fn what_is_missing_from_an_answer_is_said() {
    let (folder, journal) = a_folder().await;
    journal.close();
    std::fs::remove_file(folder.path().join("data/journal/0000000000000001.log")).unwrap();
    for command in ["queue status data", "dead-letters list data"] {
        let mut args: Vec<&str> = command.split(' ').collect();
        let answer = said(&bridge(folder.path(), &args));
        assert!(answer.starts_with("exit status 0"), "{answer}");
        assert!(answer.contains("the journal is damaged"), "{answer}");
        args.push("--json");
        let answer: serde_json::Value =
            serde_json::from_slice(&bridge(folder.path(), &args).stdout).unwrap();
        assert_eq!(answer["undamaged"], false, "{command}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_not_taken_for_damage() {
    let (folder, journal) = a_folder().await;
    journal.close();
    let id = id(20).to_string();
    for args in [
        &["journal", "inspect"][..],
        &["journal", "verify", "--json"],
        &["queue", "status"],
        &["dead-letters", "list"],
        &["dead-letters", "show", "--raw", &id],
    ] {
        let (command, rest) = args.split_at(2);
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_bridge"))
            .args(command)
            .arg(folder.path().join("data"))
            .args(rest)
            .stdout(full)
            .output()
            .unwrap();
        let said = said(&output);
        assert!(said.starts_with("exit status 2"), "{args:?}: {said}");
        assert!(said.contains("No space left"), "{args:?}: {said}");
    }
}
