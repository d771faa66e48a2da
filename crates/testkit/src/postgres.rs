//! A real PostgreSQL in a folder of its own.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal as Number, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::certificates::Identity;
use crate::port::PortLease;
use crate::program::find_program;
use crate::signal::{self, Signal};
use crate::wait::wait_for;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
const SUPERUSER: &str = "postgres";

/// A running PostgreSQL with the database [`Postgres::DATABASE`], whose owner is the user
/// [`Postgres::USER`] with the password [`Postgres::PASSWORD`]; ended on drop.
///
/// It refuses to run as root, and runs as the user `postgres` then.
#[derive(Debug)]
pub struct Postgres {
    lease: PortLease,
    folder: TempDir,
    child: Option<Child>,
    tls: bool,
}

impl Postgres {
    /// The database.
    pub const DATABASE: &str = "bridge";
    /// Its owner.
    pub const USER: &str = "bridge";
    /// The owner's password, which is asked for over TCP.
    pub const PASSWORD: &str = "sesame & öffne/dich";

    /// Starts a server, which listens on 127.0.0.1 and at a Unix socket.
    ///
    /// # Panics
    /// When it is not installed or does not come up; its log is in the message.
    pub async fn start() -> Self {
        Self::prepare(None).await
    }

    /// Starts a server with TLS.
    ///
    /// # Panics
    /// Likewise.
    pub async fn start_with_tls(server: &Identity) -> Self {
        Self::prepare(Some(server)).await
    }

    async fn prepare(tls: Option<&Identity>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("bridge-postgres-")
            .tempdir()
            .expect("a temporary folder");
        let mut server = Self {
            lease: PortLease::take(),
            folder,
            child: None,
            tls: tls.is_some(),
        };
        own(server.folder.path());
        let password_file = server.folder.path().join("password");
        fs::write(&password_file, Self::PASSWORD).expect("the folder is writable");
        own(&password_file);
        if let Some(identity) = tls {
            for (from, to) in [
                (&identity.certificate, "tls.crt"),
                (&identity.key, "tls.key"),
            ] {
                let to = server.folder.path().join(to);
                fs::copy(from, &to).expect("the certificate can be copied");
                fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("it is ours");
                own(&to);
            }
        }
        let data = server.data();
        let initdb = [
            OsStr::new("--pgdata"),
            data.as_os_str(),
            OsStr::new("--username=postgres"),
            OsStr::new("--auth-local=trust"),
            OsStr::new("--auth-host=scram-sha-256"),
            OsStr::new("--encoding=UTF8"),
            OsStr::new("--locale=C"),
            OsStr::new("--no-sync"),
            OsStr::new("--wal-segsize=1"),
        ];
        server.run("initdb", initdb, "").await;
        server.launch().await;
        let (user, database) = (Self::USER, Self::DATABASE);
        let password = Self::PASSWORD.replace('\'', "''");
        server
            .sql_in(
                "postgres",
                &format!("CREATE USER {user} PASSWORD '{password}'"),
            )
            .await;
        server
            .sql_in(
                "postgres",
                &format!("CREATE DATABASE {database} OWNER {user}"),
            )
            .await;
        server
    }

    /// The port on 127.0.0.1, the same for all of the server's life.
    pub const fn port(&self) -> u16 {
        self.lease.port()
    }

    /// `postgres://bridge@127.0.0.1:<port>/bridge`
    pub fn url(&self) -> String {
        format!(
            "postgres://{}@127.0.0.1:{}/{}",
            Self::USER,
            self.port(),
            Self::DATABASE
        )
    }

    /// `postgres://<user>@<folder of the socket>:<port>/bridge`; no password is asked for there.
    pub fn socket_url(&self, user: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let folder = folder.replace('/', "%2F");
        format!(
            "postgres://{user}@{folder}:{}/{}",
            self.port(),
            Self::DATABASE
        )
    }

    /// A file with the owner's password.
    pub fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    /// Has a statement done as superuser, and returns what it yields, a line for each row.
    ///
    /// # Panics
    /// When it fails.
    pub async fn sql(&self, statement: &str) -> String {
        self.sql_in(Self::DATABASE, statement).await
    }

