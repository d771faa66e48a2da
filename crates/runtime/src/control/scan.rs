//! Reading the dead letters of several bindings as one, in the order of their numbers.

use std::cmp::Reverse;
use std::collections::VecDeque;

use bridge_core::{BindingKey, GivenUp, ReadFrom, ReadLimit, Seated, Seq, Store, StoreError};
use futures_util::future::join_all;

use super::DeadLetterId;

/// Which way a scan goes. Dead letters of one number, which are one message at several bindings,
/// come in the order of the bindings' names either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    OldestFirst,
    NewestFirst,
}

/// How much is read of one binding at once: little at first, for most pages are short.
const FIRST: usize = 8;
const MOST: usize = 256;
const BYTES: u64 = 1 << 20;

/// A walk through dead letters; no more is in memory than a few of each binding.
#[derive(Debug)]
pub(super) struct Scan {
    way: Way,
    which: GivenUp,
    streams: Vec<Stream>,
}

/// The dead letters of one binding.
#[derive(Debug)]
struct Stream {
    key: BindingKey,
    ahead: VecDeque<Seated>,
    /// Where to read on.
    at: Option<Seq>,
    /// The last number that is of interest, going up.
    last: Option<Seq>,
    chunk: usize,
    ended: bool,
}

impl Scan {
    /// A walk through the dead letters of `bindings` that `which` takes.
    pub(super) fn new(
        way: Way,
        bindings: impl IntoIterator<Item = BindingKey>,
        which: GivenUp,
    ) -> Self {
        let stream = |key| Stream {
            key,
            ahead: VecDeque::new(),
            at: None,
            last: None,
            chunk: FIRST,
            ended: false,
        };
        let mut streams: Vec<Stream> = bindings.into_iter().map(stream).collect();
        streams.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            way,
            which,
            streams,
        }
    }

    /// Goes on behind `seen`, the newest first.
    pub(super) fn behind(mut self, seen: &DeadLetterId) -> Self {
        for stream in &mut self.streams {
            // One of the same number at a later binding was not seen.
            let same = u64::from(stream.key > seen.binding);
            stream.at = Some(Seq::new(seen.seq.get().saturating_add(same)));
        }
        self
    }

    /// Ends, the oldest first, with what there is now: what becomes a dead letter meanwhile, as
    /// one that is redriven and refused again, is not met.
    pub(super) async fn up_to_now(mut self, store: &dyn Store) -> Result<Self, StoreError> {
        let limit = ReadLimit {
            entries: 1,
            bytes: 0,
        };
        let (which, last) = (self.which, ReadFrom::Before(None));
        let newest = self
            .streams
            .iter()
            .map(|s| store.read_dead_letters(&s.key, which, last, limit));
        let newest = join_all(newest.collect::<Vec<_>>()).await;
        for (stream, newest) in self.streams.iter_mut().zip(newest) {
            stream.last = newest?.first().map(|seated| seated.seq);
            stream.ended = stream.last.is_none();
        }
        Ok(self)
    }

    /// The next one.
    pub(super) async fn next(
        &mut self,
        store: &dyn Store,
    ) -> Result<Option<(BindingKey, Seated)>, StoreError> {
        self.read_ahead(store).await?;
        let heads = self.streams.iter_mut().filter_map(|stream| {
            let seq = stream.ahead.front()?.seq;
            Some((seq, stream))
        });
        // Of equal ones the first, which is that of the first binding.
        let next = match self.way {
            Way::OldestFirst => heads.min_by_key(|(seq, _)| *seq),
            Way::NewestFirst => heads.min_by_key(|(seq, _)| Reverse(*seq)),
        };
        Ok(next.and_then(|(_, stream)| Some((stream.key.clone(), stream.ahead.pop_front()?))))
    }

    /// Reads of each binding of which nothing is in memory.
    async fn read_ahead(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let (way, which) = (self.way, self.which);
        let dry = self
            .streams
            .iter_mut()
            .filter(|stream| stream.ahead.is_empty() && !stream.ended);
        let reads = dry.map(|stream| async move {
            let limit = ReadLimit {
                entries: stream.chunk,
                bytes: BYTES,
            };
            let from = match way {
                Way::OldestFirst => ReadFrom::After(stream.at),
                Way::NewestFirst => ReadFrom::Before(stream.at),
            };
            let read = store.read_dead_letters(&stream.key, which, from, limit);
            stream.take(read.await?);
            Ok(())
        });
        join_all(reads.collect::<Vec<_>>())
            .await
            .into_iter()
            .collect()
    }
}

impl Stream {
    fn take(&mut self, page: Vec<Seated>) {
        self.chunk = (self.chunk * 2).min(MOST);
        match page.last() {
            Some(last) => self.at = Some(last.seq),
            None => self.ended = true,
        }
        let of_interest = |seated: &Seated| self.last.is_none_or(|last| seated.seq <= last);
        let (taken, beyond): (Vec<_>, Vec<_>) = page.into_iter().partition(of_interest);
        self.ended |= !beyond.is_empty();
        self.ahead.extend(taken);
    }
}
