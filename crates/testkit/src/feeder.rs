//! Publishing numbered messages, through restarts of the broker too.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::RawClient;
use crate::numbered::numbered;

/// Between two attempts to connect.
const PACE: Duration = Duration::from_millis(20);
/// How long the broker may be away.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many messages are open at a time; the broker may ask for less.
const WINDOW: usize = 256;

/// What is to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How many messages, numbered from 0.
    pub messages: u64,
    /// The size of each payload in bytes, at least 12.
    pub size: usize,
}

/// What a [`Feeder`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Messages that were sent again because the broker went away before it had answered: it may
    /// have them twice.
    pub sent_again: u64,
    /// From the first message to the last answer.
    pub elapsed: Duration,
}

/// A publisher that sees to it that its broker has every message; stopped on drop.
#[derive(Debug)]
pub struct Feeder {
    task: JoinHandle<Fed>,
    /// How many may be published.
    open: watch::Sender<u64>,
}

impl Feeder {
    /// Publishes `load` below `topic` at that port of 127.0.0.1.
    pub fn start(port: u16, topic: &str, load: Load) -> Self {
        Self::start_with(port, topic, load, load.messages)
    }

    /// The same, and rests after so many of them until [`Feeder::go_on`].
    pub fn start_with(port: u16, topic: &str, load: Load, first: u64) -> Self {
        let topic = topic.to_owned();
        let (open, opened) = watch::channel(first);
        Self {
            task: tokio::spawn(async move { feed(port, &topic, load, opened).await }),
            open,
        }
    }

    /// Publishes what is left.
    pub fn go_on(&self) {
        self.open.send_replace(u64::MAX);
    }

    /// Whether the broker has answered for all of them.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until the broker has answered for all of them.
    ///
    /// # Panics
    /// When it refuses one, or stays away.
    pub async fn finish(mut self) -> Fed {
        (&mut self.task).await.expect("the feeder gets through")
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn feed(port: u16, topic: &str, load: Load, mut opened: watch::Receiver<u64>) -> Fed {
    let began = Instant::now();
    let mut sent_again = 0;
    let mut next = 0;
    let mut end = began + PATIENCE;
    while next < load.messages {
        let open = opened.wait_for(|open| *open > next).await;
        // Without its sender the task is about to be stopped.
        let last = open.map_or(load.messages, |open| *open).min(load.messages);
        let mut client = match RawClient::connect(port, "testkit-feeder").await {
            Ok(client) => client,
            Err(error) => {
                assert!(Instant::now() < end, "the broker is away: {error}");
                sleep(PACE).await;
                continue;
            }
        };
        let messages = (next..last).map(|number| numbered(topic, number, load.size));
        let report = client.publish_all(messages, WINDOW).await;
        assert_eq!(report.refused(), [], "the broker refuses");
        // The broker answers in order: what comes after the first gap was not answered either.
        let answered = report.codes.iter().take_while(|code| code.is_some());
        let answered = answered.count();
        sent_again += (report.codes.len() - answered) as u64;
        next += answered as u64;
        end = Instant::now() + PATIENCE;
        if next == load.messages
            && let Ok(()) = client.disconnect().await
        {
            break;
        }
    }
    Fed {
        sent_again,
        elapsed: began.elapsed(),
    }
}
