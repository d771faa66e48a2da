//! Two bridges run with one client id: it does little harm, and is loud.
//!
//! Twenty seconds in every test run; `BRIDGE_COLLISION_SECONDS` makes them longer.

use std::fs;
use std::time::Duration;

use bridge_testkit::{
    BridgeConfig, BridgeProcess, Collector, Installation, Mosquitto, RawClient, numbered, wait_for,
};
use tokio::time::{Instant, sleep};

use crate::setup::{BRIDGE, PATIENCE, of_session};

const SECONDS: &str = "BRIDGE_COLLISION_SECONDS";
/// Between two messages at the source.
const PACE: Duration = Duration::from_millis(50);
/// The longest penalty, and some time to connect in.
const LONGEST_PENALTY: Duration = Duration::from_secs(66);
/// The connections that collide.
const SESSIONS: [&str; 2] = ["plant", "cloud"];

const TAKEOVERS: &str = "bridge_mqtt_session_takeover_total";
const SUSPECTED: &str = "bridge_mqtt_session_collision_suspected_total";

/// How a broker ends the older of two connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    OnlyCloses,
    #[cfg(feature = "demo")]
    SaysSo,
}

/// Two bridges that differ in their data folder alone, with the delays of a file that sets none.
fn replicas(ports: [u16; 2]) -> [Installation; 2] {
    let [plant, cloud] = ports.map(|port| format!("mqtt://127.0.0.1:{port}"));
    let config = BridgeConfig::between(plant, cloud).topics(&["t/#"]);
    [(); 2].map(|()| {
        Installation::with(|port| {
            let yaml = config.to_yaml(port);
            let set = "reconnect: { min: 20ms, max: 200ms }";
            assert!(yaml.contains(set), "{yaml}");
            yaml.replace(set, "reconnect: {}")
        })
    })
}

/// The processor time that a process has used.
fn used(bridge: &BridgeProcess) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", bridge.pid().unwrap())).unwrap();
    // The name may hold anything, and stands in parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = [fields[11], fields[12]]
        .map(|n| n.parse::<u64>().unwrap())
        .iter()
        .sum();
    // USER_HZ, which is 100 wherever this runs.
    Duration::from_millis(ticks * 10)
}

async fn connected(bridge: &BridgeProcess) -> bool {
    let metrics = bridge.metrics().await;
    SESSIONS.iter().all(|session| {
        metrics.whole("bridge_mqtt_session_connected", &[("session", session)]) == Some(1)
    })
}

/// One more message every now and then.
struct Source {
    client: RawClient,
    published: u64,
}

impl Source {
    async fn feed(&mut self, lasts: Duration) {
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            let message = numbered("t", self.published, 64);
            let code = self.client.publish(message).await.unwrap();
            assert!(code < 0x80);
            self.published += 1;
            sleep(PACE).await;
        }
    }
}

async fn collide(manner: Manner, ports: [u16; 2]) {
    let seconds = std::env::var(SECONDS).map_or(20, |text| text.parse().unwrap());
    let lasts = Duration::from_secs(seconds);
    let [one, other] = replicas(ports);
    let collector = Collector::start(ports[1], "t/#").await;
    let client = RawClient::connect(ports[0], "source").await.unwrap();
    let mut source = Source {
        client,
        published: 0,
    };
    let one = one.bridge(BRIDGE).start().await;
    let mut other = other.bridge(BRIDGE).spawn();
    other.first_metrics().await;

    let before = [used(&one), used(&other)];
    let half = lasts / 2;
    source.feed(half).await;
    let at_half = collector.distinct();
    source.feed(half).await;
    let after = [used(&one), used(&other)];
    assert!(collector.distinct() > at_half, "delivery goes on");
    println!(
        "{} of {} delivered, {at_half} in the first half",
        collector.distinct(),
        source.published
    );

    let minutes = seconds.div_ceil(60);
    for (bridge, (before, after)) in [&one, &other]
        .into_iter()
        .zip(before.into_iter().zip(after))
    {
        let busy = after.saturating_sub(before);
        assert!(busy < lasts / 10, "{busy:?} of {lasts:?}");
        for session in SESSIONS {
            let connects = of_session(bridge, "bridge_mqtt_session_connects_total", session).await;
            let takeovers = of_session(bridge, TAKEOVERS, session).await;
            let suspected = of_session(bridge, SUSPECTED, session).await;
            println!(
                "{session}: {connects} connects, {takeovers} takeovers, {suspected} suspected; {busy:?} CPU"
            );
            assert!(
                (2..=8 * minutes).contains(&connects),
                "{session}: {connects}"
            );
            if manner == Manner::OnlyCloses {
                assert_eq!(takeovers, 0, "{session}");
                // A close of the writing connection may be the doing of a message, alone on it.
                assert!(suspected >= 1 || session == "cloud", "{session}");
            } else {
                assert!(takeovers >= 2, "{session}: {takeovers}");
            }
        }
        let event = match manner {
            Manner::OnlyCloses => "session_collision_suspected",
            #[cfg(feature = "demo")]
            Manner::SaysSo => "session_taken_over",
        };
        let log = bridge.output();
        for said in [
            event,
            "two instances run with the same client_id",
            "client_id_suffix: hostname",
        ] {
            assert!(log.contains(said), "{said}: {log}");
        }
    }

    // The one that reads stops: the other is there when its penalty is over, and goes on.
    let reads = of_session(&one, "bridge_mqtt_session_connected", "plant").await == 1;
    let (mut stops, mut stays) = if reads { (one, other) } else { (other, one) };
    stops.sigterm();
    assert!(stops.wait().await.success());
    let began = Instant::now();
    wait_for("the other is connected", LONGEST_PENALTY, async || {
        connected(&stays).await.then_some(())
    })
    .await;
    println!("there again after {:?}", began.elapsed());
    source.feed(Duration::from_secs(1)).await;
    wait_for("all of its own is delivered", PATIENCE, async || {
        let metrics = stays.metrics().await;
        (metrics.whole("bridge_queue_depth", &[]) == Some(0)).then_some(())
    })
    .await;
    // What the first had taken and not delivered waits in its own queue.
    stays.sigterm();
    assert!(stays.wait().await.success());
    stops.relaunch();
    collector.until(source.published, PATIENCE).await;
}

#[tokio::test]
async fn i17_two_bridges_with_one_client_id_at_mosquitto_do_little_harm_and_are_loud() {
    let source = Mosquitto::start().await;
    let destination = Mosquitto::start().await;
    collide(Manner::OnlyCloses, [source.port(), destination.port()]).await;
}

#[cfg(feature = "demo")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i17_two_bridges_with_one_client_id_at_a_broker_that_says_so_do_little_harm_and_are_loud() {
    let source = crate::embedded::Embedded::start().await;
    let destination = crate::embedded::Embedded::start().await;
    collide(Manner::SaysSo, [source.port, destination.port]).await;
}