    async fn sql_in(&self, database: &str, statement: &str) -> String {
        let port = self.port().to_string();
        let arguments = [
            OsStr::new("--host"),
            self.folder.path().as_os_str(),
            OsStr::new("--port"),
            OsStr::new(&port),
            OsStr::new("--username"),
            OsStr::new(SUPERUSER),
            OsStr::new("--no-psqlrc"),
            OsStr::new("--quiet"),
            OsStr::new("--tuples-only"),
            OsStr::new("--no-align"),
            OsStr::new("--set=ON_ERROR_STOP=1"),
            OsStr::new("--dbname"),
            OsStr::new(database),
            OsStr::new("--command"),
        ];
        self.run("psql", arguments, statement).await
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Stops it in good order, whoever is connected.
    pub async fn stop(&mut self) {
        self.end(Signal::INT).await;
    }

    /// Ends it as a crash does: nothing is said to those that are connected.
    pub async fn kill(&mut self) {
        self.end(Signal::QUIT).await;
    }

    /// Halts it with all of its processes: connections stay open, and nothing answers.
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&self) {
        self.send_to_all(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&self) {
        self.send_to_all(Signal::CONT);
    }

    /// Starts it again, on its port and with what it has; stops it first when it runs.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn restart(&mut self) {
        if self.child.is_some() {
            self.stop().await;
        }
        self.launch().await;
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    async fn launch(&mut self) {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("the log is writable");
        let mut command = command("postgres");
        command.arg("-D").arg(self.data());
        let port = self.port().to_string();
        let folder = self.folder.path().display().to_string();
        for (name, value) in [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", &folder),
            ("shared_buffers", "16MB"),
            ("max_connections", "30"),
            // What it has survives the end of its processes; nobody cuts the power of a test.
            ("fsync", "off"),
            ("log_min_messages", "info"),
            ("autovacuum", "off"),
        ] {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        if self.tls {
            for (name, file) in [("ssl_cert_file", "tls.crt"), ("ssl_key_file", "tls.key")] {
                command.arg("-c").arg(format!("{name}={folder}/{file}"));
            }
            command.arg("-c").arg("ssl=on");
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log can be written twice"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("postgres cannot be executed: {error}"));
        self.child = Some(child);
        wait_for("PostgreSQL starts", PATIENCE, async || {
            let status = self.child.as_mut().and_then(|child| child.try_wait().ok());
            assert!(
                !matches!(status, Some(Some(_))),
                "PostgreSQL ended:\n{}",
                self.log()
            );
            // Its own word: it accepts connections before it answers them.
            let pid_file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
            let ready = pid_file.lines().nth(7)?.trim() == "ready";
            ready.then_some(())
        })
        .await;
    }

    async fn end(&mut self, how: Signal) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        signal::send(&child, how);
        match timeout(PATIENCE, child.wait()).await {
            Ok(ended) => drop(ended.expect("the child can be waited for")),
            Err(elapsed) => panic!("PostgreSQL does not stop, {elapsed}:\n{}", self.log()),
        }
    }

    /// Its processes have sessions of their own, so that no group names them all.
    fn send_to_all(&self, signal: Signal) {
        let child = self.child.as_ref().expect("PostgreSQL is running");
        signal::send(child, signal);
        let parent = child.id().expect("PostgreSQL is running");
        for pid in children_of(parent) {
            // One that has just ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    async fn run(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = &OsStr>,
        last: &str,
    ) -> String {
        let mut command = command(program);
        command.args(arguments).current_dir(self.folder.path());
        if !last.is_empty() {
            command.arg(last);
        }
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(PATIENCE, output)
            .await
            .unwrap_or_else(|_| panic!("{program} does not end"))
            .unwrap_or_else(|error| panic!("{program} cannot be executed: {error}"));
        assert!(
            output.status.success(),
            "{program} failed: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // Its processes end with it only when it is asked to: SIGQUIT needs no time.
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let Some(pid) = id.and_then(Pid::from_raw) else {
            return;
        };
        for pid in children_of(pid.as_raw_nonzero().get().unsigned_abs()) {
            let _ = kill_process(pid, Number::CONT);
        }
        let _ = kill_process(pid, Number::CONT);
        let _ = kill_process(pid, Number::QUIT);
        let end = Instant::now() + Duration::from_secs(10);
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

/// Where the programs of PostgreSQL are: Debian keeps them out of `PATH`, by version.
///
/// # Panics
/// When they are not installed, with what to do about it.
fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(postgres_folder).as_deref();
    folder
        .expect("PostgreSQL is not installed: run `cargo xtask setup`")
        .join(name)
}

/// The folder of the newest PostgreSQL server that is installed.
pub fn postgres_folder() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders: Vec<_> = versions
        .flatten()
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("initdb").is_file().then_some((version, folder))
        })
        .collect();
    folders.sort();
    let newest = folders.pop().map(|(_, folder)| folder);
    newest.or_else(|| Some(find_program("initdb")?.parent()?.to_owned()))
}

/// A program of PostgreSQL, which refuses to be run by root.
fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    if let Some((user, group)) = stranger() {
        command.uid(user).gid(group);
    }
    command.env("LC_ALL", "C");
    command
}

/// Gives a file to whom the server runs as.
fn own(path: &Path) {
    if let Some((user, group)) = stranger() {
        chown(path, Some(user), Some(group)).expect("root may give files away");
    }
}

/// Whom the server runs as when we are root.
fn stranger() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
    let line = users
        .lines()
        .find_map(|line| line.strip_prefix("postgres:"))
        .expect("the package postgresql makes the user postgres");
    let mut ids = line.split(':').skip(1).map(str::parse);
    match (ids.next(), ids.next()) {
        (Some(Ok(user)), Some(Ok(group))) => Some((user, group)),
        _ => panic!("/etc/passwd has an odd line for postgres: {line}"),
    }
}

/// The processes that have that parent.
fn children_of(parent: u32) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // pid (name) state ppid …, and the name may hold anything.
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
        let found = rest.and_then(|rest| rest.split(' ').nth(1));
        found.and_then(|found| found.parse().ok()) == Some(parent)
    })
    .filter_map(Pid::from_raw)
    .collect()
}
