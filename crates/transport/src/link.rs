//! The state of a link, seen by many.

use bridge_core::Link;
use tokio::sync::watch;

/// A value that one task sets and others wait on.
#[derive(Debug)]
pub(crate) struct Seen<T>(watch::Sender<T>);

impl<T: Copy + PartialEq> Seen<T> {
    pub(crate) fn new(initial: T) -> Self {
        Self(watch::Sender::new(initial))
    }

    pub(crate) fn get(&self) -> T {
        *self.0.borrow()
    }

    pub(crate) fn set(&self, value: T) {
        self.0.send_if_modified(|current| {
            let changed = *current != value;
            *current = value;
            changed
        });
    }

    /// Ends when the value is no longer `seen`.
    pub(crate) async fn changed(&self, seen: T) -> T {
        let mut receiver = self.0.subscribe();
        loop {
            let now = *receiver.borrow_and_update();
            if now != seen {
                return now;
            }
            // The sender is ours and outlives this borrow: an error cannot come.
            if receiver.changed().await.is_err() {
                return now;
            }
        }
    }
}

/// A link as its users see it.
pub(crate) type LinkState = Seen<Link>;
