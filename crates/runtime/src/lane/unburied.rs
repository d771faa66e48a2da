//! Dead letters of the live path that there is no room for, or not yet.

use std::sync::Arc;

use bridge_core::{DeadLetterInfo, Quantity};

use super::{Job, Lane};

impl Lane {
    /// Whether one more dead letter of `size` bytes may be kept beside those and `under_way`.
    pub(crate) fn has_room_for_a_dead_letter(&self, size: u64, under_way: Quantity) -> bool {
        let kept = self.store.usage(&self.key).dead_letters;
        let kept = Quantity {
            entries: kept.entries.saturating_add(under_way.entries),
            bytes: kept.bytes.saturating_add(under_way.bytes),
        };
        self.spec.dead_letters.have_room(&kept, size)
    }

    /// Holds a dead letter of the live path until there is room for it.
    pub(crate) fn hold_dead_letter(&self, job: Job, info: DeadLetterInfo) {
        self.lock().unburied.push_back((job, info));
    }

    /// Keeps what was held as long as there is room for it beside `under_way`.
    pub(crate) fn retry_unburied(self: &Arc<Self>, under_way: Quantity) {
        loop {
            let next = self.lock().unburied.pop_front();
            let Some((job, info)) = next else { return };
            if !self.has_room_for_a_dead_letter(job.stored.message.size(), under_way) {
                self.lock().unburied.push_front((job, info));
                return;
            }
            self.dead_letter(job, info);
        }
    }

    /// Takes one out that is held for room.
    pub(crate) fn take_unburied(&self) -> Option<Job> {
        self.lock().unburied.pop_front().map(|(job, _)| job)
    }

    /// Lets go of what is held for room: not acknowledged, it stays with its source.
    pub(crate) fn leave_unburied(&self) {
        let unburied = std::mem::take(&mut self.lock().unburied);
        drop(unburied);
    }
}
