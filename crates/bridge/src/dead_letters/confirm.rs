//! Asking the operator whether that is meant.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::bail;

/// Whether the operator says yes; an error where nobody can be asked.
pub(super) fn ask(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        bail!("there is no terminal to ask whether this is meant: say --yes ({question})");
    }
    write!(io::stderr(), "{question}? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

/// Only what cannot be meant otherwise.
fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        for yes in ["y\n", "Y\r\n", "yes", " Yes \n"] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n", "j", "yy", "yes!"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
