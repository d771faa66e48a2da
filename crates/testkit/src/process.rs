//! A binary under test.

mod metrics;

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

pub use metrics::{Metrics, Sample};

use crate::http;
use crate::signal::{self, Signal};
use crate::wait::wait_for;

/// How long the process may take until it is ready, and until it ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked whether it is ready.
const PACE: Duration = Duration::from_millis(10);

/// What is to be run; begun with [`BridgeProcess::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing before `start` or `spawn`"]
pub struct BridgeProcessBuilder {
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    monitor_port: Option<u16>,
    ready_path: String,
}

impl BridgeProcessBuilder {
    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        let args = args.into_iter();
        self.args.extend(args.map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more variable of the environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let (name, value) = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.envs.push((name, value));
        self
    }

    /// Where the process's monitor listens, on 127.0.0.1: its config says so too.
    pub fn monitor_port(mut self, port: u16) -> Self {
        self.monitor_port = Some(port);
        self
    }

    /// What is asked for to learn whether the process is ready, in place of
    /// `/readyz?level=subscribed`.
    pub fn ready_path(mut self, path: impl Into<String>) -> Self {
        self.ready_path = path.into();
        self
    }

    /// Starts the process and waits until it is ready.
    ///
    /// # Panics
    /// When no monitor port is set, or the process ends or is not ready within a minute; what it
    /// has printed is in the message.
    pub async fn start(self) -> BridgeProcess {
        let mut process = self.spawn();
        process.ready().await;
        process
    }

    /// Starts the process and waits for nothing.
    ///
    /// # Panics
    /// When it cannot be executed.
    pub fn spawn(self) -> BridgeProcess {
        let mut process = BridgeProcess {
            command: self,
            folder: tempfile::Builder::new()
                .prefix("bridge-process-")
                .tempdir()
                .expect("a temporary folder"),
            child: None,
        };
        process.launch();
        process
    }
}

/// A running binary; killed on drop.
#[derive(Debug)]
pub struct BridgeProcess {
    command: BridgeProcessBuilder,
    folder: TempDir,
    child: Option<Child>,
}

impl BridgeProcess {
    /// Runs `program`: `env!("CARGO_BIN_EXE_bridge")`, which only the crate of the binary knows.
    pub fn builder(program: impl AsRef<Path>) -> BridgeProcessBuilder {
        BridgeProcessBuilder {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            monitor_port: None,
            ready_path: "/readyz?level=subscribed".to_owned(),
        }
    }

    /// Waits until the process says that it is ready.
    ///
    /// # Panics
    /// When no monitor port is set, or the process ends or is not ready within a minute; what it
    /// has printed is in the message.
    pub async fn ready(&mut self) {
        let port = self.monitor_port();
        let path = self.command.ready_path.clone();
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = http::get(port, &path).await;
            if matches!(&answer, Ok(answer) if answer.status == 200) {
                return;
            }
            let ended = self.try_wait();
            assert!(
                ended.is_none() && Instant::now() < end,
                "the process is not ready; ended: {ended:?}; latest answer: {answer:?}\n{}",
                self.output()
            );
            sleep(PACE).await;
        }
    }

    /// Gets `path` from the monitor.
    pub async fn get(&self, path: &str) -> std::io::Result<http::Response> {
        http::get(self.monitor_port(), path).await
    }

    /// The metrics at this moment.
    ///
    /// # Panics
    /// When the monitor does not answer with metrics.
    pub async fn metrics(&self) -> Metrics {
        let answer = self.get("/metrics").await.expect("the monitor answers");
        assert_eq!(answer.status, 200, "{}", answer.body);
        Metrics::parse(&answer.body).unwrap_or_else(|line| panic!("not a metric: {line:?}"))
    }

    /// The metrics of a process that was just started, as soon as it has any.
    ///
    /// # Panics
    /// When it ends before that, or has none within a minute; what it has printed is in the
    /// message.
    pub async fn first_metrics(&mut self) -> Metrics {
        wait_for("the monitor answers", PATIENCE, async || {
            if let Some(status) = self.try_wait() {
                panic!("the process has ended: {status}\n{}", self.output());
            }
            let answer = self.get("/metrics").await.ok()?;
            Metrics::parse(&answer.body).ok()
        })
        .await
    }

    /// The process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Asks the process to end in good order.
    pub fn sigterm(&self) {
        signal::send(self.running(), Signal::TERM);
    }

    /// Asks the process to end in good order, as Ctrl-C does.
    pub fn sigint(&self) {
        signal::send(self.running(), Signal::INT);
    }

    /// Halts the process (SIGSTOP).
    pub fn pause(&self) {
        signal::send(self.running(), Signal::STOP);
    }

    /// Lets a halted process go on (SIGCONT).
    pub fn resume(&self) {
        signal::send(self.running(), Signal::CONT);
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    pub async fn kill(&mut self) -> ExitStatus {
        signal::send(self.running(), Signal::KILL);
        self.wait().await
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    /// When it has not within a minute; what it has printed is in the message.
    pub async fn wait(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("the process runs");
        let Ok(status) = timeout(PATIENCE, child.wait()).await else {
            panic!("the process goes on after {PATIENCE:?}:\n{}", self.output());
        };
        self.child = None;
        status.expect("the child can be waited for")
    }

    /// The process's exit status, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        child.try_wait().expect("the child can be waited for")
    }

    /// Runs the same command again, after the process has ended.
    ///
    /// # Panics
    /// When it still runs.
    pub fn relaunch(&mut self) {
        assert!(self.child.is_none(), "the process still runs");
        self.launch();
    }

    /// What was printed to standard output, over all launches.
    pub fn stdout(&self) -> String {
        self.read("stdout")
    }

    /// What was printed to standard error, over all launches.
    pub fn stderr(&self) -> String {
        self.read("stderr")
    }

    /// Both, for a message.
    pub fn output(&self) -> String {
        format!(
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout(),
            self.stderr()
        )
    }

    fn launch(&mut self) {
        let command = &self.command;
        let child = Command::new(&command.program)
            .args(&command.args)
            .envs(command.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(self.append("stdout"))
            .stderr(self.append("stderr"))
            .kill_on_drop(true)
            .spawn();
        let program = command.program.display();
        self.child =
            Some(child.unwrap_or_else(|error| panic!("cannot execute {program}: {error}")));
    }

    /// To a file and not a pipe: nothing has to be read for the process to go on.
    fn append(&self, name: &str) -> fs::File {
        let path = self.folder.path().join(name);
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.expect("the output's file is writable")
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn running(&self) -> &Child {
        self.child.as_ref().expect("the process runs")
    }

    /// Where the monitor listens, on 127.0.0.1.
    ///
    /// # Panics
    /// When no port was set.
    pub fn monitor_port(&self) -> u16 {
        self.command
            .monitor_port
            .expect("set `.monitor_port(..)` to ask the monitor")
    }
}
