//! Programs of others that tests run.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// Looks in `PATH`, and where Debian puts daemons, which the `PATH` of a user may not have.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Says that something was not tested, past the test harness, which shows what a test prints only
/// when it fails.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {what}: {why}");
}

/// A program with whatever it starts itself; killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program that writes to that log.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log is writable");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("the log can be written twice"))
            .stderr(file)
            // A group of its own, so that all of it can be ended together.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be executed: {error}"));
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// All that it has written.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The word that follows the first occurrence of `text` in its log.
    pub(crate) fn log_word_after(&self, text: &str) -> String {
        word_after(&self.log(), text)
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("the child can be waited for").is_some()
    }
}

/// The word that follows the first occurrence of `text`.
pub(crate) fn word_after(log: &str, text: &str) -> String {
    let rest = log.split_once(text).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split_whitespace().next());
    word.unwrap_or_else(|| panic!("{text:?} is not in the log:\n{log}"))
        .to_owned()
}

impl Drop for Server {
    fn drop(&mut self) {
        // `id` is there until the child has been waited for: the group cannot be a stranger's.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
