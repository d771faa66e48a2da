//! One source, several destinations: each at its own pace.

use std::fmt::Write as _;
use std::time::Duration;

use bridge_testkit::{Collector, Installation, Ledger, Mosquitto, Proxy, numbered, wait_until};

use crate::setup::{BRIDGE, PATIENCE, publish};

/// One of the destinations: the name of its binding and its session, where it is, and what else
/// the configuration says of both.
pub(crate) struct To<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: String,
    pub(crate) session: &'a str,
    pub(crate) binding: &'a str,
}

/// A route `all` from the session `plant` to each of those.
pub(crate) fn installation(plant: &str, destinations: &[To<'_>]) -> Installation {
    let (mut sessions, mut bindings) = (String::new(), String::new());
    for To {
        name,
        url,
        session,
        binding,
    } in destinations
    {
        let _ = writeln!(
            sessions,
            "  {name}: {{ url: \"{url}\", client_id: {name}, \
             reconnect: {{ min: 20ms, max: 200ms }}{session} }}"
        );
        let _ = writeln!(bindings, "      {name}: {{ session: {name}{binding} }}");
    }
    Installation::with(|port| {
        format!(
            "bridge: {{ id: test }}\n\
             data_dir: data\n\
             monitor: {{ listen: \"127.0.0.1:{port}\" }}\n\
             sessions:\n\
             \x20 plant: {{ url: \"{plant}\", client_id: plant }}\n\
             {sessions}\
             routes:\n\
             \x20 all:\n\
             \x20   from: {{ session: plant, topics: [\"#\"] }}\n\
             \x20   bindings:\n\
             {bindings}"
        )
    })
}

#[tokio::test]
async fn case_25_one_destination_dead_one_slow_one_healthy_each_has_its_own_pace_and_policy() {
    const SENT: u64 = 1_000;
    const ROOM: u64 = 100;
    let source = Mosquitto::start().await;
    let healthy = Mosquitto::start().await;
    let slow = Mosquitto::builder().persistence(true).start().await;
    let mut dead = Mosquitto::builder().persistence(true).start().await;
    let at_healthy = Collector::start(healthy.port(), "t/#").await;
    let at_slow = Collector::start(slow.port(), "t/#").await;
    let at_dead = Collector::start(dead.port(), "t/#").await;
    dead.stop().await;
    let far = Proxy::start(slow.port()).await;
    let installation = installation(
        &source.url(),
        &[
            To {
                name: "healthy",
                url: healthy.url(),
                session: "",
                binding: "",
            },
            To {
                name: "slow",
                url: far.url(),
                session: ", max_in_flight: 1",
                binding: "",
            },
            To {
                name: "dead",
                url: dead.url(),
                session: "",
                binding: ", queue: { max_entries: 100, on_full: drop_oldest }",
            },
        ],
    );
    let bridge = installation.bridge(BRIDGE).start().await;
    // 40 ms for each message, one after the other: 40 s for all.
    far.delay(Duration::from_millis(20));
    publish(source.port(), (0..SENT).map(|n| numbered("t", n, 64))).await;
    at_healthy.until(SENT, PATIENCE).await;
    let reached = at_slow.distinct();
    assert!(reached < SENT, "{reached}: not slow, so nothing is shown");
    let of_dead = Ledger::until(&bridge, ("all", "dead"), "its bound holds", PATIENCE, |l| {
        l.received == SENT
    });
    let of_dead = of_dead.await;
    assert_eq!((of_dead.queued, of_dead.dropped), (ROOM, SENT - ROOM));
    // All is settled or safe: the source has been told of all, and waits for none of them.
    wait_until("the source knows", PATIENCE, || {
        let told = source.log().matches("Received PUBACK from plant ").count() as u64;
        told == SENT
    })
    .await;
    let all = |ledger: &Ledger| ledger.is_drained() && ledger.delivered == SENT;
    Ledger::until(&bridge, ("all", "healthy"), "all is there", PATIENCE, all).await;

    far.delay(Duration::ZERO);
    dead.restart().await;
    at_slow.until(SENT, PATIENCE).await;
    at_dead.until(ROOM, PATIENCE).await;
    for (binding, collector, delivered) in [
        ("slow", &at_slow, SENT),
        ("dead", &at_dead, ROOM),
        ("healthy", &at_healthy, SENT),
    ] {
        let ledger = Ledger::until(&bridge, ("all", binding), "it is drained", PATIENCE, |l| {
            l.is_drained()
        });
        let ledger = ledger.await;
        assert_eq!(ledger.delivered, delivered, "{binding}: {ledger}");
        collector.barrier().await;
        let tally = collector.tally();
        assert_eq!(
            (tally.duplicates(), tally.out_of_order()),
            (0, 0),
            "{binding}"
        );
    }
    assert_eq!(
        at_dead.tally().missing(SENT),
        (0..SENT - ROOM).collect::<Vec<_>>()
    );
}
