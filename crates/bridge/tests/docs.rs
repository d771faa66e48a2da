//! What README and book show is true: their configurations are accepted, their commands exist.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping it"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and every chapter of the book, as (name, text).
fn pages() -> Vec<(String, String)> {
    let chapters = std::fs::read_dir(root().join("docs/src")).unwrap();
    let mut pages: Vec<PathBuf> = chapters.map(|entry| entry.unwrap().path()).collect();
    pages.push(root().join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages
        .into_iter()
        .map(|page| {
            (
                page.display().to_string(),
                std::fs::read_to_string(&page).unwrap(),
            )
        })
        .collect()
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == format!("```{language}") {
            let block: Vec<&str> = lines
                .by_ref()
                .take_while(|line| line.trim() != "```")
                .collect();
            blocks.push(block.join("\n") + "\n");
        }
    }
    blocks
}

fn bridge(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bridge"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn every_configuration_that_is_shown_is_accepted() {
    let mut seen = 0;
    for (page, text) in pages() {
        let shown = blocks(&text, "yaml");
        for block in shown.iter().filter(|block| block.starts_with("bridge:")) {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("bridge.yaml"), block).unwrap();
            let output = bridge(&["check", "bridge.yaml"], folder.path());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{page}:\n{block}\n{said}");
            seen += 1;
        }
    }
    assert!(
        seen >= 3,
        "README, first steps and configuration each show one, found {seen}"
    );
}

#[test]
fn every_command_that_is_shown_exists() {
    let mut seen = 0;
    for (page, text) in pages() {
        let lines = blocks(&text, "sh").concat();
        for line in lines.lines() {
            let command = line.split(" #").next().unwrap_or_default();
            let words: Vec<&str> = command.split_whitespace().filter(|w| *w != "&").collect();
            if words.first() != Some(&"bridge") {
                continue;
            }
            let mut arguments = words[1..].to_vec();
            arguments.push("--help");
            let output = bridge(&arguments, &root());
            assert!(output.status.success(), "{page}: {line}");
            seen += 1;
        }
    }
    assert!(
        seen >= 4,
        "the README shows check, explain and run, found {seen}"
    );
}

#[test]
fn every_chapter_is_in_the_summary_and_every_link_leads_somewhere() {
    let summary = std::fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    for (page, text) in pages() {
        let path = PathBuf::from(&page);
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !["SUMMARY.md", "README.md"].contains(&file.as_str()) {
            assert!(
                summary.contains(&format!("({file})")),
                "{file} is not in SUMMARY.md"
            );
        }
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") {
                continue;
            }
            let target = match target {
                "" => path.clone(),
                target => path.parent().unwrap().join(target),
            };
            assert!(
                target.exists(),
                "{page} links to {link}, which is not there"
            );
            assert!(
                anchor.is_empty() || anchors(&target).contains(anchor),
                "{page} links to {link}, and there is no such heading"
            );
        }
    }
}

/// What links may name of a page: its headings, as the book makes anchors of them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        heading
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// The stable names of what the sources of these crates log, but for those at the level debug.
fn events() -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    let mut folders: Vec<_> = ["bridge", "dlq-admin", "runtime", "queue", "transport"]
        .map(|name| root().join("crates").join(name).join("src"))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                let parts = text.split("event = \"");
                for (head, call) in parts.clone().zip(parts.skip(1)) {
                    let name = call.split('"').next().unwrap();
                    let head = head.trim_end();
                    if !head.ends_with("debug!(") && !name.contains(['{', ' ']) {
                        events.insert(name.to_owned());
                    }
                }
            }
        }
    }
    events
}

#[test]
fn every_event_of_the_log_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/src/operations.md")).unwrap();
    let events = events();
    assert!(events.len() > 40, "found only {events:?}");
    let missing: Vec<_> = events
        .iter()
        .filter(|event| !page.contains(&format!("`{event}`")))
        .collect();
    assert!(missing.is_empty(), "operations.md lacks {missing:?}");
}

#[test]
fn every_folder_is_in_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for parent in [root(), root().join("crates")] {
        for entry in std::fs::read_dir(&parent).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if !path.is_dir() || name.starts_with('.') || ["crates", "target"].contains(&name) {
                continue;
            }
            let shown = path.strip_prefix(root()).unwrap().display().to_string();
            assert!(readme.contains(&format!("| `{shown}` |")), "{shown}");
        }
    }
}

#[test]
fn every_decision_is_in_the_book() {
    let chapter = std::fs::read_to_string(root().join("docs/src/decisions.md")).unwrap();
    for entry in std::fs::read_dir(root().join("docs/adr")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            chapter.contains(&format!("{{{{#include ../adr/{file}}}}}")),
            "{file}"
        );
        let text = std::fs::read_to_string(root().join("docs/adr").join(&file)).unwrap();
        for link in text.lines().filter(|line| line.contains("]: ../src/")) {
            let (label, target) = link.split_once(": ../src/").unwrap();
            assert!(
                chapter.contains(&format!("{label}: {target}\n")),
                "{file}: the chapter has to say {label} again, as from where it is"
            );
        }
        assert!(
            !text.contains("](../"),
            "{file}: a link to a file leads nowhere in the book; put it below the text"
        );
    }
}
