//! A real Mosquitto on a port of its own.

mod listener;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use listener::{Kind, Listener};

use crate::certificates::Identity;
use crate::port::PortLease;
use crate::program::{find_program, word_after};
use crate::signal::{self, Signal};
use crate::wait::{wait_for, wait_until};

/// How long a broker may take to start, to stop or to reload.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a start is tried: a stranger may take the port between our look at it and the bind.
const ATTEMPTS: usize = 5;

/// Where mosquitto is.
///
/// # Panics
/// When it is not installed, with what to do about it.
pub fn require_mosquitto() -> &'static Path {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| find_program("mosquitto"))
        .as_deref()
        .expect("mosquitto is not installed: run `cargo xtask setup`")
}

/// What a broker is to be like; begun with [`Mosquitto::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing before `start`"]
pub struct MosquittoBuilder {
    persistence: bool,
    acl: Option<String>,
    users: Vec<(String, String)>,
    max_queued_messages: u32,
    max_inflight_messages: Option<u16>,
    message_size_limit: Option<u32>,
    terse: bool,
    lines: Vec<String>,
    listeners: Vec<Kind>,
}

impl MosquittoBuilder {
    /// Logs no single packets: for runs that last.
    pub fn terse(mut self) -> Self {
        self.terse = true;
        self
    }

    /// Whether sessions, queued and retained messages outlive [`Mosquitto::stop`]. What had not
    /// been saved by then is lost at a [`Mosquitto::kill`]; `autosave_interval` says how much.
    pub fn persistence(mut self, persistence: bool) -> Self {
        self.persistence = persistence;
        self
    }

    /// The access control list, as mosquitto.conf(5) has it; without one, everything is allowed.
    pub fn acl(mut self, acl: impl Into<String>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Users with their passwords. With any, a client without one is turned away.
    pub fn users<'a>(mut self, users: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let users = users.into_iter();
        self.users
            .extend(users.map(|(name, password)| (name.to_owned(), password.to_owned())));
        self
    }

    /// How many messages may wait for a client that is away or slow. Mosquitto's own default of
    /// 1,000 drops without a word; ours is a million. Not 0: Mosquitto 2.0.11 closes the
    /// connection after a denied publish then.
    pub fn max_queued_messages(mut self, messages: u32) -> Self {
        self.max_queued_messages = messages;
        self
    }

    /// How many messages the broker keeps open per client; it announces that as Receive Maximum.
    pub fn max_inflight_messages(mut self, messages: u16) -> Self {
        self.max_inflight_messages = Some(messages);
        self
    }

    /// The largest payload in bytes that the broker takes.
    pub fn message_size_limit(mut self, bytes: u32) -> Self {
        self.message_size_limit = Some(bytes);
        self
    }

    /// Listens besides with TLS: [`Mosquitto::tls_port`].
    pub fn tls(mut self, server: &Identity) -> Self {
        self.listeners.push(Kind::Tls(server.clone()));
        self
    }

    /// Listens besides with TLS for clients whose certificate that authority has issued:
    /// [`Mosquitto::mutual_tls_port`].
    pub fn mutual_tls(mut self, server: &Identity, authority: impl Into<PathBuf>) -> Self {
        let kind = Kind::MutualTls(server.clone(), authority.into());
        self.listeners.push(kind);
        self
    }

    /// Listens besides with WebSocket: [`Mosquitto::websocket_port`].
    pub fn websocket(mut self) -> Self {
        self.listeners.push(Kind::WebSocket);
        self
    }

    /// Listens besides with WebSocket in TLS: [`Mosquitto::secure_websocket_port`].
    pub fn secure_websocket(mut self, server: &Identity) -> Self {
        self.listeners.push(Kind::SecureWebSocket(server.clone()));
        self
    }

    /// Listens besides at `::1`: [`Mosquitto::ipv6_port`].
    pub fn ipv6(mut self) -> Self {
        self.listeners.push(Kind::Ipv6);
        self
    }

    /// Listens besides at a Unix socket: [`Mosquitto::unix_socket`].
    pub fn unix_socket(mut self) -> Self {
        self.listeners.push(Kind::Unix);
        self
    }

    /// A further line of configuration.
    pub fn config_line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Starts the broker and waits until it accepts connections.
    ///
    /// # Panics
    /// When it is not installed or does not come up; its log is in the message.
    pub async fn start(self) -> Mosquitto {
        require_mosquitto();
        let mut failures = String::new();
        for _ in 0..ATTEMPTS {
            let mut broker = Mosquitto::prepare(&self);
            match broker.launch().await {
                Ok(()) => return broker,
                Err(log) if log.contains("Address already in use") => failures = log,
                Err(log) => panic!("mosquitto did not start:\n{log}"),
            }
        }
        panic!("mosquitto found no free port in {ATTEMPTS} attempts:\n{failures}");
    }

