//! Where the demo is shown: a panel that is redrawn on a terminal, lines anywhere else.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Stdout, Write as _};

use super::text::Line;
use super::view::MIN_WIDTH;

/// The panel and what is above it must fit, or it would scroll instead of standing still.
const MIN_ROWS: usize = 24;
/// The width where it is not known.
const USUAL_WIDTH: usize = 80;

/// What the surroundings say about how to show things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Standard output is a terminal.
    pub(crate) terminal: bool,
    /// It is one that understands no escape sequences, or a build server that imitates one.
    pub(crate) plain: bool,
    /// Colours are not wanted: <https://no-color.org>.
    pub(crate) no_colour: bool,
    /// Columns and rows.
    pub(crate) size: Option<(usize, usize)>,
}

impl Surroundings {
    /// Looks around.
    pub(crate) fn look() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            terminal: io::stdout().is_terminal(),
            plain: set("CI") || std::env::var_os("TERM").is_none_or(|term| term == "dumb"),
            no_colour: set("NO_COLOR"),
            size: size(),
        }
    }

    fn has_panel(&self) -> bool {
        let fits = |(columns, rows)| columns >= MIN_WIDTH && rows >= MIN_ROWS;
        self.terminal && !self.plain && self.size.is_some_and(fits)
    }

    const fn has_colours(&self) -> bool {
        self.terminal && !self.plain && !self.no_colour
    }
}

/// The columns and rows of the terminal.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// The columns there are now: a terminal may be resized at any time.
pub(crate) fn width() -> usize {
    size().map_or(USUAL_WIDTH, |(columns, _)| columns)
}

/// The screen; leaves the terminal as it was.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    panel: bool,
    colours: bool,
    /// How many lines of the panel are below its top.
    drawn: usize,
}

impl Screen {
    /// A screen that suits the surroundings.
    pub(crate) fn open(surroundings: Surroundings) -> Self {
        Self {
            out: io::stdout(),
            panel: surroundings.has_panel(),
            colours: surroundings.has_colours(),
            drawn: 0,
        }
    }

    /// Whether there is a panel; where there is none, events are told in lines.
    pub(crate) const fn has_panel(&self) -> bool {
        self.panel
    }

    /// Shows lines that stay.
    pub(crate) fn say(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&line.render(usize::MAX, self.colours));
            text.push('\n');
        }
        self.drawn = 0;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Draws the panel in the place of the one before, in one write so that it does not flicker.
    pub(crate) fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let frame = frame(lines, self.drawn, width(), self.colours);
        self.drawn = lines.len();
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.panel {
            // The cursor is shown again; there is nobody left to tell that it cannot be.
            let _ = self.out.write_all(b"\x1b[?25h");
            let _ = self.out.flush();
        }
    }
}

/// The bytes that put `lines` in the place of the `drawn` lines above the cursor.
fn frame(lines: &[Line], drawn: usize, width: usize, colours: bool) -> String {
    let mut text = String::from("\x1b[?25l");
    if drawn > 0 {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\x1b[{drawn}A");
    }
    text.push('\r');
    for line in lines {
        // The last column stays free: a full line would wrap on some terminals.
        text.push_str(&line.render(width.saturating_sub(1), colours));
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::text::Style;

    const TERMINAL: Surroundings = Surroundings {
        terminal: true,
        plain: false,
        no_colour: false,
        size: Some((80, 24)),
    };

    #[test]
    fn a_panel_needs_a_real_terminal_with_room() {
        let with = |change: fn(&mut Surroundings)| {
            let mut surroundings = TERMINAL;
            change(&mut surroundings);
            (surroundings.has_panel(), surroundings.has_colours())
        };
        assert_eq!(with(|_| ()), (true, true));
        assert_eq!(with(|it| it.terminal = false), (false, false));
        assert_eq!(with(|it| it.plain = true), (false, false));
        assert_eq!(with(|it| it.no_colour = true), (true, false));
        assert_eq!(with(|it| it.size = Some((59, 24))), (false, true));
        assert_eq!(with(|it| it.size = Some((80, 23))), (false, true));
        assert_eq!(with(|it| it.size = None), (false, true));
    }

    #[test]
    fn a_frame_replaces_the_one_before() {
        let lines = [
            Line::new().with(Style::Plain, "one"),
            Line::new().with(Style::Plain, "two and more"),
        ];
        assert_eq!(
            frame(&lines, 2, 8, false),
            "\x1b[?25l\x1b[2A\rone\x1b[K\ntwo and\x1b[K\n\x1b[J"
        );
        assert!(!frame(&lines, 0, 8, false).contains("\x1b[0A"));
    }
}
