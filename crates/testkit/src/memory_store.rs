//! A store in memory: the contract of [`Store`] and nothing else, for tests of what uses one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use bridge_core::{
    BindingKey, DeadLetterInfo, DeferInfo, Destination, Durability, GivenUp, Move, Moved, Pending,
    Placement, Quantity, ReadFrom, ReadLimit, Seated, Seq, Store, StoreError, StoredMessage, Usage,
    View,
};

/// Keeps everything until it is dropped; answers at once.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    bindings: HashMap<BindingKey, Views>,
    /// With what puts and moves fail at present.
    failing: Option<StoreError>,
}

#[derive(Debug, Default)]
struct Views {
    queue: BTreeMap<Seq, Arc<StoredMessage>>,
    deferred: BTreeMap<Seq, (Arc<StoredMessage>, DeferInfo)>,
    dead: BTreeMap<Seq, (Arc<StoredMessage>, DeadLetterInfo)>,
    /// A put failed, and none was let in again since.
    behind: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on puts and moves fail with `error`, or work again.
    pub fn set_failing(&self, error: Option<StoreError>) {
        self.inner().failing = error;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

impl Inner {
    fn next(&mut self) -> Seq {
        self.last += 1;
        Seq::new(self.last)
    }

    fn seated(&self, binding: &BindingKey, view: View) -> Vec<Seated> {
        let views = self.bindings.get(binding);
        views.map_or_else(Vec::new, |views| views.seated(view))
    }

    /// The dead letters that `which` takes.
    fn taken(&self, binding: &BindingKey, which: GivenUp) -> Vec<Seated> {
        let mut all = self.seated(binding, View::DeadLetters);
        let taken = |seated: &Seated| seated.dead_letter.as_ref().is_some_and(|i| which.takes(i));
        all.retain(taken);
        all
    }

    fn put(&mut self, message: &Arc<StoredMessage>, to: &[Destination]) -> Result<Seq, StoreError> {
        let behind = to.iter().any(|to| {
            let views = self.bindings.get(&to.binding);
            views.is_some_and(|views| views.behind)
        });
        let failure = if behind {
            Some(StoreError::Behind)
        } else {
            self.failing.clone()
        };
        if let Some(failure) = failure {
            for to in to {
                self.bindings.entry(to.binding.clone()).or_default().behind = true;
            }
            return Err(failure);
        }
        let seq = self.next();
        for Destination { binding, placement } in to {
            let views = self.bindings.entry(binding.clone()).or_default();
            match placement {
                Placement::Queue => drop(views.queue.insert(seq, message.clone())),
                Placement::Deferred(info) => {
                    let deferred = (message.clone(), info.clone());
                    views.deferred.insert(seq, deferred);
                }
                Placement::DeadLetter(info) => {
                    let dead = (message.clone(), info.clone());
                    views.dead.insert(seq, dead);
                }
            }
        }
        Ok(seq)
    }

    fn change(&mut self, change: Move) -> Result<Moved, StoreError> {
        if let Some(failure) = &self.failing {
            return Err(failure.clone());
        }
        let next = self.next();
        let (Move::Defer { binding, seq, .. }
        | Move::DeadLetter { binding, seq, .. }
        | Move::Redrive { binding, seq, .. }
        | Move::Delete { binding, seq }) = &change;
        let seq = *seq;
        let Some(views) = self.bindings.get_mut(binding) else {
            return Ok(Moved::NotThere);
        };
        let found = match &change {
            Move::Defer { .. } | Move::DeadLetter { .. } => {
                let deferred = views.deferred.remove(&seq).map(|(message, _)| message);
                deferred.or_else(|| views.queue.remove(&seq))
            }
            Move::Redrive { .. } | Move::Delete { .. } => {
                views.dead.remove(&seq).map(|(message, _)| message)
            }
        };
        let Some(message) = found else {
            return Ok(Moved::NotThere);
        };
        let mut now = seq;
        match change {
            Move::Defer { info, .. } => drop(views.deferred.insert(seq, (message, info))),
            Move::DeadLetter { info, .. } => drop(views.dead.insert(seq, (message, info))),
            Move::Redrive { id, .. } => {
                now = next;
                let redriven = StoredMessage::clone(&message).redriven(id);
                views.queue.insert(now, Arc::new(redriven));
            }
            Move::Delete { .. } => {}
        }
        Ok(Moved::Done { seq: now })
    }
}

impl Views {
    fn usage(&self) -> Usage {
        Usage {
            queue: quantity(self.queue.values()),
            deferred: quantity(self.deferred.values().map(|(message, _)| message)),
            dead_letters: quantity(self.dead.values().map(|(message, _)| message)),
            oldest: self.queue.values().next().map(|message| message.received),
        }
    }

    fn seated(&self, view: View) -> Vec<Seated> {
        let seat = |seq: &Seq, message: &Arc<StoredMessage>| Seated {
            seq: *seq,
            message: Ok(message.clone()),
            deferred: None,
            dead_letter: None,
        };
        match view {
            View::Queue => self.queue.iter().map(|(seq, m)| seat(seq, m)).collect(),
            View::Deferred => {
                let deferred = self.deferred.iter();
                let with = |(seq, (message, info)): (&Seq, &(_, DeferInfo))| Seated {
                    deferred: Some(info.clone()),
                    ..seat(seq, message)
                };
                deferred.map(with).collect()
            }
            View::DeadLetters => {
                let dead = self.dead.iter();
                let with = |(seq, (message, info)): (&Seq, &(_, DeadLetterInfo))| Seated {
                    dead_letter: Some(info.clone()),
                    ..seat(seq, message)
                };
                dead.map(with).collect()
            }
        }
    }
}

fn quantity<'a>(messages: impl Iterator<Item = &'a Arc<StoredMessage>>) -> Quantity {
    messages.fold(Quantity::default(), |sum, stored| Quantity {
        entries: sum.entries + 1,
        bytes: sum.bytes + stored.message.size(),
    })
}

fn size(seated: &Seated) -> u64 {
    let message = seated.message.as_ref();
    message.map_or(0, |stored| stored.message.size())
}

/// As many as fit, and at least one.
fn page(all: Vec<Seated>, limit: ReadLimit) -> Vec<Seated> {
    let mut room = limit.bytes;
    let mut page: Vec<Seated> = Vec::new();
    for seated in all {
        if !page.is_empty() && (page.len() >= limit.entries || size(&seated) > room) {
            break;
        }
        room = room.saturating_sub(size(&seated));
        page.push(seated);
    }
    page
}

fn ready<T: Send + 'static>(result: Result<T, StoreError>) -> Pending<T> {
    Box::pin(std::future::ready(result))
}

impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Process
    }

    fn put(&self, message: Arc<StoredMessage>, to: Vec<Destination>) -> Pending<Seq> {
        ready(self.inner().put(&message, &to))
    }

    fn resume(&self, binding: &BindingKey) {
        if let Some(views) = self.inner().bindings.get_mut(binding) {
            views.behind = false;
        }
    }

    fn settle(&self, binding: &BindingKey, done: &[Seq]) {
        if let Some(views) = self.inner().bindings.get_mut(binding) {
            for seq in done {
                views.queue.remove(seq);
                views.deferred.remove(seq);
            }
        }
    }

    fn apply(&self, change: Move) -> Pending<Moved> {
        ready(self.inner().change(change))
    }

    fn read(
        &self,
        binding: &BindingKey,
        view: View,
        after: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        let mut all = self.inner().seated(binding, view);
        all.retain(|seated| Some(seated.seq) > after);
        ready(Ok(page(all, limit)))
    }

    fn read_dead_letters(
        &self,
        binding: &BindingKey,
        which: GivenUp,
        from: ReadFrom,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>> {
        let mut all = self.inner().taken(binding, which);
        match from {
            ReadFrom::After(after) => all.retain(|seated| Some(seated.seq) > after),
            ReadFrom::Before(before) => {
                all.retain(|seated| before.is_none_or(|before| seated.seq < before));
                all.reverse();
            }
        }
        ready(Ok(page(all, limit)))
    }

    fn count_dead_letters(&self, binding: &BindingKey, which: GivenUp) -> Pending<u64> {
        ready(Ok(self.inner().taken(binding, which).len() as u64))
    }

    fn usage(&self, binding: &BindingKey) -> Usage {
        let inner = self.inner();
        let views = inner.bindings.get(binding);
        views.map_or_else(Usage::default, Views::usage)
    }

    fn bindings(&self) -> Vec<BindingKey> {
        let inner = self.inner();
        let waiting = inner
            .bindings
            .iter()
            .filter(|(_, views)| views.queue.len() + views.deferred.len() + views.dead.len() > 0);
        waiting.map(|(key, _)| key.clone()).collect()
    }

    fn flush(&self) -> Pending<()> {
        ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_conformance::StoreUnderTest;

    impl StoreUnderTest for MemoryStore {
        fn store(&self) -> &dyn Store {
            self
        }

        fn set_failing(&mut self, failing: bool) -> bool {
            let full = StoreError::Full {
                place: "memory".to_owned(),
            };
            MemoryStore::set_failing(self, failing.then_some(full));
            true
        }
    }

    crate::store_conformance_tests!(MemoryStore::new());
}
