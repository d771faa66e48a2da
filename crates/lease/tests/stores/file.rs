//! The lease in a file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Clock, ManualClock, Timestamp};
use bridge_lease::{AcquireError, FileLease, LeaseStore, StoreFailure, TenureError};
use tempfile::TempDir;

use super::contract::{self, Party, Place, TTL, requirements};

/// A folder that all share.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn record(&self) -> std::path::PathBuf {
        self.0.path().join("lease")
    }

    fn party(&self, clock: &Arc<ManualClock>) -> Party {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        let mut party = Party::new(self, "plant-7");
        party.store = self.open(clock);
        party
    }
}

impl Place for Folder {
    fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn LeaseStore> {
        Arc::new(FileLease::new(self.record(), clock))
    }
}

macro_rules! conforms {
    ($($requirement:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $requirement() {
            contract::$requirement(&Folder::new(), "plant-7").await;
        })*
    };
}
requirements!(conforms);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_millis(1_764_486_000_000)))
}

fn unusable(error: &AcquireError) -> String {
    match error {
        AcquireError::Store(StoreFailure::Unusable { .. }) => error.to_string(),
        other => panic!("not unusable: {other:?}"),
    }
}

#[tokio::test]
async fn i18_no_wall_clock_makes_a_lease_run_out() {
    let folder = Folder::new();
    let (a_clock, b_clock) = (clock(), clock());
    let (a, b) = (folder.party(&a_clock), folder.party(&b_clock));
    let token = a.acquire().await.unwrap();
    for wall in [0, 4_000_000_000_000] {
        b_clock.set_wall(Timestamp::from_millis(wall));
        a_clock.set_wall(Timestamp::from_millis(4_000_000_000_000 - wall));
        assert_eq!(b.refused().await.remaining, TTL);
        a.store.renew(&a.claim, token).await.unwrap();
    }
    b.refused().await;
    b_clock.advance(TTL.saturating_sub(Duration::from_millis(1)));
    b.refused().await;
    b_clock.advance(Duration::from_millis(1));
    assert!(b.acquire().await.unwrap() > token);
}

#[tokio::test]
async fn i18_a_damaged_file_is_given_to_nobody_and_says_what_to_do() {
    let folder = Folder::new();
    let (a_clock, b_clock) = (clock(), clock());
    let (a, b) = (folder.party(&a_clock), folder.party(&b_clock));
    let first = a.acquire().await.unwrap();
    for damage in [&b""[..], b"bridge-lease 1\n", b"\xff\xfe", &[b'x'; 5_000]] {
        fs::write(folder.record(), damage).unwrap();
        b_clock.advance(10 * TTL);
        let said = unusable(&b.acquire().await.unwrap_err());
        assert!(
            said.contains("/lease") && said.contains("remove the file"),
            "{said}"
        );
        let renewed = a.store.renew(&a.claim, first).await;
        assert!(matches!(renewed, Err(TenureError::Store(_))), "{renewed:?}");
    }
    // As it says: removed, and looked at for as long as whoever had it may still believe so.
    fs::remove_file(folder.record()).unwrap();
    let error = b.acquire().await.unwrap_err().to_string();
    assert!(error.contains("was removed"), "{error}");
    assert_eq!(a.store.renew(&a.claim, first).await, Err(TenureError::Lost));
    b_clock.advance(TTL);
    assert!(b.acquire().await.unwrap() > first, "tokens go on growing");
}

#[tokio::test]
async fn a_file_that_holds_another_lease_is_not_taken() {
    let folder = Folder::new();
    Party::new(&folder, "plant-7").acquire().await.unwrap();
    let error = Party::new(&folder, "plant-8").acquire().await.unwrap_err();
    assert!(unusable(&error).contains("a file of its own"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_missing_is_said_with_the_remedy_and_works_once_it_is_there() {
    let folder = Folder::new();
    let missing = folder.0.path().join("volume");
    let mut a = Party::new(&folder, "plant-7");
    let store = FileLease::new(missing.join("lease"), clock());
    a.store = Arc::new(store);
    let said = unusable(&a.acquire().await.unwrap_err());
    assert!(said.contains("create the folder"), "{said}");
    fs::create_dir(&missing).unwrap();
    a.acquire().await.unwrap();
}

#[tokio::test]
async fn a_place_where_no_file_can_be_is_said() {
    let folder = Folder::new();
    let a = Party::new(&folder, "plant-7");
    let mut b = Party::new(&folder, "plant-7");
    let store = FileLease::new("/dev/full/lease", clock());
    b.store = Arc::new(store);
    let said = unusable(&b.acquire().await.unwrap_err());
    assert!(said.contains("/dev/full"), "{said}");
    let b = FileLease::new("/proc/self/lease", clock());
    assert!(b.acquire(&a.claim).await.is_err());
    a.acquire().await.unwrap();
}

#[tokio::test]
async fn the_files_are_for_the_bridge_s_user_and_group_and_nothing_else_is_left_behind() {
    let folder = Folder::new();
    let a = Party::new(&folder, "plant-7");
    let left = folder
        .0
        .path()
        .join(format!("lease.{}.new", a.claim.owner.boot()));
    let strange = folder.0.path().join("lease.of-mine.new");
    fs::write(&left, "by a process that was killed").unwrap();
    fs::write(&strange, "not ours").unwrap();
    let token = a.acquire().await.unwrap();
    a.store.renew(&a.claim, token).await.unwrap();
    let mut found: Vec<_> = fs::read_dir(folder.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, ["lease", "lease.lock", "lease.of-mine.new"]);
    for file in ["lease", "lease.lock"] {
        let mode = fs::metadata(folder.0.path().join(file))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o137, 0, "{file}: {:o}", mode.mode());
    }
    fs::set_permissions(folder.record(), Permissions::from_mode(0o400)).unwrap();
    a.store.renew(&a.claim, token).await.unwrap();
}
