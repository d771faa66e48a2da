//! The messages, and what is done with them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bridge_core::{
    BindingKey, DeadLetterInfo, Destination, Message, MessageId, Move, Name, Pending, Placement,
    ReadLimit, Reason, Seq, Store, StoredMessage, Timestamp, Topic, View,
};
use bridge_queue::{Journal, JournalOptions};

/// Messages that differ; they are stored over and over, so that making them costs nothing while
/// it is measured.
const DIFFERENT: u64 = 1024;

#[derive(Debug)]
pub(super) struct Load {
    pub(super) messages: u64,
    pub(super) payload: usize,
    /// The size of one message, its topic included.
    pub(super) size: u64,
    pool: Vec<Arc<StoredMessage>>,
    pub(super) key: BindingKey,
}

impl Load {
    pub(super) fn new(messages: u64, payload: usize) -> Result<Self> {
        let (session, topic) = (
            Name::parse("plant")?,
            Topic::parse("sensors/boiler/1/temperature")?,
        );
        let mut noise = 0x9E37_79B9_7F4A_7C15_u64;
        let mut byte = || {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise.to_le_bytes()[0]
        };
        let message = |number| {
            let payload: Vec<u8> = (0..payload).map(|_| byte()).collect();
            Arc::new(StoredMessage {
                id: MessageId::new(Timestamp::from_millis(number), [7; 10]),
                cause: None,
                session: session.clone(),
                received: Timestamp::from_millis(number),
                message: Message::new(topic.clone(), payload),
            })
        };
        let pool: Vec<_> = (0..DIFFERENT).map(message).collect();
        Ok(Self {
            messages,
            payload,
            size: pool.first().map_or(0, |stored| stored.message.size()),
            pool,
            key: "telemetry/cloud".parse()?,
        })
    }

    pub(super) fn put(&self, journal: &Journal, number: u64) -> Pending<Seq> {
        let at = usize::try_from(number % DIFFERENT).unwrap_or_default();
        let to = vec![Destination {
            binding: self.key.clone(),
            placement: Placement::Queue,
        }];
        // There are as many as the number was divided by.
        let message = self.pool.get(at).map(Arc::clone);
        message.map_or_else(
            || Box::pin(std::future::ready(Ok(Seq::new(0)))) as Pending<Seq>,
            |message| journal.put(message, to),
        )
    }

    /// Puts `count` messages, `window` of them under way.
    pub(super) async fn append(
        &self,
        journal: &Journal,
        count: u64,
        window: usize,
    ) -> Result<Duration> {
        let start = Instant::now();
        let mut under_way = VecDeque::with_capacity(window);
        for number in 0..count {
            if under_way.len() == window
                && let Some(oldest) = under_way.pop_front()
            {
                let oldest: Pending<Seq> = oldest;
                oldest.await?;
            }
            under_way.push_back(self.put(journal, number));
        }
        for pending in under_way {
            pending.await?;
        }
        Ok(start.elapsed())
    }

    /// Reads and settles all that is queued. Says how many that were.
    pub(super) async fn drain(&self, journal: &Journal) -> Result<(u64, Duration)> {
        let start = Instant::now();
        let limit = ReadLimit {
            entries: 256,
            bytes: 1 << 20,
        };
        let mut drained = 0;
        let mut after = None;
        loop {
            let page = journal.read(&self.key, View::Queue, after, limit).await?;
            let seqs: Vec<Seq> = page.iter().map(|seated| seated.seq).collect();
            let Some(last) = seqs.last() else {
                journal.flush().await?;
                return Ok((drained, start.elapsed()));
            };
            after = Some(*last);
            drained += seqs.len() as u64;
            journal.settle(&self.key, &seqs);
        }
    }

    /// Stores all messages with 1,000 of them waiting at any time, and gives up on one in every
    /// `kept`, which stays for ever.
    pub(super) async fn flow(&self, journal: &Journal, kept: Option<u64>) -> Result<()> {
        const BURST: u64 = 250;
        const DEPTH: usize = 1000;
        let mut waiting = VecDeque::new();
        for number in (0..self.messages).step_by(usize::try_from(BURST)?) {
            let burst: Vec<_> = (0..BURST).map(|n| self.put(journal, number + n)).collect();
            for pending in burst {
                waiting.push_back(pending.await?);
            }
            if kept.is_some_and(|kept| number % kept == 0)
                && let Some(seq) = waiting.pop_front()
            {
                self.give_up(journal, seq).await?;
            }
            let done: Vec<Seq> = waiting
                .drain(..waiting.len().saturating_sub(DEPTH))
                .collect();
            journal.settle(&self.key, &done);
        }
        journal.flush().await?;
        Ok(())
    }

    /// Makes an entry a dead letter.
    pub(super) fn give_up(&self, journal: &Journal, seq: Seq) -> Pending<bridge_core::Moved> {
        journal.apply(Move::DeadLetter {
            binding: self.key.clone(),
            seq,
            info: DeadLetterInfo {
                reason: Reason::Expired,
                reason_string: None,
                first_refusal: Timestamp::default(),
                last_refusal: Timestamp::default(),
                attempts: 1,
            },
        })
    }
}

/// Opens the journal in `folder`, with at most `batch` records to an fsync.
pub(super) fn open(folder: &Path, batch: Option<usize>) -> Result<Journal> {
    let mut options = JournalOptions::default();
    options.batch_records = batch.unwrap_or(options.batch_records);
    let opened = Journal::open(folder, options);
    Ok(opened.context("cannot open the journal")?.0)
}
