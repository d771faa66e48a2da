//! Who a session is to its broker: every combination, and what is said of each.

use std::fmt::Write as _;

use super::*;
use crate::config::problem::{Doubt, Problem};

const MODES: [Option<&str>; 4] = [
    None,
    Some("ephemeral"),
    Some("persistent"),
    Some("exclusive"),
];
const SUFFIXES: [Option<&str>; 3] = [None, Some("hostname"), Some("nonce")];
const ASSERTED: [Option<&str>; 3] = [None, Some("true"), Some("false")];

/// A bridge whose session `a` has these further fields, and which takes these filters from it.
fn session(fields: &str, filters: &str) -> String {
    let lease = if fields.contains("exclusive") {
        "lease: { store: file, path: lease }\n"
    } else {
        ""
    };
    format!(
        "bridge: {{ id: b }}\n\
         data_dir: d\n\
         {lease}\
         sessions:\n\
         \x20 a: {{ url: mqtt://localhost, client_id: a{fields} }}\n\
         \x20 b: {{ url: mqtt://other, client_id: b }}\n\
         routes:\n\
         \x20 r: {{ from: {{ session: a, topics: [{filters}] }}, bindings: {{ out: {{ session: b }} }} }}\n"
    )
}

/// What is said of the client id of `a`, whatever else is.
fn said_of_ids(report: &Report) -> Vec<String> {
    let ours = ["client_id_suffix", "assert_stable_client_identity"];
    report
        .errors()
        .filter(|diagnostic| ours.iter().any(|field| diagnostic.path.ends_with(field)))
        .map(|diagnostic| diagnostic.problem.to_string())
        .collect()
}

#[test]
fn i16_every_combination_of_mode_suffix_and_assertion() {
    let mut table = String::new();
    for mode in MODES {
        for suffix in SUFFIXES {
            for asserted in ASSERTED {
                let mut fields = String::new();
                for (name, value) in [
                    ("session_mode", mode),
                    ("client_id_suffix", suffix),
                    ("assert_stable_client_identity", asserted),
                ] {
                    if let Some(value) = value {
                        write!(fields, ", {name}: {value}").unwrap();
                    }
                }
                let (config, report) = examine(&session(&fields, "x"));
                let said = said_of_ids(&report);
                let outcome = match &config {
                    Some(config) => {
                        let identity = &config.identities[&name("a")];
                        let session = &config.sessions[&name("a")];
                        assert_eq!(identity.client_id, session.client_id);
                        assert_eq!(identity.publisher_client_id, None, "it is only read from");
                        format!("{} as {}", identity.mode.as_str(), identity.client_id)
                    }
                    None if said.is_empty() => "refused for another reason".to_owned(),
                    None => format!("refused: {}", said.join("; ")),
                };
                let cell = |value: Option<&str>| value.unwrap_or("-").to_owned();
                writeln!(
                    table,
                    "{:10} {:8} {:5} {outcome}",
                    cell(mode),
                    cell(suffix),
                    cell(asserted)
                )
                .unwrap();
            }
        }
    }
    insta::assert_snapshot!("combinations", table);
}

/// The warnings, as texts.
fn warnings(text: &str) -> Vec<String> {
    let (config, report) = examine(text);
    assert!(config.is_some(), "{}", report.render(Paint::Plain));
    let warnings = report.warnings().map(|w| w.problem.to_string());
    warnings.collect()
}

#[test]
fn a_shared_subscription_wants_client_ids_that_differ() {
    let shared = |fields| warnings(&session(fields, "$share/g/x, k"));
    for alike in [
        "",
        ", session_mode: persistent",
        ", session_mode: ephemeral",
    ] {
        let warned = shared(alike);
        assert_eq!(warned.len(), 1, "{alike}: {warned:?}");
        assert!(warned[0].contains("would connect as `a`"), "{warned:?}");
    }
    for differing in [
        ", client_id_suffix: nonce",
        ", client_id_suffix: hostname",
        ", session_mode: persistent, client_id_suffix: hostname, assert_stable_client_identity: true",
    ] {
        assert_eq!(shared(differing), Vec::<String>::new(), "{differing}");
    }
    // What a variable makes of an id is taken for an id of its own.
    let text = session("", "$share/g/x").replace("client_id: a", "client_id: \"a-${POD:-0}\"");
    assert_eq!(warnings(&text), Vec::<String>::new());
    assert_eq!(warnings(&session("", "x")), Vec::<String>::new());
}

