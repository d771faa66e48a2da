//! How problems are shown: with the line of the file, a mark under the place, and the remedy.

use std::fmt::{self, Write as _};
use std::ops::Range;

use super::problem::Problem;
use super::source::{Place, Source};

/// A problem and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) place: Place,
    pub(crate) span: Range<usize>,
    /// As in `routes.telemetry.bindings.cloud.topic`; empty for the file as a whole.
    pub(crate) path: String,
    pub(crate) problem: Problem,
}

impl Diagnostic {
    pub(crate) fn new(source: &Source, span: &Range<usize>, path: &str, problem: Problem) -> Self {
        Self {
            place: source.place(span.start),
            span: span.clone(),
            path: path.to_owned(),
            problem,
        }
    }
}

/// What is wrong with a configuration, and what is doubtful.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    source: Source,
    diagnostics: Vec<Diagnostic>,
}

/// A doubtful thing in a configuration that can be used all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    file: String,
    diagnostic: Diagnostic,
}

impl Warning {
    /// Whether a session says the same in the log, for each of its connections.
    pub(crate) const fn is_told_by_its_session(&self) -> bool {
        self.diagnostic.problem.is_told_by_its_session()
    }
}

impl fmt::Display for Warning {
    /// On one line, for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column } = self.diagnostic.place;
        write!(f, "{}:{line}:{column}: ", self.file)?;
        if !self.diagnostic.path.is_empty() {
            write!(f, "{}: ", printable(&self.diagnostic.path))?;
        }
        f.write_str(&printable(&self.diagnostic.problem.to_string()))
    }
}

/// Why a configuration cannot be used: everything that is wrong with it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigErrors(pub(crate) Report);

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.render(Paint::Plain))
    }
}

/// Whether to colour what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Coloured,
}

impl Paint {
    pub(crate) fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("1;33", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("1;32", text)
    }

    pub(crate) fn blue(self, text: &str) -> String {
        self.with("1;34", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

impl Report {
    pub(crate) fn new(source: Source, diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            source,
            diagnostics,
        }
    }

    /// A report of one problem.
    pub(crate) fn single(source: Source, span: &Range<usize>, problem: Problem) -> Self {
        let diagnostic = Diagnostic::new(&source, span, "", problem);
        Self::new(source, vec![diagnostic])
    }

    pub(crate) fn file(&self) -> &str {
        self.source.name()
    }

    pub(crate) fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|d| !d.problem.is_warning())
    }

    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|d| d.problem.is_warning())
    }

    /// The warnings by themselves, each with its file.
    pub(crate) fn to_warnings(&self) -> Vec<Warning> {
        self.warnings()
            .map(|diagnostic| Warning {
                file: self.file().to_owned(),
                diagnostic: diagnostic.clone(),
            })
            .collect()
    }

    /// All of it for people, with a last line that counts.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut out = String::new();
        for diagnostic in &self.diagnostics {
            out.push_str(&self.render_one(diagnostic, paint));
            out.push('\n');
        }
        let counts: Vec<String> = [
            (self.errors().count(), "error"),
            (self.warnings().count(), "warning"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
        .collect();
        if !counts.is_empty() {
            let _ = writeln!(out, "{}: {}", self.file(), counts.join(", "));
        }
        out
    }

    fn render_one(&self, diagnostic: &Diagnostic, paint: Paint) -> String {
        let Place { line, column } = diagnostic.place;
        let title = if diagnostic.problem.is_warning() {
            paint.yellow("warning")
        } else {
            paint.red("error")
        };
        let message = paint.bold(&printable(&format!(": {}", diagnostic.problem)));
        let file = self.file();
        // Writing into a String cannot fail.
        let mut out = format!("{title}{message}\n");
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let bar = paint.blue("|");
        if self.source.text().is_empty() {
            let _ = writeln!(out, "{margin}{} {file}", paint.blue("-->"));
        } else {
            let text = self.source.line(diagnostic.span.start);
            let (text, column_shown) = shortened(&text, column);
            let available = text.chars().count() + 1 - column_shown.min(text.chars().count());
            let width = self.source.width(&diagnostic.span).min(available).max(1);
            let mark = "^".repeat(width);
            let mark = if diagnostic.problem.is_warning() {
                paint.yellow(&mark)
            } else {
                paint.red(&mark)
            };
            let indent = " ".repeat(column_shown - 1);
            let _ = writeln!(out, "{margin}{} {file}:{line}:{column}", paint.blue("-->"));
            let _ = writeln!(out, "{margin} {bar}");
            let _ = writeln!(out, "{} {bar} {text}", paint.blue(&number));
            let _ = writeln!(out, "{margin} {bar} {indent}{mark}");
        }
        if !diagnostic.path.is_empty() {
            let path = printable(&diagnostic.path);
            let _ = writeln!(out, "{margin} {} field: {path}", paint.blue("="));
        }
        for note in diagnostic.problem.notes() {
            let note = printable(&note);
            let _ = writeln!(out, "{margin} {} note: {note}", paint.blue("="));
        }
        if let Some(remedy) = diagnostic.problem.remedy() {
            let _ = writeln!(
                out,
                "{margin} {} help: {}",
                paint.blue("="),
                printable(&remedy)
            );
        }
        out
    }
}

/// A key may hold anything, and a terminal obeys control characters.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '·' } else { c };
    text.chars().map(shown).collect()
}

/// A very long line is cut around the place that it is shown for.
fn shortened(line: &str, column: usize) -> (String, usize) {
    const WIDTH: usize = 160;
    if line.chars().count() <= WIDTH {
        return (line.to_owned(), column.max(1));
    }
    let skip = column.saturating_sub(WIDTH / 2);
    let text: String = line.chars().skip(skip).take(WIDTH).collect();
    (text, (column - skip).max(1))
}
