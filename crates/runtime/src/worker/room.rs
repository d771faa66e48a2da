//! Room in the queue: what is held for it, and what gives way.

use bridge_core::{ReadLimit, View};

use super::Worker;
use crate::lane::Came;
use crate::metrics::DropPolicy;

impl Worker<'_> {
    /// Stores what is held, and drops the oldest for it where the configuration says so.
    pub(super) async fn make_room(&mut self) {
        let now = self.context.clock.monotonic();
        let failures = self.lane.store_failures();
        if failures == 0 {
            self.retry_store_at = None;
        } else if self.retry_store_at.is_none() {
            self.retry_store_at = Some(now + self.context.backoff.delay(failures, rand::random()));
        }
        if self.retry_store_at.is_some_and(|at| now < at) {
            return;
        }
        self.retry_store_at = None;
        while let Some(needed) = self.lane.retry_held() {
            if !self.drop_oldest(needed).await {
                break;
            }
        }
    }

    /// Drops queued messages that are not under way, oldest first, until `needed` bytes are free.
    /// Says whether any could be dropped.
    async fn drop_oldest(&mut self, needed: u64) -> bool {
        let limit = ReadLimit {
            entries: 16,
            bytes: needed.max(1),
        };
        let oldest = self
            .lane
            .store
            .read(&self.lane.key, View::Queue, self.pass.sent_to(), limit);
        let Ok(oldest) = oldest.await else {
            return false;
        };
        let mut dropped = false;
        for entry in oldest {
            if self.pass.is_leaving(entry.seq) {
                continue;
            }
            let usage = self.lane.store.usage(&self.lane.key);
            if self.lane.spec.queue.have_room(&usage.queue, needed) {
                break;
            }
            self.lane.store.settle(&self.lane.key, &[entry.seq]);
            self.lane.metrics.dropped_queued(DropPolicy::Oldest);
            if let Ok(stored) = &entry.message {
                self.forget(stored.id);
                let dropped = Came::Dropped(DropPolicy::Oldest);
                self.lane.watched.tell(stored.id, dropped);
            }
            self.pass.forget(entry.seq);
            dropped = true;
        }
        dropped
    }
}
