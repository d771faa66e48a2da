//! What the demo shows: pure functions from how things are to lines of text.

use super::reckoning::Reckoning;
use super::story::{Chapter, Snapshot, Story};
use super::text::{Line, Style, bytes, grouped, sparkline, stopwatch};
use super::trend::Trend;

/// The narrowest terminal for the panel.
pub(crate) const MIN_WIDTH: usize = 60;
/// The panel grows no wider than this.
const MAX_WIDTH: usize = 78;
/// Columns before the sparklines.
const LABELS: usize = 33;

/// What the demo is, before it begins.
pub(crate) fn opening(total: std::time::Duration, config: &str) -> Vec<Line> {
    let mut lines = vec![
        Line::new(),
        Line::new().with(Style::Strong, "  bridge demo").with(
            Style::Plain,
            "  the real bridge, between two brokers in this process",
        ),
        Line::new().with(
            Style::Quiet,
            format!(
                "  {} seconds, nothing to install, nothing to set up",
                total.as_secs()
            ),
        ),
        Line::new(),
        Line::new().with(Style::Plain, "  Its whole configuration:"),
        Line::new(),
    ];
    let config = config
        .lines()
        .map(|line| Line::new().with(Style::Accent, format!("    {line}")));
    lines.extend(config);
    lines.push(Line::new());
    lines
}

/// The panel, for a terminal of `width` columns.
pub(crate) fn panel(now: &Snapshot, story: &Story, trend: &Trend, width: usize) -> Vec<Line> {
    let width = width.min(MAX_WIDTH);
    let mut lines = Vec::new();
    let clock = format!(
        "{} of about {}",
        stopwatch(now.at),
        stopwatch(story.total())
    );
    lines.push(rule(width, &clock));
    lines.extend(chapters(story));
    lines.push(Line::new());
    lines.push(road(now, trend));
    lines.push(Line::new());
    lines.extend(gauges(now, trend, width.saturating_sub(LABELS + 3)));
    lines.push(Line::new());
    lines.extend(ledger_lines(now));
    lines
}

fn rule(width: usize, clock: &str) -> Line {
    let dashes = width.saturating_sub(clock.chars().count() + 5);
    Line::new()
        .with(Style::Quiet, format!("  {} ", "─".repeat(dashes)))
        .with(Style::Plain, clock)
}

fn chapters(story: &Story) -> impl Iterator<Item = Line> + '_ {
    Chapter::ALL
        .into_iter()
        .enumerate()
        .map(|(index, chapter)| {
            let number = index + 1;
            let title = format!("{number} {:<9}", chapter.title());
            match story.outcomes().get(index) {
                Some(outcome) => Line::new()
                    .with(Style::Good, "  ✔ ")
                    .with(Style::Plain, title)
                    .with(Style::Quiet, outcome),
                None if chapter == story.chapter() => Line::new()
                    .with(Style::Waiting, "  ▸ ")
                    .with(Style::Strong, title)
                    .with(Style::Plain, chapter.telling()),
                None => Line::new().with(Style::Quiet, format!("    {title}")),
            }
        })
}

/// The way of the messages, and where it ends.
fn road(now: &Snapshot, trend: &Trend) -> Line {
    let (published, delivered) = trend.rates();
    let line = Line::new()
        .with(Style::Strong, "  sensors ")
        .with(Style::Quiet, "──")
        .with(
            Style::Accent,
            format!("{:>7} ", format!("{}/s", grouped(published))),
        )
        .with(Style::Quiet, "──▶ ")
        .with(Style::Strong, "bridge ");
    if now.link_up {
        line.with(Style::Quiet, "──")
            .with(
                Style::Good,
                format!("{:>7} ", format!("{}/s", grouped(delivered))),
            )
            .with(Style::Quiet, "──▶ ")
            .with(Style::Strong, "cloud")
    } else {
        line.with(Style::Quiet, "── ")
            .with(Style::Bad, "╳")
            .with(Style::Quiet, " no connection  ")
            .with(Style::Quiet, "cloud")
    }
}

