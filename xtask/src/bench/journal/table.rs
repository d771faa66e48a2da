//! The figures of all rounds beside what they are to be.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::report::{grouped_count, machine};
use super::super::stats::{Spread, grouped};
use super::load::Load;

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    Open,
    AtLeast(f64),
    AtMost(f64),
    /// At most 64 MiB, and 32 bytes for each of so many times the messages.
    Memory(f64),
}

/// One line: its key in JSON, what it is, its decimals, and what it is to be.
type Line = (&'static str, &'static str, usize, Goal);

const LINES: [Line; 22] = [
    (
        "append_64",
        "append, 64 an fsync / bare append + fdatasync",
        2,
        Goal::AtLeast(0.9),
    ),
    ("append_64_rate", "  messages/s", 0, Goal::Open),
    (
        "append_256",
        "append, 256 an fsync / bare append + fdatasync",
        2,
        Goal::AtLeast(0.9),
    ),
    ("append_256_rate", "  messages/s", 0, Goal::Open),
    (
        "put_p50_us",
        "a put with 64 producers, median, µs",
        0,
        Goal::Open,
    ),
    ("put_p99_us", "  p99, µs", 0, Goal::Open),
    (
        "bare_p50_us",
        "a bare append + fdatasync, median, µs",
        0,
        Goal::Open,
    ),
    ("bare_p99_us", "  p99, µs", 0, Goal::Open),
    (
        "p99_ratio",
        "  p99 of a put / p99 of the bare one",
        2,
        Goal::Open,
    ),
    ("batch", "  messages an fsync", 0, Goal::Open),
    (
        "amplification",
        "written / stored, at a depth of 1,000",
        2,
        Goal::AtMost(2.0),
    ),
    ("amplification_pages", "  by whole pages", 2, Goal::Open),
    (
        "amplification_kept",
        "with one dead letter in 1,000 kept",
        2,
        Goal::AtMost(2.0),
    ),
    (
        "amplification_kept_pages",
        "  by whole pages",
        2,
        Goal::Open,
    ),
    ("kept_disk_mib", "  left on disk, MiB", 1, Goal::Open),
    ("open_s", "opening again, s", 2, Goal::AtMost(1.0)),
    (
        "open_cold_s",
        "  with nothing in the page cache, s",
        2,
        Goal::Open,
    ),
    ("open_memory_mib", "  memory, MiB", 0, Goal::Memory(1.0)),
    ("drain_rate", "drain, messages/s", 0, Goal::Open),
    ("drained_disk_mib", "  left on disk, MiB", 1, Goal::Open),
    (
        "views_open_s",
        "opening with as many dead letters, s",
        2,
        Goal::Open,
    ),
    ("views_memory_mib", "  memory, MiB", 0, Goal::Memory(2.0)),
];
const NAME_WIDTH: usize = 50;
const FIGURE_WIDTH: usize = 30;

/// The figures so far.
#[derive(Debug)]
pub(super) struct Table {
    messages: u64,
    payload: usize,
    figures: BTreeMap<String, Vec<f64>>,
}

impl Table {
    pub(super) fn new(load: &Load) -> Self {
        Self {
            messages: load.messages,
            payload: load.payload,
            figures: BTreeMap::new(),
        }
    }

    pub(super) fn note(&mut self, key: &str, value: f64) {
        self.figures.entry(key.to_owned()).or_default().push(value);
    }

    pub(super) fn render(&self) -> String {
        let mut text = format!(
            "\n{} messages, {} B payload; median (min–max) of the rounds\n{}\n\n",
            grouped_count(self.messages),
            self.payload,
            machine(),
        );
        for (name, precision, goal, spread) in self.lines().map(|(_, n, p, g, s)| (n, p, g, s)) {
            let figure = spread.shown(precision);
            let goal = self.bound(goal).map_or_else(String::new, |(least, bound)| {
                let bound_shown = grouped(bound, precision);
                let sign = if least { '≥' } else { '≤' };
                let verdict = if Self::holds(least, bound, spread) {
                    "met"
                } else {
                    "missed"
                };
                format!("  {sign} {bound_shown}: {verdict}")
            });
            let _ = writeln!(text, "{name:<NAME_WIDTH$}{figure:>FIGURE_WIDTH$}{goal}");
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        let figures = self.lines().map(|(key, _, _, goal, spread)| {
            let mut value = json!({ "spread": spread.to_json(), "runs": self.figures.get(key) });
            if let (Some((least, bound)), Some(value)) = (self.bound(goal), value.as_object_mut()) {
                let key = if least { "at_least" } else { "at_most" };
                value.insert(key.to_owned(), json!(bound));
                value.insert("met".to_owned(), json!(Self::holds(least, bound, spread)));
            }
            (key.to_owned(), value)
        });
        json!({
            "messages": self.messages,
            "payload_bytes": self.payload,
            "machine": machine(),
            "figures": Value::Object(figures.collect()),
        })
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str, usize, Goal, Spread)> {
        LINES.iter().filter_map(|&(key, name, precision, goal)| {
            let spread = Spread::of(self.figures.get(key)?.iter().copied())?;
            Some((key, name, precision, goal, spread))
        })
    }

    /// Whether a goal is the least or the most that is wanted, and the bound itself.
    fn bound(&self, goal: Goal) -> Option<(bool, f64)> {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let messages = self.messages as f64;
        match goal {
            Goal::Open => None,
            Goal::AtLeast(bound) => Some((true, bound)),
            Goal::AtMost(bound) => Some((false, bound)),
            Goal::Memory(times) => {
                Some((false, 64.0 + times * messages * 32.0 / f64::from(1 << 20)))
            }
        }
    }

    fn holds(least: bool, bound: f64, spread: Spread) -> bool {
        if least {
            spread.median >= bound
        } else {
            spread.median <= bound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_stands_beside_what_it_is_to_be() {
        let load = Load::new(1 << 20, 256).unwrap();
        let mut table = Table::new(&load);
        for ratio in [0.8, 0.95, 1.1] {
            table.note("append_64", ratio);
        }
        table.note("append_256", 0.5);
        table.note("open_memory_mib", 96.0);
        let text = table.render();
        assert!(text.contains("0.95 (0.80–1.10)  ≥ 0.90: met"), "{text}");
        assert!(text.contains("0.50 (0.50–0.50)  ≥ 0.90: missed"), "{text}");
        assert!(text.contains("≤ 96: met"), "64 MiB and 32 B each: {text}");
        let json = table.to_json();
        assert_eq!(json["figures"]["append_64"]["spread"]["median"], 0.95);
        assert_eq!(json["figures"]["append_256"]["met"], false);
    }

    #[test]
    fn every_key_is_of_its_own() {
        let keys: std::collections::BTreeSet<_> = LINES.iter().map(|(key, ..)| key).collect();
        assert_eq!(keys.len(), LINES.len());
    }
}
