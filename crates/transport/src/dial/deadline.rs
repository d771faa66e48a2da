//! One deadline for all the steps of a dial.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Fault;

/// When a dial must have come to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    within: Duration,
}

impl Deadline {
    pub(super) fn after(within: Duration) -> Self {
        Self {
            at: Instant::now() + within,
            within,
        }
    }

    /// What is left of it.
    pub(super) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// The fault of a step that was not done in time.
    pub(super) fn passed(&self, doing: &'static str) -> Fault {
        Fault::TimedOut {
            doing,
            within: self.within,
        }
    }

    /// Takes one step.
    pub(super) async fn run<T>(
        &self,
        doing: &'static str,
        step: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        match timeout_at(self.at, step).await {
            Ok(result) => result,
            Err(_) => Err(self.passed(doing)),
        }
    }
}
