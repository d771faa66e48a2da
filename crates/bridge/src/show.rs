//! Showing what came from strangers, and tables.

use std::fmt::Write as _;
use std::time::Duration;

use bridge_core::Timestamp;
use serde_json::Value;

/// A text on one line in which nothing acts on a terminal: control characters, and those that
/// change the direction of a text or cannot be seen, are written as escapes, and so is the
/// backslash.
pub(crate) fn text(text: &str) -> String {
    escaped(text, |c| c == '\\' || acts(c))
}

/// Like [`text`], with its lines and tabs kept, for where each line is indented.
pub(crate) fn lines(text: &str) -> String {
    escaped(text, |c| {
        c == '\\' || (acts(c) && !matches!(c, '\n' | '\t'))
    })
}

fn escaped(text: &str, escape: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !escape(c) => out.push(c),
            '\\' | '\n' | '\r' | '\t' => out.extend(c.escape_default()),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// Whether a character does something else than to show itself.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e01ef}'
        )
}

/// JSON for a terminal or a script: what acts on a terminal is escaped here too.
pub(crate) fn json(value: &Value) -> String {
    harmless(&format!("{value:#}\n"))
}

/// The same on one line.
pub(crate) fn json_line(value: &Value) -> String {
    harmless(&format!("{value}\n"))
}

/// JSON, already written, in which nothing acts on a terminal.
pub(crate) fn harmless(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Line ends are ours: within a string they are escaped already.
        if acts(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Bytes as a table: offset, sixteen bytes, and what of them is text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let digits: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain = |byte: &u8| {
            if byte.is_ascii_graphic() || *byte == b' ' {
                char::from(*byte)
            } else {
                '.'
            }
        };
        let text: String = chunk.iter().map(plain).collect();
        let _ = writeln!(out, "{:08x}  {:<47}  {text}", row * 16, digits.join(" "));
    }
    out
}

/// A number of things.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// What came how often: `delivered 2, refused 1`.
pub(crate) fn counts<'a>(counted: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let counted = counted.into_iter();
    let parts = counted.map(|(what, count)| format!("{} {count}", text(what)));
    parts.collect::<Vec<_>>().join(", ")
}

/// A size for people, to a tenth.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = "B";
    for next in UNITS {
        if tenths < 10 * 1024 {
            break;
        }
        tenths = (tenths + 512) / 1024;
        unit = next;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// An age for people: its two largest units.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

/// An instant, or a dash.
pub(crate) fn instant(instant: Option<Timestamp>) -> String {
    instant.map_or_else(|| "-".to_owned(), |instant| instant.to_string())
}

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Left(&'static str),
    Right(&'static str),
}

/// A table, each row indented by two spaces; the last column is not padded.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    Table::new(columns).rows(rows)
}

/// A table that comes in pieces: the first has the heads, and no column becomes narrower.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    columns: &'a [Column],
    widths: Vec<usize>,
    headed: bool,
}

impl<'a> Table<'a> {
    /// One with these columns.
    pub(crate) fn new(columns: &'a [Column]) -> Self {
        Self {
            columns,
            widths: vec![0; columns.len()],
            headed: false,
        }
    }

    /// The next rows.
    pub(crate) fn rows(&mut self, rows: &[Vec<String>]) -> String {
        let heads = (!self.headed).then(|| {
            let columns = self.columns.iter();
            let heads = columns.map(|(Column::Left(head) | Column::Right(head))| *head);
            heads.map(str::to_owned).collect::<Vec<_>>()
        });
        self.headed = true;
        for row in rows.iter().chain(&heads) {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut out = String::new();
        for row in heads.iter().chain(rows) {
            let mut line = String::new();
            for ((column, width), cell) in self.columns.iter().zip(&self.widths).zip(row) {
                let _ = match column {
                    Column::Left(_) => write!(line, "  {cell:<width$}"),
                    Column::Right(_) => write!(line, "  {cell:>width$}"),
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_acts_on_a_terminal() {
        let hostile = "a\x1b[2J\u{9b}31m\r\u{202e}gpj\u{200b}\\\n\t\u{7f}é";
        assert_eq!(
            text(hostile),
            r"a\u{1b}[2J\u{9b}31m\r\u{202e}gpj\u{200b}\\\n\t\u{7f}é"
        );
        assert!(lines(hostile).contains("\n\t"));
        assert!(!lines(hostile).contains(['\x1b', '\r', '\u{9b}']));
        let value = serde_json::json!({ "topic": hostile, "tag": "\u{e0041}\u{e0101}\u{180e}" });
        let shown = json(&value);
        assert!(shown.chars().all(|c| c == '\n' || !acts(c)), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }

    #[test]
    fn sizes_and_ages_are_for_people() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(size(bytes), shown, "{bytes}");
        }
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m 1s"),
            (3_661, "1h 1m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn bytes_are_shown_beside_their_text() {
        let shown = hex(b"0123456789abcdef\x00\xff~");
        assert_eq!(
            shown,
            "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n\
             00000010  00 ff 7e                                         ..~\n"
        );
    }
}
