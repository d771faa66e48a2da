//! Messages of which someone waits to hear what becomes of them.
//!
//! Nothing is kept of a message that no one waits for, and nothing of any once it was told (I20).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::{MessageId, Reason, Seq};
use tokio::sync::oneshot;

use super::Lane;
use crate::metrics::DropPolicy;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// The destination accepted it.
    Delivered,
    /// It is a dead letter, of that number.
    Dead(Seq, Reason),
    /// It is deferred.
    Deferred,
    /// A policy dropped it.
    Dropped(DropPolicy),
}

/// The messages of one binding that are watched.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// How many, so that a worker that no one watches takes no lock.
    count: AtomicUsize,
    watched: Mutex<Register>,
}

#[derive(Debug, Default)]
struct Register {
    by_id: HashMap<MessageId, Waiting>,
    /// Those on their way to another view, which is told of by their numbers.
    by_seq: HashMap<Seq, MessageId>,
}

#[derive(Debug)]
struct Waiting {
    tell: oneshot::Sender<Came>,
    seq: Option<Seq>,
}

impl Register {
    fn remove(&mut self, id: MessageId) -> Option<Waiting> {
        let waiting = self.by_id.remove(&id)?;
        if let Some(seq) = waiting.seq {
            self.by_seq.remove(&seq);
        }
        Some(waiting)
    }
}

/// A wait for what becomes of a message; dropped, no one waits for it any more.
#[derive(Debug)]
pub(crate) struct Watched {
    lane: Arc<Lane>,
    id: MessageId,
    came: oneshot::Receiver<Came>,
}

impl Watch {
    fn with<T>(&self, change: impl FnOnce(&mut Register) -> Option<T>) -> Option<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut register = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut register);
        self.count.store(register.by_id.len(), Ordering::Release);
        result
    }

    /// The message has come to its end here.
    pub(crate) fn tell(&self, id: MessageId, came: Came) {
        if let Some(waiting) = self.with(|register| register.remove(id)) {
            // Who waited may have gone.
            let _ = waiting.tell.send(came);
        }
    }

    /// The message is on its way to another view; what is told of the number is told of it.
    pub(crate) fn moves(&self, id: MessageId, seq: Seq) {
        self.with(|register| {
            register.by_id.get_mut(&id)?.seq = Some(seq);
            register.by_seq.insert(seq, id)
        });
    }

    /// The message that was on its way under that number is there.
    pub(crate) fn tell_of(&self, seq: Seq, came: Came) {
        let waiting = self.with(|register| {
            let id = register.by_seq.remove(&seq)?;
            register.remove(id)
        });
        if let Some(waiting) = waiting {
            let _ = waiting.tell.send(came);
        }
    }
}

impl Lane {
    /// Watches a message that is about to come.
    pub(crate) fn watch(self: &Arc<Self>, id: MessageId) -> Watched {
        let (tell, came) = oneshot::channel();
        let watch = &self.watched;
        let mut register = watch.watched.lock().unwrap_or_else(PoisonError::into_inner);
        register.by_id.insert(id, Waiting { tell, seq: None });
        watch.count.store(register.by_id.len(), Ordering::Release);
        drop(register);
        Watched {
            lane: self.clone(),
            id,
            came,
        }
    }
}

impl Watched {
    /// Ends when the message has come to its end; `None` if it never will.
    pub(crate) async fn came(mut self) -> Option<Came> {
        (&mut self.came).await.ok()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.lane.watched.with(|register| register.remove(self.id));
    }
}
