//! Redriving and deleting dead letters: those of a bridge that runs, or of one that does not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use bridge_core::{Clock as _, SystemClock};
use bridge_runtime::{DeadLetterId, MOST_AT_ONCE};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::filter::object;
use super::list::{DEAD_LETTERS, Total, total};
use super::{Filter, confirm};
use crate::cli;
use crate::config;
use crate::jobs;
use crate::offline;
use crate::running::{self, Answer, Client, EXIT_SOME_NOT, Running};
use crate::show::{self, Column};

/// As many are redriven or deleted in one call; of more the bridge makes a job, at a pace that
/// leaves live traffic its latency.
const IN_ONE_CALL: u64 = 1_000;
/// Of so many results each has a line; of more only those that are not as one wants them.
const EACH_SHOWN: usize = 100;
/// The longest that a verdict is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Which dead letters, and whether that is meant.
#[derive(Debug, Args)]
struct Which {
    /// Their ids, as `list` shows them; in place of a filter
    #[arg(value_name = "ID", value_parser = id, conflicts_with_all = ["filter", "all", "limit"])]
    ids: Vec<DeadLetterId>,
    #[command(flatten)]
    filter: Filter,
    /// All that there are
    #[arg(long, conflicts_with = "filter")]
    all: bool,
    /// The oldest of those that the filter takes, so many at most
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: Option<u64>,
    /// Do not ask whether that is meant
    #[arg(long, short)]
    yes: bool,
    /// Where it becomes a job, do not wait for its end
    #[arg(long)]
    detach: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What is redriven.
#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    which: Which,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Wait for what becomes of each, as in 10s; at most 60s, and 10,000 dead letters
    #[arg(long, value_name = "DURATION", value_parser = wait, conflicts_with = "offline")]
    wait: Option<Duration>,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    at: At,
}

/// What is deleted.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: Which,
    /// Only say how many it would be; `list` with the same filter shows them
    #[arg(long, conflicts_with = "ids")]
    dry_run: bool,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    at: At,
}

/// Whether a bridge runs.
#[derive(Debug, Clone, Copy, Args)]
struct At {
    /// No bridge runs: do it in `data_dir` of the configuration, all of which is read; what is
    /// redriven waits in its queue for the bridge to be started
    #[arg(
        long,
        help_heading = running::HEADING,
        conflicts_with_all = ["url", "token_file", "ca_file", "detach"]
    )]
    offline: bool,
}

impl At {
    fn asking(
        self,
        running: &Running,
        ask: impl AsyncFnOnce(Client) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        if self.offline {
            return offline::changing(running, ask);
        }
        running::asking(running, ask)
    }
}

/// What is to be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Redrive,
    Delete,
}

impl Act {
    fn path(self) -> String {
        let verb = match self {
            Self::Redrive => "redrive",
            Self::Delete => "delete",
        };
        format!("{DEAD_LETTERS}/{verb}")
    }

    const fn question(self) -> (&'static str, &'static str) {
        match self {
            Self::Redrive => ("Redrive", ""),
            Self::Delete => ("Delete", " for good"),
        }
    }
}

/// What came of one.
#[derive(Debug, Deserialize)]
struct Outcome {
    id: String,
    #[serde(rename = "outcome")]
    word: String,
    verdict: Option<String>,
    reason: Option<String>,
    dead_letter: Option<String>,
}

impl Outcome {
    fn went_well(&self) -> bool {
        let done = matches!(self.word.as_str(), "moved" | "would_move" | "deleted");
        done && !matches!(self.verdict.as_deref(), Some("refused" | "dropped"))
    }

    fn row(&self) -> Vec<String> {
        let text = |part: &Option<String>| show::text(part.as_deref().unwrap_or_default());
        let mut became = text(&self.verdict);
        if let Some(reason) = &self.reason {
            let _ = write!(became, ": {}", show::text(reason));
        }
        vec![
            show::text(&self.id),
            show::text(&self.word),
            became,
            text(&self.dead_letter),
        ]
    }
}

/// What came of all.
#[derive(Debug, Deserialize)]
struct Done {
    requested: u64,
    #[serde(alias = "moved", alias = "deleted")]
    well: u64,
    results: Vec<Outcome>,
}

