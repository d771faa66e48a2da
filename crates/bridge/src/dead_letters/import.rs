//! Dead letters on their way in, as an export wrote them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bridge_runtime::MOST_AT_ONCE;
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::ImportArgs;
use super::list::DEAD_LETTERS;
use crate::cli;
use crate::running::{Answer, Client, EXIT_SOME_NOT};
use crate::show::{self, Column};

/// How much goes into one call: the API takes four times as much, and a longer one is not seen to
/// move.
const IN_ONE_CALL: usize = 8 << 20;
/// The largest line: what the API takes at all.
const LARGEST_LINE: u64 = 32 << 20;
/// How long the store may take for one call.
const LONGER: Duration = Duration::from_secs(60);
/// How long it waits for the end of somebody else's import.
const TURN: Duration = Duration::from_secs(120);

/// What came of one line of a call.
#[derive(Debug, Deserialize)]
struct Outcome {
    line: usize,
    #[serde(rename = "outcome")]
    word: String,
    id: Option<String>,
}

/// Lines of one call, and where each stands in the file.
#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    numbers: Vec<u64>,
}

/// What came of all.
#[derive(Debug, Default)]
struct Sum {
    requested: u64,
    kept: u64,
    /// Those that an export could not read.
    unreadable: u64,
    outcomes: BTreeMap<String, u64>,
    /// With `--json` all of them, else those that were not kept.
    results: Vec<Value>,
}

pub(super) async fn import(client: &Client, args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let is_stdin = args.file == Path::new("-");
    let input: Box<dyn BufRead> = if is_stdin {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.file);
        let file = file.with_context(|| format!("cannot read {}", args.file.display()))?;
        Box::new(BufReader::new(file))
    };
    let mut sum = Sum::default();
    let imported = all(client, input, args.json, &mut sum).await;
    if args.json {
        cli::print(&show::json(&json!({
            "requested": sum.requested,
            "kept": sum.kept,
            "unreadable": sum.unreadable,
            "results": sum.results,
        })))?;
    } else {
        cli::print(&sum.rendered())?;
    }
    imported?;
    let all_kept = sum.kept == sum.requested;
    Ok(ExitCode::from(if all_kept { 0 } else { EXIT_SOME_NOT }))
}

async fn all(
    client: &Client,
    mut input: Box<dyn BufRead>,
    json: bool,
    sum: &mut Sum,
) -> anyhow::Result<()> {
    let mut batch = Batch::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut bounded = io::Read::take(&mut input, LARGEST_LINE + 1);
        let read = bounded.read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("cannot read line {number}"))?;
        if read == 0 {
            break;
        }
        if read as u64 > LARGEST_LINE {
            bail!("line {number} is larger than {}", show::size(LARGEST_LINE));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let full = batch.text.len() + line.len() > IN_ONE_CALL;
        if full || batch.numbers.len() >= MOST_AT_ONCE {
            batch.send(client, json, sum).await?;
        }
        batch.text.extend_from_slice(line.trim_ascii_end());
        batch.text.push(b'\n');
        batch.numbers.push(number);
    }
    batch.send(client, json, sum).await
}

/// Has the bridge keep these lines, as soon as nobody else's import is under way.
async fn in_turn(client: &Client, lines: Bytes) -> anyhow::Result<Answer> {
    let path = format!("{DEAD_LETTERS}/import");
    let deadline = Instant::now() + TURN;
    let mut told = false;
    loop {
        let body = Some(("application/x-ndjson", lines.clone()));
        let failure = match client.change(Method::POST, &path, body, LONGER).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let wait = failure
            .others_first()
            .filter(|wait| Instant::now() + *wait < deadline);
        let Some(wait) = wait else {
            return Err(failure.into());
        };
        if !told {
            cli::eprint("another import is under way; waiting for its end\n")?;
            told = true;
        }
        sleep(wait).await;
    }
}

impl Batch {
    /// Has the bridge keep them, and counts what came of each.
    async fn send(&mut self, client: &Client, json: bool, sum: &mut Sum) -> anyhow::Result<()> {
        let Self { text, numbers } = std::mem::take(self);
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Ok(());
        };
        let answer = in_turn(client, text.into()).await;
        let answer = answer
            .with_context(|| format!("of the lines {first} to {last} none is known to be kept"))?;
        let results = answer.body.get("results").cloned().unwrap_or_default();
        let results: Vec<Outcome> = client.understood(results)?;
        sum.requested += numbers.len() as u64;
        for result in results {
            let place = result.line.checked_sub(1);
            let line = place.and_then(|place| numbers.get(place));
            let kept = matches!(result.word.as_str(), "imported" | "already_imported");
            sum.kept += u64::from(kept);
            sum.unreadable += u64::from(result.word == "unreadable");
            if json || !kept {
                sum.results.push(json!({
                    "line": line,
                    "outcome": result.word,
                    "id": result.id,
                }));
            }
            *sum.outcomes.entry(result.word).or_default() += 1;
        }
        Ok(())
    }
}

impl Sum {
    fn rendered(&self) -> String {
        let mut text = String::new();
        if !self.results.is_empty() {
            let cell = |result: &Value, field: &str| match result.get(field) {
                Some(Value::String(text)) => show::text(text),
                Some(Value::Number(number)) => number.to_string(),
                _ => String::new(),
            };
            let rows: Vec<_> = self
                .results
                .iter()
                .map(|result| vec![cell(result, "line"), cell(result, "outcome")])
                .collect();
            let columns = [Column::Right("line"), Column::Left("outcome")];
            text.push_str(&show::table(&columns, &rows));
        }
        let _ = write!(text, "{} of {} kept", self.kept, self.requested);
        if !self.outcomes.is_empty() {
            let outcomes = self.outcomes.iter();
            let outcomes = outcomes.map(|(outcome, count)| (outcome.as_str(), *count));
            let _ = write!(text, ": {}", show::counts(outcomes));
        }
        text.push('\n');
        if self.unreadable > 0 {
            let _ = writeln!(
                text,
                "{} could not be read when they were exported",
                self.unreadable
            );
        }
        text
    }
}
