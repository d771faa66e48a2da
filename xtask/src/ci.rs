//! What has to pass before a change is taken.

use anyhow::Result;
use bridge_testkit::find_program;

use crate::setup;
use crate::step::{Report, Step};

/// Runs every step in turn.
///
/// What fails fast comes first. Clippy and the tests share nothing that is compiled, but all
/// steps use the profile `dev`, so nothing is built a third time for a flag.
pub(crate) fn run(keep_going: bool) -> Result<()> {
    setup::run()?;
    let mut report = Report::new(keep_going);
    report.run(Step::cargo("format", "fmt --all --check"))?;
    report.run(Step::cargo(
        "lints",
        "clippy --workspace --all-targets --locked -- -D warnings",
    ))?;
    // The service build: without the demo and its embedded broker.
    report.run(Step::cargo(
        "lints, service",
        "clippy -p bridge --all-targets --no-default-features --locked -- -D warnings",
    ))?;
    // `--workspace` runs the examples in the documentation as well.
    // A snapshot that differs is a failure here, and leaves no file behind.
    report.run(Step::cargo("tests", "test --workspace --locked").env("INSTA_UPDATE", "no"))?;
    report.run(Step::cargo("admin API", "xtask schemathesis"))?;
    report.run(
        Step::cargo("documentation", "doc --workspace --no-deps --locked")
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    if find_program("cargo-deny").is_some() {
        report.run(Step::cargo("dependencies", "deny --all-features check"))?;
    } else {
        report.skip("dependencies", "cargo-deny is not installed");
    }
    if find_program("mdbook").is_some() {
        report.run(Step::new("book", "mdbook", "build docs"))?;
    } else {
        report.skip("book", "mdbook is not installed");
    }
    report.finish()
}
