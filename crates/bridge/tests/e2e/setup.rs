//! Two brokers and a bridge between them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_testkit::{
    Ack, AckKind, Behaviour, BridgeConfig, BridgeProcess, ClientOptions, Installation, Ledger,
    Mosquitto, Packet, Publish, RawClient, Reply, ScriptedBroker, wait_until,
};

/// The binary under test.
pub(crate) const BRIDGE: &str = env!("CARGO_BIN_EXE_bridge");
/// How long anything may take that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The subscription option by which the retain flag stays as it was published.
pub(crate) const RETAIN_AS_PUBLISHED: u8 = 0x08;

/// A bridge between two Mosquittos.
pub(crate) struct Line {
    pub(crate) source: Mosquitto,
    pub(crate) destination: Mosquitto,
    pub(crate) installation: Installation,
    pub(crate) bridge: BridgeProcess,
}

impl Line {
    /// Starts all three; the brokers keep what they have on disk.
    pub(crate) async fn start(config: impl FnOnce(BridgeConfig) -> BridgeConfig) -> Self {
        let source = Mosquitto::builder().persistence(true).start().await;
        let destination = Mosquitto::builder().persistence(true).start().await;
        Self::between(source, destination, config).await
    }

    /// Starts the bridge between these.
    pub(crate) async fn between(
        source: Mosquitto,
        destination: Mosquitto,
        config: impl FnOnce(BridgeConfig) -> BridgeConfig,
    ) -> Self {
        let config = config(BridgeConfig::between(source.url(), destination.url()));
        let installation = Installation::new(&config);
        let bridge = installation.bridge(BRIDGE).start().await;
        Self {
            source,
            destination,
            installation,
            bridge,
        }
    }

    /// Publishes at the source, which accepts.
    pub(crate) async fn publish(&self, messages: impl IntoIterator<Item = Publish>) {
        publish(self.source.port(), messages).await;
    }

    /// A new subscriber at the destination.
    pub(crate) async fn subscriber(&self) -> RawClient {
        subscriber(self.destination.port()).await
    }

    /// Waits until so many messages wait in the queue.
    pub(crate) async fn queued(&self, messages: u64) {
        until_queued(&self.bridge, messages).await;
    }

    /// Waits until nothing waits in the bridge and so many messages were given to it.
    pub(crate) async fn drained(&self, received: u64) -> Ledger {
        until_drained(&self.bridge, received).await
    }
}

/// Publishes at that port of 127.0.0.1, where everything is accepted.
pub(crate) async fn publish(port: u16, messages: impl IntoIterator<Item = Publish>) {
    let mut client = RawClient::connect(port, "publisher").await.unwrap();
    client
        .publish_all(messages, 100)
        .await
        .expect_all_accepted();
    client.disconnect().await.unwrap();
}

/// Subscribes to everything at that port of 127.0.0.1, as it was published.
pub(crate) async fn subscriber(port: u16) -> RawClient {
    let mut client = ClientOptions::new("subscriber")
        .connect(port)
        .await
        .unwrap();
    let codes = client.subscribe(&[("#", 2 | RETAIN_AS_PUBLISHED)]).await;
    assert_eq!(codes.unwrap(), [2]);
    client
}

/// Waits until so many messages wait in the queue, and the ledger balances.
pub(crate) async fn until_queued(bridge: &BridgeProcess, messages: u64) {
    let what = format!("{messages} messages are queued");
    until(bridge, &what, |ledger| ledger.queued == messages).await;
}

/// Waits until nothing waits in the bridge, so many messages were given to it, and the ledger
/// balances.
pub(crate) async fn until_drained(bridge: &BridgeProcess, received: u64) -> Ledger {
    let what = format!("{received} messages are received and none waits");
    until(bridge, &what, |ledger| {
        ledger.received >= received && ledger.is_drained()
    })
    .await
}

/// Waits until the binding has said so often, over all launches, that what arrives goes straight to
/// the destination. That it is connected says less: what arrives before its worker has looked into
/// the queue goes there, and is refused from there.
pub(crate) async fn until_live(bridge: &BridgeProcess, binding: &str, times: usize) {
    let what = format!("{binding} is live, {times} times in all");
    wait_until(&what, PATIENCE, || {
        let log = bridge.stderr();
        let said = log.lines().filter(|line| line.contains("binding_live"));
        said.filter(|line| line.contains(binding)).count() >= times
    })
    .await;
}

/// Waits until the ledger of the only binding balances and is as `condition` says.
pub(crate) async fn until(
    bridge: &BridgeProcess,
    what: &str,
    condition: impl Fn(&Ledger) -> bool,
) -> Ledger {
    Ledger::until(bridge, ("all", "out"), what, PATIENCE, condition).await
}

/// The ledger of the only binding.
pub(crate) async fn ledger(bridge: &BridgeProcess) -> Ledger {
    Ledger::of(&bridge.metrics().await, "all", "out")
}

/// What `bridge` answers with `--json` about the data folder, with or without a bridge at work in it.
pub(crate) async fn asked(installation: &Installation, command: &str) -> serde_json::Value {
    let output = said(installation, &format!("{command} --json")).await;
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// What `bridge` prints of the data folder, which stands for `DATA` in the command.
pub(crate) async fn said(installation: &Installation, command: &str) -> String {
    let folder = installation.data_dir();
    let args = command.split(' ').map(|word| match word {
        "DATA" => folder.as_os_str().to_owned(),
        word => word.into(),
    });
    let mut program = std::process::Command::new(BRIDGE);
    program.args(args);
    // The brokers of the test go on meanwhile.
    let output = tokio::task::spawn_blocking(move || program.output());
    let output = output.await.unwrap().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A counter or gauge of one session, over both of its connections.
pub(crate) async fn of_session(bridge: &BridgeProcess, name: &str, session: &str) -> u64 {
    let metrics = bridge.metrics().await;
    let value = metrics.whole(name, &[("session", session)]);
    value.unwrap_or_else(|| panic!("no metric {name} of {session}"))
}

/// A destination that answers no QoS 1 message before it is told to.
pub(crate) struct Withholding {
    pub(crate) broker: ScriptedBroker,
    state: Arc<Mutex<Withheld>>,
}

#[derive(Default)]
struct Withheld {
    open: bool,
    ids: Vec<u16>,
}

impl Withholding {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(Withheld::default()));
        let shared = Arc::clone(&state);
        let behaviour = Behaviour::new().reply(move |received| {
            let mut state = shared.lock().unwrap();
            if state.open {
                return Reply::Accept;
            }
            state.ids.push(received.publish.id);
            Reply::Silence
        });
        Self {
            broker: ScriptedBroker::behaving(behaviour).await,
            state,
        }
    }

    /// Accepts what was withheld on the only connection, and all that follows.
    pub(crate) async fn release(&self) {
        let ids = {
            let mut state = self.state.lock().unwrap();
            state.open = true;
            std::mem::take(&mut state.ids)
        };
        for id in ids {
            let accepted = Packet::Ack(Ack::new(AckKind::PubAck, id, 0));
            self.broker.send_packet_to_all(&accepted).await;
        }
    }
}
