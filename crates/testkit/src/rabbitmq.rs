//! RabbitMQ with its MQTT plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::port::PortLease;
use crate::program::{Server, find_program, skipped};
use crate::wait::wait_for;

/// It takes ten seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running RabbitMQ, which speaks MQTT up to the version that its plugin knows (3.1.1 before
/// 3.13); killed on drop.
#[derive(Debug)]
pub struct Rabbitmq {
    mqtt: PortLease,
    _distribution: PortLease,
    _names: PortLease,
    server: Server,
    /// Erlang's port mapper, which would otherwise be started in the background and stay.
    _mapper: Server,
    _folder: TempDir,
}

impl Rabbitmq {
    /// Starts it; `None`, with a word on stderr, where it is not installed.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start() -> Option<Self> {
        let (Some(program), Some(mapper)) = (find_server(), find_program("epmd")) else {
            let why = "rabbitmq-server is not installed: run `cargo xtask setup`";
            skipped("RabbitMQ", why);
            return None;
        };
        let (mqtt, distribution, names) = (PortLease::take(), PortLease::take(), PortLease::take());
        let folder = tempfile::Builder::new()
            .prefix("bridge-rabbitmq-")
            .tempdir()
            .expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            fs::write(path(name), text).expect("the config is writable");
        };
        write("plugins", "[rabbitmq_mqtt].\n");
        write("environment", "");
        write(
            "rabbitmq.conf",
            &format!(
                "listeners.tcp = none\n\
                 mqtt.listeners.tcp.default = 127.0.0.1:{}\n\
                 mqtt.allow_anonymous = true\n",
                mqtt.port()
            ),
        );
        let mut command = Command::new(mapper);
        command.args(["-address", "127.0.0.1", "-port"]);
        command.arg(names.port().to_string());
        let mapper = Server::start(&mut command, &path("epmd.log"));
        let mut command = Command::new(program);
        command
            .env("HOME", folder.path())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", names.port().to_string())
            .env("RABBITMQ_NODENAME", "testkit@localhost")
            .env("RABBITMQ_DIST_PORT", distribution.port().to_string())
            .env("RABBITMQ_CONF_ENV_FILE", path("environment"))
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
            .env("RABBITMQ_LOG_BASE", path("log"))
            .env("RABBITMQ_PID_FILE", path("pid"))
            // Fewer threads: it starts faster beside other tests.
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1 +A 4");
        let mut server = Server::start(&mut command, &path("out"));
        wait_for("RabbitMQ starts", PATIENCE, async || {
            assert!(!server.has_ended(), "RabbitMQ ended:\n{}", server.log());
            if !server.log().contains("Starting broker... completed") {
                return None;
            }
            TcpStream::connect(("127.0.0.1", mqtt.port())).await.ok()
        })
        .await;
        Some(Self {
            mqtt,
            _distribution: distribution,
            _names: names,
            server,
            _mapper: mapper,
            _folder: folder,
        })
    }

    /// The port that MQTT is spoken at.
    pub const fn port(&self) -> u16 {
        self.mqtt.port()
    }

    /// Its version, as `3.10.8`.
    ///
    /// # Panics
    /// When its log does not say.
    pub fn version(&self) -> String {
        self.server.log_word_after("RabbitMQ ")
    }
}

/// The script itself: the one in `PATH` insists on being root or the user `rabbitmq`, and on the
/// system's folders.
fn find_server() -> Option<PathBuf> {
    let script = Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
    let script = script.is_file().then(|| script.to_owned());
    script.or_else(|| {
        let linked = fs::canonicalize(find_program("rabbitmq-server")?).ok()?;
        (!linked.ends_with("rabbitmq-script-wrapper")).then_some(linked)
    })
}
