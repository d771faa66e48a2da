//! Dead letters on their way out of a bridge.

use std::sync::{Arc, Weak};

use bridge_core::StoreError;

use super::scan::{Scan, Way};
use super::{Control, ControlError, DeadLetter, DeadLetterFilter, DeadLetterId, Shared};

/// Dead letters one after the other, whole, the oldest first: those that are there when it begins.
#[derive(Debug)]
pub struct Export {
    shared: Weak<Shared>,
    filter: DeadLetterFilter,
    scan: Scan,
}

/// One entry of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    /// A dead letter.
    DeadLetter(DeadLetter),
    /// One that cannot be read: as far as is known without that, the filter takes it.
    Unreadable(DeadLetterId, StoreError),
}

impl Export {
    /// The next one that the filter takes; a few are in memory at a time.
    pub async fn next(&mut self) -> Result<Option<Exported>, ControlError> {
        let shared = self.shared.upgrade();
        let shared = shared.filter(|shared| !shared.stopping.is_cancelled());
        let shared = shared.ok_or(ControlError::Stopping)?;
        while let Some((binding, seated)) = self.scan.next(&*shared.store).await? {
            let id = DeadLetterId {
                binding: binding.clone(),
                seq: seated.seq,
            };
            match DeadLetter::of(&binding, seated) {
                Ok(letter) if self.filter.takes(&letter.stored, &letter.info) => {
                    return Ok(Some(Exported::DeadLetter(letter)));
                }
                Ok(_) => {}
                Err(failure) => return Ok(Some(Exported::Unreadable(id, failure))),
            }
        }
        Ok(None)
    }
}

impl Control {
    /// Begins an export of what `filter` takes.
    pub async fn export(&self, filter: DeadLetterFilter) -> Result<Export, ControlError> {
        let shared = self.running()?;
        let bindings = shared.bindings(&filter);
        let scan = Scan::new(Way::OldestFirst, bindings, filter.given_up());
        Ok(Export {
            shared: Arc::downgrade(&shared),
            scan: scan.up_to_now(&*shared.store).await?,
            filter,
        })
    }
}
