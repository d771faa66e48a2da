//! What runs the bridge in containers is right: by the schemas that others publish, by what its parts
//! say of one another, and by `bridge check`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests: failing loudly is what they are for"
)]

mod compose;
mod image;
mod kubernetes;
mod schema;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

/// The user of the image, whom manifests and compose file name as well.
const USER: u64 = 65_532;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let file = root().join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The image as it is called everywhere.
fn image() -> String {
    format!("bridge:{}", env!("CARGO_PKG_VERSION"))
}

/// What `bridge check` says of the file, where it is not satisfied.
fn check(file: &Path, more: &[&str], environment: &[(String, String)]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_bridge"))
        .arg("check")
        .arg(file)
        .args(more)
        .env_clear()
        .envs(environment.iter().cloned())
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The drain timeout of a configuration.
fn drain_timeout(config: &str) -> Duration {
    let config = yaml::document(config);
    let text = config["drain_timeout"].as_str().expect("it is written out");
    seconds(text)
}

/// As in `30s`.
fn seconds(text: &str) -> Duration {
    let number = text.strip_suffix('s').and_then(|n| n.parse().ok());
    Duration::from_secs(number.unwrap_or_else(|| panic!("{text:?} are seconds")))
}

/// The strings of a list.
fn strings(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| item.as_str().expect("text")).collect()
}

/// The items of a list.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
