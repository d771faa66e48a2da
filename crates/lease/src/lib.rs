//! Who may own an exclusive session.
//!
//! Instances that must never be connected at the same time share a lease: [`LeaseStore`] is the
//! contract of where it is written down, [`FileLease`] and [`PostgresLease`] are two such places.
//! A [`Keeper`] acquires the lease, renews it and lets it go, and is the
//! [`Permit`](bridge_core::Permit) that an exclusive session asks before it connects and before each
//! write (I18).
//!
//! This crate knows nothing of sessions: that they are closed by `until`, and that nothing is
//! written from the `fence` on, is the transport's part.
//!
//! ```
//! use std::sync::Arc;
//! use bridge_core::{Clock, Name, Permission, Permit, SystemClock};
//! use bridge_lease::{FileLease, Keeper, LeaseSettings, Owner};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("lease");
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
//! let store = Arc::new(FileLease::new(path, Arc::clone(&clock)));
//! let (name, owner) = (Name::parse("plant-7")?, Owner::new("bridge-0")?);
//! let keeper = Keeper::start(store, name, owner, LeaseSettings::default(), Arc::clone(&clock));
//!
//! let permission = keeper.changed(Permission::Withheld).await;
//! assert!(permission.to_connect(clock.monotonic()).is_some());
//! // … and when the sessions have closed:
//! keeper.release().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod keeper;
mod observation;
mod owner;
mod postgres;
mod settings;
mod store;
mod tenure;

pub use file::FileLease;
pub use keeper::{Keeper, LeaseStats, Role};
pub use owner::{InvalidOwner, Owner};
pub use postgres::{DatabasePassword, InvalidPostgresUrl, PostgresLease, PostgresSettings};
pub use settings::{InvalidSettings, LeaseSettings};
pub use store::{AcquireError, Claim, Holder, LeaseStore, StoreFailure, TenureError, Token};
