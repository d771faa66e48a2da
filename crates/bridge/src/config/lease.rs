//! What the exclusive sessions wait for, checked.

use std::path::PathBuf;

use bridge_core::Name;
use bridge_lease::{LeaseSettings, PostgresSettings};

/// The lease of all exclusive sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Where it is written down.
    pub(crate) store: LeaseStore,
    /// Which one it is there.
    pub(crate) name: Name,
    /// Who this instance is, for people.
    pub(crate) instance_id: String,
    pub(crate) settings: LeaseSettings,
}

/// Where a lease is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseStore {
    File(PathBuf),
    Postgres(Box<PostgresSettings>),
}
