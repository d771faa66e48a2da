//! The lease of the exclusive sessions, and who this instance is.

use std::fmt::Write as _;

use super::{after, check, check_in, refused, with};

/// The good configuration with an exclusive session and this lease.
fn lease(fields: &str) -> String {
    let exclusive = after("    client_id: plant-7-up", "    session_mode: exclusive");
    exclusive.replace("sessions:", &format!("lease:\n{fields}\nsessions:"))
}

const FILE: &str = "  store: file\n  path: bridge.lease";

#[test]
fn what_makes_no_lease_is_refused() {
    let postgres = |url: &str| lease(&format!("  store: postgres\n  url: {url}"));
    let file = |more: &str| lease(&format!("{FILE}\n{more}"));
    let instance = |id: &str| {
        lease(FILE).replace(
            "  id: plant-7\n",
            &format!("  id: plant-7\n  instance_id: {id}\n"),
        )
    };
    insta::assert_snapshot!(
        "lease",
        refused([
            (
                "an exclusive session without a lease",
                after("    client_id: plant-7-up", "    session_mode: exclusive"),
            ),
            (
                "a lease that no session waits for",
                with("sessions:", &format!("lease:\n{FILE}\nsessions:")),
            ),
            ("a lease that is nowhere", lease("  lease_ttl: 10s")),
            ("another store", lease("  store: redis")),
            ("a file without its path", lease("  store: file")),
            ("a file that is a folder", lease("  store: file\n  path: .")),
            ("an empty path", lease("  store: file\n  path: \"\"")),
            ("a database without its URL", lease("  store: postgres")),
            (
                "a file with what is the database's",
                file("  url: postgres://bridge@db/leases\n  password: hunter2"),
            ),
            (
                "a database with what is the file's",
                lease(
                    "  store: postgres\n  url: postgres://bridge@db/leases\n  path: bridge.lease"
                ),
            ),
            (
                "a password in the URL",
                postgres("postgres://bridge:hunter2@db/leases")
            ),
            (
                "a URL of something else",
                postgres("mysql://bridge@db/leases")
            ),
            ("no user", postgres("postgres://db/leases")),
            (
                "encryption that verifies nothing",
                postgres("postgres://bridge@db/leases?sslmode=prefer"),
            ),
            ("what a variable holds", postgres("${BROKER}")),
            (
                "a password in the clear",
                postgres("postgres://bridge@db/leases?sslmode=disable\n  password: hunter2"),
            ),
            (
                "two passwords",
                postgres("postgres://bridge@db/leases\n  password: a\n  password_file: b"),
            ),
            (
                "a password that is not there",
                postgres("postgres://bridge@db/leases\n  password_file: nowhere"),
            ),
            (
                "an authority for what is not encrypted",
                postgres("postgres://bridge@localhost/leases\n  ca_file: bridge.yaml"),
            ),
            ("a name that is none", file("  name: plant 7")),
            (
                "times that do not fit",
                file("  lease_ttl: 10s\n  renew_interval: 5s\n  step_down_grace: 1s"),
            ),
            (
                "a grace that is too small",
                file("  lease_ttl: 5m\n  step_down_grace: 1s"),
            ),
            ("an instance without a name", instance("\"\"")),
            (
                "an instance with white space around its name",
                instance("\" plant\"")
            ),
        ])
    );
}

#[test]
fn a_password_in_the_clear_can_be_allowed_and_is_doubtful() {
    let (said, satisfied) = check(
        lease(
            "  store: postgres\n  url: postgres://bridge@db/leases?sslmode=disable\n  \
             password: hunter2\n  allow_plaintext_credentials: true",
        )
        .as_bytes(),
    );
    assert!(satisfied, "{said}");
    insta::assert_snapshot!("lease_doubtful", said);
}

#[test]
fn a_lease_may_be_in_a_file_or_in_a_database() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    let mut all = String::new();
    for fields in [
        FILE,
        "  store: postgres\n  url: postgres://bridge@db/leases\n  password_file: password",
        "  store: postgres\n  url: postgres://bridge@%2Frun%2Fpostgresql/leases\n  name: other",
    ] {
        std::fs::write(folder.path().join("bridge.yaml"), lease(fields)).unwrap();
        let (said, satisfied) = check_in(folder.path(), "bridge.yaml");
        assert!(satisfied, "{said}");
        write!(all, "{said}").unwrap();
    }
    assert_eq!(all.lines().count(), 3, "nothing is doubtful: {all}");
}
