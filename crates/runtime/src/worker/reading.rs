//! What is read ahead of what is sent: the queue in its order, and the deferred messages.

use bridge_core::{Seq, StoreError};
use tracing::{error, warn};

use super::Worker;
use super::second_chance::{Reading, Unreadable};
use crate::mapping;
use crate::phase::{Event, Phase};

impl Worker<'_> {
    pub(super) fn cannot_read(&mut self, seq: Seq, failure: &StoreError) {
        if self.pass.cannot_read(seq) {
            error!(
                event = "unreadable",
                binding = %self.lane.key,
                seq = seq.get(),
                error = %failure,
                "a queued message cannot be read; it stays, and the others go on"
            );
        }
    }

    /// There may be something new: in the queue as well, where others can put a message.
    pub(super) fn ring(&mut self) {
        self.pass.ring();
        self.see_the_queue();
    }

    /// What is in the queue is sent before anything that has just arrived.
    pub(super) fn see_the_queue(&mut self) {
        match self.phase {
            Phase::Live => {
                let usage = self.lane.store.usage(&self.lane.key);
                if !self.pass.seems_over(&usage) {
                    let few = usage.queue.entries <= self.longest_hand_over();
                    self.on(Event::Queued { few });
                }
            }
            Phase::Replaying if self.lane.is_live() => {
                let usage = self.lane.store.usage(&self.lane.key);
                if usage.queue.entries > self.longest_hand_over() {
                    // More than what arrives is to wait for in memory.
                    self.pass.grows();
                    self.lane.recall(std::iter::empty());
                }
            }
            _ => {}
        }
    }

    pub(super) fn read_ahead(&mut self) {
        if self.context.stopping.is_cancelled() {
            return;
        }
        if self.phase.sends() {
            self.second.read_ahead(&*self.lane.store, &self.lane.key);
        }
        if self.phase == Phase::Replaying {
            let complete = self.lane.is_complete();
            self.pass
                .read_ahead(&*self.lane.store, &self.lane.key, complete);
            self.search_ahead();
        }
    }

    pub(super) fn have_read_deferred(
        &mut self,
        result: Result<(Reading, Vec<Unreadable>), StoreError>,
    ) {
        let (reading, unreadable) = match result {
            Ok(read) => read,
            Err(failure) => return self.have_read(Err(failure)),
        };
        for (seq, failure) in unreadable {
            error!(
                event = "unreadable",
                binding = %self.lane.key,
                seq = seq.get(),
                error = %failure,
                "a deferred message cannot be read; it stays, and the others go on"
            );
        }
        let Reading::Loaded(loaded) = reading else {
            return;
        };
        let clock = &self.context.clock;
        let now = (clock.wall(), clock.monotonic());
        for (seq, stored, info) in loaded {
            // One that cannot be published under the present configuration is given up on when
            // it is offered.
            let topic = mapping::topic(&stored, &self.lane.key.route, &self.lane.spec)
                .unwrap_or_else(|| stored.message.topic.clone());
            let size = stored.message.size();
            self.second.deferral.load(seq, topic, size, info, now);
        }
    }

    pub(super) fn have_read(&mut self, result: Result<(), StoreError>) {
        let Err(failure) = result else { return };
        warn!(
            event = "read_failed",
            binding = %self.lane.key,
            error = %failure,
            "the queue cannot be read; it is read again"
        );
        let delay = self.context.backoff.delay(1, rand::random());
        let until = self.context.clock.monotonic() + delay;
        self.on(Event::RefusedForNow { until });
    }
}