fn gauges(now: &Snapshot, trend: &Trend, bars: usize) -> Vec<Line> {
    let ledger = &now.ledger;
    let gauge = |label: &str, style: Style, number: u64| {
        Line::new()
            .with(Style::Quiet, format!("  {label:<14}"))
            .with(style, format!("{:>9}", grouped(number)))
    };
    let spark = |line: Line, note: &str, style: Style, bars: String| {
        line.with(Style::Quiet, format!("{note:>8}  "))
            .with(style, bars)
    };
    let (published, delivered) = trend.rates();
    let when = |condition: bool, style: Style| if condition { style } else { Style::Plain };
    let waiting = when(ledger.queued > 0, Style::Waiting);
    vec![
        spark(
            gauge("published", Style::Plain, now.published.all()),
            &format!("{}/s", grouped(published)),
            Style::Accent,
            sparkline(trend.published(bars), trend.full_rate()),
        ),
        spark(
            gauge("delivered", Style::Plain, ledger.delivered),
            &format!("{}/s", grouped(delivered)),
            Style::Good,
            sparkline(trend.delivered(bars), trend.full_rate()),
        ),
        spark(
            gauge("queue", waiting, ledger.queued),
            "on disk",
            Style::Waiting,
            sparkline(trend.queued(bars), trend.full_queue()),
        ),
        Line::new()
            .with(Style::Quiet, format!("  {:<14}", ""))
            .with(Style::Quiet, waits(now)),
        gauge(
            "dead letters",
            when(ledger.dead_lettered > 0, Style::Bad),
            ledger.dead_lettered,
        )
        .with(
            Style::Quiet,
            if ledger.dead_lettered > 0 {
                "  not_authorized (0x87), all kept"
            } else {
                ""
            },
        ),
    ]
}

/// Whether the queue is blocked, and why.
fn waits(now: &Snapshot) -> String {
    let ledger = &now.ledger;
    let why = match now.state {
        "live" => "not blocked",
        "replaying" => "draining",
        "link_down" if now.blocked => "blocked: no connection",
        "link_down" => "no connection",
        "blocked" => "blocked: refused for now",
        _ => "sorting what was under way",
    };
    if ledger.queued == 0 {
        return why.to_owned();
    }
    format!(
        "{why}; {}, oldest {} s",
        bytes(ledger.queue_bytes),
        ledger.oldest_seconds
    )
}

fn ledger_lines(now: &Snapshot) -> Vec<Line> {
    let ledger = &now.ledger;
    let term = |line: Line, sign: &str, number: u64, word: &str| {
        line.with(Style::Quiet, format!(" {sign} "))
            .with(Style::Plain, grouped(number))
            .with(Style::Quiet, format!(" {word}"))
    };
    let first = Line::new()
        .with(Style::Strong, "  ledger  ")
        .with(Style::Plain, grouped(ledger.received))
        .with(Style::Quiet, " received");
    let first = term(first, "=", ledger.delivered, "delivered");
    let first = term(first, "+", ledger.queued, "queued");
    let second = Line::new().with(Style::Plain, "         ");
    let second = term(second, "+", ledger.deferred, "deferred");
    let second = term(second, "+", ledger.dead_lettered, "dead-lettered");
    let second = term(second, "+", ledger.dropped, "dropped");
    let third = Line::new()
        .with(Style::Strong, "  cloud   ")
        .with(Style::Plain, grouped(now.arrived.distinct))
        .with(Style::Quiet, " arrived there");
    let third = term(third, "·", now.arrived.duplicates, "twice");
    let third = term(third, "·", now.arrived.overtaken, "out of order");
    vec![first, second, third]
}

/// How things are in one line, for a log.
pub(crate) fn plain(now: &Snapshot) -> Line {
    let ledger = &now.ledger;
    Line::new().with(
        Style::Plain,
        format!(
            "{:>5}  published {} · delivered {} · queue {} ({}) · dead letters {}",
            stopwatch(now.at),
            grouped(now.published.all()),
            grouped(ledger.delivered),
            grouped(ledger.queued),
            now.state,
            grouped(ledger.dead_lettered),
        ),
    )
}

