//! One pass through a binding's queue, from its head: what was read ahead and what was sent.

use std::collections::{BTreeSet, VecDeque};
use std::future::pending;

use bridge_core::{BindingKey, Pending, ReadLimit, Seated, Seq, Store, StoreError, Usage, View};

/// How much is read ahead of the window.
const READ_AHEAD: ReadLimit = ReadLimit {
    entries: 512,
    bytes: 4 * 1024 * 1024,
};

/// Where a pass stands.
#[derive(Default)]
pub(super) struct Pass {
    /// Entries that were read and not yet sent.
    ahead: VecDeque<Seated>,
    reading: Option<Pending<Vec<Seated>>>,
    /// Entries that left the queue while a read was under way, which may still bring them.
    gone: BTreeSet<Seq>,
    /// Up to where the queue was read.
    read_to: Option<Seq>,
    /// Up to where the queue was sent.
    sent_to: Option<Seq>,
    /// The end of the queue was seen.
    exhausted: bool,
    /// The read under way began when nothing more was put into the queue, or on its way there.
    reading_the_last: bool,
    /// Such a read has seen the end: all that was in the queue by then has been read.
    seen_all: bool,
    /// Something may have been stored since the latest read began.
    rung: bool,
    /// Entries on their way to another view, or sent before their turn: not to be sent in it.
    leaving: BTreeSet<Seq>,
    /// Fewer are leaving than when that was last asked.
    fewer_leaving: bool,
    /// Entries of which the store says that they cannot be read: they stay, others go on.
    unreadable: BTreeSet<Seq>,
}

impl Pass {
    /// Begins at the head again.
    pub(super) fn rewind(&mut self) {
        *self = Self {
            leaving: std::mem::take(&mut self.leaving),
            fewer_leaving: self.fewer_leaving,
            ..Self::default()
        };
    }

    /// There may be something new to read.
    pub(super) fn ring(&mut self) {
        self.rung = true;
        self.exhausted = false;
    }

    /// What arrives is put into the queue again.
    pub(super) fn grows(&mut self) {
        self.reading_the_last = false;
        self.seen_all = false;
    }

    /// Reads on when little is left of what was read, and the end was not seen; it is seen for good
    /// when `complete`: nothing more is put into the queue, and nothing on its way there.
    pub(super) fn read_ahead(&mut self, store: &dyn Store, binding: &BindingKey, complete: bool) {
        let enough = self.ahead.len() >= READ_AHEAD.entries / 2;
        let seen = self.exhausted && (self.seen_all || !complete);
        if self.reading.is_none() && !seen && !enough {
            self.rung = false;
            self.reading_the_last = complete;
            self.reading = Some(store.read(binding, View::Queue, self.read_to, READ_AHEAD));
        }
    }

    /// Ends with the outcome of the read under way; never, when there is none.
    pub(super) async fn read(&mut self) -> Result<(), StoreError> {
        let result = match &mut self.reading {
            Some(reading) => reading.await,
            None => pending().await,
        };
        self.reading = None;
        let gone = std::mem::take(&mut self.gone);
        let entries = result?;
        self.exhausted = entries.is_empty() && !self.rung;
        self.seen_all = entries.is_empty() && self.reading_the_last;
        if let Some(last) = entries.last() {
            self.read_to = Some(last.seq);
        }
        let still_there = |entry: &Seated| !gone.contains(&entry.seq);
        self.ahead.extend(entries.into_iter().filter(still_there));
        Ok(())
    }

    /// The next entry to send.
    pub(super) fn next(&mut self) -> Option<Seated> {
        while let Some(entry) = self.ahead.pop_front() {
            if !self.leaving.contains(&entry.seq) {
                self.sent_to = Some(entry.seq);
                return Some(entry);
            }
        }
        None
    }

    /// An entry that was taken out of its turn is still in its place.
    pub(super) fn stays(&mut self, seq: Seq) {
        self.leaves_no_more(seq);
    }

    fn leaves_no_more(&mut self, seq: Seq) {
        self.fewer_leaving |= self.leaving.remove(&seq);
    }

    /// Whether fewer are leaving than at the last call: what they have hidden in the number of
    /// entries may be seen now.
    pub(super) fn are_fewer_leaving(&mut self) -> bool {
        std::mem::take(&mut self.fewer_leaving)
    }

    /// Forgets what was read and not sent.
    pub(super) fn discard(&mut self) {
        self.ahead.clear();
    }

    /// The last entry that was sent: what comes after it is not under way.
    pub(super) const fn sent_to(&self) -> Option<Seq> {
        self.sent_to
    }

