//! Where the lease of a pair is, and how it is taken away from both.

use std::time::Duration;

use bridge_testkit::Postgres;
use tempfile::TempDir;

pub(crate) enum Store {
    File(TempDir),
    Postgres(Box<Postgres>),
}

/// How it is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// Nothing is there; of a file, its folder.
    Gone,
    /// It is there and does not answer; of a file, the same.
    Silent,
}

impl Store {
    pub(crate) fn file() -> Self {
        let folder = tempfile::Builder::new().prefix("bridge-lease-").tempdir();
        let folder = folder.unwrap();
        std::fs::create_dir(folder.path().join("shared")).unwrap();
        Self::File(folder)
    }

    pub(crate) async fn postgres() -> Self {
        Self::Postgres(Box::new(Postgres::start().await))
    }

    /// A line of the configuration, for a lease that lasts so long.
    pub(crate) fn config(&self, ttl: Duration) -> String {
        let store = match self {
            Self::File(folder) => {
                let path = folder.path().join("shared/bridge.lease");
                format!("store: file, path: \"{}\"", path.display())
            }
            Self::Postgres(server) => format!(
                "store: postgres, url: \"{}\", password_file: \"{}\"",
                server.url(),
                server.password_file().display()
            ),
        };
        let ttl = ttl.as_secs();
        let times = format!("lease_ttl: {ttl}s, renew_interval: 500ms, step_down_grace: 1s");
        format!("lease: {{ {store}, {times} }}")
    }

    /// Takes it away from both.
    pub(crate) async fn take_away(&mut self, how: Away) {
        match (self, how) {
            (Self::File(folder), _) => {
                let at = |name: &str| folder.path().join(name);
                std::fs::rename(at("shared"), at("away")).unwrap();
            }
            (Self::Postgres(server), Away::Gone) => server.kill().await,
            (Self::Postgres(server), Away::Silent) => server.pause(),
        }
    }

    /// Brings it back.
    pub(crate) async fn bring_back(&mut self, how: Away) {
        match (self, how) {
            (Self::File(folder), _) => {
                let at = |name: &str| folder.path().join(name);
                std::fs::rename(at("away"), at("shared")).unwrap();
            }
            (Self::Postgres(server), Away::Gone) => server.restart().await,
            (Self::Postgres(server), Away::Silent) => server.resume(),
        }
    }
}
