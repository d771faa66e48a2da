//! Text for a terminal: lines of styled pieces, cut to a width, with or without colours.

use std::fmt::Write as _;
use std::time::Duration;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Strong,
    Quiet,
    Good,
    Waiting,
    Bad,
    Accent,
}

impl Style {
    /// The parameters of the escape sequence "select graphic rendition" (ECMA-48 §8.3.117).
    const fn sgr(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Strong => "1",
            Self::Quiet => "2",
            Self::Good => "32",
            Self::Waiting => "33",
            Self::Bad => "1;31",
            Self::Accent => "36",
        }
    }
}

/// One line of styled pieces. Every character is taken to be one column wide.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    pieces: Vec<(Style, String)>,
}

impl Line {
    /// An empty line.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a piece.
    pub(crate) fn with(mut self, style: Style, text: impl Into<String>) -> Self {
        self.pieces.push((style, text.into()));
        self
    }

    /// How many columns it takes.
    #[cfg(test)]
    pub(crate) fn width(&self) -> usize {
        let widths = self.pieces.iter().map(|(_, text)| text.chars().count());
        widths.sum()
    }

    /// The line as text of at most `width` columns.
    pub(crate) fn render(&self, width: usize, colours: bool) -> String {
        let mut out = String::new();
        let mut left = width;
        for (style, text) in &self.pieces {
            let text: String = text.chars().take(left).collect();
            left -= text.chars().count();
            if colours && *style != Style::Plain && !text.trim().is_empty() {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "\u{1b}[{}m{text}\u{1b}[0m", style.sgr());
            } else {
                out.push_str(&text);
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// A number with its thousands apart: 12,345.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things: 1 message, 2 messages.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", grouped(number))
}

/// A number of bytes for people: 812 B, 14 KiB, 3 MiB.
pub(crate) fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{} KiB", number / 1024),
        _ => format!("{} MiB", number / 1_048_576),
    }
}

/// A time as on a stopwatch: 0:07.
pub(crate) fn stopwatch(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The values as a row of bars, `full` being the highest; an empty one where it is zero.
pub(crate) fn sparkline(values: impl Iterator<Item = u64>, full: u64) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |value: u64| {
        let height = (value * 8).div_ceil(full.max(1)).min(8);
        let height = usize::try_from(height).unwrap_or(8);
        BARS.get(height).copied().unwrap_or('█')
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(1200, "message"), "1,200 messages");
        assert_eq!(
            [bytes(1023), bytes(1024), bytes(3 << 20)],
            ["1023 B", "1 KiB", "3 MiB"]
        );
        assert_eq!(stopwatch(Duration::from_millis(67_900)), "1:07");
    }

    #[test]
    fn a_sparkline_shows_zero_as_nothing_and_the_least_as_something() {
        assert_eq!(
            sparkline([0, 1, 500, 1000, 9000].into_iter(), 1000),
            " ▁▄██"
        );
        assert_eq!(sparkline([0, 0].into_iter(), 0), "  ");
    }

    #[test]
    fn a_line_is_cut_to_the_width_whatever_its_colours() {
        let line = Line::new()
            .with(Style::Good, "✔ good")
            .with(Style::Plain, " and long");
        assert_eq!(line.render(8, false), "✔ good a");
        assert_eq!(line.render(8, true), "\u{1b}[32m✔ good\u{1b}[0m a");
        assert_eq!(line.render(3, true), "\u{1b}[32m✔ g\u{1b}[0m");
    }
}