fn id(text: &str) -> Result<DeadLetterId, String> {
    if Path::new(text).is_dir() {
        return Err(
            "that is a folder: the bridge that runs in it is asked by --url or --config, and where \
             none runs, --offline does it in `data_dir` of the configuration"
                .to_owned(),
        );
    }
    text.parse::<DeadLetterId>().map_err(|why| why.to_string())
}

/// A time that a verdict is waited for.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    match config::duration(text) {
        Some(wait) if wait > Duration::ZERO && wait <= LONGEST_WAIT => Ok(wait),
        _ => Err("write it with its unit, as in 10s, and at most 60s".to_owned()),
    }
}

pub(super) fn redrive(args: &RedriveArgs) -> anyhow::Result<ExitCode> {
    let chosen = match args.which.chosen() {
        Ok(chosen) => chosen,
        Err(wrong) => return running::not_asked(&wrong),
    };
    args.at.asking(&args.running, async |client| {
        if args.dry_run {
            let mut body = chosen.in_one_call();
            set(&mut body, "dry_run", true);
            let answer = client
                .post(&Act::Redrive.path(), &body, LONGEST_WAIT)
                .await?;
            return told(&client, &answer, args.which.json, "would move");
        }
        let total = args.which.asked(&client, Act::Redrive).await?;
        let Some(total) = total else {
            return nothing_done();
        };
        if let Some(wait) = args.wait {
            if args.which.limit.is_none() && total.may_exceed(MOST_AT_ONCE as u64) {
                bail!(
                    "--wait tells of {MOST_AT_ONCE} dead letters at most, and the filter takes \
                     {total}: use --limit, or leave it out"
                );
            }
            let seconds = running::whole_seconds(wait);
            let path = format!("{}?wait={seconds}", Act::Redrive.path());
            let body = chosen.in_one_call();
            let answer = client.post(&path, &body, LONGEST_WAIT + wait).await?;
            return told(&client, &answer, args.which.json, "moved");
        }
        args.which
            .change(&client, Act::Redrive, &chosen, total, "moved")
            .await
    })
}

pub(super) fn delete(args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let chosen = match args.which.chosen() {
        Ok(chosen) => chosen,
        Err(wrong) => return running::not_asked(&wrong),
    };
    args.at.asking(&args.running, async |client| {
        if args.dry_run {
            let about = args.which.about(&client).await?;
            if args.which.json {
                let Total { count, is_exact } = about;
                let answer = json!({ "would_delete": count, "is_exact": is_exact });
                return cli::print(&show::json(&answer));
            }
            return cli::print(&format!("{about} would be deleted\n"));
        }
        let total = args.which.asked(&client, Act::Delete).await?;
        let Some(total) = total else {
            return nothing_done();
        };
        args.which
            .change(&client, Act::Delete, &chosen, total, "deleted")
            .await
    })
}

fn nothing_done() -> anyhow::Result<ExitCode> {
    cli::eprint("nothing was done\n")?;
    Ok(ExitCode::from(EXIT_SOME_NOT))
}

/// What was chosen, as the API has it.
struct Chosen(Value);

impl Chosen {
    fn in_one_call(&self) -> Value {
        self.0.clone()
    }

    fn as_job(&self) -> Value {
        let mut body = self.0.clone();
        set(&mut body, "job", true);
        body
    }
}

fn set(body: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = body {
        fields.insert(field.to_owned(), value.into());
    }
}

impl Which {
    fn chosen(&self) -> anyhow::Result<Chosen> {
        if !self.ids.is_empty() {
            let ids: Vec<_> = self.ids.iter().map(ToString::to_string).collect();
            return Ok(Chosen(json!({ "ids": ids })));
        }
        let fields = self.filter.fields(SystemClock::new().wall());
        if fields.is_empty() && !self.all {
            bail!("which dead letters? Give ids, a filter such as --binding, or --all");
        }
        let mut body = json!({ "filter": object(&fields), "confirm": self.all });
        if let Some(limit) = self.limit {
            set(&mut body, "limit", limit);
        }
        Ok(Chosen(body))
    }

    /// How many it is about, once the operator has said that this is meant; `None` when not.
    async fn asked(&self, client: &Client, act: Act) -> anyhow::Result<Option<Total>> {
        let about = if self.ids.is_empty() {
            self.about(client).await?
        } else {
            Total {
                count: self.ids.len() as u64,
                is_exact: true,
            }
        };
        if self.yes {
            return Ok(Some(about));
        }
        let (verb, how) = act.question();
        let whom = client.whom();
        let meant = confirm::ask(&format!("{verb} {about} of {whom}{how}"))?;
        Ok(meant.then_some(about))
    }

