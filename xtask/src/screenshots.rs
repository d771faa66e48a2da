//! The pictures of the operator's page in the book, taken of a running bridge in a real browser.

use anyhow::Result;

use crate::step::{Report, Step};

/// The test of the bridge that writes them into `docs/src/images`.
pub(crate) fn run() -> Result<()> {
    let test = "test -p bridge --test page --locked -- --ignored --exact screenshots::screenshots";
    let mut report = Report::new(false);
    report.run(Step::cargo("screenshots", test))?;
    report.finish()
}
