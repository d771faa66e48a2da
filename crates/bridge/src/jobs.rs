//! `bridge jobs`: redrives and deletes of many dead letters, which go on while nobody waits.

mod progress;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::progress::Progress;
use crate::cli;
use crate::running::{self, Client, EXIT_HELP, EXIT_SOME_NOT, Failure, Running};
use crate::show::{self, Column};

const JOBS: &str = "/api/v1/jobs";
/// Between two looks at a job.
const PACE: Duration = Duration::from_millis(500);

/// What `bridge jobs` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List the latest jobs of a bridge that runs, the newest first
    #[command(after_help = EXIT_HELP)]
    List {
        #[command(flatten)]
        running: Running,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Show how far one job has come
    #[command(after_help = EXIT_HELP)]
    Show {
        #[command(flatten)]
        job: One,
        /// Wait for its end, with its progress on standard error
        #[arg(long)]
        wait: bool,
    },
    /// Have a job stop where it is; what is moved stays moved
    #[command(after_help = EXIT_HELP)]
    Cancel(One),
}

/// Which job.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Its id, as it was told when it was begun
    #[arg(value_parser = job_id)]
    id: bridge_core::MessageId,
    #[command(flatten)]
    running: Running,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

fn job_id(text: &str) -> Result<bridge_core::MessageId, String> {
    text.parse()
        .map_err(|_| "it is no id of a job: see `bridge jobs list`".to_owned())
}

/// A job, as much of it as is read.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Job {
    id: String,
    kind: String,
    about: String,
    state: String,
    among: u64,
    looked_at: u64,
    matched: u64,
    done: u64,
    #[serde(default)]
    failed: BTreeMap<String, u64>,
    #[serde(default)]
    held_up: Vec<HeldUp>,
    started: String,
    ended: Option<String>,
}

/// A binding at which a job gets no further for now.
#[derive(Debug, Clone, Deserialize)]
struct HeldUp {
    route: String,
    binding: String,
    by: String,
    since: String,
}

impl Job {
    fn runs(&self) -> bool {
        self.state == "running"
    }

    fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    fn code(&self) -> ExitCode {
        let well = self.state == "done" && self.failed.is_empty();
        ExitCode::from(if well || self.runs() {
            0
        } else {
            EXIT_SOME_NOT
        })
    }

    /// `redrive of all dead letters: done; 3 of 4 moved, 1 not: queue_full 1`.
    fn summary(&self) -> String {
        let verb = if self.kind == "delete" {
            "deleted"
        } else {
            "moved"
        };
        let Self { done, matched, .. } = self;
        let mut text = format!(
            "{} of {}: {}; {done} of {matched} {verb}",
            show::text(&self.kind),
            show::text(&self.about),
            show::text(&self.state)
        );
        if !self.failed.is_empty() {
            let failed = self.failed.iter();
            let failed = failed.map(|(outcome, count)| (outcome.as_str(), *count));
            let _ = write!(text, ", {} not: {}", self.failures(), show::counts(failed));
        }
        text.push('\n');
        text
    }

    /// `held up at telemetry/cloud by queue_full`, and by what else.
    fn hold(&self) -> Option<String> {
        let held = self.held_up.iter().map(|held| {
            let HeldUp {
                route, binding, by, ..
            } = held;
            let at = show::text(&format!("{route}/{binding}"));
            format!("{at} by {}", show::text(by))
        });
        let held = held.collect::<Vec<_>>().join(", ");
        (!held.is_empty()).then(|| format!("held up at {held}"))
    }

    fn row(&self) -> Vec<String> {
        vec![
            show::text(&self.id),
            show::text(&self.kind),
            show::text(&self.state),
            format!("{} of {}", self.done, self.matched),
            self.failures().to_string(),
            show::text(&self.started),
            show::text(&self.about),
        ]
    }

