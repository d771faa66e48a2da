//! The admin API of a running bridge, as the engineer on call uses it.

use std::io;
use std::time::Duration;

use bridge_testkit::http::{self, Response};
use bridge_testkit::{
    BridgeProcess, Collector, Installation, Mosquitto, PortLease, numbered, wait_for,
};
use serde_json::{Value, json};

use crate::setup::{BRIDGE, PATIENCE, publish};

/// The token of every admin API here.
pub(crate) const TOKEN: &str = "swordfish-0123456789abcdef";
const SENT: u64 = 20;

/// A bridge from `source` to each of those, with its admin API on a port of its own.
pub(crate) fn installation(
    source: &Mosquitto,
    to: &[(&str, &Mosquitto)],
    admin: &PortLease,
) -> Installation {
    let session = |(name, broker): &(&str, &Mosquitto)| {
        let url = broker.url();
        format!("  {name}: {{ url: \"{url}\", client_id: {name} }}\n")
    };
    // What comes before the destination is there is refused from the queue, and soon given up on.
    let binding = |(name, _): &(&str, &Mosquitto)| {
        format!(
            "      {name}: {{ session: {name}, deferred: {{ window: 1s, retry_interval: 1s }} }}\n"
        )
    };
    let (sessions, bindings): (String, String) = (
        to.iter().map(session).collect(),
        to.iter().map(binding).collect(),
    );
    let installation = Installation::with(|port| {
        format!(
            "bridge: {{ id: test }}\n\
             data_dir: data\n\
             monitor: {{ listen: \"127.0.0.1:{port}\" }}\n\
             admin: {{ listen: \"127.0.0.1:{}\", token_file: token }}\n\
             sessions:\n\
             \x20 plant: {{ url: \"{}\", client_id: plant }}\n\
             {sessions}\
             routes:\n\
             \x20 all:\n\
             \x20   from: {{ session: plant, topics: [\"t/#\"] }}\n\
             \x20   bindings:\n\
             {bindings}",
            admin.port(),
            source.url(),
        )
    });
    put_token(&installation);
    installation
}

/// Writes the file that the token is in.
pub(crate) fn put_token(installation: &Installation) {
    let token = installation.config_path().with_file_name("token");
    std::fs::write(token, format!("{TOKEN}\n")).unwrap();
}

/// Asks the admin API at that port of 127.0.0.1 with its token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admin(pub(crate) u16);

impl Admin {
    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.ask("GET", path, "").await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        serde_json::from_str(&response.body).unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Response {
        let asked = self.try_ask_within(PATIENCE, method, path, body);
        asked.await.unwrap()
    }

    /// The same, where the connection may break or the answer may take so long.
    pub(crate) async fn try_ask_within(
        &self,
        patience: Duration,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<Response> {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let path = format!("/api/v1{path}");
        http::request_within(patience, self.0, method, &path, &headers, body).await
    }
}

fn logged(bridge: &BridgeProcess, text: &str) -> bool {
    bridge.stderr().lines().any(|line| line.contains(text))
}

#[tokio::test]
async fn i22_after_the_cause_is_mended_a_redrive_reaches_the_one_binding_that_missed_it() {
    let source = Mosquitto::start().await;
    let one = Mosquitto::start().await;
    let two = Mosquitto::builder().acl("topic read #\n").start().await;
    let three = Mosquitto::start().await;
    let admin = PortLease::take();
    let brokers = [("one", &one), ("two", &two), ("three", &three)];
    let installation = installation(&source, &brokers, &admin);
    // Whatever else is logged, the audit log is.
    let process = installation.bridge(BRIDGE).args(["--log", "error"]);
    let mut bridge = process.start().await;
    let admin = Admin(admin.port());
    let mut collectors = Vec::new();
    for (_, broker) in &brokers {
        collectors.push(Collector::start(broker.port(), "t/#").await);
    }
    let up = || async {
        let sessions = admin.get("/sessions").await;
        let items = sessions["items"].as_array().unwrap().clone();
        let down = |item: &&Value| item["destination"]["state"] == "down";
        (items.iter().filter(down).count() == 0).then_some(())
    };
    wait_for("all destinations are connected", PATIENCE, async || {
        up().await
    })
    .await;

    publish(source.port(), (0..SENT).map(|n| numbered("t", n, 64))).await;
    for healthy in [&collectors[0], &collectors[2]] {
        healthy.until(SENT, PATIENCE).await;
    }
    let found = wait_for("all are dead letters of the second", PATIENCE, async || {
        let page = admin
            .get("/dead-letters?binding=two&reason=not_authorized")
            .await;
        (page["total"] == SENT).then_some(page)
    })
    .await;
    let topic = found["items"][0]["topic"].as_str().unwrap();
    assert!(topic.starts_with("t/"), "{topic}");
    assert_eq!(
        admin.get("/dead-letters").await["total"],
        SENT,
        "and of no other"
    );

    two.reload("topic readwrite #\n").await;
    let body = json!({ "filter": { "binding": "two" } }).to_string();
    let response = admin
        .ask("POST", "/dead-letters/redrive?wait=20", &body)
        .await;
    assert_eq!(response.status, 200, "{}", response.body);
    let answer: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(
        (&answer["requested"], &answer["moved"]),
        (&SENT.into(), &SENT.into())
    );
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["verdict"], "delivered", "{result}");
    }
    collectors[1].until(SENT, PATIENCE).await;
    for (collector, (name, _)) in collectors.iter().zip(&brokers) {
        collector.barrier().await;
        let tally = collector.tally();
        assert_eq!(
            (tally.duplicates(), tally.missing(SENT)),
            (0, Vec::new()),
            "{name}"
        );
    }
    assert_eq!(admin.get("/dead-letters").await["total"], 0);

    bridge.sigterm();
    assert!(bridge.wait().await.success());
    assert!(logged(&bridge, "action=\"redrive\""), "{}", bridge.output());
    assert!(!bridge.output().contains(TOKEN), "the token is in the log");
}
