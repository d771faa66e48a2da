//! The figures of all runs, for people and for programs.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use super::contender::{Contender, Figures};
use super::load::Load;
use super::stats::{Spread, grouped};

/// What is measured, with its unit, its key in JSON, its decimals, and how it is read.
type Column = (&'static str, &'static str, usize, fn(&Figures) -> f64);

const COLUMNS: [Column; 5] = [
    ("messages/s", "messages_per_second", 0, |f| f.rate),
    ("CPU µs/message", "cpu_us_per_message", 1, |f| f.cpu),
    ("disk B/message", "disk_bytes_per_message", 0, |f| f.disk),
    ("memory MiB", "peak_memory_mib", 0, |f| f.memory),
    ELSEWHERE,
];
const ELSEWHERE: Column = ("elsewhere %", "cpu_elsewhere_percent", 0, |f| f.elsewhere);
/// With more of the CPUs taken by strangers, the rates are theirs as much as the contenders'.
const DISTURBED: f64 = 5.0;
/// The table shows these first columns.
const SHOWN: usize = 4;
/// Ratios are taken of these first columns.
const COMPARED: usize = 2;
const NAME_WIDTH: usize = 32;
const WIDTHS: [usize; SHOWN] = [26, 20, 18, 14];

const NOTES: &str = "\
Median (min–max) over the rounds; a ratio is taken within each round. CPU is user and kernel time
of the bridging process alone. Every message arrived once and in order.
mosquitto: a third Mosquitto between the two, whose only work is its bridge: one bridge connection
takes messages in, another gives them out. It does less than either of ours: it holds messages in
memory alone, and acknowledges to the source before the destination has accepted. The live path
acknowledges after; outbox has every message on disk (fdatasync) before it acknowledges.
";

/// The figures so far.
#[derive(Debug)]
pub(super) struct Report {
    load: Load,
    /// The brokers' version.
    broker: String,
    runs: Vec<(Contender, Vec<Figures>)>,
}

impl Report {
    pub(super) fn new(load: Load, contenders: &[Contender]) -> Self {
        let runs = contenders.iter().map(|&contender| (contender, Vec::new()));
        Self {
            load,
            broker: String::new(),
            runs: runs.collect(),
        }
    }

    /// Notes the figures of a run. Each contender's first run is of the first round, and so on.
    pub(super) fn add(&mut self, contender: Contender, figures: Figures, broker: String) {
        self.broker = broker;
        let mut runs = self.runs.iter_mut();
        if let Some((_, noted)) = runs.find(|(of, _)| *of == contender) {
            noted.push(figures);
        }
    }

    pub(super) fn render(&self) -> String {
        let Load {
            messages,
            payload,
            window,
        } = self.load;
        let mut text = format!(
            "\n{} messages a run, QoS 1, {payload} B payload, window {window}, {} rounds\n\
             {}, mosquitto {}\n{}\n\n",
            grouped_count(messages),
            self.rounds(),
            machine(),
            self.broker,
            self.disturbance(),
        );
        let mut line = |name: &str, cells: Vec<String>| {
            let _ = write!(text, "{name:<NAME_WIDTH$}");
            for (cell, width) in cells.iter().zip(WIDTHS) {
                let _ = write!(text, "{cell:>width$}");
            }
            text.push('\n');
        };
        let columns = || COLUMNS.iter().take(SHOWN);
        line(
            "",
            columns().map(|(title, ..)| (*title).to_owned()).collect(),
        );
        for (contender, figures) in &self.runs {
            let cells = columns().filter_map(|&(.., precision, read)| {
                Some(Spread::of(figures.iter().map(read))?.shown(precision))
            });
            line(contender.name(), cells.collect());
        }
        for contender in [Contender::Live, Contender::Outbox] {
            let ratios: Vec<_> = self.ratios(contender).map(|(_, r)| r.shown(2)).collect();
            if !ratios.is_empty() {
                line(&format!("{contender} / mosquitto"), ratios);
            }
        }
        text.push('\n');
        text + NOTES
    }

    pub(super) fn to_json(&self) -> Value {
        let contenders = self.runs.iter().map(|(contender, figures)| {
            let columns = COLUMNS.iter().filter_map(|&(_, key, _, read)| {
                let runs: Vec<f64> = figures.iter().map(read).collect();
                let spread = Spread::of(runs.iter().copied())?.to_json();
                Some((key.to_owned(), json!({ "spread": spread, "runs": runs })))
            });
            let ratios = self.ratios(*contender);
            let ratios = ratios.map(|(key, ratio)| (key.to_owned(), ratio.to_json()));
            let value = json!({
                "figures": Value::Object(columns.collect()),
                "ratio_to_mosquitto": Value::Object(ratios.collect()),
            });
            (contender.name().to_owned(), value)
        });
        json!({
            "messages": self.load.messages,
            "payload_bytes": self.load.payload,
            "window": self.load.window,
            "rounds": self.rounds(),
            "machine": machine(),
            "mosquitto_version": self.broker,
            "contenders": Value::Object(contenders.collect()),
        })
    }

