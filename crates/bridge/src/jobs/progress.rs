//! How far a job has come, on standard error: a line that is written over on a terminal, a line
//! for each tenth elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use super::Job;
use crate::cli;

const WIDTH: u64 = 30;

/// What was shown so far.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
    /// The tenth that was told last.
    told: Option<u64>,
    /// What was told last of what holds it up.
    hold: Option<String>,
    /// How wide the line is that is written over.
    width: usize,
}

impl Progress {
    /// What is written over would be lost between the lines of a log.
    pub(super) fn new(beside_a_log: bool) -> Self {
        Self {
            terminal: io::stderr().is_terminal() && !beside_a_log,
            told: None,
            hold: None,
            width: 0,
        }
    }

    /// Shows it.
    pub(super) fn show(&mut self, job: &Job) -> anyhow::Result<()> {
        match self.next(job) {
            Some(text) => cli::eprint(&text).map(drop),
            None => Ok(()),
        }
    }

    /// Nothing more is written over.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        if self.terminal && self.width > 0 {
            cli::eprint("\n")?;
        }
        Ok(())
    }

    fn next(&mut self, job: &Job) -> Option<String> {
        let percent = percent(job.looked_at, job.among);
        let mut text = format!(
            "{percent:>3} %, {} of {} looked at, {} done",
            job.looked_at, job.among, job.done
        );
        if job.failures() > 0 {
            let _ = write!(text, ", {} not", job.failures());
        }
        let hold = job.hold();
        if let Some(hold) = &hold {
            let _ = write!(text, ", {hold}");
        }
        if self.terminal {
            let full = percent * WIDTH / 100;
            let bar = |count, sign: &str| sign.repeat(usize::try_from(count).unwrap_or(0));
            text = format!("[{}{}] {text}", bar(full, "#"), bar(WIDTH - full, "."));
            let width = text.chars().count();
            let padded = format!("\r{text:<0$}", self.width);
            self.width = width;
            return Some(padded);
        }
        let tenth = Some(percent / 10);
        let news = tenth > self.told || (hold.is_some() && hold != self.hold);
        self.told = self.told.max(tenth);
        self.hold = hold;
        text.push('\n');
        news.then_some(text)
    }
}

/// Of nothing all is done.
fn percent(part: u64, whole: u64) -> u64 {
    let hundredfold = u128::from(part.min(whole)) * 100;
    let percent = hundredfold.checked_div(u128::from(whole));
    percent.map_or(100, |percent| u64::try_from(percent).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::HeldUp;

    fn job(looked_at: u64) -> Job {
        Job {
            id: "1".to_owned(),
            kind: "redrive".to_owned(),
            about: "all dead letters".to_owned(),
            state: "running".to_owned(),
            among: 1_000,
            looked_at,
            matched: looked_at,
            done: looked_at,
            failed: std::collections::BTreeMap::new(),
            held_up: Vec::new(),
            started: String::new(),
            ended: None,
        }
    }

    #[test]
    fn without_a_terminal_each_tenth_is_told_once() {
        let mut progress = Progress {
            terminal: false,
            told: None,
            hold: None,
            width: 0,
        };
        let told: Vec<_> = (0..=1_000)
            .filter_map(|at| progress.next(&job(at)))
            .collect();
        assert_eq!(told.len(), 11, "{told:?}");
        assert_eq!(told[5], " 50 %, 500 of 1000 looked at, 500 done\n");
    }

    #[test]
    fn without_a_terminal_what_holds_it_up_is_told_once() {
        let mut progress = Progress {
            terminal: false,
            told: None,
            hold: None,
            width: 0,
        };
        progress.next(&job(500));
        let mut held = job(500);
        held.held_up.push(HeldUp {
            route: "r".to_owned(),
            binding: "b".to_owned(),
            by: "queue_full".to_owned(),
            since: String::new(),
        });
        let told = progress.next(&held).unwrap();
        assert!(
            told.ends_with("500 done, held up at r/b by queue_full\n"),
            "{told:?}"
        );
        assert_eq!(progress.next(&held), None);
        assert_eq!(progress.next(&job(500)), None);
        assert!(progress.next(&held).is_some(), "it is held up once more");
    }

    #[test]
    fn on_a_terminal_a_line_is_written_over() {
        let mut progress = Progress {
            terminal: true,
            told: None,
            hold: None,
            width: 0,
        };
        assert_eq!(
            progress.next(&job(500)).unwrap(),
            "\r[###############...............]  50 %, 500 of 1000 looked at, 500 done"
        );
        let after = progress.next(&job(5)).unwrap();
        assert!(after.ends_with("5 done    "), "{after:?}");
    }

    #[test]
    fn of_nothing_all_is_done() {
        assert_eq!(percent(0, 0), 100);
        assert_eq!(percent(7, 5), 100);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
    }
}