/// What happens next, in one line, for a log.
pub(crate) fn plain_chapter(story: &Story) -> Vec<Line> {
    let mut lines = Vec::new();
    let told = story.outcomes().len();
    if let Some((chapter, outcome)) = Chapter::ALL.iter().zip(story.outcomes()).next_back() {
        lines.push(Line::new().with(
            Style::Plain,
            format!("✔ {told} {}: {outcome}", chapter.title()),
        ));
    }
    if let Some(chapter) = Chapter::ALL.get(told) {
        lines.push(Line::new().with(
            Style::Plain,
            format!("▸ {} {}: {}", told + 1, chapter.title(), chapter.telling()),
        ));
    }
    lines
}

/// The end: what a reader takes home.
pub(crate) fn summary(sums: &Reckoning, kept: Option<&str>) -> Vec<Line> {
    let findings = sums.findings();
    let mut lines = vec![Line::new()];
    if findings.is_empty() {
        lines.push(Line::new().with(Style::Good, "  ✔ ").with(
            Style::Strong,
            "Nothing was lost, and every message is accounted for.",
        ));
        lines.push(Line::new());
        lines.extend(numbers(sums));
    } else {
        lines.push(
            Line::new()
                .with(Style::Bad, "  ✘ ")
                .with(Style::Strong, "The numbers do not agree."),
        );
        lines.push(Line::new());
        let findings = findings.into_iter();
        lines
            .extend(findings.map(|finding| Line::new().with(Style::Bad, format!("    {finding}"))));
    }
    lines.push(Line::new());
    lines.push(balance(sums));
    if let Some(folder) = kept {
        lines.push(Line::new());
        lines.push(Line::new().with(
            Style::Plain,
            format!("  Configuration, log and journal are in {folder}"),
        ));
    }
    lines.push(Line::new());
    lines
}

fn numbers(sums: &Reckoning) -> Vec<Line> {
    let Reckoning {
        published,
        arrived,
        ledger,
        waited,
        ..
    } = sums;
    let row = |number: u64, word: &str, note: String| {
        Line::new()
            .with(Style::Strong, format!("  {:>8} ", grouped(number)))
            .with(Style::Plain, format!("{word:<14}"))
            .with(Style::Quiet, note)
    };
    let mut lines = vec![
        row(
            published.all(),
            "published",
            "by the sensors, acknowledged".to_owned(),
        ),
        row(
            arrived.distinct,
            "arrived",
            "counted at the cloud: none missing, in order, unchanged".to_owned(),
        ),
        row(
            *waited,
            "waited",
            "on disk while the cloud was away, across a restart".to_owned(),
        ),
        row(
            ledger.dead_lettered,
            "dead letters",
            "refused (not_authorized), kept with the reason".to_owned(),
        ),
    ];
    lines.push(row(
        arrived.duplicates,
        "arrived twice",
        if arrived.duplicates == 0 {
            "possible when a link breaks; not this time".to_owned()
        } else {
            "the link broke before their acknowledgement came".to_owned()
        },
    ));
    lines
}

fn balance(sums: &Reckoning) -> Line {
    let ledger = &sums.ledger;
    Line::new().with(Style::Strong, "  ledger: ").with(
        Style::Plain,
        format!(
            "received {} = delivered {} + queued {} + deferred {} + dead-lettered {} + dropped {}",
            grouped(ledger.received),
            grouped(ledger.delivered),
            grouped(ledger.queued),
            grouped(ledger.deferred),
            grouped(ledger.dead_lettered),
            grouped(ledger.dropped),
        ),
    )
}

/// What to read next.
pub(crate) fn next_steps() -> Vec<Line> {
    let step = |what: &str, why: &str| {
        Line::new()
            .with(Style::Accent, format!("    {what:<30}"))
            .with(Style::Quiet, why)
    };
    vec![
        Line::new().with(Style::Plain, "  Next:"),
        step("README.md", "your own bridge, in ten lines of YAML"),
        step("config/reference.yaml", "every field, explained"),
        step(
            "bridge check bridge.yaml",
            "all mistakes of a configuration at once",
        ),
        step(
            "bridge explain sensors/x",
            "where a message on that topic goes",
        ),
        step("bridge run bridge.yaml", "the real thing"),
        Line::new(),
    ]
}

#[cfg(test)]
mod tests;
