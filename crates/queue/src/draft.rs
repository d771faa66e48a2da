//! A batch before it is written: the frames that requests become, and what will be true once
//! they are durable.

use std::collections::HashMap;

use bridge_core::{Moved, Seq, StoreError, View};

use crate::effect::Effect;
use crate::fetch::{Address, FetchError, Fetcher, message_in};
use crate::frame::{self, Kind};
use crate::index::{SlotId, Standing};
use crate::record::{
    MessageHead, SeqRange, encode_deferral, encode_delete, encode_giving_up, encode_message,
    encode_places, encode_redrive, encode_settle, ranges_of,
};
use crate::run::{Entry, Location};
use crate::segment::Salt;
use crate::shared::{Change, Put, Request, Shared};

/// What a request will be told when its batch is durable.
#[derive(Debug)]
pub(crate) enum Outcome {
    Put(Seq),
    Moved(Result<Moved, StoreError>),
    /// Nothing to tell: a flush has only waited, a settle has no answer.
    Nothing,
}

/// Frames to be appended to one segment, and their effects.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) bytes: Vec<u8>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) next_seq: u64,
    /// The number of its first record.
    pub(crate) first_seq: u64,
    pub(crate) segment: u32,
    /// Where in the segment it begins.
    pub(crate) base: u64,
    salt: Salt,
    /// Where entries will be once this is durable, as far as it differs from the index.
    moved: HashMap<(SlotId, u64), Option<View>>,
}

impl Draft {
    /// An empty draft for the segment `segment`, which is `base` bytes long.
    pub(crate) fn new(segment: u32, salt: Salt, base: u64, next_seq: u64, buffer: Vec<u8>) -> Self {
        Self {
            bytes: buffer,
            effects: Vec::new(),
            next_seq,
            first_seq: next_seq,
            segment,
            base,
            salt,
            moved: HashMap::new(),
        }
    }