    /// How many the filter takes, of which no more than the limit are meant.
    async fn about(&self, client: &Client) -> anyhow::Result<Total> {
        let total = total(client, &self.filter).await?;
        Ok(match self.limit {
            Some(limit) if total.count >= limit => Total {
                count: limit,
                is_exact: true,
            },
            _ => total,
        })
    }

    async fn change(
        &self,
        client: &Client,
        act: Act,
        chosen: &Chosen,
        total: Total,
        done: &str,
    ) -> anyhow::Result<ExitCode> {
        let few = !total.may_exceed(IN_ONE_CALL);
        if !self.ids.is_empty() || self.limit.is_some() || few {
            let body = chosen.in_one_call();
            let answer = client.post(&act.path(), &body, LONGEST_WAIT).await?;
            return told(client, &answer, self.json, done);
        }
        let answer = client
            .post(&act.path(), &chosen.as_job(), Duration::ZERO)
            .await?;
        jobs::begun(client, answer.body, self.detach, self.json).await
    }
}

/// Says what came of each.
fn told(client: &Client, answer: &Answer, json: bool, verb: &str) -> anyhow::Result<ExitCode> {
    if json {
        cli::print(&show::json(&answer.body))?;
        return Ok(answer.exit_code());
    }
    let done: Done = client.understood(&answer.body)?;
    cli::print(&rendered(&done, verb))?;
    Ok(answer.exit_code())
}

fn rendered(done: &Done, verb: &str) -> String {
    let all = done.results.len() <= EACH_SHOWN;
    let shown = done
        .results
        .iter()
        .filter(|result| all || !result.went_well());
    let rows: Vec<_> = shown.map(Outcome::row).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let columns = [
            Column::Left("id"),
            Column::Left("outcome"),
            Column::Left("verdict"),
            Column::Left("dead letter again"),
        ];
        // What no row has needs no column.
        let used = |place: usize| {
            rows.iter()
                .any(|row| row.get(place).is_some_and(|c| !c.is_empty()))
        };
        let columns: Vec<_> = (0..)
            .zip(columns)
            .filter(|(place, _)| used(*place))
            .collect();
        let (places, columns): (Vec<usize>, Vec<Column>) = columns.into_iter().unzip();
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                places
                    .iter()
                    .filter_map(|place| row.get(*place).cloned())
                    .collect()
            })
            .collect();
        text.push_str(&show::table(&columns, &rows));
    }
    let mut verdicts: BTreeMap<&str, u64> = BTreeMap::new();
    for verdict in done
        .results
        .iter()
        .filter_map(|result| result.verdict.as_deref())
    {
        *verdicts.entry(verdict).or_default() += 1;
    }
    let _ = write!(text, "{} of {} {verb}", done.well, done.requested);
    if !verdicts.is_empty() {
        let _ = write!(text, ": {}", show::counts(verdicts));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(id: u64, word: &str, verdict: Option<&str>) -> Outcome {
        Outcome {
            id: format!("a~b~{id}"),
            word: word.to_owned(),
            verdict: verdict.map(str::to_owned),
            reason: None,
            dead_letter: None,
        }
    }

    #[test]
    fn of_many_results_only_the_bad_ones_have_a_line() {
        let mut results: Vec<_> = (1..=150).map(|id| outcome(id, "moved", None)).collect();
        results.push(outcome(151, "queue_full", None));
        results.push(outcome(152, "moved", Some("refused")));
        let done = Done {
            requested: 152,
            well: 151,
            results,
        };
        assert_eq!(
            rendered(&done, "moved"),
            "  id       outcome     verdict\n  a~b~151  queue_full\n  a~b~152  moved       refused\n\
             151 of 152 moved: refused 1\n"
        );
    }

    #[test]
    fn what_no_row_has_needs_no_column() {
        let done = Done {
            requested: 1,
            well: 1,
            results: vec![outcome(1, "deleted", None)],
        };
        assert_eq!(
            rendered(&done, "deleted"),
            "  id     outcome\n  a~b~1  deleted\n1 of 1 deleted\n"
        );
    }
}
