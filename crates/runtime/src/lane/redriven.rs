//! Room in the queue for what is redriven: a redrive is refused where there is none, so that it
//! never costs a message that waits, and never goes beyond the bounds (I13).

use super::Lane;

impl Lane {
    /// Keeps room in the queue for a message of `size` bytes, if there is any: what waits for room
    /// already goes first.
    pub(crate) fn reserve(&self, size: u64) -> bool {
        let mut state = self.lock();
        let room = state.held.is_empty() && self.has_room(&state, size);
        if room {
            state.reserved.entries += 1;
            state.reserved.bytes += size;
        }
        room
    }

    /// Gives back room that was kept: the message is in the queue, or does not come.
    pub(crate) fn release(&self, size: u64) {
        let mut state = self.lock();
        state.reserved.entries = state.reserved.entries.saturating_sub(1);
        state.reserved.bytes = state.reserved.bytes.saturating_sub(size);
    }
}
