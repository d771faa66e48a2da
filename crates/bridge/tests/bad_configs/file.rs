//! The file and its YAML.

use std::fmt::Write as _;

use super::{GOOD, after, check, check_in, refused, with};

#[test]
fn the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder.yaml")).unwrap();
    let mut all = String::new();
    for file in ["folder.yaml", "missing.yaml"] {
        let (said, satisfied) = check_in(folder.path(), file);
        assert!(!satisfied);
        writeln!(all, "### {file}\n\n{said}").unwrap();
    }
    let mut not_utf8 = GOOD.as_bytes().to_vec();
    not_utf8.splice(17..17, *b"\xff\xfe");
    let huge = vec![b'#'; 1024 * 1024 + 1];
    let utf16: Vec<u8> = GOOD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: [(&str, &[u8]); 8] = [
        ("an empty file", b""),
        ("nothing but comments", b"# later\n"),
        ("nothing", b"~\n"),
        ("not UTF-8", &not_utf8),
        ("UTF-16", &utf16),
        ("too large", &huge),
        ("a zero byte", b"bridge: { id: a\0b }\n"),
        ("no YAML at all", b"\x7fELF\x02\x01\x01\n"),
    ];
    all += &refused(cases);
    insta::assert_snapshot!("file", all);
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_taken() {
    for text in [format!("\u{feff}{GOOD}"), GOOD.replace('\n', "\r\n")] {
        let (said, satisfied) = check(text.as_bytes());
        assert!(satisfied, "{said}");
    }
}

#[test]
fn anchors_are_followed() {
    let text = with(
        "session: cloud",
        "session: cloud\n        queue: &q { max_entries: 5 }\n      more:\n        session: cloud\n        queue: *q",
    );
    let (said, satisfied) = check(text.as_bytes());
    assert!(satisfied, "{said}");
}

#[test]
fn yaml() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, two) in "abcdefghi".chars().zip("bcdefghij".chars()) {
        let line = vec![format!("*{one}"); 10].join(", ");
        writeln!(laughs, "{two}: &{two} [{line}]").unwrap();
    }
    let deep = format!("bridge: {}{}", "[".repeat(5_000), "]".repeat(5_000));
    let cases = [
        (
            "a tab as indentation",
            with("  id: plant-7", "\tid: plant-7"),
        ),
        (
            "a tab further in",
            with(
                "    url: mqtt://localhost:1883",
                "  \turl: mqtt://localhost:1883",
            ),
        ),
        (
            "an unclosed bracket",
            with(r#"["sensors/#"]"#, r#"["sensors/#""#),
        ),
        (
            "an unclosed quote",
            with(r#""plants/7/{topic}""#, r#""plants/7/{topic}"#),
        ),
        (
            "wrong indentation",
            with("  id: plant-7", "  id: plant-7\n    x: y"),
        ),
        (
            "a template without quotes",
            with(r#"topic: "plants/7/{topic}""#, "topic: {topic}"),
        ),
        (
            "a value that holds a colon",
            with("client_id: plant-7-up", "client_id: plant: up"),
        ),
        (
            "a secret in a broken line",
            with("client_id: plant-7-up", "password: hunter2: x"),
        ),
        (
            "a duplicate key",
            after("data_dir: /var/lib/bridge", "data_dir: /tmp"),
        ),
        (
            "a duplicate session",
            with(
                "routes:",
                "  plant: { url: mqtt://localhost, client_id: x }\nroutes:",
            ),
        ),
        ("two documents", format!("{GOOD}---\n{GOOD}")),
        (
            "a merge key",
            with("  id: plant-7", "  <<: { id: x }\n  id: plant-7"),
        ),
        ("a tag", with(" id: plant-7", " id: !!str plant-7")),
        (
            "a tag of one's own",
            with("client_id: plant-7-up", "client_id: !env UP"),
        ),
        (
            "a list as a key",
            with("  id: plant-7", "  [a, b]: c\n  id: plant-7"),
        ),
        ("an unknown alias", with(" id: plant-7", " id: *nobody")),
        ("an alias of itself", with(" id: plant-7", " id: &a [*a]")),
        ("aliases that explode", laughs),
        ("brackets without end", deep),
        ("a list as the whole", "- bridge\n- data_dir\n".to_owned()),
        ("a text as the whole", "bridge\n".to_owned()),
    ];
    insta::assert_snapshot!("yaml", refused(cases));
}
