//! A publisher at the source that goes on until it is told to stop, with pauses on demand.

use std::sync::Arc;
use std::time::Duration;

use bridge_testkit::{Chance, Property, Publish, RawClient, numbered};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::JoinHandle;

/// How many messages there are in one go, at most.
const BATCH: u64 = 50;
/// Between two of them.
const PACE: Duration = Duration::from_millis(100);
/// The expiry interval of those that have one.
const EXPIRY_SECONDS: u32 = 2;

/// Publishes numbered messages below `soak`; stopped on drop.
pub(crate) struct Feeding {
    next: Arc<Mutex<(RawClient, u64)>>,
    fed: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

/// Whether the message of that number expires.
pub(crate) const fn expires(number: u64) -> bool {
    number % 16 == 5
}

fn message(number: u64) -> Publish {
    let message = numbered("soak", number, 64);
    if expires(number) {
        message.with(Property::MessageExpiry(EXPIRY_SECONDS))
    } else {
        message
    }
}

impl Feeding {
    pub(crate) async fn start(port: u16, seed: u64) -> Self {
        let client = RawClient::connect(port, "soak-feeder").await.unwrap();
        let next = Arc::new(Mutex::new((client, 0)));
        let (tell, fed) = watch::channel(0);
        let task = tokio::spawn(feed(next.clone(), tell, Chance::new(seed)));
        Self { next, fed, task }
    }

    /// How many messages the source has.
    pub(crate) fn fed(&self) -> u64 {
        *self.fed.borrow()
    }

    /// Nothing is published while the guard lives.
    pub(crate) async fn pause(&self) -> MutexGuard<'_, (RawClient, u64)> {
        self.next.lock().await
    }

    /// Publishes one last message that does not expire, and says how many there were.
    pub(crate) async fn finish(&self) -> u64 {
        // With the lock held the task is between two batches.
        let mut next = self.next.lock().await;
        self.task.abort();
        while expires(next.1) {
            publish(&mut next, 1).await;
        }
        publish(&mut next, 1).await;
        next.1
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn publish(next: &mut (RawClient, u64), count: u64) {
    let (client, first) = next;
    let messages = (*first..*first + count).map(message);
    client
        .publish_all(messages, 100)
        .await
        .expect_all_accepted();
    *first += count;
}

async fn feed(next: Arc<Mutex<(RawClient, u64)>>, tell: watch::Sender<u64>, mut chance: Chance) {
    loop {
        let mut guard = next.lock().await;
        publish(&mut guard, 1 + chance.below(BATCH)).await;
        tell.send_replace(guard.1);
        drop(guard);
        tokio::time::sleep(PACE).await;
    }
}