    fn whole(&self) -> String {
        let line = |name: &str, value: &str| format!("{:<18} {value}\n", format!("{name}:"));
        let ended = self.ended.as_deref().unwrap_or("-");
        let held = self.held_up.iter().map(|held| {
            let HeldUp {
                route,
                binding,
                by,
                since,
            } = held;
            let text = format!("{route}/{binding} by {by} since {since}");
            line("held up at", &show::text(&text))
        });
        [
            line("id", &show::text(&self.id)),
            line(
                "looked at",
                &format!("{} of {}", self.looked_at, self.among),
            ),
            line("started", &show::text(&self.started)),
            line("ended", &show::text(ended)),
            held.collect(),
            self.summary(),
        ]
        .concat()
    }
}

/// Does what was asked for.
pub(crate) fn run(command: &JobsCommand) -> anyhow::Result<ExitCode> {
    match command {
        JobsCommand::List { running, json } => {
            running::asking(running, async |client| list(&client, *json).await)
        }
        JobsCommand::Show { job, wait } => running::asking(&job.running, async |client| {
            let path = format!("{JOBS}/{}", job.id);
            match client.get(&path).await {
                Err(failure) if failure.status() == Some(404) => not_there(&failure),
                answer if *wait => followed(&client, answer?.body, job.json).await,
                answer => told(&client, answer?.body, job.json),
            }
        }),
        JobsCommand::Cancel(job) => running::asking(&job.running, async |client| {
            let path = format!("{JOBS}/{}/cancel", job.id);
            match client.post(&path, &json!({}), Duration::ZERO).await {
                Err(failure) if failure.status() == Some(404) => not_there(&failure),
                answer => {
                    // It says how it stood; a moment later it has stopped.
                    let was = read(&client, answer?.body)?.1;
                    let job_path = format!("{JOBS}/{}", was.id);
                    let (value, now) = ended(&client, &job_path).await?;
                    if job.json {
                        cli::print(&show::json(&value))?;
                    } else {
                        cli::print(&now.whole())?;
                    }
                    // What had ended before was not cancelled.
                    let code = if now.state == "cancelled" {
                        0
                    } else {
                        EXIT_SOME_NOT
                    };
                    Ok(ExitCode::from(code))
                }
            }
        }),
    }
}

fn not_there(failure: &Failure) -> anyhow::Result<ExitCode> {
    running::not_done(&show::text(&failure.to_string()))
}

async fn list(client: &Client, json: bool) -> anyhow::Result<ExitCode> {
    let answer = client.get(JOBS).await?;
    if json {
        let jobs = answer.body.get("items");
        return cli::print(&show::json(&json!({ "jobs": jobs })));
    }
    let items = answer.body.get("items").cloned().unwrap_or_default();
    let jobs: Vec<Job> = client.understood(items)?;
    if jobs.is_empty() {
        return cli::print("no jobs since the bridge was started\n");
    }
    let rows: Vec<_> = jobs.iter().map(Job::row).collect();
    let columns = [
        Column::Left("id"),
        Column::Left("kind"),
        Column::Left("state"),
        Column::Right("done"),
        Column::Right("failed"),
        Column::Left("started"),
        Column::Left("about"),
    ];
    cli::print(&show::table(&columns, &rows))
}

fn read(client: &Client, value: Value) -> anyhow::Result<(Value, Job)> {
    let job = client.understood(&value)?;
    Ok((value, job))
}

fn told(client: &Client, value: Value, json: bool) -> anyhow::Result<ExitCode> {
    let (value, job) = read(client, value)?;
    if json {
        cli::print(&show::json(&value))?;
    } else {
        cli::print(&job.whole())?;
    }
    Ok(job.code())
}

/// A job that was just begun: waits for its end, unless nobody wants to.
pub(crate) async fn begun(
    client: &Client,
    value: Value,
    detach: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (value, job) = read(client, value)?;
    if detach {
        if json {
            return cli::print(&show::json(&value));
        }
        let id = show::text(&job.id);
        return cli::print(&format!(
            "job {id} has begun: `bridge jobs show {id}` says how far it is\n"
        ));
    }
    followed(client, value, json).await
}

