//! The text of a configuration file: where a byte is, and how a line may be shown.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use super::problem::Problem;

/// The largest file that is read: a bridge of a thousand routes stays far below.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024;

/// A file's name and text.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Source {
    name: String,
    text: String,
    /// What is never shown.
    secret: Vec<Range<usize>>,
}

/// A text that cannot be used, and the byte where it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) source: Source,
    pub(crate) at: usize,
    pub(crate) problem: Problem,
}

/// A line and a column, both from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl fmt::Debug for Source {
    /// The name alone: there may be secrets in the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.name).finish()
    }
}

impl Source {
    pub(crate) fn new(name: String, text: String) -> Self {
        Self {
            name,
            text,
            secret: Vec::new(),
        }
    }

    /// Reads `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<Unusable>> {
        let name = path.display().to_string();
        let fail = |problem| {
            Box::new(Unusable {
                source: Self::new(name.clone(), String::new()),
                at: 0,
                problem,
            })
        };
        let file =
            File::open(path).map_err(|error| fail(Problem::CannotRead(error.to_string())))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(fail(Problem::Directory));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| fail(Problem::CannotRead(error.to_string())))?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
            return Err(fail(Problem::TooLarge));
        }
        Self::decode(name, bytes)
    }

    /// Takes `bytes` as UTF-8, with or without a byte order mark.
    pub(crate) fn decode(name: String, bytes: Vec<u8>) -> Result<Self, Box<Unusable>> {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                // Up to there the lossy text is the text.
                return Err(Box::new(Unusable {
                    source: Self::new(name, text).masking_words(),
                    at: valid,
                    problem: Problem::NotUtf8,
                }));
            }
        };
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        Ok(Self::new(name, text))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Never shows what stands in `range`.
    pub(crate) fn hide(&mut self, range: Range<usize>) {
        self.secret.push(range);
    }

    /// Hides what follows a word that announces a secret, or a URL with a user info or a query, to
    /// the end of its line: for a text that could not be understood well enough to know what is a secret
    /// in it.
    pub(crate) fn masking_words(mut self) -> Self {
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            let lower = line.to_ascii_lowercase();
            let url = lower
                .find("://")
                .filter(|at| lower.get(*at..).is_some_and(|l| l.contains(['@', '?'])));
            let word = [
                "pass", "pwd", "secret", "token", "header", "authoriz", "cookie", "-key",
            ]
            .iter()
            .filter_map(|word| Some(lower.find(word)? + word.len()))
            .chain(url.map(|at| at + 3))
            .min();
            if let Some(word) = word {
                self.secret.push(at + word..at + line.trim_end().len());
            }
            at += line.len();
        }
        self
    }

    /// Where the byte `at` is.
    pub(crate) fn place(&self, at: usize) -> Place {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(start..).unwrap_or_default().chars().count() + 1;
        Place { line, column }
    }

    /// The line that holds the byte `at`, with secrets and control characters replaced one for
    /// one, so that columns stay true.
    pub(crate) fn line(&self, at: usize) -> String {
        let at = at.min(self.text.len());
        let before = self.text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = self.text.get(start..).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        line.char_indices()
            .map(|(offset, c)| {
                if self.secret.iter().any(|s| s.contains(&(start + offset))) {
                    '•'
                } else if c.is_control() {
                    if c == '\t' { '→' } else { '·' }
                } else {
                    c
                }
            })
            .collect()
    }

    /// How many characters of `range` are on its first line, at least 1.
    pub(crate) fn width(&self, range: &Range<usize>) -> usize {
        let text = self.text.get(range.clone()).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        first.trim_end().chars().count().max(1)
    }
}