    fn config(&self, folder: &Path, port: u16, listeners: &[Listener]) -> String {
        let folder = folder.display();
        let mut config = format!(
            "listener {port} 127.0.0.1\n\
             allow_anonymous {}\n\
             set_tcp_nodelay true\n\
             log_dest stderr\n\
             {}\n\
             log_timestamp_format %Y-%m-%dT%H:%M:%S\n\
             max_queued_messages {}\n\
             persistence {}\n\
             persistence_location {folder}/\n",
            self.users.is_empty(),
            if self.terse {
                "log_type error\nlog_type warning\nlog_type notice\nlog_type information"
            } else {
                "log_type all"
            },
            self.max_queued_messages,
            self.persistence,
        );
        if rustix::process::geteuid().is_root() {
            // It would become the user `mosquitto` and could not read its own folder any more.
            config.push_str("user root\n");
        }
        if self.acl.is_some() {
            let _ = writeln!(config, "acl_file {folder}/acl");
        }
        if !self.users.is_empty() {
            let _ = writeln!(config, "password_file {folder}/passwords");
        }
        if let Some(messages) = self.max_inflight_messages {
            let _ = writeln!(config, "max_inflight_messages {messages}");
        }
        if let Some(bytes) = self.message_size_limit {
            let _ = writeln!(config, "message_size_limit {bytes}");
        }
        for line in &self.lines {
            let _ = writeln!(config, "{line}");
        }
        for listener in listeners {
            config.push_str(&listener.config());
        }
        config
    }
}

/// A running Mosquitto; killed on drop.
#[derive(Debug)]
pub struct Mosquitto {
    lease: PortLease,
    listeners: Vec<Listener>,
    folder: TempDir,
    child: Option<Child>,
}

impl Mosquitto {
    /// A broker as it comes: anonymous clients, everything allowed, nothing persistent.
    pub fn builder() -> MosquittoBuilder {
        MosquittoBuilder {
            persistence: false,
            acl: None,
            users: Vec::new(),
            max_queued_messages: 1_000_000,
            max_inflight_messages: None,
            message_size_limit: None,
            terse: false,
            lines: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// Starts a broker as it comes.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// The port on 127.0.0.1, the same for all of the broker's life.
    pub const fn port(&self) -> u16 {
        self.lease.port()
    }

    /// `mqtt://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port())
    }

    /// The port with TLS.
    ///
    /// # Panics
    /// Without [`MosquittoBuilder::tls`]; the further ports likewise.
    pub fn tls_port(&self) -> u16 {
        self.listener(|kind| matches!(kind, Kind::Tls(_))).port()
    }

    /// The port with TLS that asks for a client certificate.
    pub fn mutual_tls_port(&self) -> u16 {
        self.listener(|kind| matches!(kind, Kind::MutualTls(..)))
            .port()
    }

    /// The port with WebSocket, at every path.
    pub fn websocket_port(&self) -> u16 {
        self.listener(|kind| matches!(kind, Kind::WebSocket)).port()
    }

    /// The port with WebSocket in TLS.
    pub fn secure_websocket_port(&self) -> u16 {
        self.listener(|kind| matches!(kind, Kind::SecureWebSocket(_)))
            .port()
    }

    /// The port at `::1`.
    pub fn ipv6_port(&self) -> u16 {
        self.listener(|kind| matches!(kind, Kind::Ipv6)).port()
    }

    /// The path of the Unix socket.
    pub fn unix_socket(&self) -> &Path {
        self.listener(|kind| matches!(kind, Kind::Unix)).path()
    }

    fn listener(&self, wanted: impl Fn(&Kind) -> bool) -> &Listener {
        let mut listeners = self.listeners.iter();
        listeners
            .find(|listener| wanted(listener.kind()))
            .expect("a listener that the builder was asked for")
    }

    /// All that the broker has logged, over all of its starts.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its version, as `2.0.11`.
    ///
    /// # Panics
    /// When its log does not say.
    pub fn version(&self) -> String {
        word_after(&self.log(), "mosquitto version ")
    }

    /// The broker's process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Puts a new access control list in force; open connections stay open. Whatever reaches the
    /// broker after this returns is judged by the new list.
    ///
    /// # Panics
    /// When the broker was started without a list, or is not running.
    pub async fn reload(&self, acl: &str) {
        let path = self.folder.path().join("acl");
        assert!(path.exists(), "start with `.acl(..)` to reload one");
        fs::write(&path, acl).expect("the ACL file is writable");
        self.read_again().await;
    }

    /// Puts other users and passwords in force. Mosquitto ends the connections of those whose
    /// password is no longer right.
    ///
    /// # Panics
    /// When the broker was started without users, or is not running.
    pub async fn set_users(&self, users: &[(&str, &str)]) {
        let path = self.folder.path().join("passwords");
        assert!(path.exists(), "start with `.users(..)` to change them");
        let owned = |(name, password): &(&str, &str)| ((*name).to_owned(), (*password).to_owned());
        let users: Vec<_> = users.iter().map(owned).collect();
        write_passwords(&path, &users);
        self.read_again().await;
    }

    /// Lets the broker read its files again (SIGHUP).
    async fn read_again(&self) {
        const RELOADED: &str = "Reloading config.";
        let before = self.log().matches(RELOADED).count();
        signal::send(self.running(), Signal::HUP);
        // The broker has one thread: after that line it reads the files before any packet.
        wait_until("mosquitto reloads its config", PATIENCE, || {
            self.log().matches(RELOADED).count() > before
        })
        .await;
    }

    /// Stops the broker in good order (SIGTERM), which saves what is persistent.
    pub async fn stop(&mut self) {
        self.end(Signal::TERM).await;
    }

    /// Kills the broker (SIGKILL).
    pub async fn kill(&mut self) {
        self.end(Signal::KILL).await;
    }

    /// Halts the broker: its connections stay open and nothing answers (SIGSTOP).
    pub fn pause(&self) {
        signal::send(self.running(), Signal::STOP);
    }

    /// Lets a halted broker go on (SIGCONT).
    pub fn resume(&self) {
        signal::send(self.running(), Signal::CONT);
    }

    /// Starts the broker again, on its port and with what it has saved; stops it first when it
    /// runs.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn restart(&mut self) {
        if self.child.is_some() {
            self.stop().await;
        }
        if let Err(log) = self.launch().await {
            panic!("mosquitto did not start again:\n{log}");
        }
    }

