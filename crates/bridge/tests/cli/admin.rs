//! The commands that ask a bridge that runs, as far as none is needed for it.

use std::fmt::Write as _;
use std::path::Path;

use super::{bridge, folder_with, said};

#[test]
fn every_command_says_what_it_takes_and_what_its_exit_status_means() {
    let mut all = String::new();
    for command in [
        "dead-letters",
        "dead-letters list",
        "dead-letters show",
        "dead-letters redrive",
        "dead-letters delete",
        "dead-letters export",
        "dead-letters import",
        "jobs",
        "jobs list",
        "jobs show",
        "jobs cancel",
        "bindings",
        "bindings list",
        "bindings pause",
        "inject",
    ] {
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let answer = said(&bridge(Path::new("/"), &args));
        writeln!(all, "### bridge {command} --help\n{answer}").unwrap();
    }
    insta::assert_snapshot!("admin_help", all);
}

#[test]
fn what_cannot_be_asked_is_exit_2_with_the_remedy() {
    let without = "bridge: { id: b }\ndata_dir: data\nsessions: {}\nroutes: {}\n";
    let folder = folder_with(without);
    let port = "admin: { listen: \"127.0.0.1:0\", token: \"0123456789abcdef\" }\n";
    std::fs::write(folder.path().join("port.yaml"), port).unwrap();
    let token = "admin: { listen: \"127.0.0.1:1\" }\n";
    std::fs::write(folder.path().join("token.yaml"), token).unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let mut all = String::new();
    for command in [
        "dead-letters list",
        "dead-letters list --config nowhere.yaml",
        "dead-letters list --config bridge.yaml",
        "dead-letters list --config port.yaml",
        "dead-letters list --config token.yaml",
        "dead-letters list --url http://127.0.0.1:1",
        "dead-letters list --url http://127.0.0.1:1/api --token-file bridge.yaml",
        "dead-letters list --url http://127.0.0.1:1 --token-file nowhere",
        "dead-letters list --url http://127.0.0.1:1 --token-file empty",
        "dead-letters list --url https://127.0.0.1:1 --token-file empty --ca-file bridge.yaml",
        "dead-letters list . --url http://127.0.0.1:1",
        "dead-letters list --limit 5 --all",
        "dead-letters list --since yesterday",
        "dead-letters show . a~b~1 --url http://127.0.0.1:1",
        "dead-letters show a b c",
        "dead-letters redrive",
        "dead-letters redrive --yes",
        "dead-letters redrive .",
        "dead-letters redrive a~b~1 --binding b",
        "dead-letters redrive --all --binding b",
        "dead-letters redrive --all --wait 2m",
        "dead-letters redrive --all --offline --wait 2s",
        "dead-letters redrive --all --offline --url http://127.0.0.1:1",
        "dead-letters redrive --all --offline",
        "dead-letters delete a~b~1 --dry-run",
        "bindings pause nobinding",
        "bindings pause route/",
        "jobs show 1",
        "inject route topic/# x",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let output = bridge(folder.path(), &args);
        assert_eq!(output.status.code(), Some(2), "{command}");
        writeln!(all, "### bridge {command}\n{}", said(&output)).unwrap();
    }
    insta::assert_snapshot!("admin_wrong", all);
}
