//! The messages and moves of the tests, and what is at the binding `a` after them.

use std::sync::Arc;

use bridge_core::{
    BindingKey, DeadLetterInfo, DeferInfo, Destination, GivenUp, Message, MessageId, Move, Moved,
    Name, Placement, ReadFrom, ReadLimit, Reason, ReasonCode, Seated, Seq, Store, StoredMessage,
    Timestamp, Topic, View,
};
use futures_executor::block_on;

pub(super) const ALL: ReadLimit = ReadLimit {
    entries: usize::MAX,
    bytes: u64::MAX,
};

pub(super) fn key(name: &str) -> BindingKey {
    BindingKey::new(Name::parse("route").unwrap(), Name::parse(name).unwrap())
}

pub(super) fn id(number: u8) -> MessageId {
    MessageId::new(Timestamp::from_millis(u64::from(number)), [number; 10])
}

pub(super) fn message(number: u8) -> Arc<StoredMessage> {
    Arc::new(StoredMessage {
        id: id(number),
        cause: None,
        session: Name::parse("plant").unwrap(),
        received: Timestamp::from_millis(1_000 + u64::from(number)),
        message: Message::new(Topic::parse("sensors/1").unwrap(), vec![number; 11]),
    })
}

/// What one of these messages counts for.
pub(super) const SIZE: u64 = 20;

pub(super) fn queue(name: &str) -> Destination {
    Destination {
        binding: key(name),
        placement: Placement::Queue,
    }
}

pub(super) fn put(store: &dyn Store, number: u8) -> Seq {
    block_on(store.put(message(number), vec![queue("a")])).unwrap()
}

pub(super) fn read(store: &dyn Store, name: &str, view: View) -> Vec<Seated> {
    block_on(store.read(&key(name), view, None, ALL)).unwrap()
}

pub(super) fn dead_letters(
    store: &dyn Store,
    which: GivenUp,
    from: ReadFrom,
    limit: ReadLimit,
) -> Vec<Seated> {
    block_on(store.read_dead_letters(&key("a"), which, from, limit)).unwrap()
}

pub(super) fn ids(store: &dyn Store, name: &str, view: View) -> Vec<MessageId> {
    let page = read(store, name, view);
    let id = |seated: &Seated| seated.message.as_ref().unwrap().id;
    page.iter().map(id).collect()
}

pub(super) fn seqs(store: &dyn Store, view: View) -> Vec<Seq> {
    let page = read(store, "a", view);
    page.iter().map(|seated| seated.seq).collect()
}

pub(super) fn refused(attempts: u32) -> DeferInfo {
    DeferInfo {
        reason: Reason::Broker(ReasonCode::NOT_AUTHORIZED),
        first_refusal: Timestamp::from_millis(5),
        last_refusal: Timestamp::from_millis(5 + u64::from(attempts)),
        overtaken: attempts > 1,
        attempts,
    }
}

pub(super) fn given_up() -> DeadLetterInfo {
    DeadLetterInfo {
        reason: Reason::PacketTooLarge,
        reason_string: Some("too much".to_owned()),
        first_refusal: Timestamp::from_millis(1),
        last_refusal: Timestamp::from_millis(2),
        attempts: 3,
    }
}

pub(super) fn defer(seq: Seq, attempts: u32) -> Move {
    Move::Defer {
        binding: key("a"),
        seq,
        info: refused(attempts),
    }
}

pub(super) fn dead(seq: Seq) -> Move {
    Move::DeadLetter {
        binding: key("a"),
        seq,
        info: given_up(),
    }
}

pub(super) fn redrive(seq: Seq, number: u8) -> Move {
    Move::Redrive {
        binding: key("a"),
        seq,
        id: id(number),
    }
}

pub(super) fn delete(seq: Seq) -> Move {
    Move::Delete {
        binding: key("a"),
        seq,
    }
}

pub(super) fn apply(store: &dyn Store, change: Move) -> Moved {
    block_on(store.apply(change)).unwrap()
}

pub(super) fn done(store: &dyn Store, change: Move) -> Seq {
    let asked = format!("{change:?}");
    match apply(store, change) {
        Moved::Done { seq } => seq,
        Moved::NotThere => panic!("not there: {asked}"),
    }
}
