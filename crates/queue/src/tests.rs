//! The journal on a disk that tears, fills and lies, against a simple model of what it promised.

#![allow(
    clippy::cast_possible_truncation,
    reason = "tests run on 64 bits, and their numbers are small"
)]

mod conformance;
mod damage;
mod faults;
mod format;
mod missing;
mod pipe;
mod random;
mod space;
mod strays;
mod sweep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    BindingKey, DeadLetterInfo, DeferInfo, Destination, Message, MessageId, Name, Placement,
    ReadLimit, Reason, ReasonCode, Seated, Seq, Store, StoreError, StoredMessage, Timestamp, Topic,
    View,
};
use futures_executor::block_on;

use crate::sim::SimDisk;
use crate::{Journal, JournalOptions, OpenError, RecoveryReport};

const ALL: ReadLimit = ReadLimit {
    entries: usize::MAX,
    bytes: u64::MAX,
};

fn folder() -> PathBuf {
    PathBuf::from("/data")
}

/// Small segments, so that a few messages fill several, and small batches, so that a few are
/// under way at once.
fn small() -> JournalOptions {
    JournalOptions {
        segment_bytes: 16 << 10,
        batch_records: 4,
        batch_bytes: 4 << 10,
        settle_delay: Duration::from_millis(1),
        reserve_bytes: 16 << 10,
        slack_bytes: 16 << 10,
        ..JournalOptions::default()
    }
}

fn try_open(disk: &SimDisk) -> Result<(Journal, RecoveryReport), OpenError> {
    Journal::open_on(Arc::new(disk.clone()), &folder(), small(), None)
}

fn open(disk: &SimDisk) -> (Journal, RecoveryReport) {
    try_open(disk).unwrap()
}

fn key(number: usize) -> BindingKey {
    format!("route/binding-{number}").parse().unwrap()
}

fn id(number: u64) -> MessageId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    MessageId::from_bytes(bytes)
}

fn number_of(id: MessageId) -> u64 {
    u64::from_be_bytes(*id.to_bytes().first_chunk().unwrap())
}

fn message_of(number: u64, payload: Vec<u8>) -> Arc<StoredMessage> {
    Arc::new(StoredMessage {
        id: id(number),
        cause: None,
        session: Name::parse("plant").unwrap(),
        received: Timestamp::from_millis(number),
        message: Message::new(Topic::parse("t").unwrap(), payload),
    })
}

fn message(number: u64) -> Arc<StoredMessage> {
    message_of(number, vec![number as u8; 100])
}

fn queue(number: usize) -> Destination {
    Destination {
        binding: key(number),
        placement: Placement::Queue,
    }
}

fn try_put(journal: &Journal, number: u64) -> Result<Seq, StoreError> {
    block_on(journal.put(message(number), vec![queue(0)]))
}

fn put(journal: &Journal, number: u64) -> Seq {
    try_put(journal, number).unwrap()
}

fn given_up() -> DeadLetterInfo {
    DeadLetterInfo {
        reason: Reason::Broker(ReasonCode::new(0x99)),
        reason_string: Some("no".to_owned()),
        first_refusal: Timestamp::from_millis(1),
        last_refusal: Timestamp::from_millis(2),
        attempts: 3,
    }
}

fn refused() -> DeferInfo {
    DeferInfo {
        reason: Reason::Broker(ReasonCode::NOT_AUTHORIZED),
        first_refusal: Timestamp::from_millis(5),
        last_refusal: Timestamp::from_millis(6),
        attempts: 1,
        overtaken: false,
    }
}

fn read(journal: &Journal, binding: usize, view: View) -> Vec<Seated> {
    block_on(journal.read(&key(binding), view, None, ALL)).unwrap()
}

fn number(seated: &Seated) -> u64 {
    number_of(seated.message.as_ref().unwrap().id)
}

/// The numbers of the messages in a view, in order.
fn numbers(journal: &Journal, binding: usize, view: View) -> Vec<u64> {
    read(journal, binding, view).iter().map(number).collect()
}

/// The segments of a disk, in order.
fn segments(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = folder().join("journal");
    let mut files = disk.files();
    files.retain(|path, _| path.parent() == Some(Path::new(&folder)));
    files
}