    /// The entry is no longer in the queue, and not to be sent.
    pub(super) fn forget(&mut self, seq: Seq) {
        self.ahead.retain(|entry| entry.seq != seq);
        if self.reading.is_some() {
            self.gone.insert(seq);
        }
    }

    /// The entry is on its way to another view, or is sent before its turn, until it
    /// [has left][Pass::has_left] or [stays][Pass::stays].
    pub(super) fn leaves(&mut self, seq: Seq) {
        self.leaving.insert(seq);
    }

    pub(super) fn is_leaving(&self, seq: Seq) -> bool {
        self.leaving.contains(&seq)
    }

    /// The entry is in the queue no longer.
    pub(super) fn has_left(&mut self, seq: Seq) {
        self.leaves_no_more(seq);
        self.forget(seq);
    }

    /// Remembers an entry that cannot be read. Says whether it is the first time in this pass.
    pub(super) fn cannot_read(&mut self, seq: Seq) -> bool {
        self.unreadable.insert(seq)
    }

    /// Whether a queue with `usage` seems to hold nothing that could still be sent or is under way.
    /// An entry that has left by the store's count, and is not known to have, hides another one.
    pub(super) fn seems_over(&self, usage: &Usage) -> bool {
        let known = self.leaving.len() + self.unreadable.len();
        usage.queue.entries <= known as u64
    }

    /// Whether it is so: while entries move, the end of the queue has to have been seen. Else a read
    /// that looks for more need not be waited for.
    pub(super) fn is_over(&self, usage: &Usage, are_moving: bool) -> bool {
        let seen_all = self.seen_all && self.ahead.is_empty();
        self.seems_over(usage) && (!are_moving || seen_all)
    }

    /// Nothing more is wanted of the queue for now.
    pub(super) fn end(&mut self) {
        self.reading = None;
        self.seen_all = false;
        self.gone.clear();
        self.ahead.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn entries(numbers: &[u64]) -> Vec<Seated> {
        let entry = |number: &u64| Seated {
            seq: Seq::new(*number),
            message: Err(StoreError::Closed),
            deferred: None,
            dead_letter: None,
        };
        numbers.iter().map(entry).collect()
    }

    fn sent(pass: &mut Pass) -> Vec<u64> {
        std::iter::from_fn(|| pass.next())
            .map(|entry| entry.seq.get())
            .collect()
    }

    fn queue_of(entries: u64) -> Usage {
        let mut usage = Usage::default();
        usage.queue.entries = entries;
        usage
    }

    #[tokio::test]
    async fn i11_what_has_just_left_hides_nothing_that_has_just_come() {
        let mut pass = Pass::default();
        pass.leaves(Seq::new(1));
        // That it is the one that leaves is not known before the end was seen.
        assert!(pass.is_over(&queue_of(1), false) && !pass.is_over(&queue_of(1), true));
        pass.reading = Some(Box::pin(ready(Ok(entries(&[2])))));
        pass.reading_the_last = true;
        pass.read().await.unwrap();
        assert!(!pass.is_over(&queue_of(1), true));
        assert_eq!(sent(&mut pass), [2]);
        pass.reading = Some(Box::pin(ready(Ok(entries(&[])))));
        pass.read().await.unwrap();
        assert!(pass.is_over(&queue_of(1), true) && !pass.is_over(&queue_of(2), false));
        pass.grows();
        assert!(!pass.is_over(&queue_of(1), true));
        assert!(!pass.are_fewer_leaving());
        pass.has_left(Seq::new(1));
        assert!(pass.are_fewer_leaving() && !pass.are_fewer_leaving());
        assert!(!pass.seems_over(&queue_of(1)));
    }

    #[tokio::test]
    async fn i24_what_is_dropped_while_it_is_being_read_is_not_sent_as_well() {
        let mut pass = Pass {
            reading: Some(Box::pin(ready(Ok(entries(&[1, 2, 3]))))),
            ..Pass::default()
        };
        pass.forget(Seq::new(1));
        pass.read().await.unwrap();
        assert_eq!(sent(&mut pass), [2, 3]);
    }

    #[tokio::test]
    async fn i09_what_becomes_a_dead_letter_after_it_was_read_again_is_not_sent_as_well() {
        let mut pass = Pass::default();
        pass.leaves(Seq::new(1));
        pass.leaves(Seq::new(2));
        pass.rewind();
        pass.reading = Some(Box::pin(ready(Ok(entries(&[1, 2, 3])))));
        pass.has_left(Seq::new(1));
        pass.read().await.unwrap();
        pass.has_left(Seq::new(2));
        assert_eq!(sent(&mut pass), [3]);
    }
}