    fn prepare(builder: &MosquittoBuilder) -> Self {
        let lease = PortLease::take();
        let folder = tempfile::Builder::new()
            .prefix("bridge-mosquitto-")
            .tempdir()
            .expect("a temporary folder");
        let path = folder.path();
        let kinds = builder.listeners.iter().cloned();
        let listeners: Vec<_> = kinds.map(|kind| Listener::new(kind, path)).collect();
        let config = builder.config(path, lease.port(), &listeners);
        fs::write(path.join("mosquitto.conf"), config).expect("the config is writable");
        if let Some(acl) = &builder.acl {
            fs::write(path.join("acl"), acl).expect("the ACL file is writable");
        }
        if !builder.users.is_empty() {
            write_passwords(&path.join("passwords"), &builder.users);
        }
        Self {
            lease,
            listeners,
            folder,
            child: None,
        }
    }

    /// Starts the process and waits until it accepts; the log of this start when it does not.
    async fn launch(&mut self) -> Result<(), String> {
        let before = self.log().len();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("the log is writable");
        let child = Command::new(require_mosquitto())
            .arg("-c")
            .arg(self.folder.path().join("mosquitto.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("mosquitto can be executed");
        let child = self.child.insert(child);
        let log_path = self.folder.path().join("log");
        let new_log = || {
            let bytes = fs::read(&log_path).unwrap_or_default();
            String::from_utf8_lossy(bytes.get(before..).unwrap_or_default()).into_owned()
        };
        let started = async {
            wait_for("mosquitto starts", PATIENCE, async || {
                if child
                    .try_wait()
                    .expect("the child can be waited for")
                    .is_some()
                {
                    return Some(Err(new_log()));
                }
                (new_log().contains(" running")).then_some(Ok(()))
            })
            .await
        };
        started.await?;
        match timeout(
            PATIENCE,
            TcpStream::connect(("127.0.0.1", self.lease.port())),
        )
        .await
        {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("{error}\n{}", new_log())),
            Err(_) => Err(format!("it does not accept\n{}", new_log())),
        }
    }

    async fn end(&mut self, with: Signal) {
        let mut child = self.child.take().expect("mosquitto is running");
        // A halted process does not see SIGTERM before it goes on.
        signal::send(&child, Signal::CONT);
        signal::send(&child, with);
        timeout(PATIENCE, child.wait())
            .await
            .unwrap_or_else(|_| panic!("mosquitto did not end after {with:?}"))
            .expect("the child can be waited for");
    }

    fn running(&self) -> &Child {
        self.child.as_ref().expect("mosquitto is running")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

/// Hashes the passwords by mosquitto's own tool, which is in the same package.
fn write_passwords(path: &Path, users: &[(String, String)]) {
    let tool = find_program("mosquitto_passwd")
        .expect("mosquitto_passwd is not installed: run `cargo xtask setup`");
    fs::write(path, "").expect("the password file is writable");
    for (name, password) in users {
        let output = std::process::Command::new(&tool)
            .arg("-b")
            .arg(path)
            .args([name, password])
            .output()
            .expect("mosquitto_passwd can be executed");
        assert!(
            output.status.success(),
            "mosquitto_passwd: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
