//! What an operator does to dead letters in a data folder while no bridge runs.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bridge_core::View;
use bridge_queue::Snapshot;
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Of the bindings in [`a_folder`] it has all but `alarms/cloud`.
const CONFIG: &str = r#"bridge: { id: plant-7 }
data_dir: data
sessions:
  plant: { url: "mqtt://localhost:1", client_id: plant-7 }
  up: { url: "mqtt://localhost:1", client_id: plant-7-up }
routes:
  telemetry:
    from: { session: plant, topics: ["sensors/#"] }
    bindings:
      cloud: { session: up, topic: "7/{topic}" }
      levels: { session: up, topic: "levels/{topic}", queue: { max_entries: 3 } }
"#;

fn configured(folder: &Path) {
    std::fs::write(folder.join("bridge.yaml"), CONFIG).unwrap();
}

/// Commands with `--config`, one behind the other, with instants and ids left out.
fn done(folder: &Path, commands: &[&str]) -> String {
    let commands: Vec<_> = commands
        .iter()
        .map(|command| format!("dead-letters {command} --offline --config bridge.yaml"))
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let all = asked(folder, &commands);
    let instant = regex_lite::Regex::new(r"20\d\d-\d\d-\d\dT[0-9:.]+Z").unwrap();
    let all = instant.replace_all(&all, "[instant]");
    let own = format!("user {}, offline", rustix::process::getuid().as_raw());
    all.replace(&own, "user [own], offline")
}

#[tokio::test]
async fn dead_letters_are_redriven_and_deleted_while_no_bridge_runs() {
    let (folder, journal) = a_folder().await;
    journal.close();
    configured(folder.path());
    let answers = done(
        folder.path(),
        &[
            "redrive --all --dry-run",
            "redrive --all",
            "redrive --all --yes",
            "redrive telemetry~cloud~7 alarms~cloud~9 --yes",
            "delete --route alarms --dry-run",
            "delete --route alarms --yes",
            "delete --all --yes --json",
        ],
    );
    insta::assert_snapshot!("offline_changing", answers);
    let mut snapshot = Snapshot::of(&folder.path().join("data")).unwrap();
    let key: BindingKey = "telemetry/cloud".parse().unwrap();
    let queue = snapshot.entries(&key, View::Queue);
    let last = snapshot.read(&key, *queue.last().unwrap()).unwrap();
    let stored = last.message.unwrap();
    let cause = Some(Cause {
        id: id(20),
        redrives: 2,
    });
    assert_eq!((queue.len(), stored.cause), (4, cause), "i21");
}

#[tokio::test]
async fn a_bridge_at_work_is_named_and_nothing_is_changed() {
    let (folder, _journal) = a_folder().await;
    configured(folder.path());
    let before = files(folder.path());
    for command in ["redrive --all --yes", "delete --all --yes"] {
        let answer = done(folder.path(), &[command]);
        let holder = format!("(process {} on ", std::process::id());
        assert!(answer.contains("exit status 2"), "{answer}");
        assert!(answer.contains(&holder), "{answer}");
        assert!(answer.contains("--url"), "{answer}");
    }
    assert_eq!(files(folder.path()), before);
}

#[test]
fn where_there_is_no_journal_none_is_made() {
    let folder = tempfile::tempdir().unwrap();
    configured(folder.path());
    let answer = done(folder.path(), &["redrive --all --yes"]);
    assert!(answer.contains("exit status 2"), "{answer}");
    assert!(!folder.path().join("data").exists());
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let answer = done(folder.path(), &["delete --all --yes"]);
    assert!(answer.contains("exit status 2"), "{answer}");
    assert!(answer.contains("there is no journal in data"), "{answer}");
    assert_eq!(files(&folder.path().join("data")), []);
}