    /// Where in the segment it ends.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Appends a frame; says its number and where it will lie.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> (u64, Location) {
        let seq = self.next_seq;
        let offset = self.end();
        let first = self.bytes.is_empty();
        let len = frame::append(&mut self.bytes, &self.salt, seq, kind, first, write);
        self.next_seq += 1;
        // Segments and messages are bounded to 1 GiB each.
        let location = Location {
            segment: self.segment,
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
            len: u32::try_from(len).unwrap_or(u32::MAX),
        };
        (seq, location)
    }

    pub(crate) fn settle(&mut self, shared: &Shared, slot: SlotId, seqs: Vec<u64>) {
        let ranges = ranges_of(seqs);
        let name = shared.lock().index.name(slot);
        let (_, location) = self.append(Kind::Settle, |out| encode_settle(out, &name, &ranges));
        let end = |range| Effect::End {
            slot,
            range,
            segment: location.segment,
        };
        self.effects.extend(ranges.into_iter().map(end));
    }

    pub(crate) fn request(
        &mut self,
        shared: &Shared,
        fetcher: &mut Fetcher,
        request: &Request,
    ) -> Outcome {
        match request {
            Request::Put(put) => Outcome::Put(self.put(put)),
            Request::Move {
                slot, seq, change, ..
            } => Outcome::Moved(self.change(shared, fetcher, *slot, *seq, change)),
            Request::Settle { slot, seq } => {
                if matches!(
                    self.view_of(shared, *slot, *seq),
                    Some(View::Queue | View::Deferred)
                ) {
                    self.settle(shared, *slot, vec![*seq]);
                    self.moved.insert((*slot, *seq), None);
                }
                Outcome::Nothing
            }
            Request::Flush(_) => Outcome::Nothing,
        }
    }

    pub(crate) fn put(&mut self, put: &Put) -> Seq {
        let (seq, location) = self.append(Kind::Put, |out| {
            let places = put.places.iter();
            encode_places(out, places.map(|place| (&*place.name, &place.placed)));
            encode_message(out, &put.message);
        });
        let MessageHead { received, size } = MessageHead::of(&put.message);
        let entry = Entry {
            seq,
            received,
            location,
            size,
        };
        for place in &put.places {
            self.effects.push(Effect::Place {
                slot: place.slot,
                entry,
                standing: Standing::of(&place.placed),
            });
        }
        Seq::new(seq)
    }

    fn change(
        &mut self,
        shared: &Shared,
        fetcher: &mut Fetcher,
        slot: SlotId,
        seq: u64,
        change: &Change,
    ) -> Result<Moved, StoreError> {
        let from = self.view_of(shared, slot, seq);
        let may = match change {
            Change::Defer(_) | Change::DeadLetter(_) => {
                matches!(from, Some(View::Queue | View::Deferred))
            }
            Change::Redrive(_) | Change::Delete => from == Some(View::DeadLetters),
        };
        if !may {
            return Ok(Moved::NotThere);
        }
        let name = shared.lock().index.name(slot);
        let mut new_seq = seq;
        let mut now = None;
        match change {
            Change::Defer(info) => {
                let (_, at) = self.append(Kind::Defer, |out| {
                    encode_deferral(out, &name, seq, info);
                });
                now = Some(View::Deferred);
                self.advance(slot, seq, Standing::Deferred, at);
            }
            Change::DeadLetter(info) => {
                let (_, at) = self.append(Kind::DeadLetter, |out| {
                    encode_giving_up(out, &name, seq, info);
                });
                now = Some(View::DeadLetters);
                self.advance(slot, seq, Standing::DeadLetter(info.into()), at);
            }
            Change::Delete => {
                let (_, at) = self.append(Kind::Delete, |out| encode_delete(out, &name, seq));
                self.gone(slot, seq, at);
            }
            Change::Redrive(id) => {
                let message = fetch(shared, fetcher, slot, seq)?.redriven(*id);
                let (redriven, at) = self.append(Kind::Redrive, |out| {
                    encode_redrive(out, &name, seq, &message);
                });
                self.gone(slot, seq, at);
                let MessageHead { received, size } = MessageHead::of(&message);
                let entry = Entry {
                    seq: redriven,
                    received,
                    location: at,
                    size,
                };
                self.effects.push(Effect::Place {
                    slot,
                    entry,
                    standing: Standing::Queue,
                });
                new_seq = redriven;
            }
        }
        self.moved.insert((slot, seq), now);
        Ok(Moved::Done {
            seq: Seq::new(new_seq),
        })
    }

    fn advance(&mut self, slot: SlotId, seq: u64, standing: Standing, info: Location) {
        self.effects.push(Effect::Advance {
            slot,
            seq,
            standing,
            info,
        });
    }

    fn gone(&mut self, slot: SlotId, seq: u64, at: Location) {
        self.effects.push(Effect::End {
            slot,
            range: SeqRange {
                start: seq,
                end: seq,
            },
            segment: at.segment,
        });
    }

    fn view_of(&self, shared: &Shared, slot: SlotId, seq: u64) -> Option<View> {
        let moved = self.moved.get(&(slot, seq)).copied();
        moved.unwrap_or_else(|| shared.lock().index.view_of(slot, seq))
    }
}

/// Reads the message of an entry that only the writer itself could take away meanwhile.
fn fetch(
    shared: &Shared,
    fetcher: &mut Fetcher,
    slot: SlotId,
    seq: u64,
) -> Result<bridge_core::StoredMessage, StoreError> {
    let address = {
        let state = shared.lock();
        let found = state.index.find(slot, seq);
        found.and_then(|(_, entry, _)| Address::of(&state.index, entry.location))
    };
    fetcher.forget();
    match address {
        Some(found) => fetcher.frame(found, message_in),
        None => Err(FetchError::Gone),
    }
    .map_err(|error| error.into_store_error(&shared.layout, seq, address))
}
