//! NATS with its MQTT listener.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::port::PortLease;
use crate::program::{Server, find_program, skipped};
use crate::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(30);

/// A running NATS server with its defaults, but for the time after which it sends again what was
/// not acknowledged (`ack_wait`): 5 s in place of 30.
///
/// It speaks MQTT 3.1.1 and keeps sessions and retained messages in `JetStream`; killed on drop.
#[derive(Debug)]
pub struct Nats {
    mqtt: PortLease,
    _clients: PortLease,
    _folder: TempDir,
    server: Server,
}

impl Nats {
    /// Starts it; `None`, with a word on stderr, where it is not installed.
    ///
    /// # Panics
    /// When it does not come up; its log is in the message.
    pub async fn start() -> Option<Self> {
        let Some(program) = find_program("nats-server") else {
            skipped(
                "NATS",
                "nats-server is not installed: run `cargo xtask setup`",
            );
            return None;
        };
        let (mqtt, clients) = (PortLease::take(), PortLease::take());
        let folder = tempfile::Builder::new()
            .prefix("bridge-nats-")
            .tempdir()
            .expect("a temporary folder");
        let config = folder.path().join("nats.conf");
        let text = format!(
            "server_name: testkit\n\
             listen: 127.0.0.1:{}\n\
             max_payload: 8MB\n\
             jetstream {{ store_dir: \"{}\" }}\n\
             mqtt {{ listen: 127.0.0.1:{}, ack_wait: \"5s\" }}\n",
            clients.port(),
            folder.path().display(),
            mqtt.port()
        );
        fs::write(&config, text).expect("the config is writable");
        let mut command = Command::new(program);
        command.arg("-c").arg(&config);
        let mut server = Server::start(&mut command, &folder.path().join("log"));
        wait_for("NATS starts", PATIENCE, async || {
            assert!(!server.has_ended(), "NATS ended:\n{}", server.log());
            TcpStream::connect(("127.0.0.1", mqtt.port())).await.ok()
        })
        .await;
        Some(Self {
            mqtt,
            _clients: clients,
            _folder: folder,
            server,
        })
    }

    /// The port that MQTT is spoken at.
    pub const fn port(&self) -> u16 {
        self.mqtt.port()
    }

    /// Its version, as `2.9.10`.
    ///
    /// # Panics
    /// When its log does not say.
    pub fn version(&self) -> String {
        self.server.log_word_after("Version:")
    }
}
