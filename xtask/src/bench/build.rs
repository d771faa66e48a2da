//! The binary that is measured, and the folder that it writes to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// `f_type` of a tmpfs, statfs(2): what is synced there goes nowhere.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Runs this very command with a release build of ourselves.
pub(crate) fn again_in_release() -> Result<()> {
    // In the folder that we were called in: arguments may hold relative paths.
    let status = cargo()
        .args(["run", "--quiet", "--release", "--package", "xtask"])
        .args(["--locked", "--"])
        .args(std::env::args_os().skip(1))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the release build of the load generator failed: {status}");
    }
    Ok(())
}

/// Runs what measures dead letters in large numbers: tests of the runtime, which say their figures.
pub(crate) fn dead_letters() -> Result<()> {
    let status = cargo()
        .args(["test", "--release", "--locked", "-p", "bridge-runtime"])
        .args(["--test", "delivery", "large::", "--", "--ignored"])
        // One after the other, so that they do not disturb each other.
        .args(["--nocapture", "--test-threads", "1"])
        .current_dir(root())
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the measurement failed: {status}");
    }
    Ok(())
}

/// Builds the service as it is deployed, and says where it is.
pub(crate) fn bridge() -> Result<PathBuf> {
    let output = cargo()
        .args(["build", "--release", "-p", "bridge", "--bin", "bridge"])
        .args(["--no-default-features", "--locked"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the release build failed: {}", output.status);
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(executable)
        .context("cargo built no program `bridge`")
}

/// The cargo that runs us.
fn cargo() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// The path of the program `bridge`, if that is what a line of cargo's tells of.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message.pointer("/target/name")? != "bridge" {
        return None;
    }
    Some(message.get("executable")?.as_str()?.into())
}

/// The folder for journals: the one that was asked for, or one beside what cargo builds.
pub(crate) fn data_dir(asked: Option<&Path>) -> Result<PathBuf> {
    let folder = match asked {
        Some(folder) => folder.to_owned(),
        None => root().join("target").join("bench"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let folder =
        fs::canonicalize(&folder).with_context(|| format!("cannot find {}", folder.display()))?;
    let system = rustix::fs::statfs(&folder)
        .with_context(|| format!("cannot tell what disk {} is on", folder.display()))?;
    if u64::try_from(system.f_type) == Ok(TMPFS_MAGIC) {
        bail!(
            "{} is in memory (tmpfs), where fsync costs nothing: name a folder on a disk with \
             --data-dir",
            folder.display()
        );
    }
    Ok(folder)
}

fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_what_cargo_tells() {
        for (line, path) in [
            (
                r#"{"reason":"compiler-artifact","target":{"name":"bridge"},"executable":"/t/bridge"}"#,
                Some("/t/bridge"),
            ),
            (
                r#"{"reason":"compiler-artifact","target":{"name":"bridge"},"executable":null}"#,
                None,
            ),
            (
                r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}"#,
                None,
            ),
            (r#"{"reason":"build-finished","success":true}"#, None),
            ("not JSON", None),
        ] {
            assert_eq!(executable(line), path.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn a_folder_in_memory_is_refused() {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            return;
        }
        let folder = tempfile::tempdir_in(memory).unwrap();
        let error = data_dir(Some(folder.path())).unwrap_err();
        assert!(error.to_string().contains("--data-dir"), "{error}");
    }
}
