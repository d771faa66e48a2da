//! Receiving numbered messages, through restarts of the broker too.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::{ClientOptions, RawClient};
use crate::codec::Publish;
use crate::numbered::Tally;
use crate::wait::wait_until;

/// Between two attempts to connect.
const PACE: Duration = Duration::from_millis(20);
/// How long the broker may be away.
const PATIENCE: Duration = Duration::from_secs(120);
/// What [`Collector::barrier`] publishes.
const BARRIER: &str = "testkit/barrier";

#[derive(Debug, Default)]
struct Shared {
    tally: Tally,
    barriers: u64,
}

/// A subscriber with a session of its own, that counts what comes; stopped on drop.
///
/// It comes back by itself when the broker was away, and its session keeps what was sent to it in
/// the meantime, as long as the broker does.
#[derive(Debug)]
pub struct Collector {
    port: u16,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

impl Collector {
    /// Subscribes to `filter` with QoS 1 at that port of 127.0.0.1.
    ///
    /// # Panics
    /// When that is refused.
    pub async fn start(port: u16, filter: &str) -> Self {
        let mut client = connect(port).await.expect("the broker accepts");
        let codes = client.subscribe(&[(filter, 1), (BARRIER, 1)]).await;
        assert_eq!(codes.expect("SUBACK"), [1, 1]);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let task = tokio::spawn(collect(client, port, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    /// What has come so far.
    pub fn tally(&self) -> Tally {
        lock(&self.shared).tally.clone()
    }

    /// How many different numbers have come so far.
    pub fn distinct(&self) -> u64 {
        lock(&self.shared).tally.distinct()
    }

    /// Waits until so many different numbers have come.
    ///
    /// # Panics
    /// When they do not in time, with what is missing.
    pub async fn until(&self, distinct: u64, deadline: Duration) {
        let end = Instant::now() + deadline;
        while self.distinct() < distinct {
            assert!(!self.task.is_finished(), "the collector has failed");
            if Instant::now() > end {
                let missing = self.tally().missing(distinct);
                panic!(
                    "{} of {distinct} came within {deadline:?}, missing are {} from {:?} to {:?}",
                    self.distinct(),
                    missing.len(),
                    missing.first(),
                    missing.last()
                );
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until everything has come that the broker had for us before this call.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub async fn barrier(&self) {
        let before = lock(&self.shared).barriers;
        let mut client = RawClient::connect(self.port, "testkit-barrier")
            .await
            .expect("the broker accepts");
        let code = client.publish(Publish::new(BARRIER, "")).await;
        assert!(code.expect("PUBACK") < 0x80);
        wait_until("the barrier comes", PATIENCE, || {
            lock(&self.shared).barriers > before
        })
        .await;
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(port: u16) -> io::Result<RawClient> {
    let options = ClientOptions::new("testkit-collector").resumed(Duration::from_secs(86_400));
    options.connect(port).await
}

async fn collect(mut client: RawClient, port: u16, shared: Arc<Mutex<Shared>>) {
    loop {
        while let Ok(batch) = client.recv_batch().await {
            let mut shared = lock(&shared);
            for message in &batch {
                if message.topic == BARRIER {
                    shared.barriers += 1;
                } else {
                    shared.tally.record(message);
                }
            }
        }
        let end = Instant::now() + PATIENCE;
        client = loop {
            match connect(port).await {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < end, "the broker is away: {error}"),
            }
            sleep(PACE).await;
        };
        assert!(
            client.connack().session_present,
            "the collector's session is lost: the broker needs persistence"
        );
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
