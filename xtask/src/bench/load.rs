//! The load generator: a publisher and a receiver on bare sockets.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bridge_testkit::{Mosquitto, Publish, RawClient};
use tokio::sync::Notify;
use tokio::time::timeout;

/// No more messages than this are between publisher and receiver: enough that the contender
/// always has work, and no broker's queue grows long, whose cost would be measured otherwise.
const BACKLOG: u64 = 4 * CHUNK;
/// So many are published at a time.
const CHUNK: u64 = 512;
/// A run in which nothing arrives for so long has failed.
const STALL: Duration = Duration::from_secs(30);
/// How long the way between the brokers may take to open.
const OPENING: Duration = Duration::from_secs(30);
/// How long one probe is waited for.
const PROBE: Duration = Duration::from_millis(50);
/// Nothing more comes of the probes after so long.
const QUIET: Duration = Duration::from_millis(300);

/// What contenders carry: this and nothing else.
pub(super) const FILTER: &str = "bench/#";
const TOPIC: &str = "bench/plant-7/press-12/temperature";

/// What crosses in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// How many messages.
    pub(super) messages: u64,
    /// The size of a payload; at least 8, where the message's number is.
    pub(super) payload: usize,
    /// How many may be unanswered on a connection.
    pub(super) window: u16,
}

/// A publisher at the source and a receiver at the destination.
#[derive(Debug)]
pub(super) struct Generator {
    publisher: RawClient,
    receiver: RawClient,
    load: Load,
}

impl Generator {
    /// Connects to both brokers.
    pub(super) async fn connect(
        source: &Mosquitto,
        destination: &Mosquitto,
        load: Load,
    ) -> Result<Self> {
        let publisher = RawClient::connect(source.port(), "bench-publisher").await;
        let mut receiver = RawClient::connect(destination.port(), "bench-receiver").await?;
        receiver.subscribe(&[(FILTER, 1)]).await?;
        Ok(Self {
            publisher: publisher?,
            receiver,
            load,
        })
    }

    /// Publishes until the first message arrives, and waits for the rest of them.
    pub(super) async fn until_open(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            self.publisher
                .publish(Publish::new(TOPIC, self.payload(0)))
                .await?;
            match self.receiver.recv(PROBE).await {
                Ok(_) => break,
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
                Err(error) => return Err(error.into()),
            }
            if began.elapsed() > OPENING {
                bail!("no message crossed within {OPENING:?}");
            }
        }
        self.receiver.collect_until_quiet(QUIET).await?;
        Ok(())
    }

    /// Lets `messages` of them cross; from the first byte to the last message's arrival. An error
    /// unless all arrive, once and in order.
    pub(super) async fn carry(&mut self, messages: u64) -> Result<Duration> {
        let load = self.load;
        let arrived = Cell::new(0);
        let progress = Notify::new();
        let began = Instant::now();
        let (publisher, receiver) = (&mut self.publisher, &mut self.receiver);
        let publishing = async {
            let mut sent = 0;
            while sent < messages {
                let until = messages.min(sent + CHUNK);
                while until > arrived.get() + BACKLOG {
                    progress.notified().await;
                }
                let chunk = (sent..until).map(|number| message(number, load.payload));
                let report = publisher.publish_all(chunk, load.window.into()).await;
                if let Some(lost) = report.lost {
                    return Err(lost).context("the publisher lost its broker");
                }
                ensure!(
                    report.accepted() == report.codes.len(),
                    "the source refused messages"
                );
                sent = until;
            }
            Ok(())
        };
        let receiving = async {
            while arrived.get() < messages {
                let batch = timeout(STALL, receiver.recv_batch()).await;
                let batch = batch.with_context(|| {
                    format!("{} of {messages} arrived, and then none", arrived.get())
                })?;
                for message in batch.context("the receiver lost its broker")? {
                    let number = number(&message.payload).context("a stranger's message")?;
                    let expected = arrived.get();
                    ensure!(
                        number == expected,
                        "message {number} arrived in the place of {expected}"
                    );
                    arrived.set(expected + 1);
                }
                progress.notify_one();
            }
            let elapsed = began.elapsed();
            // What it owes the broker by way of acknowledgements.
            receiver.collect(0, STALL).await?;
            Ok(elapsed)
        };
        let ((), elapsed) = tokio::try_join!(publishing, receiving)?;
        Ok(elapsed)
    }

    fn payload(&self, number: u64) -> Vec<u8> {
        payload(number, self.load.payload)
    }
}

fn message(number: u64, size: usize) -> Publish {
    Publish::new(TOPIC, payload(number, size))
}

/// The message's number, and filling up to `size` bytes.
fn payload(number: u64, size: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(size);
    payload.extend_from_slice(&number.to_be_bytes());
    payload.resize(size, b'.');
    payload
}

fn number(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().copied().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_carries_its_number_and_has_its_size() {
        let payload = payload(0x0102_0304, 256);
        assert_eq!(payload.len(), 256);
        assert_eq!(number(&payload), Some(0x0102_0304));
        assert_eq!(number(b"short"), None);
    }

    #[tokio::test]
    async fn a_message_that_does_not_arrive_in_its_place_fails_the_run() {
        let broker = Mosquitto::start().await;
        let load = Load {
            messages: 1_000,
            payload: 16,
            window: 20,
        };
        // One broker is source and destination at once: everything crosses.
        let mut generator = Generator::connect(&broker, &broker, load).await.unwrap();
        generator.until_open().await.unwrap();
        generator.carry(load.messages).await.unwrap();

        let mut stranger = RawClient::connect(broker.port(), "stranger").await.unwrap();
        stranger.publish(message(7, 16)).await.unwrap();
        let error = generator.carry(load.messages).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "message 7 arrived in the place of 0",
            "{error:?}"
        );
    }
}
