//! `bridge demo`, as a newcomer and a build server run it: the built binary, its output and exit.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests say what they expect by unwrapping it"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The demo, with its folder inside `tmp`.
fn demo(tmp: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bridge"));
    command
        .arg("demo")
        .args(args)
        .env("TMPDIR", tmp)
        .env("TERM", "xterm")
        .env_remove("CI")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What is left in the folder for temporary files.
fn left_behind(tmp: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(tmp).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The numbers of the ledger line: received, then the places where messages are.
fn ledger(text: &str) -> (u64, Vec<u64>) {
    let line = text.lines().find(|line| line.contains("ledger: ")).unwrap();
    let mut numbers = line.split_whitespace().filter_map(|word| {
        let digits = word.replace(',', "");
        digits.parse::<u64>().ok()
    });
    (numbers.next().unwrap(), numbers.collect())
}

/// A demo that is killed when its test is over.
struct Running(Child);

impl Running {
    fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn i24_the_demo_ends_with_a_ledger_that_balances_and_leaves_nothing_behind() {
    let tmp = tempfile::tempdir().unwrap();
    let output = demo(tmp.path(), &["--fast"]).output().unwrap();
    let text = text(&output);

    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("Nothing was lost"), "{text}");
    let (received, places) = ledger(&text);
    let &[delivered, queued, deferred, dead, dropped] = places.as_slice() else {
        panic!("a ledger of five places was expected in {text}");
    };
    assert_eq!(received, places.iter().sum::<u64>(), "{text}");
    assert!(delivered > 100, "{text}");
    assert_eq!((queued, dropped), (0, 0), "{text}");
    assert_eq!(dead + deferred, 5, "as many as are refused: {text}");
    assert!(!text.contains('\u{1b}'), "no escape codes in a log: {text}");
    assert!(text.trim_end().ends_with("the real thing"), "{text}");
    assert_eq!(left_behind(tmp.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_demo_that_is_kept_can_be_looked_at() {
    let tmp = tempfile::tempdir().unwrap();
    let output = demo(tmp.path(), &["--fast", "--keep"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let left = left_behind(tmp.path());
    let [folder] = left.as_slice() else {
        panic!("one folder was expected, not {left:?}");
    };
    assert!(text(&output).contains(&folder.display().to_string()));
    let log = fs::read_to_string(folder.join("bridge.log")).unwrap();
    assert!(
        log.contains("not_authorized"),
        "the refusal is in the log: {log}"
    );
    assert!(
        !log.contains("mqtt5"),
        "the embedded brokers are not: {log}"
    );
    assert!(folder.join("data/journal").is_dir());
    let check = Command::new(env!("CARGO_BIN_EXE_bridge"))
        .arg("check")
        .arg(folder.join("bridge.yaml"))
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn an_interrupted_demo_says_so_and_leaves_nothing_behind() {
    // In the middle of a chapter, and while the bridge is being restarted.
    for (args, chapter) in [(&[][..], "1 Live"), (&["--fast"], "3 Restart")] {
        let tmp = tempfile::tempdir().unwrap();
        let mut command = demo(tmp.path(), args);
        let mut demo = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(chapter)));

        let pid = Pid::from_child(&demo.0);
        kill_process(pid, Signal::INT).unwrap();

        assert_eq!(demo.wait().code(), Some(130), "{chapter}");
        assert!(lines.any(|line| line.unwrap().contains("interrupted")));
        assert_eq!(left_behind(tmp.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn on_a_terminal_a_panel_is_redrawn_and_the_cursor_comes_back() {
    let tmp = tempfile::tempdir().unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: 40,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();

    let mut command = demo(tmp.path(), &["--fast"]);
    let mut demo = Running(command.stdout(end).spawn().unwrap());
    // Its end of the terminal is the only one left, so that reading ends when it does.
    drop(command);
    let mut shown = Vec::new();
    // Linux says EIO, not end of file, when the other end of a terminal is closed.
    let _ = File::from(terminal).read_to_end(&mut shown);
    let shown = String::from_utf8(shown).unwrap();

    assert!(demo.wait().success(), "{shown}");
    assert!(
        shown.contains("\u{1b}[32m  ✔ \u{1b}[0m"),
        "colours: {shown}"
    );
    let frames = shown.matches("\u{1b}[?25l\u{1b}[").count();
    assert!(frames > 10, "{frames} redrawn frames in {shown}");
    let end = shown.trim_end();
    assert!(
        end.ends_with("\u{1b}[?25h"),
        "the cursor is hidden: {shown}"
    );
}
