//! Dead letters out of a bridge and into one, from the command line.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::site::{Site, TOKEN, path, run};
use crate::setup::{BRIDGE, PATIENCE};

#[tokio::test]
async fn what_is_exported_is_imported_again_also_out_of_the_folder() {
    let mut site = Site::plain().await;
    let ids = site.refused(&["bad/1", "bad/2", "bad/3"]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "out.ndjson");
    let exported = site
        .ask(&format!("dead-letters export --output {file}"))
        .await;
    assert_eq!(exported.code, 0, "{}", exported.all());
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["id"], ids[2], "the oldest comes first");
    let again = site
        .ask(&format!("dead-letters export --output {file}"))
        .await;
    assert_eq!(again.code, 2, "a file is not replaced: {}", again.all());

    // A data folder says the same, but for what only a running bridge knows.
    let data = site.installation.data_dir();
    let data = data.to_str().unwrap();
    let offline = run(&["dead-letters", "export", data], &[], b"").await;
    assert_eq!(offline.code, 0, "{}", offline.all());
    let offline: Vec<Value> = offline
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut known = lines.clone();
    for line in &mut known {
        line.as_object_mut().unwrap().remove("configured");
    }
    assert_eq!(offline, known);
    for what in [&ids[0], lines[2]["message_id"].as_str().unwrap()] {
        let shown = run(&["dead-letters", "show", data, "--raw", what], &[], b"").await;
        assert_eq!(shown.out, "21.5", "{}", shown.all());
    }
    let redriven = run(&["dead-letters", "redrive", data, "--yes"], &[], b"").await;
    assert_eq!(redriven.code, 2);
    assert!(
        redriven.err.contains("--offline does it"),
        "{}",
        redriven.err
    );

    let deleted = site.ask("dead-letters delete --all --yes").await;
    assert_eq!(deleted.out.lines().last(), Some("3 of 3 deleted"));
    let imported = site.ask(&format!("dead-letters import {file}")).await;
    assert_eq!(
        (imported.code, imported.out.as_str()),
        (0, "3 of 3 kept: imported 3\n"),
        "{}",
        imported.err
    );
    let listed = site.ask("dead-letters list --json").await.json();
    assert_eq!(listed["total"], 3);
    let causes: Vec<&Value> = listed["dead_letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["cause"]["message_id"])
        .collect();
    assert!(
        lines
            .iter()
            .all(|line| causes.contains(&&line["message_id"]))
    );

    // Of one line the binding is not there, and one is no line of an export.
    let (url, token) = (site.url(), site.token_file());
    let token = token.to_str().unwrap();
    let import = [
        "dead-letters",
        "import",
        "-",
        "--url",
        &url,
        "--token-file",
        token,
    ];
    let elsewhere = text.lines().next().unwrap().replace("\"out\"", "\"gone\"");
    let lost = "{\"id\":\"all~out~1\",\"unreadable\":true}";
    let imported = run(&import, &[], format!("\n{elsewhere}\n{lost}\n").as_bytes()).await;
    assert_eq!(imported.code, 1, "{}", imported.all());
    assert!(
        imported.out.contains("2  binding_not_found"),
        "{}",
        imported.out
    );
    assert!(
        imported.out.contains("3  unreadable") && imported.out.contains("1 could not be read"),
        "{}",
        imported.out
    );
    let imported = run(&import, &[], b"{}\n").await;
    assert_eq!(imported.code, 2, "{}", imported.all());
    site.bridge.sigterm();
    assert!(site.bridge.wait().await.success());
}

#[tokio::test]
async fn an_import_waits_for_the_end_of_another_one() {
    let site = Site::plain().await;
    site.refused(&["bad/1"]).await;
    let file = site.installation.config_path().with_file_name("one.ndjson");
    let exported = site.ask("dead-letters export").await;
    std::fs::write(&file, &exported.out).unwrap();
    // One whose body has not come yet.
    let mut first = TcpStream::connect(("127.0.0.1", site.admin.port()))
        .await
        .unwrap();
    let head = format!(
        "POST /api/v1/dead-letters/import HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/x-ndjson\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
    );
    first.write_all(head.as_bytes()).await.unwrap();
    // It has the turn: it is told to go on.
    let mut goes_on = [0; 12];
    first.read_exact(&mut goes_on).await.unwrap();
    assert_eq!(&goes_on, b"HTTP/1.1 100");
    let (url, token) = (site.url(), site.token_file());
    let mut second = tokio::process::Command::new(BRIDGE)
        .args(["dead-letters", "import", "--url", &url, "--token-file"])
        .arg(token)
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
    let told = tokio::time::timeout(PATIENCE, lines.next_line()).await;
    let told = told.unwrap().unwrap();
    assert_eq!(
        told.as_deref(),
        Some("another import is under way; waiting for its end")
    );
    drop(first);
    let ended = tokio::time::timeout(PATIENCE, second.wait_with_output()).await;
    let ended = ended.unwrap().unwrap();
    assert!(ended.status.success());
    assert_eq!(ended.stdout, b"1 of 1 kept: imported 1\n");
}
