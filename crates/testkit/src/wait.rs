//! Waiting for a condition with a deadline, in place of sleeping.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const PACE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds; fails the test when it does not within `deadline`.
///
/// # Panics
/// With `what` in the message, when the deadline passes.
pub async fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, deadline, async || condition().then_some(())).await;
}

/// Waits until `probe` yields something, and hands that back.
///
/// # Panics
/// With `what` in the message, when the deadline passes.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(
            Instant::now() < end,
            "waited {deadline:?} in vain for: {what}"
        );
        sleep(PACE).await;
    }
}
