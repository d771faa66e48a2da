//! What the errors of a file system mean for whoever runs the bridge.

use bridge_core::{Name, SystemClock};

use super::*;
use crate::Owner;

fn shared(path: &Path) -> FileLease {
    FileLease::new(path, Arc::new(SystemClock::new()))
}

fn claim() -> Claim {
    Claim {
        name: Name::parse("plant-7").unwrap(),
        owner: Owner::new("a").unwrap(),
        ttl: Duration::from_secs(10),
    }
}

#[test]
fn each_error_that_a_person_can_mend_says_how() {
    let lease = shared(Path::new("/var/lib/shared/lease"));
    for (kind, remedy) in [
        (
            io::ErrorKind::StorageFull,
            "free some space on the volume of /var/lib/shared",
        ),
        (io::ErrorKind::QuotaExceeded, "free some space"),
        (
            io::ErrorKind::ReadOnlyFilesystem,
            "so that it can be written",
        ),
        (
            io::ErrorKind::PermissionDenied,
            "let the bridge's user read and write in /var/lib/shared",
        ),
        (io::ErrorKind::NotFound, "create the folder /var/lib/shared"),
    ] {
        let failure = lease.shared.failure(Failure {
            step: "write",
            path: "/var/lib/shared/lease.new".into(),
            error: kind.into(),
        });
        assert!(
            matches!(failure, StoreFailure::Unusable { .. }),
            "{failure}"
        );
        assert!(failure.to_string().contains(remedy), "{failure}");
    }
    let failure = lease.shared.failure(Failure {
        step: "read",
        path: "/var/lib/shared/lease".into(),
        error: io::Error::from_raw_os_error(116),
    });
    assert!(
        matches!(failure, StoreFailure::Unreachable { .. }),
        "a stale NFS handle: {failure}"
    );
}

#[tokio::test]
async fn a_record_that_cannot_be_replaced_stays_whole_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let lease = shared(&folder.path().join("lease"));
    let claim = claim();
    let token = lease.acquire(&claim).await.unwrap();
    // The lock cannot be opened, as it is a folder now.
    let lock = folder.path().join("lease.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let before = std::fs::read(lease.path()).unwrap();
    let renewed = lease.renew(&claim, token).await;
    assert!(matches!(renewed, Err(TenureError::Store(_))), "{renewed:?}");
    assert_eq!(std::fs::read(lease.path()).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    std::fs::remove_dir(&lock).unwrap();
    lease.renew(&claim, token).await.unwrap();
}

#[tokio::test]
async fn while_another_replaces_the_record_one_waits() {
    let folder = tempfile::tempdir().unwrap();
    let lease = shared(&folder.path().join("lease"));
    let claim = claim();
    let token = lease.acquire(&claim).await.unwrap();
    let lock = std::fs::File::open(folder.path().join("lease.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let patience = Duration::from_millis(50);
    let renewing = tokio::time::timeout(patience, lease.renew(&claim, token)).await;
    assert!(renewing.is_err(), "{renewing:?}");
    // And if it takes too long, it is said who is in the way.
    let said = lease.renew(&claim, token).await.unwrap_err().to_string();
    assert!(said.contains("lease.lock and does not go on"), "{said}");
    drop(lock);
    lease.renew(&claim, token).await.unwrap();
}
