use std::fs;
use std::os::unix::fs::symlink;

use bridge_testkit::Authority;
use tempfile::TempDir;

use super::super::tests::{origin, proving};
use super::*;
use crate::Secret;

/// A look as the watch takes it: whether it ends, and of what it complains.
async fn look(ring: &mut Ring, seen: &mut Glimpse) -> (bool, Option<KeyError>) {
    let mut told = None;
    let renewed = ring.renewed(seen, |error| told = Some(error.clone())).await;
    (renewed, told)
}

async fn password(ring: &mut Ring) -> String {
    let keys = ring.take(|_| ()).await.unwrap();
    keys.password
        .as_ref()
        .map(Secret::expose)
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn other_keys_are_believed_when_they_are_seen_twice() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    fs::write(&path, "old").unwrap();
    let mut ring = Ring::new(origin(None, Some(&path)));
    let mut seen = Glimpse::default();
    assert_eq!(password(&mut ring).await, "old");
    assert_eq!(look(&mut ring, &mut seen).await, (false, None));
    fs::write(&path, "ne").unwrap();
    assert_eq!(look(&mut ring, &mut seen).await, (false, None));
    fs::write(&path, "new").unwrap();
    assert_eq!(
        look(&mut ring, &mut seen).await,
        (false, None),
        "it changes"
    );
    assert_eq!(look(&mut ring, &mut seen).await, (true, None));
    assert_eq!(password(&mut ring).await, "new");
    assert_eq!(look(&mut ring, &mut seen).await, (false, None));
}

#[tokio::test]
async fn a_file_written_again_with_the_same_content_renews_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    fs::write(&path, "old").unwrap();
    let mut ring = Ring::new(origin(None, Some(&path)));
    password(&mut ring).await;
    fs::remove_file(&path).unwrap();
    fs::write(&path, "old").unwrap();
    let mut seen = Glimpse::default();
    for _ in 0..3 {
        assert_eq!(look(&mut ring, &mut seen).await, (false, None));
    }
}

#[tokio::test]
async fn keys_that_are_gone_or_bad_are_told_once_and_the_old_stay_in_use() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    fs::write(&path, "old").unwrap();
    let mut ring = Ring::new(origin(None, Some(&path)));
    let mut seen = Glimpse::default();
    password(&mut ring).await;
    fs::remove_file(&path).unwrap();
    let (renewed, told) = look(&mut ring, &mut seen).await;
    assert!(!renewed && matches!(told, Some(KeyError::Unreadable { .. })));
    assert_eq!(look(&mut ring, &mut seen).await, (false, None), "told once");
    assert_eq!(password(&mut ring).await, "old");
    fs::write(&path, "").unwrap();
    let (_, told) = look(&mut ring, &mut seen).await;
    assert!(
        matches!(told, Some(KeyError::Empty { .. })),
        "another reason"
    );
}

#[tokio::test]
async fn case_24_half_a_pair_is_not_used_and_the_old_stays_until_the_other_half_comes() {
    let authority = Authority::new();
    let old = authority.client_until("plant-7", 2031, 1, 1);
    let new = authority.client_until("plant-7", 2041, 1, 1);
    let mut ring = Ring::new(origin(Some(proving(&authority, &old)), None));
    let mut seen = Glimpse::default();
    let first = ring.take(|_| ()).await.unwrap();
    old.replace_certificate_with(&new);
    let (renewed, told) = look(&mut ring, &mut seen).await;
    assert!(!renewed && matches!(told, Some(KeyError::HalfPair { .. })));
    let mut told = None;
    let still = ring.take(|error| told = Some(error.clone())).await.unwrap();
    assert_eq!(told, None, "it was told before");
    assert_eq!(still.certificate_expiry, first.certificate_expiry);
    old.replace_key_with(&new);
    assert_eq!(look(&mut ring, &mut seen).await, (false, None));
    assert_eq!(look(&mut ring, &mut seen).await, (true, None));
    let renewed = ring.take(|_| ()).await.unwrap();
    assert!(renewed.certificate_expiry > first.certificate_expiry);
}

#[tokio::test]
async fn without_keys_in_use_bad_ones_are_an_error() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("password");
    let mut ring = Ring::new(origin(None, Some(&path)));
    let error = ring.take(|_| panic!("it is returned")).await.unwrap_err();
    assert!(matches!(error, KeyError::Unreadable { .. }));
    fs::write(&path, "now").unwrap();
    assert_eq!(password(&mut ring).await, "now");
}

#[tokio::test]
async fn a_folder_that_is_swapped_as_a_whole_is_seen() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, password) in [("1", "old"), ("2", "new")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("password"), password).unwrap();
    }
    // As Kubernetes mounts a Secret: the file is a link into a folder that is a link.
    symlink("1", at("data")).unwrap();
    symlink("data/password", at("password")).unwrap();
    let mut ring = Ring::new(origin(None, Some(&at("password"))));
    let mut seen = Glimpse::default();
    assert_eq!(password(&mut ring).await, "old");
    symlink("2", at("next")).unwrap();
    fs::rename(at("next"), at("data")).unwrap();
    assert_eq!(look(&mut ring, &mut seen).await, (false, None));
    assert_eq!(look(&mut ring, &mut seen).await, (true, None));
    assert_eq!(password(&mut ring).await, "new");
}
