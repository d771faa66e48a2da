//! `bridge inject`: a test message for a route of a bridge that runs, and what became of it.

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_core::{Name, Topic};
use clap::Args;
use serde::Deserialize;
use serde_json::json;

use crate::cli;
use crate::dead_letters::wait;
use crate::running::{self, Answer, Client, Running};
use crate::show::{self, Column};

/// The largest payload: in base64 it fits into what the API takes.
const LARGEST: u64 = 700 << 10;
/// How long the store may take.
const LONGER: Duration = Duration::from_secs(15);

/// What is given to which route.
#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// The route
    route: Name,
    /// The topic that the message comes with
    topic: Topic,
    /// The payload; `-` reads it from standard input
    #[arg(default_value = "", hide_default_value = true)]
    payload: String,
    /// Only to this binding, whatever the topic; without it to all of the route, which has to take
    /// the topic
    #[arg(long, value_name = "NAME")]
    binding: Option<Name>,
    /// The quality of service that it comes with
    #[arg(long, value_name = "0-2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// With the retain flag
    #[arg(long)]
    retain: bool,
    /// Wait for what becomes of it, as in 10s; at most 60s
    #[arg(long, value_name = "DURATION", value_parser = wait)]
    wait: Option<Duration>,
    #[command(flatten)]
    running: Running,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Debug, Deserialize)]
struct Injected {
    message_id: String,
    stored: bool,
    bindings: Vec<At>,
}

#[derive(Debug, Deserialize)]
struct At {
    route: String,
    binding: String,
    verdict: Option<String>,
    reason: Option<String>,
    dead_letter: Option<String>,
}

/// Does what was asked for.
pub(crate) fn run(args: &InjectArgs) -> anyhow::Result<ExitCode> {
    running::asking(&args.running, async |client| {
        let mut body = json!({
            "topic": args.topic.as_str(),
            "payload_base64": STANDARD.encode(payload(&args.payload)?),
            "qos": args.qos,
            "retain": args.retain,
        });
        if let (Some(binding), Some(fields)) = (&args.binding, body.as_object_mut()) {
            fields.insert("binding".to_owned(), binding.as_str().into());
        }
        let mut path = format!("/api/v1/routes/{}/inject", args.route);
        if let Some(wait) = args.wait {
            let _ = write!(path, "?wait={}", running::whole_seconds(wait));
        }
        let longer = LONGER + args.wait.unwrap_or_default();
        let answer = match client.post(&path, &body, longer).await {
            Err(failure) if failure.status() == Some(404) => {
                return running::not_done(&show::text(&failure.to_string()));
            }
            answer => answer?,
        };
        told(&client, &answer, args.json)
    })
}

fn payload(text: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if text == "-" {
        let mut input = std::io::stdin().lock().take(LARGEST + 1);
        let read = input.read_to_end(&mut bytes);
        read.context("cannot read the payload from standard input")?;
    } else {
        bytes.extend_from_slice(text.as_bytes());
    }
    let most = show::size(LARGEST);
    anyhow::ensure!(
        bytes.len() as u64 <= LARGEST,
        "a test message has at most {most}"
    );
    Ok(bytes)
}

fn told(client: &Client, answer: &Answer, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        cli::print(&show::json(&answer.body))?;
        return Ok(answer.exit_code());
    }
    let injected: Injected = client.understood(&answer.body)?;
    let rows: Vec<_> = injected.bindings.iter().map(At::row).collect();
    let columns = [Column::Left("binding"), Column::Left("verdict")];
    let mut text = show::table(&columns, &rows);
    let id = show::text(&injected.message_id);
    let state = if injected.stored {
        "stored"
    } else {
        "not stored yet: the store is slow or fails, see the bridge's log"
    };
    let _ = writeln!(text, "message {id} is {state}");
    cli::print(&text)?;
    Ok(answer.exit_code())
}

impl At {
    fn row(&self) -> Vec<String> {
        let mut became = show::text(self.verdict.as_deref().unwrap_or("-"));
        if let Some(reason) = &self.reason {
            let _ = write!(became, ": {}", show::text(reason));
        }
        if let Some(id) = &self.dead_letter {
            let _ = write!(became, ", dead letter {}", show::text(id));
        }
        vec![
            show::text(&format!("{}/{}", self.route, self.binding)),
            became,
        ]
    }
}
