use super::*;
use crate::demo::arrivals::Tally;
use crate::demo::ledger::Ledger;
use crate::demo::story::Pace;
use crate::demo::traffic::Count;
use std::time::Duration;

/// Tells the story with plausible numbers up to `tenths` of a second.
fn told(tenths: u64) -> (Snapshot, Story, Trend) {
    let (mut story, mut trend) = (Story::new(Pace::CALM), Trend::default());
    let mut now = Snapshot::default();
    for tenth in 0..=tenths {
        let chapter = story.chapter();
        let published = now.published;
        let ledger = now.ledger;
        now.at = Duration::from_millis(100 * tenth);
        now.publishing = chapter < Chapter::Balance;
        now.published.readings += if now.publishing { 20 } else { 0 };
        if chapter == Chapter::Refused && published.audits < 5 && tenth.is_multiple_of(5) {
            now.published.audits += 1;
            now.ledger.dead_lettered += 1;
        }
        now.link_up = !matches!(chapter, Chapter::Away | Chapter::Restart);
        if chapter == Chapter::Restart && now.ledger.carried_over == 0 {
            now.ledger.carried_over = ledger.queued;
        }
        let capacity = if now.link_up { 65 } else { 0 };
        let wanting = now.published.readings - ledger.delivered;
        now.ledger.received = now.published.all();
        now.ledger.delivered += wanting.min(capacity);
        now.ledger.queued = wanting - wanting.min(capacity);
        now.ledger.queue_bytes = 128 * now.ledger.queued;
        now.ledger.oldest_seconds = now.ledger.queued / 200;
        now.blocked = !now.link_up && now.ledger.queued > 0;
        now.state = match (now.link_up, now.ledger.queued) {
            (false, _) => "link_down",
            (true, 0) => "live",
            (true, _) => "replaying",
        };
        now.arrived.distinct = now.ledger.delivered;
        now.arrived.duplicates = if tenth > 150 { 3 } else { 0 };
        trend.note(&now);
        story.on_snapshot(&now);
    }
    (now, story, trend)
}

fn text(lines: &[Line], width: usize, colours: bool) -> String {
    let lines = lines.iter().map(|line| line.render(width, colours));
    lines.collect::<Vec<_>>().join("\n")
}

fn panel_at(tenths: u64, width: usize) -> String {
    let (now, story, trend) = told(tenths);
    text(&panel(&now, &story, &trend, width), width, false)
}

fn sums() -> Reckoning {
    Reckoning {
        published: Count {
            readings: 4_780,
            audits: 5,
        },
        arrived: Tally {
            distinct: 4_780,
            duplicates: 3,
            ..Tally::default()
        },
        missing: 0,
        ledger: Ledger {
            received: 4_785,
            delivered: 4_780,
            dead_lettered: 5,
            unanswered: 4,
            ..Ledger::default()
        },
        unsettled: 0,
        waited: 1_420,
    }
}

#[test]
fn the_panel_while_all_is_well() {
    insta::assert_snapshot!(panel_at(40, 80));
}

#[test]
fn the_panel_while_the_destination_is_away() {
    insta::assert_snapshot!(panel_at(105, 80));
}

#[test]
fn the_panel_after_a_restart() {
    insta::assert_snapshot!(panel_at(130, 80));
}

#[test]
fn the_panel_while_the_queue_drains() {
    insta::assert_snapshot!(panel_at(165, 80));
}

#[test]
fn the_panel_after_the_refusals() {
    insta::assert_snapshot!(panel_at(235, 80));
}

#[test]
fn the_panel_fits_the_narrowest_terminal() {
    for tenths in (0..270).step_by(5) {
        let (now, story, trend) = told(tenths);
        for line in panel(&now, &story, &trend, MIN_WIDTH) {
            assert!(line.width() < MIN_WIDTH, "{line:?} is cut");
        }
    }
    insta::assert_snapshot!(panel_at(165, MIN_WIDTH));
}

#[test]
fn the_panel_with_colours() {
    let (now, story, trend) = told(130);
    let panel = text(&panel(&now, &story, &trend, 80), 80, true);
    insta::assert_snapshot!(panel.replace('\u{1b}', "␛"));
}

#[test]
fn the_panel_has_the_same_height_throughout() {
    let heights = (0..260).map(|tenths| panel_at(tenths, 80).lines().count());
    assert_eq!(heights.collect::<std::collections::BTreeSet<_>>().len(), 1);
}

#[test]
fn the_opening_shows_the_configuration() {
    let config = "bridge: { id: demo }\nsessions: {}\n";
    insta::assert_snapshot!(text(&opening(Pace::CALM.total(), config), 80, false));
}

#[test]
fn the_log_of_a_run_without_a_terminal() {
    let mut lines = Vec::new();
    let mut outcomes = usize::MAX;
    for tenths in (0..270).step_by(10) {
        let (now, story, _) = told(tenths);
        if story.outcomes().len() != outcomes {
            outcomes = story.outcomes().len();
            lines.extend(plain_chapter(&story));
        }
        lines.push(plain(&now));
    }
    insta::assert_snapshot!(text(&lines, usize::MAX, false));
}

#[test]
fn the_summary_when_all_is_well() {
    let mut lines = summary(&sums(), None);
    lines.extend(next_steps());
    insta::assert_snapshot!(text(&lines, usize::MAX, false));
}

#[test]
fn the_summary_when_something_is_wrong() {
    let mut sums = sums();
    sums.missing = 2;
    sums.arrived.distinct -= 2;
    sums.ledger.queued = 1;
    let lines = summary(&sums, Some("/tmp/bridge-demo-x"));
    insta::assert_snapshot!(text(&lines, usize::MAX, false));
}