#[test]
fn a_shared_subscription_on_an_exclusive_session_is_pointless() {
    let (_, report) = examine(&session(", session_mode: exclusive", "$share/g/x"));
    let shared: Vec<_> = report
        .warnings()
        .filter(|w| w.problem == Problem::Doubt(Doubt::SharedExclusive))
        .collect();
    assert_eq!(shared.len(), 1, "{}", report.render(Paint::Plain));
    assert_eq!(shared[0].path, "routes.r.from.topics[0]");
}

#[test]
fn client_ids_that_some_brokers_do_not_take_are_doubted() {
    let id = |id: &str, more: &str| {
        let text = session(more, "x").replace("client_id: a", &format!("client_id: \"{id}\""));
        warnings(&text)
    };
    for sign in ['+', '#', '/'] {
        let warned = id(&format!("a{sign}b"), "");
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains(&format!("with `{sign}`")), "{warned:?}");
    }
    assert_eq!(id("Aa0-_.:", ""), Vec::<String>::new());
    assert_eq!(id("plänt 7", ""), Vec::<String>::new(), "MQTT 5 takes it");
    let old = id("plänt 7", ", protocol: 3.1.1");
    assert!(old.iter().any(|w| w.contains("with 'ä'")), "{old:?}");
    // 16 bytes and `-edge-1` are the 23 that every broker takes; one more is not.
    let hostname = ", protocol: 3.1.1, client_id_suffix: hostname";
    let long = |length| {
        let warned = id(&"x".repeat(length), hostname);
        warned.iter().any(|w| w.contains("a client id of 24 bytes"))
    };
    assert!(!long(16));
    assert!(long(17));
}

#[test]
fn a_client_id_is_measured_with_its_suffix() {
    let text = |length: usize| {
        let id = "x".repeat(length);
        session(", client_id_suffix: nonce", "x")
            .replace("client_id: a", &format!("client_id: {id}"))
    };
    // The writing connection has `-pub` behind the nonce.
    assert!(examine(&text(65_535 - 9 - 4)).0.is_some());
    let (config, report) = examine(&text(65_535 - 9 - 3));
    assert!(config.is_none());
    let problems: Vec<_> = report.errors().map(|e| e.problem.clone()).collect();
    assert_eq!(problems, [Problem::TooLongForMqtt]);
}

/// A machine with this hostname, and with no randomness.
struct Odd(&'static str);

impl Host for Odd {
    fn variable(&self, _name: &str) -> Option<Result<String, ()>> {
        None
    }

    fn hostname(&self) -> Result<String, String> {
        Ok(self.0.to_owned())
    }

    fn nonce(&self) -> Nonce {
        let circumstances = || crate::config::nonce::Circumstances {
            wall: bridge_core::Timestamp::default(),
            process: 1,
            hostname: self.0.into(),
        };
        Nonce::draw(Err("no entropy"), circumstances)
    }
}

/// What is said on such a machine, and whether it is an error.
fn said_on(host: &dyn Host, suffix: &str) -> Vec<(bool, String)> {
    let text = session(&format!(", client_id_suffix: {suffix}"), "x");
    let source = source::Source::new("bridge.yaml".to_owned(), text);
    let (_, report) = Config::examine_source(source, Path::new("bridge.yaml"), host);
    let errors = report.errors().map(|d| (true, d.problem.to_string()));
    let warnings = report.warnings().map(|d| (false, d.problem.to_string()));
    errors.chain(warnings).collect()
}

#[test]
fn i15_a_hostname_that_is_none_fails_the_start() {
    for (hostname, why) in [
        ("", "it is empty"),
        ("a\nb", "it holds the control character '\\n'"),
    ] {
        let problem = format!("the hostname cannot be used: {why}");
        assert_eq!(said_on(&Odd(hostname), "hostname"), [(true, problem)]);
    }
    for everyone in ["localhost", "localhost.localdomain"] {
        let problem = format!("the hostname is `{everyone}`, as that of many machines is");
        assert_eq!(said_on(&Odd(everyone), "hostname"), [(false, problem)]);
    }
    assert_eq!(said_on(&Odd("edge"), "hostname"), []);
}

#[test]
fn i15_a_nonce_without_randomness_is_told() {
    let said = said_on(&Odd("edge"), "nonce");
    let [(false, problem)] = said.as_slice() else {
        panic!("one warning, not {said:?}");
    };
    assert!(
        problem.contains("no randomness to give (no entropy)"),
        "{problem}"
    );
}
