//! When a delivery has settled: one right to acknowledge, shared by the bindings that it waits for.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::Acknowledge;
use tokio::sync::OwnedSemaphorePermit;

/// A delivery that waits for some bindings to settle (I07).
#[derive(Debug)]
struct Settlement {
    waiting_for: AtomicUsize,
    acknowledge: Mutex<Option<Box<dyn Acknowledge>>>,
    /// The delivery's share of what may be unsettled; given back when it is over.
    _share: OwnedSemaphorePermit,
}

/// One binding's part in a settlement. Dropped unused, the message is left with its source.
pub(crate) struct Token(Arc<Settlement>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Makes the tokens for `bindings` bindings. With none, the delivery is acknowledged at once.
pub(crate) fn tokens(
    acknowledge: Box<dyn Acknowledge>,
    share: OwnedSemaphorePermit,
    bindings: usize,
) -> Vec<Token> {
    if bindings == 0 {
        acknowledge.settled();
        return Vec::new();
    }
    let settlement = Arc::new(Settlement {
        waiting_for: AtomicUsize::new(bindings),
        acknowledge: Mutex::new(Some(acknowledge)),
        _share: share,
    });
    (0..bindings).map(|_| Token(settlement.clone())).collect()
}

impl Token {
    /// The binding has settled. The last one acknowledges the delivery.
    pub(crate) fn settled(self) {
        if self.0.waiting_for.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(acknowledge) = self.take()
        {
            acknowledge.settled();
        }
    }

    /// The binding could not settle: the source shall deliver the message again.
    pub(crate) fn leave(self) {
        if let Some(acknowledge) = self.take() {
            acknowledge.leave();
        }
    }

    fn take(&self) -> Option<Box<dyn Acknowledge>> {
        self.0
            .acknowledge
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::Semaphore;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Counted(Arc<(AtomicU32, AtomicU32)>);

    impl Acknowledge for Counted {
        fn settled(self: Box<Self>) {
            self.0.0.fetch_add(1, Ordering::SeqCst);
        }
        fn leave(self: Box<Self>) {
            self.0.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Counted {
        fn counts(&self) -> (u32, u32) {
            (
                self.0.0.load(Ordering::SeqCst),
                self.0.1.load(Ordering::SeqCst),
            )
        }
    }

    fn three(counted: &Counted, shares: &Arc<Semaphore>) -> [Token; 3] {
        let share = shares.clone().try_acquire_owned().unwrap();
        tokens(Box::new(counted.clone()), share, 3)
            .try_into()
            .unwrap()
    }

    #[test]
    fn i07_the_source_is_acknowledged_after_the_last_binding_has_settled() {
        let (counted, shares) = (Counted::default(), Arc::new(Semaphore::new(1)));
        let [a, b, c] = three(&counted, &shares);
        a.settled();
        b.settled();
        assert_eq!(counted.counts(), (0, 0));
        assert_eq!(shares.available_permits(), 0);
        c.settled();
        assert_eq!(counted.counts(), (1, 0));
        assert_eq!(shares.available_permits(), 1);
    }

    #[test]
    fn what_one_binding_leaves_is_never_acknowledged() {
        let (counted, shares) = (Counted::default(), Arc::new(Semaphore::new(1)));
        let [a, b, c] = three(&counted, &shares);
        a.settled();
        b.leave();
        c.settled();
        assert_eq!(counted.counts(), (0, 1));
        assert_eq!(shares.available_permits(), 1);
    }

    #[test]
    fn a_token_that_is_dropped_acknowledges_nothing() {
        let (counted, shares) = (Counted::default(), Arc::new(Semaphore::new(1)));
        let [a, b, c] = three(&counted, &shares);
        a.settled();
        drop(b);
        c.settled();
        assert_eq!(counted.counts(), (0, 0));
        assert_eq!(shares.available_permits(), 1);
    }

    #[test]
    fn a_delivery_that_no_binding_wants_is_acknowledged_at_once() {
        let (counted, shares) = (Counted::default(), Arc::new(Semaphore::new(1)));
        let share = shares.clone().try_acquire_owned().unwrap();
        assert!(tokens(Box::new(counted.clone()), share, 0).is_empty());
        assert_eq!(counted.counts(), (1, 0));
    }
}
