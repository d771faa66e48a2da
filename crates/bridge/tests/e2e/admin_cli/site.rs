//! A bridge with an admin API, and commands that ask it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use bridge_testkit::{
    BridgeConfig, BridgeProcess, Installation, Mosquitto, PortLease, Publish, wait_for,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::setup::{BRIDGE, PATIENCE, publish, until_live};

pub(super) const TOKEN: &str = "swordfish-0123456789abcdef";
pub(super) const DENYING: &str = "topic read #\ntopic write good/#\n";
pub(super) const GRANTING: &str = "topic readwrite #\n";

/// A bridge with an admin API, whose destination may refuse.
pub(super) struct Site {
    pub(super) source: Mosquitto,
    pub(super) destination: Mosquitto,
    pub(super) installation: Installation,
    pub(super) bridge: BridgeProcess,
    pub(super) admin: PortLease,
}

/// What a command came to.
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    pub(super) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().expect("it ends by itself"),
            out: String::from_utf8(output.stdout.clone()).expect("text"),
            err: String::from_utf8(output.stderr.clone()).expect("text"),
        }
    }

    pub(super) fn all(&self) -> String {
        format!("exit {}\n{}---\n{}", self.code, self.out, self.err)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {}", self.all()))
    }
}

impl Site {
    pub(super) async fn start(section: impl FnOnce(u16) -> String) -> Self {
        Self::start_with(section, |config| config).await
    }

    pub(super) async fn start_with(
        section: impl FnOnce(u16) -> String,
        more: impl FnOnce(BridgeConfig) -> BridgeConfig,
    ) -> Self {
        let source = Mosquitto::start().await;
        let destination = Mosquitto::builder().acl(DENYING).start().await;
        let admin = PortLease::take();
        // What waits in the queue is refused from there, and soon given up on as well.
        let config = BridgeConfig::between(source.url(), destination.url())
            .binding("deferred: { window: 1s, retry_interval: 1s }");
        let installation = Installation::new(&more(config.top(section(admin.port()))));
        std::fs::write(
            installation.config_path().with_file_name("token"),
            format!("{TOKEN}\n"),
        )
        .unwrap();
        let process = installation.bridge(BRIDGE).ready_path("/readyz?level=full");
        let bridge = process.start().await;
        // What is refused live is given up on at once, in its order.
        until_live(&bridge, "all/out", 1).await;
        Self {
            source,
            destination,
            installation,
            bridge,
            admin,
        }
    }

    pub(super) async fn plain() -> Self {
        Self::start(|port| format!("admin: {{ listen: \"127.0.0.1:{port}\", token_file: token }}"))
            .await
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.installation.config_path().with_file_name("token")
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin.port())
    }

    pub(super) async fn ask(&self, words: &str) -> Said {
        ask(&self.admin, &self.installation, words).await
    }

    /// Sends those topics, which all become dead letters.
    pub(super) async fn refused(&self, topics: &[&str]) -> Vec<String> {
        let messages = topics.iter().map(|topic| Publish::new(*topic, "21.5"));
        publish(self.source.port(), messages).await;
        wait_for("all are dead letters", PATIENCE, async || {
            let listed = self.ask("dead-letters list --json --all").await;
            let ids = ids(&listed.json());
            (ids.len() == topics.len()).then_some(ids)
        })
        .await
    }
}

/// A command that is told URL and token file.
pub(super) async fn ask(admin: &PortLease, installation: &Installation, words: &str) -> Said {
    let url = format!("http://127.0.0.1:{}", admin.port());
    let token = installation.config_path().with_file_name("token");
    let place = ["--url", &url, "--token-file", token.to_str().unwrap()];
    let args: Vec<&str> = words.split(' ').chain(place).collect();
    run(&args, &[], b"").await
}

/// The ids of a list, in its order.
pub(super) fn ids(listed: &Value) -> Vec<String> {
    let entries = listed["dead_letters"].as_array().expect("a list");
    let ids = entries
        .iter()
        .map(|entry| entry["id"].as_str().expect("an id"));
    ids.map(str::to_owned).collect()
}

/// Runs `bridge` with nothing in its environment but that, and without a terminal.
pub(super) async fn run(args: &[&str], environment: &[(&str, &str)], input: &[u8]) -> Said {
    let mut child = tokio::process::Command::new(BRIDGE)
        .args(args)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that does not read goes on without.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    Said::of(&output.expect("it ends in time").unwrap())
}

pub(super) fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// What a command asks on a terminal, and what it comes to with that answer.
pub(super) fn on_a_terminal(args: &[&str], answer: &str) -> (Option<i32>, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = || {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap()
    };
    let mut command = std::process::Command::new(BRIDGE);
    command.args(args).stdin(end()).stdout(end()).stderr(end());
    let mut child = command.spawn().unwrap();
    // Its ends of the terminal are the only ones left, so that reading ends when it does.
    drop(command);
    let mut terminal = File::from(terminal);
    let mut shown = Vec::new();
    while !shown.ends_with(b"[y/N] ") {
        let mut byte = [0];
        assert_eq!(terminal.read(&mut byte).unwrap(), 1);
        shown.extend(byte);
    }
    terminal.write_all(answer.as_bytes()).unwrap();
    // Linux says EIO, not end of file, when the other end of a terminal is closed.
    let _ = terminal.read_to_end(&mut shown);
    let code = child.wait().unwrap().code();
    (code, String::from_utf8(shown).unwrap())
}
