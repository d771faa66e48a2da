//! Deleting dead letters for good.

use bridge_core::{MessageId, StoreError};

use super::mover::{Outcome, Wanted};
use super::redrive::ask;
use super::{DeadLetterId, Shared};

/// What came of the delete of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteResult {
    /// Which one.
    pub id: DeadLetterId,
    /// What.
    pub outcome: DeleteOutcome,
}

/// What came of the delete of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone for good.
    Deleted,
    /// There is no such dead letter.
    NotFound,
    /// It was redriven before.
    AlreadyRedriven {
        /// The id of its message since then.
        message_id: MessageId,
    },
    /// The store failed on it: the entry stays.
    StoreFailed(StoreError),
    /// The bridge stops: the entry stays.
    Stopping,
    /// The bridge stopped before the store had answered: the journal knows whether the entry is
    /// gone.
    Unanswered,
}

impl DeleteOutcome {
    /// The word for it in the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::NotFound => "not_found",
            Self::AlreadyRedriven { .. } => "already_redriven",
            Self::StoreFailed(_) => "store_failed",
            Self::Stopping => "stopping",
            Self::Unanswered => "unanswered",
        }
    }

    /// Whether the entry is gone.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Deleted)
    }
}

/// Deletes one entry.
pub(super) async fn delete_one(shared: &Shared, id: &DeadLetterId) -> DeleteOutcome {
    let outcome = ask(shared, id, Wanted::Delete).await;
    match outcome.await.unwrap_or(Outcome::Unanswered) {
        Outcome::Done(_) => DeleteOutcome::Deleted,
        Outcome::AlreadyRedriven(message_id) => DeleteOutcome::AlreadyRedriven { message_id },
        // The others are those of redrives.
        Outcome::NotFound | Outcome::BindingNotFound | Outcome::QueueFull => {
            DeleteOutcome::NotFound
        }
        Outcome::Failed(failure) => DeleteOutcome::StoreFailed(failure),
        Outcome::Stopping => DeleteOutcome::Stopping,
        Outcome::Unanswered => DeleteOutcome::Unanswered,
    }
}
