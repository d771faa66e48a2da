//! What sessions cost that have nothing to do. Alone in its process, whose memory it measures.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Clock, Name, QoS, Sink, Source, SourceState, Subscription, SystemClock, TopicFilter,
};
use bridge_testkit::{Mosquitto, resident_kib, wait_until};
use bridge_transport::{Address, Brokers, Endpoint, Reader, SessionConfig, Writer, WriterIdentity};

const SESSIONS: u64 = 50;
/// What each may cost. Room that is reserved for 65,535 answers is 18 MiB.
const MOST_KIB: u64 = 1024;

#[tokio::test]
async fn fifty_sessions_that_wait_cost_less_than_a_mebibyte_each() {
    let broker = Mosquitto::start().await;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let before = resident_kib();
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let address = Address {
            host: "127.0.0.1".to_owned(),
            port: broker.port(),
        };
        let brokers = Brokers::one(Endpoint::tcp(address));
        let name = Name::parse(&format!("s{number}")).unwrap();
        let config = SessionConfig::new(name, brokers, format!("s{number}"));
        let subscription = Subscription {
            filter: TopicFilter::parse("t").unwrap(),
            qos: QoS::AtLeastOnce,
            no_local: false,
        };
        let reader = Reader::start(config.clone(), vec![subscription], Arc::clone(&clock));
        let writer = Writer::start(
            config,
            WriterIdentity::PublisherClientId,
            Arc::clone(&clock),
        );
        sessions.push((reader, writer));
    }
    wait_until("all are there", Duration::from_secs(30), || {
        let mut sessions = sessions.iter();
        sessions.all(|(reader, writer)| {
            reader.state() == SourceState::Subscribed && writer.link().is_up()
        })
    })
    .await;
    let after = resident_kib();
    assert!(
        after < before + SESSIONS * MOST_KIB,
        "memory grew from {before} to {after} KiB"
    );
}
