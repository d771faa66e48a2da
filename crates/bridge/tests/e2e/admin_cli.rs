//! What an operator does with a running bridge from the command line.

mod site;
mod transfer;

use std::process::Stdio;

use bridge_testkit::{Authority, PortLease, RawClient, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use self::site::{GRANTING, Site, TOKEN, ask, ids, on_a_terminal, run};
use crate::judged::{Grant, Judged};
use crate::setup::{BRIDGE, PATIENCE, subscriber};

async fn topics_of(client: &mut RawClient, count: usize) -> Vec<String> {
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(client.recv(PATIENCE).await.unwrap().topic);
    }
    topics
}

#[tokio::test]
async fn the_night_call_from_the_command_line() {
    let site = Site::plain().await;
    let mut subscriber = subscriber(site.destination.port()).await;
    let ids = site.refused(&["bad/1", "bad/2", "worse/\u{202e}x"]).await;

    let listed = site.ask("dead-letters list").await;
    assert_eq!(listed.code, 0, "{}", listed.all());
    assert!(listed.out.contains("not_authorized"), "{}", listed.out);
    assert!(listed.out.contains(r"worse/\u{202e}x"), "{}", listed.out);
    let one = site.ask("dead-letters list --topic bad/# --limit 1").await;
    assert!(
        one.out.ends_with("1 of 2; more with --limit or --all\n"),
        "{}",
        one.out
    );
    let none = site.ask("dead-letters list --until 1h").await;
    assert_eq!((none.code, none.out.as_str()), (0, "no dead letters\n"));

    let shown = site.ask(&format!("dead-letters show {}", ids[2])).await;
    for part in [&ids[2], "topic:             bad/1", "    21.5", "all/out"] {
        assert!(shown.out.contains(part), "{part}: {}", shown.all());
    }
    let raw = site
        .ask(&format!("dead-letters show {} --raw", ids[2]))
        .await;
    assert_eq!(raw.out, "21.5");

    site.destination.reload(GRANTING).await;
    let dry = site
        .ask("dead-letters redrive --topic bad/# --dry-run")
        .await;
    assert!(dry.out.ends_with("2 of 2 would move\n"), "{}", dry.all());
    let redriven = site
        .ask("dead-letters redrive --topic bad/# --yes --wait 20s")
        .await;
    assert_eq!(redriven.code, 0, "{}", redriven.all());
    assert!(
        redriven.out.ends_with("2 of 2 moved: delivered 2\n"),
        "{}",
        redriven.out
    );
    let mut arrived = topics_of(&mut subscriber, 2).await;
    arrived.sort();
    assert_eq!(arrived, ["bad/1", "bad/2"]);

    // Once more is not twice.
    let again = site
        .ask(&format!("dead-letters redrive {} --yes", ids[1]))
        .await;
    assert_eq!(again.code, 1);
    assert!(again.out.contains("already_redriven"), "{}", again.all());

    let asked = site.ask("dead-letters delete --all").await;
    assert_eq!(asked.code, 2, "{}", asked.all());
    assert!(asked.err.contains("say --yes"), "{}", asked.err);
    let dry = site.ask("dead-letters delete --all --dry-run").await;
    assert_eq!(dry.out, "1 dead letter would be deleted\n");
    let deleted = site.ask("dead-letters delete --all --yes --json").await;
    assert_eq!((deleted.code, &deleted.json()["deleted"]), (0, &1.into()));
    assert_eq!(site.ask("dead-letters list").await.out, "no dead letters\n");
    let shown = site.ask(&format!("dead-letters show {}", ids[0])).await;
    assert_eq!(shown.code, 1, "{}", shown.all());
}

#[tokio::test]
async fn case_37_a_redrive_that_is_refused_again_says_so_and_names_the_new_entry() {
    let admin = PortLease::take();
    let grant = Grant::default();
    let withholding = grant.withholding(0x99, |publish| publish.topic.starts_with("bad"));
    let port = admin.port();
    let judged = Judged::start(withholding, |config| {
        config.top(format!(
            "admin: {{ listen: \"127.0.0.1:{port}\", token: {TOKEN} }}"
        ))
    })
    .await;
    let installation = &judged.installation;
    std::fs::write(installation.config_path().with_file_name("token"), TOKEN).unwrap();
    judged.publish(&["bad/1", "bad/2"]).await;
    wait_for("both are dead letters", PATIENCE, async || {
        (judged.dead_lettered("payload_format_invalid").await? == 2).then_some(())
    })
    .await;
    let redrive = "dead-letters redrive --all --yes --wait 20s";
    let refused = ask(&admin, installation, redrive).await;
    assert_eq!(refused.code, 1, "{}", refused.all());
    assert!(
        refused.out.ends_with("2 of 2 moved: refused 2\n"),
        "{}",
        refused.out
    );
    let listed = ask(&admin, installation, "dead-letters list --json")
        .await
        .json();
    for id in ids(&listed) {
        let line = refused.out.lines().find(|line| line.ends_with(&id));
        let line = line.unwrap_or_else(|| panic!("{id} is not named: {}", refused.out));
        assert!(
            line.contains("moved    refused: payload_format_invalid"),
            "{line}"
        );
    }
    grant.give();
    let delivered = ask(&admin, installation, redrive).await;
    assert_eq!(delivered.code, 0, "{}", delivered.all());
    assert!(
        delivered.out.ends_with("2 of 2 moved: delivered 2\n"),
        "{}",
        delivered.out
    );
}