/// Waits for the end of a job.
async fn followed(client: &Client, value: Value, json: bool) -> anyhow::Result<ExitCode> {
    let (mut value, mut job) = read(client, value)?;
    let id = show::text(&job.id);
    let path = format!("{JOBS}/{id}");
    let mut progress = Progress::new(client.is_here());
    // Heard from now on, and not from the first time on that it is waited for: who has seen how
    // far the job is may stop watching at once.
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    while job.runs() {
        progress.show(&job)?;
        tokio::select! {
            _ = interrupted.recv() => {
                if client.is_here() {
                    let cancel = format!("{path}/cancel");
                    client.post(&cancel, &json!({}), Duration::ZERO).await?;
                    (value, job) = ended(client, &path).await?;
                    break;
                }
                progress.end()?;
                // Whoever stops watching does not stop the job.
                cli::eprint(&format!(
                    "the job goes on in the bridge: `bridge jobs show {id}` says how far it is, \
                     `bridge jobs cancel {id}` stops it\n"
                ))?;
                return Ok(ExitCode::from(EXIT_SOME_NOT));
            }
            () = tokio::time::sleep(PACE) => {}
        }
        let answer = client.get(&path).await.with_context(|| {
            format!("the job {id} is lost from sight; if the bridge runs, it goes on")
        });
        (value, job) = read(client, answer?.body)?;
    }
    progress.show(&job)?;
    progress.end()?;
    if json {
        cli::print(&show::json(&value))?;
    } else {
        cli::print(&job.summary())?;
    }
    Ok(job.code())
}

/// A job that was told to stop, as soon as it has.
async fn ended(client: &Client, path: &str) -> anyhow::Result<(Value, Job)> {
    loop {
        let (value, job) = read(client, client.get(path).await?.body)?;
        if !job.runs() {
            return Ok((value, job));
        }
        tokio::time::sleep(PACE / 10).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_job_says_what_was_not_done_and_why() {
        let job = json!({
            "id": "019ad4a2-5614-7707-8707-070707070707",
            "kind": "redrive",
            "about": "dead letters with binding=out",
            "state": "done",
            "among": 9,
            "looked_at": 9,
            "matched": 5,
            "done": 2,
            "failed": { "binding_not_found": 2, "store_failed": 1 },
            "started": "2026-11-30T08:00:00.000Z",
        });
        let job = Job::deserialize(&job).unwrap();
        assert_eq!(job.hold(), None);
        assert_eq!(
            job.summary(),
            "redrive of dead letters with binding=out: done; 2 of 5 moved, 3 not: \
             binding_not_found 2, store_failed 1\n"
        );
        assert_eq!(job.code(), ExitCode::from(EXIT_SOME_NOT));
    }
    #[test]
    fn what_holds_up_a_job_is_told_with_its_binding() {
        let job = json!({
            "id": "019ad4a2-5614-7707-8707-070707070707",
            "kind": "redrive",
            "about": "all dead letters",
            "state": "running",
            "among": 9,
            "looked_at": 9,
            "matched": 9,
            "done": 2,
            "failed": {},
            "held_up": [
                { "route": "r", "binding": "a", "by": "queue_full", "since": "2026-11-30T08:00:00.000Z" },
                { "route": "r", "binding": "b", "by": "store_failed", "since": "2026-11-30T08:00:01.000Z" },
            ],
            "started": "2026-11-30T08:00:00.000Z",
        });
        let job = Job::deserialize(&job).unwrap();
        assert_eq!(
            job.hold().as_deref(),
            Some("held up at r/a by queue_full, r/b by store_failed")
        );
        let whole = job.whole();
        let line = "held up at:        r/b by store_failed since 2026-11-30T08:00:01.000Z\n";
        assert!(whole.contains(line), "{whole}");
    }
}
