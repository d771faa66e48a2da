//! `Dockerfile` and `.dockerignore`.

use std::process::Command;

use crate::{USER, read, root};

/// The words behind an instruction, with lines that go on in the next joined.
fn instructions(name: &str) -> Vec<String> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let lines = lines.filter_map(|rest| rest.strip_prefix(' '));
    lines.map(|rest| rest.trim().to_owned()).collect()
}

/// The words of an instruction in its exec form.
fn words(list: &str) -> Vec<String> {
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{list}: {error}"))
}

#[test]
fn the_image_is_built_with_the_oldest_rust_that_the_workspace_takes_and_keeps_nothing_of_it() {
    let manifest = read("Cargo.toml");
    let version = manifest.split("rust-version = \"").nth(1).unwrap();
    let version = version.split('"').next().unwrap();
    let stages = instructions("FROM");
    assert_eq!(stages.len(), 2, "{stages:?}");
    assert_eq!(stages[0], format!("rust:{version}-slim-bookworm AS build"));
    for copied in &instructions("COPY")[1..] {
        let from_build = copied.starts_with("--from=build ") && copied.contains(" /out/");
        assert!(from_build, "{copied}");
    }
}

#[test]
fn the_image_has_a_user_in_digits_and_commands_that_exist() {
    assert_eq!(instructions("USER"), [format!("{USER}:{USER}")]);
    let [entry] = <[String; 1]>::try_from(instructions("ENTRYPOINT")).unwrap();
    let [command] = <[String; 1]>::try_from(instructions("CMD")).unwrap();
    let [check] = <[String; 1]>::try_from(instructions("HEALTHCHECK")).unwrap();
    let check = check.split_once(" CMD ").unwrap().1.trim();
    let installed = words(&entry);
    for line in [[installed.clone(), words(&command)].concat(), words(check)] {
        assert_eq!(line[0], installed[0]);
        let help = Command::new(env!("CARGO_BIN_EXE_bridge"))
            .args(&line[1..])
            .arg("--help")
            .output()
            .unwrap();
        assert!(help.status.success(), "{line:?}");
    }
}

/// By name, as Docker reads it: the last line that fits decides.
#[test]
fn the_build_gets_what_it_reads_and_no_secrets_or_history() {
    let rules = read(".dockerignore");
    let rules: Vec<&str> = rules
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert_eq!(rules[0], "**", "all that is not named is left out");
    for needed in ["Cargo.toml", "Cargo.lock", "crates", "xtask"] {
        assert!(rules.contains(&format!("!{needed}").as_str()), "{needed}");
        assert!(root().join(needed).exists(), "{needed}");
    }
    assert!(rules.contains(&"**/target"), "gigabytes");
    assert_eq!(rules.iter().filter(|rule| rule.starts_with('!')).count(), 4);
}
