//! A bridge from a plant to a cloud and a historian, with its admin listener.

use std::time::Duration;

use bridge_testkit::http::{self, Response};
use bridge_testkit::{
    BridgeProcess, ClientOptions, Installation, Mosquitto, PortLease, Publish, RawClient, wait_for,
};
use serde_json::Value;

/// What opens the admin listener.
pub(crate) const TOKEN: &str = "swordfish-0123456789abcdef";
/// How long anything may take that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A packet that the cloud never takes.
pub(crate) const TOO_LARGE: usize = 30_000;
/// The cloud takes what line 1 sends, and nothing else.
const DENYING: &str = "topic read #\ntopic write plants/7/sensors/line-1/#\n";
const GRANTING: &str = "topic read #\ntopic write #\n";

/// The brokers, and the bridge between them.
pub(crate) struct Stage {
    pub(crate) plant: Mosquitto,
    pub(crate) cloud: Mosquitto,
    pub(crate) historian: Mosquitto,
    pub(crate) bridge: BridgeProcess,
    admin: PortLease,
    _installation: Installation,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::with_cloud("").await
    }

    /// With more fields of the binding to the cloud, each behind a comma.
    pub(crate) async fn with_cloud(more: &str) -> Self {
        let plant = Mosquitto::start().await;
        let cloud = Mosquitto::builder()
            .acl(DENYING)
            .config_line("max_packet_size 20000")
            .start()
            .await;
        let historian = Mosquitto::start().await;
        let admin = PortLease::take();
        let installation = Installation::with(|monitor| {
            format!(
                "bridge: {{ id: plant-7 }}
data_dir: data
monitor: {{ listen: \"127.0.0.1:{monitor}\" }}
admin: {{ listen: \"127.0.0.1:{}\", token: \"${{ADMIN_TOKEN}}\" }}
sessions:
  plant: {{ url: \"{}\", client_id: plant-7, reconnect: {{ min: 20ms, max: 200ms }} }}
  cloud: {{ url: \"{}\", client_id: plant-7-up, reconnect: {{ min: 20ms, max: 200ms }} }}
  historian: {{ url: \"{}\", client_id: plant-7-history, reconnect: {{ min: 20ms, max: 200ms }} }}
routes:
  telemetry:
    from: {{ session: plant, topics: [\"sensors/#\"], qos: 1 }}
    bindings:
      cloud: {{ session: cloud, topic: \"plants/7/{{topic}}\"{more} }}
      historian: {{ session: historian }}
  alarms:
    from: {{ session: plant, topics: [\"alarms/#\"], qos: 1 }}
    delivery: outbox
    bindings:
      historian: {{ session: historian, topic: \"alarms/7/{{topic}}\" }}
",
                admin.port(),
                plant.url(),
                cloud.url(),
                historian.url(),
            )
        });
        let bridge = installation
            .bridge(env!("CARGO_BIN_EXE_bridge"))
            .env("ADMIN_TOKEN", TOKEN)
            .start()
            .await;
        let stage = Self {
            plant,
            cloud,
            historian,
            bridge,
            admin,
            _installation: installation,
        };
        stage.telemetry_is_live().await;
        stage
    }

    /// Waits until no telemetry that comes has to wait in a queue: what is refused there is not
    /// given up on at once.
    async fn telemetry_is_live(&self) {
        wait_for("the telemetry is live", PATIENCE, async || {
            let answer = self.ask("GET", "/api/v1/bindings", "").await.ok()?;
            let answer: Value = serde_json::from_str(&answer.body).ok()?;
            let items = answer["items"].as_array()?.iter();
            let mut telemetry = items.filter(|item| item["route"] == "telemetry");
            telemetry.all(|item| item["state"] == "live").then_some(())
        })
        .await;
    }

    /// Asks the admin API with the token, as a script does.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<Response> {
        self.ask_with(TOKEN, method, path, body).await
    }

    /// The same with that token.
    pub(crate) async fn ask_with(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<Response> {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        http::request(self.admin.port(), method, path, &headers, body).await
    }

    /// Where the page is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.admin.port())
    }

    /// Publishes at the plant.
    pub(crate) async fn publish(&self, messages: impl IntoIterator<Item = Publish>) {
        let client = RawClient::connect(self.plant.port(), "sensor").await;
        let mut client = client.unwrap();
        for message in messages {
            assert!(client.publish(message.qos(1)).await.unwrap() < 0x80);
        }
        client.disconnect().await.unwrap();
    }

    /// The cloud takes everything from now on.
    pub(crate) async fn mend(&self) {
        self.cloud.reload(GRANTING).await;
    }

    /// Waits until the bridge has so many dead letters.
    pub(crate) async fn dead_letters(&self, count: u64) {
        wait_for("the dead letters", PATIENCE, async || {
            let metrics = self.bridge.metrics().await;
            let there = metrics.whole("bridge_dead_letters", &[]);
            (there == Some(count)).then_some(())
        })
        .await;
    }
}

/// Somebody who is subscribed to everything at that broker, and stays so.
pub(crate) async fn subscriber(broker: &Mosquitto) -> RawClient {
    let client = ClientOptions::new("subscriber").connect(broker.port());
    let mut client = client.await.unwrap();
    assert_eq!(client.subscribe(&[("#", 1)]).await.unwrap(), [1]);
    client
}

/// The topics and payloads of all that has come up to the message with that topic.
pub(crate) async fn until_topic(client: &mut RawClient, last: &str) -> Vec<(String, String)> {
    let mut came = Vec::new();
    loop {
        let message = client.recv(PATIENCE).await.unwrap();
        if message.topic == last {
            return came;
        }
        came.push((message.topic.clone(), message.text().to_owned()));
    }
}
