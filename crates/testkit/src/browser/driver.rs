//! The process that drives the browser, and one session with it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::http;
use crate::port::PortLease;
use crate::program::{Server, find_program};
use crate::wait::wait_for;

/// How long the driver may take to start, and to answer: a busy machine starts a browser slowly.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Driver {
    session: String,
    port: PortLease,
    /// Killed before its folder goes.
    server: Server,
    folder: TempDir,
}

impl Driver {
    pub(super) async fn start() -> Self {
        let browser = require("chromium");
        let program = require("chromedriver");
        let port = PortLease::take();
        let folder = tempfile::Builder::new().prefix("bridge-browser-").tempdir();
        let folder = folder.expect("a temporary folder");
        let mut command = Command::new(program);
        command
            .arg(format!("--port={}", port.port()))
            .env("HOME", folder.path());
        let server = Server::start(&mut command, &folder.path().join("log"));
        let mut driver = Self {
            session: String::new(),
            port,
            server,
            folder,
        };
        wait_for("chromedriver is ready", PATIENCE, async || {
            let status = driver.send("GET", "/status", None).await.ok()?;
            (status["ready"] == json!(true)).then_some(())
        })
        .await;
        let profile = driver.folder.path().join("profile");
        let created = driver
            .send("POST", "/session", Some(wanted(&browser, &profile)))
            .await
            .unwrap_or_else(|error| {
                panic!("no browser: {error}\n{}", driver.server.log());
            });
        let id = created["sessionId"].as_str().expect("the id of a session");
        driver.session = format!("/session/{id}");
        driver
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let answer = self.try_get(path).await;
        answer.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    pub(super) async fn try_get(&self, path: &str) -> Result<Value, String> {
        let path = format!("{}{path}", self.session);
        self.send("GET", &path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Value {
        let shown = body.to_string();
        let whole = format!("{}{path}", self.session);
        let answer = self.send("POST", &whole, Some(body)).await;
        answer.unwrap_or_else(|error| panic!("POST {path} {shown}: {error}"))
    }

    pub(super) async fn delete(&self, path: &str) {
        let whole = format!("{}{path}", self.session);
        let answer = self.send("DELETE", &whole, None).await;
        answer.unwrap_or_else(|error| panic!("DELETE {path}: {error}"));
    }

    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let headers = [("content-type", "application/json")];
        let port = self.port.port();
        let answer = http::request_within(PATIENCE, port, method, path, &headers, &body).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let mut json: Value = serde_json::from_str(&answer.body)
            .map_err(|error| format!("{error} in {:?}", answer.body))?;
        if answer.status == 200 {
            return Ok(json["value"].take());
        }
        let problem = &json["value"];
        Err(format!("{}: {}", problem["error"], problem["message"]))
    }
}

/// What the browser is to be like. Its own sandbox is left out: containers rarely allow it, and
/// the page is ours.
fn wanted(browser: &std::path::Path, profile: &std::path::Path) -> Value {
    let arguments = [
        "--headless=new".to_owned(),
        "--no-sandbox".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-gpu".to_owned(),
        "--hide-scrollbars".to_owned(),
        "--no-first-run".to_owned(),
        // Nothing of a test is anybody else's business.
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--window-size=1280,800".to_owned(),
        format!("--user-data-dir={}", profile.display()),
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "goog:loggingPrefs": { "browser": "ALL" },
        "goog:chromeOptions": { "binary": browser, "args": arguments },
    } } })
}

fn require(program: &str) -> PathBuf {
    find_program(program)
        .unwrap_or_else(|| panic!("{program} is not installed: run `cargo xtask setup`"))
}