/// A folder with so many dead letters of each of two bindings; the journal is closed.
async fn many(count: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    configured(folder.path());
    let data = folder.path().join("data");
    let (journal, _) = Journal::open(&data, JournalOptions::default()).unwrap();
    let info = || refused(Reason::PacketTooLarge, None, 20);
    let puts: Vec<_> = (0..count)
        .map(|number| {
            let message = stored(number, "sensors/1", number.to_string().as_bytes());
            let to = ["telemetry/cloud", "telemetry/levels"].map(|key| Destination {
                binding: key.parse().unwrap(),
                placement: Placement::DeadLetter(info()),
            });
            journal.put(Arc::new(message), to.into())
        })
        .collect();
    for put in puts {
        put.await.unwrap();
    }
    journal.close();
    folder
}

fn redriving(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_bridge"))
        .args(["dead-letters", "redrive", "--binding", "cloud", "--yes"])
        .args(["--offline", "--config", "bridge.yaml"])
        .current_dir(folder)
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Where the messages of `telemetry/cloud` are: of each its original id, and whether it was
/// redriven.
fn places(folder: &Path) -> Vec<(MessageId, bool)> {
    let mut snapshot = Snapshot::of(&folder.join("data")).unwrap();
    let key: BindingKey = "telemetry/cloud".parse().unwrap();
    let mut places = Vec::new();
    for (view, redriven) in [(View::Queue, true), (View::DeadLetters, false)] {
        snapshot.visit(&key, view, |_, seated| {
            let stored = seated.unwrap().message.unwrap();
            assert_eq!(stored.cause.is_some(), redriven);
            let original = stored.cause.map_or(stored.id, |cause| cause.id);
            places.push((original, redriven));
        });
    }
    places
}

fn redriven(folder: &Path) -> usize {
    places(folder).iter().filter(|(_, moved)| *moved).count()
}

/// Waits until it is in the middle.
async fn begun(folder: &Path, child: &mut Child) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while redriven(folder) == 0 {
        assert!(Instant::now() < deadline, "nothing was redriven");
        assert!(
            child.try_wait().unwrap().is_none(),
            "it is not in the middle"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn i21_a_kill_in_the_middle_of_an_offline_redrive_loses_and_doubles_nothing() {
    const COUNT: u64 = 6_000;
    let folder = many(COUNT).await;
    let folder = folder.path();
    let mut child = redriving(folder);
    begun(folder, &mut child).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let halfway = redriven(folder);
    assert!((1..6_000).contains(&halfway), "{halfway}");
    let whole: BTreeMap<MessageId, bool> = places(folder).into_iter().collect();
    let all: Vec<MessageId> = (0..COUNT).map(id).collect();
    assert!(whole.keys().copied().eq(all.iter().copied()), "i09");
    assert_eq!(places(folder).len(), all.len(), "i09");

    let rest = redriving(folder).wait_with_output().unwrap();
    let answer = said(&rest);
    let left = all.len() - halfway;
    assert!(rest.status.success(), "{answer}");
    assert!(
        answer.contains(&format!("done; {left} of {left} moved\n")),
        "{answer}"
    );
    let order: Vec<_> = places(folder).into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        (redriven(folder), order),
        (all.len(), all),
        "the oldest first"
    );
}

#[tokio::test]
async fn who_interrupts_an_offline_redrive_is_told_how_far_it_came() {
    let folder = many(6_000).await;
    let mut child = redriving(folder.path());
    begun(folder.path(), &mut child).await;
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer = said(&output);
    assert_eq!(output.status.code(), Some(1), "{answer}");
    let moved = redriven(folder.path());
    assert!(moved < 6_000, "{answer}");
    let told = format!("binding=cloud: cancelled; {moved} of ");
    assert!(answer.contains(&told), "{told}: {answer}");
}

#[tokio::test]
async fn i13_the_bounds_of_the_configuration_hold_offline() {
    let folder = many(5).await;
    let answer = done(folder.path(), &["redrive --binding levels --yes"]);
    assert!(answer.contains("exit status 1"), "{answer}");
    assert!(answer.contains("3 of 5 moved"), "{answer}");
    assert_eq!(answer.matches("  queue_full").count(), 2, "{answer}");
}