    /// A contender's figures by those of Mosquitto's bridge in the same round, by their keys.
    fn ratios(&self, contender: Contender) -> impl Iterator<Item = (&'static str, Spread)> {
        let (ours, theirs) = (self.of(contender), self.of(Contender::Mosquitto));
        let columns = COLUMNS.iter().take(COMPARED);
        columns.filter_map(move |&(_, key, _, read)| {
            let rounds = ours.iter().zip(theirs);
            let ratios = rounds.map(|(our, their)| read(our) / read(their));
            Some((key, Spread::of(ratios)?))
        })
    }

    /// What else the machine did, and what that means.
    fn disturbance(&self) -> String {
        let (.., precision, read) = ELSEWHERE;
        let all = self.runs.iter().flat_map(|(_, figures)| figures);
        let Some(spread) = Spread::of(all.map(read)) else {
            return String::new();
        };
        let shown = spread.shown(precision);
        let mut text = format!("other work on the machine took {shown} % of the CPUs");
        if spread.max > DISTURBED {
            text += ": do not rely on messages/s,\nof which a process with more threads gets more \
                     then; CPU per message holds";
        }
        text
    }

    fn of(&self, contender: Contender) -> &[Figures] {
        let mut runs = self.runs.iter();
        let found = runs.find(|(of, _)| *of == contender);
        found.map_or(&[], |(_, figures)| figures)
    }

    fn rounds(&self) -> usize {
        let runs = self.runs.iter().map(|(_, figures)| figures.len());
        runs.max().unwrap_or_default()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts far below 2^52, for a table"
)]
pub(super) fn grouped_count(count: u64) -> String {
    grouped(count as f64, 0)
}

/// `2 cores, <model>`
pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = match cores {
        1 => "1 core".to_owned(),
        more => format!("{more} cores"),
    };
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    match model {
        Some((_, model)) => format!("{cores}, {model}"),
        None => cores,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rate: f64, cpu: f64) -> Figures {
        Figures {
            rate,
            cpu,
            disk: 300.0,
            memory: 12.0,
            elsewhere: if cpu < 6.0 { 40.0 } else { 1.0 },
        }
    }

    fn report(runs: &[(Contender, f64, f64)]) -> Report {
        let load = Load {
            messages: 100_000,
            payload: 256,
            window: 256,
        };
        let mut report = Report::new(load, &[Contender::Live, Contender::Mosquitto]);
        for &(contender, rate, cpu) in runs {
            report.add(contender, figures(rate, cpu), "2.0.11".to_owned());
        }
        report
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // The machine was twice as fast in the second round.
        let report = report(&[
            (Contender::Live, 10_000.0, 20.0),
            (Contender::Mosquitto, 20_000.0, 10.0),
            (Contender::Live, 20_000.0, 10.0),
            (Contender::Mosquitto, 40_000.0, 5.0),
        ]);
        let json = report.to_json();
        let ratio = &json["contenders"]["store_and_forward"]["ratio_to_mosquitto"];
        assert_eq!(
            ratio["messages_per_second"],
            json!({ "median": 0.5, "min": 0.5, "max": 0.5 })
        );
        assert_eq!(ratio["cpu_us_per_message"]["median"], 2.0);
        assert_eq!(json["rounds"], 2);
        let text = report.render();
        assert!(text.contains("15,000 (10,000–20,000)"), "{text}");
        assert!(text.contains("store_and_forward / mosquitto"), "{text}");
        assert!(text.contains("0.50 (0.50–0.50)"), "{text}");
    }

    #[test]
    fn a_busy_machine_is_told_of() {
        let quiet = report(&[(Contender::Live, 10_000.0, 20.0)]).render();
        assert!(quiet.contains("took 1 (1–1) % of the CPUs\n"), "{quiet}");
        let busy = report(&[(Contender::Live, 10_000.0, 5.0)]).render();
        assert!(busy.contains("do not rely on messages/s"), "{busy}");
    }

    #[test]
    fn without_mosquitto_there_are_no_ratios() {
        let report = report(&[(Contender::Live, 10_000.0, 20.0)]);
        let text = report.render();
        assert!(!text.contains("/ mosquitto"), "{text}");
    }
}
