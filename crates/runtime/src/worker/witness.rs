//! Who shows that the connection is not at fault: the search for a message that may go before its
//! turn, while one under suspicion waits (I06).

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;

use bridge_core::{
    BindingKey, Pending, ReadLimit, Seated, Seq, Store, StoreError, StoredMessage, Topic, View,
};

use super::{Item, Worker};
use crate::lane::Job;
use crate::mapping;

/// How much of the queue is looked at at once, and in memory for it.
const PAGE: ReadLimit = ReadLimit {
    entries: 512,
    bytes: 4 * 1024 * 1024,
};

/// A search through the queue from its head.
#[derive(Default)]
pub(super) struct Search {
    after: Option<Seq>,
    reading: Option<Pending<Vec<Seated>>>,
    /// Topics of which an older message waits: none of theirs may go before it.
    passed: HashSet<Topic>,
    found: Option<Found>,
    over: bool,
}

type Found = (Seq, Arc<StoredMessage>);

impl Search {
    /// Whether everything was looked at.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// Reads on, unless what is looked for was found, or is not there.
    fn read_ahead(&mut self, store: &dyn Store, binding: &BindingKey) {
        if self.reading.is_none() && self.found.is_none() && !self.over {
            self.reading = Some(store.read(binding, View::Queue, self.after, PAGE));
        }
    }

    /// Ends with the next page.
    async fn page(&mut self) -> Result<Vec<Seated>, StoreError> {
        let result = match &mut self.reading {
            Some(reading) => reading.await,
            None => pending().await,
        };
        self.reading = None;
        result
    }
}

/// Ends with the next page of the search that is on; never, when none is.
pub(super) async fn page(search: &mut Option<Search>) -> Result<Vec<Seated>, StoreError> {
    match search {
        Some(search) => search.page().await,
        None => pending().await,
    }
}

impl Worker<'_> {
    /// A message of another topic that is not under suspicion, out of its turn: that it is accepted
    /// shows that the connection is not at fault. One at a time.
    pub(super) fn another(&mut self, than: &Item) -> Option<Item> {
        if !self.under_way.is_empty() {
            return None;
        }
        if matches!(than, Item::Live(..)) {
            return self.another_live(than.stored());
        }
        let topic = self.topic_of(than.stored());
        let search = self.trial.search.get_or_insert_with(|| Search {
            passed: HashSet::from([topic]),
            ..Search::default()
        });
        let (seq, stored) = search.found.take()?;
        self.trial.search = None;
        self.pass.leaves(seq);
        Some(Item::Replay(seq, stored))
    }

    fn another_live(&mut self, than: &StoredMessage) -> Option<Item> {
        let lane = self.lane;
        let mut passed = HashSet::from([self.topic_of(than)]);
        let suspicion = &self.trial.suspicion;
        let of_another = |job: &Job| {
            let topic = topic(&job.stored, lane);
            if suspicion.concerns(job.stored.id) {
                passed.insert(topic);
                return false;
            }
            !passed.contains(&topic)
        };
        let job = lane.take_live_that(of_another)?;
        let number = self.next_live;
        self.next_live += 1;
        Some(Item::Live(number, job))
    }

    fn topic_of(&self, stored: &StoredMessage) -> Topic {
        topic(stored, self.lane)
    }

    /// Looks on for a message that may go before its turn.
    pub(super) fn search_ahead(&mut self) {
        if let Some(search) = &mut self.trial.search {
            search.read_ahead(&*self.lane.store, &self.lane.key);
        }
    }

    /// A page of the queue was read for the search.
    pub(super) fn have_searched(&mut self, page: Result<Vec<Seated>, StoreError>) {
        let page = match page {
            Ok(page) => page,
            Err(failure) => return self.have_read(Err(failure)),
        };
        let Some(search) = &mut self.trial.search else {
            return;
        };
        search.over = page.is_empty();
        search.after = page.last().map(|entry| entry.seq).or(search.after);
        for entry in page {
            let Ok(stored) = entry.message else { continue };
            let topic = topic(&stored, self.lane);
            // One whose topic has deferred messages would only line up.
            if self.pass.is_leaving(entry.seq) || self.second.deferral.holds(&topic) {
                continue;
            }
            if self.trial.suspicion.concerns(stored.id) {
                search.passed.insert(topic);
            } else if !search.passed.contains(&topic) {
                search.found = Some((entry.seq, stored));
                return;
            }
        }
    }
}

/// The topic at the destination: that is what a broker refuses, and what keeps its order.
fn topic(stored: &StoredMessage, lane: &crate::lane::Lane) -> Topic {
    mapping::topic(stored, &lane.key.route, &lane.spec)
        .unwrap_or_else(|| stored.message.topic.clone())
}