#[tokio::test]
async fn a_large_redrive_is_a_job_that_is_followed_to_its_end() {
    const MANY: usize = 1_100;
    let site = Site::plain().await;
    let topics: Vec<String> = (0..MANY).map(|n| format!("bad/{n}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    site.refused(&topics).await;
    assert_eq!(
        site.ask("jobs list").await.out,
        "no jobs since the bridge was started\n"
    );
    site.destination.reload(GRANTING).await;
    let redriven = site.ask("dead-letters redrive --all --yes").await;
    assert_eq!(redriven.code, 0, "{}", redriven.all());
    assert_eq!(
        redriven.out,
        format!("redrive of all dead letters: done; {MANY} of {MANY} moved\n")
    );
    assert!(redriven.err.contains("100 %"), "{}", redriven.err);
    let jobs = site.ask("jobs list --json").await.json();
    let id = jobs["jobs"][0]["id"].as_str().unwrap();
    let shown = site.ask(&format!("jobs show {id}")).await;
    assert_eq!(shown.code, 0, "{}", shown.all());
    // What has ended is not cancelled.
    let cancelled = site.ask(&format!("jobs cancel {id}")).await;
    assert_eq!(cancelled.code, 1, "{}", cancelled.all());
    let nothing = "019ad4a2-5614-7707-8707-070707070707";
    let shown = site.ask(&format!("jobs show {nothing}")).await;
    assert_eq!(shown.code, 1, "{}", shown.all());
}

#[tokio::test]
async fn who_stops_watching_a_job_does_not_stop_it() {
    const MANY: usize = 1_010;
    let section = |port| format!("admin: {{ listen: \"127.0.0.1:{port}\", token_file: token }}");
    let site = Site::start_with(section, |config| {
        // A job fills half of a queue and waits.
        config.binding("queue: { max_entries: 10 }")
    })
    .await;
    let topics: Vec<String> = (0..MANY).map(|n| format!("bad/{n}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    site.refused(&topics).await;
    site.ask("bindings pause all/out").await;
    let (url, token) = (site.url(), site.token_file());
    let mut watching = tokio::process::Command::new(BRIDGE)
        .args([
            "dead-letters",
            "redrive",
            "--all",
            "--yes",
            "--url",
            &url,
            "--token-file",
        ])
        .arg(token)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(watching.stderr.take().unwrap());
    let mut first = String::new();
    errors.read_line(&mut first).await.unwrap();
    assert!(first.contains("looked at"), "{first}");
    // At once: it listens since before it has said anything.
    let pid = Pid::from_raw(watching.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut rest = String::new();
    errors.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("the job goes on in the bridge"), "{rest}");
    assert_eq!(watching.wait().await.unwrap().code(), Some(1));

    let job = wait_for("the job has filled the queue", PATIENCE, async || {
        let jobs = site.ask("jobs list --json").await.json();
        let job = &jobs["jobs"][0];
        (job["done"] == 5 && job["held_up"] != json!([])).then(|| job.clone())
    })
    .await;
    assert_eq!(job["state"], "running");
    let id = job["id"].as_str().unwrap();
    let shown = site.ask(&format!("jobs show {id}")).await;
    assert_eq!(shown.code, 0, "{}", shown.all());
    assert!(shown.out.contains("running; 5 of"), "{}", shown.out);
    let held = "all/out by queue_full since";
    assert!(shown.out.contains(held), "{}", shown.out);
    let cancelled = site.ask(&format!("jobs cancel {id}")).await;
    assert_eq!(cancelled.code, 0, "{}", cancelled.all());
    assert!(
        cancelled.out.contains("cancelled; 5 of"),
        "{}",
        cancelled.out
    );
    let listed = site.ask("dead-letters list --json --limit 1").await.json();
    assert_eq!(listed["total"], MANY - 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_asked_whether_a_delete_is_meant() {
    let site = Site::plain().await;
    site.refused(&["bad/1"]).await;
    let config = site.installation.config_path();
    let delete = [
        "dead-letters",
        "delete",
        "--all",
        "--config",
        config.to_str().unwrap(),
    ];
    let (code, shown) = tokio::task::block_in_place(|| on_a_terminal(&delete, "no\n"));
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("Delete 1 dead letter of the bridge at http://127.0.0.1:"),
        "{shown}"
    );
    assert!(shown.contains("nothing was done"), "{shown}");
    let (code, shown) = tokio::task::block_in_place(|| on_a_terminal(&delete, "y\n"));
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("1 of 1 deleted"), "{shown}");
}

#[tokio::test]
async fn a_binding_is_paused_and_a_test_message_waits_until_it_is_resumed() {
    let site = Site::plain().await;
    let mut subscriber = subscriber(site.destination.port()).await;
    let paused = site.ask("bindings pause all/out").await;
    assert_eq!(
        (paused.code, paused.out.as_str()),
        (0, "all/out is paused\n")
    );
    let again = site.ask("bindings pause all/out").await;
    assert_eq!(again.out, "all/out is paused already\n");
    let injected = site.ask("inject all good/t hello --wait 1s").await;
    assert_eq!(injected.code, 0, "{}", injected.all());
    assert!(injected.out.contains("all/out  queued"), "{}", injected.out);
    let listed = site.ask("bindings list").await;
    assert!(listed.out.contains("paused"), "{}", listed.out);
    let resumed = site.ask("bindings resume all/out").await;
    assert_eq!(resumed.out, "all/out sends\n");
    let message = subscriber.recv(PATIENCE).await.unwrap();
    assert_eq!(
        (message.topic.as_str(), message.text()),
        ("good/t", "hello")
    );
    let deferred = site.ask("inject all bad/t x --wait 20s").await;
    assert_eq!(deferred.code, 0, "{}", deferred.all());
    assert!(
        deferred.out.contains("all/out  deferred"),
        "{}",
        deferred.out
    );
    for wrong in ["bindings pause all/gone", "inject gone t x"] {
        let said = site.ask(wrong).await;
        assert_eq!(said.code, 1, "{wrong}: {}", said.all());
    }
}

#[tokio::test]
async fn who_cannot_ask_is_told_why_and_the_token_never() {
    let mut site = Site::plain().await;
    let url = site.url();
    let config = site.installation.config_path();
    let config = config.to_str().unwrap();
    let list = ["dead-letters", "list"];
    let with = |more: &[&'static str]| [&list[..], more].concat();

    // The configuration says where, and its token is for there.
    let here = run(&[&list[..], &["--config", config]].concat(), &[], b"").await;
    assert_eq!(here.code, 0, "{}", here.all());
    let here = run(
        &list,
        &[("BRIDGE_ADMIN_URL", &url), ("BRIDGE_ADMIN_TOKEN", TOKEN)],
        b"",
    )
    .await;
    assert_eq!(here.code, 0, "{}", here.all());

    let cases = [
        (vec![("BRIDGE_ADMIN_URL", url.as_str())], "no token"),
        (
            vec![
                ("BRIDGE_ADMIN_URL", &url),
                ("BRIDGE_ADMIN_TOKEN", "wr0ng-0123456789abcdef"),
            ],
            "asked with the token in BRIDGE_ADMIN_TOKEN",
        ),
        (
            vec![
                ("BRIDGE_CONFIG", config),
                ("BRIDGE_ADMIN_TOKEN", "wr0ng 0123"),
            ],
            "is no token",
        ),
        (
            vec![
                ("BRIDGE_ADMIN_URL", "http://user:s3cret@h"),
                ("BRIDGE_ADMIN_TOKEN", TOKEN),
            ],
            "is not the URL",
        ),
    ];
    for (environment, told) in cases {
        let said = run(&list, &environment, b"").await;
        assert_eq!(said.code, 2, "{}", said.all());
        assert!(said.err.contains(told), "{told}: {}", said.all());
        for secret in ["swordfish", "wr0ng", "s3cret"] {
            assert!(!said.all().contains(secret), "{}", said.all());
        }
    }
    let nowhere = run(&with(&["--config", "/nowhere.yaml"]), &[], b"").await;
    assert_eq!(nowhere.code, 2, "{}", nowhere.all());
    // What listens there is the monitor.
    let monitor = format!("http://127.0.0.1:{}", site.bridge.monitor_port());
    let said = run(
        &[&list[..], &["--url", &monitor]].concat(),
        &[("BRIDGE_ADMIN_TOKEN", TOKEN)],
        b"",
    )
    .await;
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(said.err.contains("not of `monitor`"), "{}", said.all());

    site.bridge.sigterm();
    assert!(site.bridge.wait().await.success());
    let gone = site.ask("dead-letters list").await;
    assert_eq!(gone.code, 2);
    assert!(
        gone.err
            .contains("has its configuration a section `admin`?"),
        "{}",
        gone.err
    );
}

#[tokio::test]
async fn a_listener_of_its_own_authority_is_trusted_when_that_is_said() {
    let authority = Authority::new();
    let server = authority.server();
    let site = Site::start(|port| {
        format!(
            "admin: {{ listen: \"127.0.0.1:{port}\", token_file: token, \
             tls: {{ certificate_file: {:?}, key_file: {:?} }} }}",
            server.certificate, server.key
        )
    })
    .await;
    let config = site.installation.config_path();
    let ca = authority.certificate();
    let list = ["dead-letters", "list", "--config", config.to_str().unwrap()];
    let trusted = [&list[..], &["--ca-file", ca.to_str().unwrap()]].concat();
    let said = run(&trusted, &[], b"").await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "no dead letters\n"),
        "{}",
        said.err
    );
    let said = run(&list, &[], b"").await;
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(said.err.contains("--ca-file"), "{}", said.all());
    let plain = site.ask("dead-letters list").await;
    assert_eq!(plain.code, 2, "{}", plain.all());
}
