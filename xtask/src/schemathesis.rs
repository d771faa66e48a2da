//! The admin API of a running bridge is held to its description by schemathesis, which makes
//! requests of all kinds, right and wrong, and looks at the answers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bridge_testkit::http;
use bridge_testkit::{
    Installation, Mosquitto, PortLease, Publish, RawClient, find_program, wait_for,
};
use serde_json::Value;

use crate::setup;
use crate::step::{as_typed, cargo, root, shown};

/// A version that speaks `OpenAPI` 3.1; another one may look at other things.
const VERSION: &str = "4.32.5";
/// Opens the bridge of one run.
const TOKEN: &str = "schemathesis-0123456789";
/// How long it may try.
const SECONDS: &str = "45";
/// How long it may take altogether, on a machine that is slow or busy.
const DEADLINE: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(30);

/// Where it is installed, apart from every other version.
fn folder() -> PathBuf {
    root().join(format!("target/schemathesis-{VERSION}"))
}

/// Where the program is, or would be.
fn program() -> PathBuf {
    folder().join("bin/schemathesis")
}

/// Installs it into a folder of its own below `target`.
pub(crate) fn install() -> Result<()> {
    if program().is_file() {
        println!("schemathesis is there: {}", program().display());
        return Ok(());
    }
    let folder = folder();
    let python = find_program("python3").context("there is no python3")?;
    let make = || succeed(Command::new(&python).args(["-m", "venv"]).arg(&folder));
    // Debian's python3 comes without it.
    make()
        .or_else(|_| setup::install("python3-venv").and_then(|()| make()))
        .context("schemathesis needs python3 with its module venv")?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-input"])
        .arg("--disable-pip-version-check")
        .args(["--timeout", "20", "--retries", "2"])
        .arg(format!("schemathesis=={VERSION}"));
    succeed(&mut pip).with_context(|| {
        format!(
            "the admin API is tried with schemathesis {VERSION}, which pip did not get: is PyPI \
             reachable, or a mirror that PIP_INDEX_URL names?"
        )
    })?;
    println!("schemathesis is installed: {}", program().display());
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Builds the bridge, starts it between brokers with some dead letters, and has it tried.
pub(crate) fn run() -> Result<()> {
    install()?;
    let bridge = built()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(try_out(&bridge))
}

/// The bridge that the tests use. Cargo builds for one package what is the same for all of the
/// workspace with other features, and so anew; what a test of the bridge needs is there already.
fn built() -> Result<PathBuf> {
    let mut build = Command::new(cargo());
    build
        .args(["test", "--workspace", "--locked", "--no-run"])
        .args(["--test", "cli"])
        .current_dir(root());
    as_typed(&mut build);
    succeed(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), PathBuf::from);
    Ok(root().join(target).join("debug/bridge"))
}

async fn try_out(program_of_bridge: &Path) -> Result<()> {
    let source = Mosquitto::start().await;
    let fine = Mosquitto::start().await;
    let refusing = Mosquitto::builder().acl("topic read #\n").start().await;
    let admin = PortLease::take();
    let installation = Installation::with(|port| {
        format!(
            "bridge: {{ id: tried }}\n\
             data_dir: data\n\
             monitor: {{ listen: \"127.0.0.1:{port}\" }}\n\
             admin: {{ listen: \"127.0.0.1:{}\", token: {TOKEN} }}\n\
             sessions:\n\
             \x20 plant: {{ url: \"{}\", client_id: plant }}\n\
             \x20 fine: {{ url: \"{}\", client_id: fine }}\n\
             \x20 refusing: {{ url: \"{}\", client_id: refusing }}\n\
             routes:\n\
             \x20 all:\n\
             \x20   from: {{ session: plant, topics: [\"#\"] }}\n\
             \x20   bindings:\n\
             \x20     fine: {{ session: fine }}\n\
             \x20     refusing: {{ session: refusing }}\n",
            admin.port(),
            source.url(),
            fine.url(),
            refusing.url(),
        )
    });
    let mut bridge = installation.bridge(program_of_bridge).start().await;
    let bearer = format!("Bearer {TOKEN}");
    let port = admin.port();
    let asked = async |path: &str| {
        let headers = [("authorization", bearer.as_str())];
        let answer = http::request(port, "GET", path, &headers, "").await.ok()?;
        serde_json::from_str::<Value>(&answer.body).ok()
    };
    // What is refused when it had to wait in a queue is deferred, and no dead letter at once.
    wait_for("the bindings are live", PATIENCE, async || {
        let bindings = asked("/api/v1/bindings").await?;
        let items = bindings.get("items")?.as_array()?;
        let is_live = |item: &Value| item.get("state").is_some_and(|state| state == "live");
        items.iter().all(is_live).then_some(())
    })
    .await;
    let messages = (0..50).map(|n| Publish::new(format!("t/{n}"), format!("{{\"n\": {n}}}")));
    let mut client = RawClient::connect(source.port(), "publisher").await?;
    client
        .publish_all(messages, 100)
        .await
        .expect_all_accepted();
    client.disconnect().await?;
    wait_for("there are dead letters", PATIENCE, async || {
        let page = asked("/api/v1/dead-letters").await?;
        (page.get("total")?.as_u64() == Some(50)).then_some(())
    })
    .await;

    let mut command = Command::new(program());
    command
        // It leaves a cache where it runs.
        .current_dir(folder())
        .arg("run")
        .arg(root().join("spec/openapi.yaml"))
        .args(["--url", &format!("http://127.0.0.1:{port}")])
        .args(["--header", &format!("Authorization: {bearer}")])
        .args(["--checks", "all"])
        // Texts have grammars that a schema does not say, as names and topic filters; wrong tokens
        // are slowed, so that some are answered with 429, and tested elsewhere.
        .args(["--exclude-checks", "positive_data_acceptance,ignored_auth"])
        .args(["--exclude-operation-id", "log_in"])
        .args(["--exclude-operation-id", "log_out"])
        // It makes no lines of JSON.
        .args(["--exclude-operation-id", "import"])
        // A verdict is waited for as long as it asks.
        .args(["--max-response-time", "65"])
        // The same requests each time: what fails here is a change of ours.
        .args(["--seed", "1", "--max-time", SECONDS, "--max-examples", "40"])
        .args(["--request-timeout", "70", "--workers", "2"])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let words = shown(&command);
    let mut command = tokio::process::Command::from(command);
    // It looks at its clock between requests.
    let status = tokio::time::timeout(DEADLINE, command.kill_on_drop(true).status()).await;
    let status = status.with_context(|| format!("schemathesis is not done in {DEADLINE:?}"))?;
    let status = status.with_context(|| format!("cannot run {words}"))?;
    if let Some(status) = bridge.try_wait() {
        bail!("the bridge has ended: {status}\n{}", bridge.output());
    }
    if !status.success() {
        println!("{}", bridge.stderr());
        bail!("the admin API is not as spec/openapi.yaml says: {words} ended with {status}");
    }
    Ok(())
}
