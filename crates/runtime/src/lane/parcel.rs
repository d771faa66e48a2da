//! What a lane carries, and what it says of itself.

use std::sync::Arc;
use std::time::Duration;

use bridge_core::{DeferInfo, Placement, Seq, StoredMessage, Topic};

use crate::held::HeadHeld;
use crate::phase::Phase;
use crate::settlement::Token;

/// A message on its way through one binding, with the binding's part in its settlement.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) stored: Arc<StoredMessage>,
    pub(crate) token: Token,
    /// The monotonic instant at which it was given to the binding.
    pub(crate) given: Duration,
}

/// What is to happen with a job that goes to the store.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(super) job: Job,
    pub(super) placement: Placement,
    /// The line that it joins when it is deferred.
    pub(super) line: Option<Topic>,
    /// Whether an operator gave it, and no source.
    pub(super) by_hand: bool,
}

/// What became of a message that was to join a line of deferred ones.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Its number; `None` when it can never be stored.
    pub(crate) seq: Option<Seq>,
    pub(crate) line: Topic,
    pub(crate) size: u64,
    pub(crate) info: DeferInfo,
}

impl Parcel {
    pub(super) const fn is_dead_letter(&self) -> bool {
        matches!(self.placement, Placement::DeadLetter(_))
    }

    pub(super) fn queue(job: Job) -> Self {
        Self {
            job,
            placement: Placement::Queue,
            line: None,
            by_hand: false,
        }
    }

    /// What the worker is to know of it, if it was to be deferred.
    pub(super) fn placed(&self, seq: Option<&Seq>) -> Option<Placed> {
        let (Placement::Deferred(info), Some(line)) = (&self.placement, &self.line) else {
            return None;
        };
        Some(Placed {
            seq: seq.copied(),
            line: line.clone(),
            size: self.job.stored.message.size(),
            info: info.clone(),
        })
    }
}

/// How a worker stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) phase: Phase,
    /// Messages that the worker has taken and not settled.
    pub(crate) taken: u64,
    /// Whether the latest attempt to publish the head of the queue failed.
    pub(crate) head_failed: bool,
    /// Why, if that was a refusal.
    pub(crate) held: Option<Arc<HeadHeld>>,
    /// Entries of the queue, or deferred, that wait until they can be kept as dead letters.
    pub(crate) unburied: u64,
    /// Messages that have failed without a verdict.
    pub(crate) counted: u64,
}

/// How a binding stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    pub(crate) head_failed: bool,
    pub(crate) held: Option<Arc<HeadHeld>>,
    /// Messages that were given to the binding and have not settled.
    pub(crate) open: u64,
    /// Messages that are held until they can be kept as dead letters.
    pub(crate) unburied: u64,
    pub(crate) counted: u64,
    /// Whether an operator wants nothing sent.
    pub(crate) paused: bool,
}
