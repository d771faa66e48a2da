//! Probes and metrics.

use std::collections::BTreeSet;

use bridge_testkit::{
    Authority, Behaviour, BridgeConfig, BridgeProcess, Installation, Mosquitto, PortLease,
    Property, Publish, Reply, ScriptedBroker, wait_for,
};

use crate::setup::{BRIDGE, PATIENCE, publish};

const LEVELS: [&str; 4] = ["live", "connected", "subscribed", "full"];

/// Waits until the levels that are ready are these, from the lowest on.
async fn until_ready_up_to(bridge: &BridgeProcess, level: &str) {
    let expected: Vec<_> = LEVELS.iter().map(|other| ready_at(other, level)).collect();
    wait_for(&format!("ready up to {level}"), PATIENCE, async || {
        let mut statuses = Vec::new();
        for level in LEVELS {
            let path = format!("/readyz?level={level}");
            statuses.push(bridge.get(&path).await.unwrap().status);
        }
        (statuses == expected).then_some(())
    })
    .await;
    let default = bridge.get("/readyz").await.unwrap().status;
    assert_eq!(default, ready_at("subscribed", level));
    assert_eq!(bridge.get("/livez").await.unwrap().status, 200);
}

fn ready_at(asked: &str, reached: &str) -> u16 {
    let place = |level| LEVELS.iter().position(|other| *other == level);
    if place(asked) <= place(reached) {
        200
    } else {
        503
    }
}

#[tokio::test]
async fn readiness_follows_the_sessions_up_and_down() {
    let mut source = Mosquitto::start().await;
    let mut destination = Mosquitto::start().await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = Installation::new(&config);
    source.stop().await;
    destination.stop().await;
    let process = installation.bridge(BRIDGE).ready_path("/readyz?level=live");
    let bridge = process.start().await;
    until_ready_up_to(&bridge, "live").await;
    source.restart().await;
    until_ready_up_to(&bridge, "subscribed").await;
    destination.restart().await;
    until_ready_up_to(&bridge, "full").await;
    destination.stop().await;
    until_ready_up_to(&bridge, "subscribed").await;
    source.stop().await;
    until_ready_up_to(&bridge, "live").await;
    assert_eq!(bridge.get("/readyz?level=fine").await.unwrap().status, 400);
    let elsewhere = bridge.get("/").await.unwrap();
    assert_eq!(elsewhere.status, 404);
    assert!(elsewhere.body.contains("/metrics"), "says what there is");
}

#[tokio::test]
async fn a_refused_subscription_keeps_readiness_down() {
    let refusing = Behaviour::new().suback(|_| 0x87);
    let source = ScriptedBroker::behaving(refusing).await;
    let destination = ScriptedBroker::accepting().await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = Installation::new(&config);
    let process = installation
        .bridge(BRIDGE)
        .ready_path("/readyz?level=connected");
    let bridge = process.start().await;
    until_ready_up_to(&bridge, "connected").await;
    assert_eq!(source.connections(), 1);
}

/// The names in the tables of the chapter on metrics.
fn named_in_the_book() -> BTreeSet<String> {
    const CHAPTER: &str = include_str!("../../../../docs/src/metrics.md");
    let rows = CHAPTER.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split(['{', '`']).next())
        .map(str::to_owned)
        .collect()
}

/// A bridge that has been through enough for every metric to have a value: a message accepted,
/// one refused, one dropped, all of it by a certificate of its own, and a lease.
async fn exposed_by_a_bridge() -> BTreeSet<String> {
    let authority = Authority::new();
    let client = authority.client("plant");
    let builder = Mosquitto::builder().mutual_tls(&authority.server(), authority.certificate());
    let source = builder.start().await;
    let refusing = Behaviour::new().reply(|received| match received.publish.topic.as_str() {
        "refused" => Reply::Code(0x99),
        _ => Reply::Accept,
    });
    let fine = ScriptedBroker::behaving(refusing).await;
    let nobody = PortLease::take();
    let installation = Installation::with(|port| {
        format!(
            "bridge: {{ id: test }}\n\
             data_dir: data\n\
             monitor: {{ listen: \"127.0.0.1:{port}\" }}\n\
             sessions:\n\
             \x20 plant:\n\
             \x20   url: \"mqtts://127.0.0.1:{}\"\n\
             \x20   tls: {{ ca_file: {}, certificate_file: {}, key_file: {} }}\n\
             \x20   client_id: plant\n\
             \x20 fine: {{ url: \"{}\", client_id: fine }}\n\
             \x20 away:\n\
             \x20   url: \"mqtt://127.0.0.1:{}\"\n\
             \x20   client_id: away\n\
             \x20   session_mode: exclusive\n\
             lease: {{ store: file, path: lease }}\n\
             routes:\n\
             \x20 all:\n\
             \x20   from: {{ session: plant, topics: [\"#\"] }}\n\
             \x20   bindings:\n\
             \x20     fine: {{ session: fine }}\n\
             \x20     away: {{ session: away, queue: {{ max_entries: 1, on_full: drop_newest }} }}\n",
            source.mutual_tls_port(),
            authority.certificate().display(),
            client.certificate.display(),
            client.key.display(),
            fine.url(),
            nobody.port(),
        )
    });
    let bridge = installation.bridge(BRIDGE).start().await;
    let accepted = Publish::new("accepted", "x").with(Property::MessageExpiry(60));
    publish(source.port(), [accepted, Publish::new("refused", "x")]).await;
    wait_for("one is refused and one is dropped", PATIENCE, async || {
        let metrics = bridge.metrics().await;
        let dead = metrics.whole("bridge_queue_dead_lettered_total", &[("binding", "fine")])?;
        let dropped = metrics.whole("bridge_dropped_total", &[("binding", "away")])?;
        (dead == 1 && dropped == 1).then_some(())
    })
    .await;
    let metrics = bridge.metrics().await;
    let names = metrics.samples().iter().map(|sample| sample.name.clone());
    names.collect()
}

#[tokio::test]
async fn the_book_names_every_metric_and_every_metric_it_names_exists() {
    let named = named_in_the_book();
    let exposed = exposed_by_a_bridge().await;
    assert!(
        named.len() > 20,
        "the chapter's tables are not understood: {named:?}"
    );
    let unnamed: Vec<_> = exposed.difference(&named).collect();
    assert!(
        unnamed.is_empty(),
        "not in docs/src/metrics.md: {unnamed:?}"
    );
    let absent: Vec<_> = named.difference(&exposed).collect();
    assert!(
        absent.is_empty(),
        "in docs/src/metrics.md alone: {absent:?}"
    );
}
