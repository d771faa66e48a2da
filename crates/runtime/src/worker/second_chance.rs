//! The shell around [`Deferral`]: brings the deferred messages that are to be offered from the
//! store.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;

use bridge_core::{
    BindingKey, DeferInfo, Pending, ReadLimit, Seated, Seq, Store, StoreError, StoredMessage, View,
};

use crate::deferral::Deferral;

/// How much is read at once.
const PAGE: ReadLimit = ReadLimit {
    entries: 256,
    bytes: 1024 * 1024,
};

/// The deferred messages of a binding, and those of them that were read.
pub(super) struct SecondChance {
    pub(super) deferral: Deferral,
    /// Whether all that earlier runs have deferred is known.
    loaded: bool,
    /// The last entry that was loaded, or the first that is wanted.
    position: Option<Seq>,
    reading: Option<Pending<Vec<Seated>>>,
    fetched: BTreeMap<Seq, Arc<StoredMessage>>,
}

/// What was read.
pub(super) enum Reading {
    /// Messages that earlier runs have deferred.
    Loaded(Vec<(Seq, Arc<StoredMessage>, DeferInfo)>),
    /// Nothing that the worker has to do something about.
    Fetched,
}

/// An entry that cannot be read: it stays where it is, and is not offered.
pub(super) type Unreadable = (Seq, StoreError);

impl SecondChance {
    pub(super) fn new(deferral: Deferral, store: &dyn Store, binding: &BindingKey) -> Self {
        Self {
            deferral,
            loaded: store.usage(binding).deferred.entries == 0,
            position: None,
            reading: None,
            fetched: BTreeMap::new(),
        }
    }

    /// Whether it is known which topics have deferred messages. Nothing may be sent before.
    pub(super) const fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// The next deferred message to offer, if it was read.
    pub(super) fn next(&mut self) -> Option<(Seq, Arc<StoredMessage>)> {
        let seq = self.deferral.next()?;
        let stored = self.fetched.remove(&seq)?;
        Some((seq, stored))
    }

    /// Begins to read what is missing.
    pub(super) fn read_ahead(&mut self, store: &dyn Store, binding: &BindingKey) {
        if self.reading.is_some() {
            return;
        }
        if self.loaded {
            let Some(seq) = self.deferral.next() else {
                return;
            };
            if self.fetched.contains_key(&seq) {
                return;
            }
            self.position = Some(seq);
        }
        let after = if self.loaded {
            self.position
                .and_then(|seq| seq.get().checked_sub(1))
                .map(Seq::new)
        } else {
            self.position
        };
        self.reading = Some(store.read(binding, View::Deferred, after, PAGE));
    }

    /// Ends with the outcome of the read under way; never, when there is none.
    pub(super) async fn read(&mut self) -> Result<(Reading, Vec<Unreadable>), StoreError> {
        let result = match &mut self.reading {
            Some(reading) => reading.await,
            None => pending().await,
        };
        self.reading = None;
        let page = result?;
        let mut unreadable = Vec::new();
        if self.loaded {
            self.fetched(page, &mut unreadable);
            return Ok((Reading::Fetched, unreadable));
        }
        self.loaded = page.is_empty();
        self.position = page.last().map(|seated| seated.seq).or(self.position);
        let mut loaded = Vec::with_capacity(page.len());
        for seated in page {
            match (seated.message, seated.deferred) {
                (Ok(stored), Some(info)) => loaded.push((seated.seq, stored, info)),
                (Err(failure), _) => unreadable.push((seated.seq, failure)),
                (Ok(_), None) => {}
            }
        }
        Ok((Reading::Loaded(loaded), unreadable))
    }

    fn fetched(&mut self, page: Vec<Seated>, unreadable: &mut Vec<Unreadable>) {
        let Self {
            deferral, fetched, ..
        } = self;
        fetched.retain(|seq, _| deferral.is_wanted(*seq));
        for seated in page {
            if !deferral.is_wanted(seated.seq) {
                continue;
            }
            match seated.message {
                Ok(stored) => drop(fetched.insert(seated.seq, stored)),
                Err(failure) => {
                    deferral.remove(seated.seq);
                    unreadable.push((seated.seq, failure));
                }
            }
        }
        if let Some(seq) = self.position
            && self.deferral.next() == Some(seq)
            && !self.fetched.contains_key(&seq)
        {
            // It is not there any more, whoever took it.
            self.deferral.remove(seq);
        }
    }
}
