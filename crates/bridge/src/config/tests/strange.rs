//! Files of garbage, of too much, and of good things spoilt.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

#[test]
fn a_maze_of_aliases_is_no_deeper_than_its_bound() {
    let mut text = "a0: &a0 x\n".to_owned();
    for level in 1..2_000 {
        let below = level - 1;
        writeln!(text, "a{level}: &a{level} [*a{below}]").unwrap();
    }
    let (config, report) = examine(&text);
    assert!(config.is_none());
    let said = report.render(Paint::Plain);
    assert!(said.contains("stand for too much"), "{said}");
}

#[test]
fn a_large_file_of_mistakes_is_refused_quickly() {
    let mut text = "sessions:\n".to_owned();
    while text.len() < 1_000_000 {
        let number = text.len();
        writeln!(
            text,
            "  s{number}: {{ url: mqtt://h, client_id: x, colour: blue }}"
        )
        .unwrap();
    }
    let started = std::time::Instant::now();
    let (config, report) = examine(&text);
    assert!(config.is_none());
    assert!(report.errors().count() <= 500);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_long_chain_of_routes_is_refused_and_not_followed_for_ever() {
    let mut text =
        "bridge: { id: b }\ndata_dir: d\nsessions:\n  s: { url: mqtt://h, client_id: x }\nroutes:\n"
            .to_owned();
    for hop in 0..3_000 {
        let next = hop + 1;
        writeln!(
            text,
            "  r{hop}: {{ from: {{ session: s, topics: [t{hop}] }}, bindings: {{ b: {{ session: s, topic: t{next} }} }} }}"
        )
        .unwrap();
    }
    let (config, report) = examine(&text);
    assert!(config.is_none());
    let said = report.render(Paint::Plain);
    assert!(said.contains("passes through 64 bindings"), "{said}");
}

#[test]
fn templates_that_double_the_topic_end() {
    let mut text =
        "bridge: { id: b }\ndata_dir: d\nsessions:\n  s: { url: mqtt://h, client_id: x }\nroutes:\n"
            .to_owned();
    for hop in 0..40 {
        let next = hop + 1;
        writeln!(
            text,
            "  r{hop}: {{ from: {{ session: s, topics: [t{hop}/#] }}, bindings: {{ b: {{ session: s, topic: \"t{next}/{{topic}}/{{topic}}\" }} }} }}"
        )
        .unwrap();
    }
    assert!(examine(&text).0.is_some());
}

/// A piece of YAML that means something here, or nothing.
fn piece() -> impl Strategy<Value = String> {
    let words = vec![
        "bridge",
        "id",
        "data_dir",
        "sessions",
        "routes",
        "from",
        "topics",
        "bindings",
        "url",
        "client_id",
        "password",
        "qos",
        "queue",
        ":",
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a",
        "!!str ",
        "|\n",
        ">-\n",
        "\"",
        "'",
        "#",
        " # ",
        "---\n",
        "?",
        "<<",
        "~",
        "${X}",
        "${",
        "$${",
        "\t",
        "\u{feff}",
        "\r\n",
        "mqtt://",
        "é",
        "🔥",
        "\\",
        "%",
        "sensors/#",
        "{topic[1]}",
        "{topic",
        "30s",
        "010",
        "null",
    ];
    prop_oneof![
        8 => prop::sample::select(words).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

/// The reference with a secret in it, and one other line of it spoilt.
fn spoilt() -> impl Strategy<Value = String> {
    let piece = prop::collection::vec(piece(), 1..4).prop_map(|pieces| pieces.concat());
    (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0..12_usize,
        piece,
    )
        .prop_map(|(line, at, length, piece)| {
            let text = sample("reference.yaml")
                .replace("${CLOUD_PASSWORD:-only-for-this-sample}", "hunter2");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let line = line.index(lines.len());
            if !lines[line].contains("hunter2") {
                let mut chars: Vec<char> = lines[line].chars().collect();
                let at = at.index(chars.len() + 1);
                let end = (at + length).min(chars.len());
                chars.splice(at..end, piece.chars());
                lines[line] = chars.into_iter().collect();
            }
            lines.join("\n")
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn i25_no_text_is_a_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        let (config, report) = examine(&pieces.concat());
        prop_assert!(config.is_some() || report.errors().count() > 0);
        report.render(Paint::Coloured);
    }

    #[test]
    fn a_secret_is_not_shown_whatever_else_is_wrong(text in spoilt()) {
        let (_, report) = examine(&text);
        let said = report.render(Paint::Plain);
        prop_assert!(!said.contains("hunter2"), "{}", said);
    }

    #[test]
    fn i25_no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (config, report) = examine_bytes(bytes);
        prop_assert!(config.is_some() || report.errors().count() > 0);
        report.render(Paint::Plain);
    }

    #[test]
    fn i25_no_change_of_a_good_file_is_a_panic(
        at in any::<prop::sample::Index>(),
        length in 0..30_usize,
        with in prop::collection::vec(piece(), 0..4),
    ) {
        let mut text: Vec<char> = sample("reference.yaml").chars().collect();
        let at = at.index(text.len());
        let end = (at + length).min(text.len());
        text.splice(at..end, with.concat().chars());
        let (config, report) = examine(&text.iter().collect::<String>());
        prop_assert!(config.is_some() || report.errors().count() > 0);
        report.render(Paint::Plain);
    }
}
