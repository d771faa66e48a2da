//! Which messages under way set the retained value of their topic, and which of them no longer should.
//!
//! A broker retains the last one that it accepts, and that is to be the newest (I08). The messages of
//! one topic are offered for the first time in the order in which they came. Where a newer one is
//! accepted while an older one is not done with, unanswered or kept to be offered again, the older one
//! is overtaken: it follows without its retain flag.

use std::collections::{BTreeMap, HashMap};

use bridge_core::{MessageId, Topic};

/// From its first offer until it is done with, every message that asks to be retained.
#[derive(Debug, Default)]
pub(super) struct Retained {
    places: HashMap<MessageId, u64>,
    /// By their place in the order of the first offers.
    open: BTreeMap<u64, Open>,
    next: u64,
}

#[derive(Debug)]
struct Open {
    topic: Topic,
    overtaken: bool,
}

impl Retained {
    /// A message is offered that asks to be retained as the value of `topic`. Says whether a newer
    /// one already is.
    pub(super) fn offered(&mut self, id: MessageId, topic: &Topic) -> bool {
        let Self { places, open, next } = self;
        let place = *places.entry(id).or_insert_with(|| {
            *next += 1;
            *next
        });
        let overtaken = false;
        let topic = topic.clone();
        open.entry(place)
            .or_insert(Open { topic, overtaken })
            .overtaken
    }

    /// It was accepted. Says of which topic it is the retained value now, if it is.
    pub(super) fn accepted(&mut self, id: MessageId) -> Option<Topic> {
        let place = self.places.remove(&id)?;
        let accepted = self.open.remove(&place)?;
        if accepted.overtaken {
            return None;
        }
        let older = self.open.range_mut(..place).map(|(_, open)| open);
        for older in older.filter(|older| older.topic == accepted.topic) {
            older.overtaken = true;
        }
        Some(accepted.topic)
    }

    /// It is done with in another way, or deferred. Says whether a newer one was accepted.
    pub(super) fn forget(&mut self, id: MessageId) -> bool {
        let place = self.places.remove(&id);
        let open = place.and_then(|place| self.open.remove(&place));
        open.is_some_and(|open| open.overtaken)
    }
}

#[cfg(test)]
mod tests {
    use bridge_core::Timestamp;

    use super::*;

    fn id(n: u8) -> MessageId {
        MessageId::new(Timestamp::from_millis(1), [n; 10])
    }

    #[test]
    fn i08_an_older_one_that_is_not_done_with_is_overtaken_by_each_that_is_accepted() {
        let (a, b) = (Topic::parse("a").unwrap(), Topic::parse("b").unwrap());
        let mut retained = Retained::default();
        for (n, topic) in [(1, &a), (2, &b), (3, &a), (4, &a)] {
            assert!(!retained.offered(id(n), topic));
        }
        assert_eq!(retained.accepted(id(3)), Some(a.clone()));
        assert!(retained.offered(id(1), &a), "it comes again after 3");
        assert!(!retained.offered(id(2), &b), "another topic");
        assert!(!retained.offered(id(4), &a), "newer than 3");
        assert_eq!(
            retained.accepted(id(1)),
            None,
            "it went without its retain flag"
        );
        assert!(!retained.forget(id(2)));
        assert_eq!(retained.accepted(id(4)), Some(a));
        assert!(retained.places.is_empty() && retained.open.is_empty());
    }
}
