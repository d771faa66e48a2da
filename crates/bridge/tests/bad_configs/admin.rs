//! The listener of the admin API.

use std::fmt::Write as _;

use bridge_testkit::Authority;

use super::{GOOD, check_in, refused};

const TOKEN: &str = "token: 0123456789abcdef";

fn admin(fields: &str) -> String {
    format!("{GOOD}admin: {{ {fields} }}\n")
}

#[test]
fn listeners_and_tokens() {
    let cases = [
        ("nothing that opens it", format!("{GOOD}admin: {{}}\n")),
        ("a short token", admin("token: hunter2")),
        (
            "a token with a space",
            admin("token: \"hunter2 hunter2 hunter2\""),
        ),
        ("an empty variable", admin("token: \"${EMPTY}\"")),
        (
            "two tokens",
            admin("token: hunter2-hunter2-hunter2, token_file: /run/secrets/admin"),
        ),
        (
            "a token file that is not there",
            admin("token_file: missing"),
        ),
        (
            "a name",
            admin(&format!("listen: \"localhost:8080\", {TOKEN}")),
        ),
        ("a port alone", admin(&format!("listen: 8080, {TOKEN}"))),
        ("no certificate", admin(&format!("tls: {{}}, {TOKEN}"))),
        (
            "half a pair",
            admin(&format!("tls: {{ certificate_file: missing }}, {TOKEN}")),
        ),
        (
            "a field of a session",
            admin(&format!("tls: {{ ca_file: missing }}, {TOKEN}")),
        ),
        ("a misspelt field", admin("token_flie: x")),
    ];
    insta::assert_snapshot!("admin", refused(cases));
}

#[test]
fn files_and_doubts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("short"), "hunter2\n").unwrap();
    std::fs::write(path("empty"), "\n").unwrap();
    std::fs::write(path("good"), "0123456789-abcdef\n").unwrap();
    let authority = Authority::new();
    let (one, other) = (authority.server(), authority.server());
    std::fs::copy(&one.certificate, path("one.pem")).unwrap();
    std::fs::copy(&one.key, path("one.key")).unwrap();
    std::fs::copy(&other.key, path("other.key")).unwrap();
    let tls = |certificate: &str, key: &str| {
        format!("token_file: good, tls: {{ certificate_file: {certificate}, key_file: {key} }}")
    };
    let mut all = String::new();
    for (name, fields, good) in [
        ("a short token", "token_file: short".to_owned(), false),
        ("an empty file", "token_file: empty".to_owned(), false),
        ("the key of another", tls("one.pem", "other.key"), false),
        ("a key as certificate", tls("one.key", "one.key"), false),
        (
            "no encryption, and not on this machine",
            "listen: \"0.0.0.0:8080\", token_file: good".to_owned(),
            true,
        ),
        (
            "the same, encrypted",
            format!("listen: \"[::]:8080\", {}", tls("one.pem", "one.key")),
            true,
        ),
        (
            "on this machine",
            "listen: \"[::ffff:127.0.0.2]:8080\", token_file: good".to_owned(),
            true,
        ),
    ] {
        std::fs::write(path("bridge.yaml"), admin(&fields)).unwrap();
        let (said, satisfied) = check_in(folder.path(), "bridge.yaml");
        assert_eq!(satisfied, good, "{name}: {said}");
        writeln!(all, "### {name}\n\n{said}").unwrap();
    }
    insta::assert_snapshot!("admin_files", all);
}
