//! `bridge bindings`: how the bindings of a bridge that runs do, and whether they are to send.

use std::process::ExitCode;
use std::time::Duration;

use bridge_core::BindingKey;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli;
use crate::running::{self, Client, EXIT_HELP, Running};
use crate::show::{self, Column};

/// What `bridge bindings` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum BindingsCommand {
    /// List the bindings of a bridge that runs: what waits at each, and why nothing moves
    #[command(after_help = EXIT_HELP)]
    List {
        #[command(flatten)]
        running: Running,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop sending at a binding: what arrives is queued, until `resume` or the end of the process
    #[command(after_help = EXIT_HELP)]
    Pause(Which),
    /// Have a paused binding send again, its queue first
    #[command(after_help = EXIT_HELP)]
    Resume(Which),
}

/// Which binding.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The binding, as in telemetry/cloud
    #[arg(value_name = "ROUTE/BINDING", value_parser = binding)]
    binding: BindingKey,
    #[command(flatten)]
    running: Running,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// One binding, as much of it as is read.
#[derive(Debug, Deserialize)]
struct Binding {
    route: String,
    #[serde(rename = "binding")]
    name: String,
    state: String,
    why: Option<String>,
    queue: Waiting,
    deferred: Waiting,
    dead_letters: Waiting,
    oldest_seconds: u64,
    rates: Option<Rates>,
}

#[derive(Debug, Deserialize)]
struct Waiting {
    entries: u64,
}

#[derive(Debug, Deserialize)]
struct Rates {
    delivered: f64,
}

impl Binding {
    fn row(&self) -> Vec<String> {
        let age = if self.queue.entries == 0 {
            "-".to_owned()
        } else {
            show::age(Duration::from_secs(self.oldest_seconds))
        };
        let rate = self.rates.as_ref();
        vec![
            show::text(&format!("{}/{}", self.route, self.name)),
            show::text(&self.state),
            self.queue.entries.to_string(),
            age,
            self.deferred.entries.to_string(),
            self.dead_letters.entries.to_string(),
            rate.map_or_else(|| "-".to_owned(), |rates| format!("{:.1}", rates.delivered)),
            show::text(self.why.as_deref().unwrap_or_default()),
        ]
    }
}

fn binding(text: &str) -> Result<BindingKey, String> {
    if !text.contains('/') {
        return Err("a binding is named with its route, as in telemetry/cloud".to_owned());
    }
    text.parse::<BindingKey>().map_err(|why| why.to_string())
}

/// Does what was asked for.
pub(crate) fn run(command: &BindingsCommand) -> anyhow::Result<ExitCode> {
    match command {
        BindingsCommand::List { running, json } => {
            running::asking(running, async |client| list(&client, *json).await)
        }
        BindingsCommand::Pause(which) => set(which, "pause"),
        BindingsCommand::Resume(which) => set(which, "resume"),
    }
}

async fn list(client: &Client, json: bool) -> anyhow::Result<ExitCode> {
    let answer = client.get("/api/v1/bindings").await?;
    let items = answer.body.get("items").cloned().unwrap_or_default();
    if json {
        return cli::print(&show::json(&json!({ "bindings": items })));
    }
    let bindings: Vec<Binding> = client.understood(items)?;
    let rows: Vec<_> = bindings.iter().map(Binding::row).collect();
    let columns = [
        Column::Left("binding"),
        Column::Left("state"),
        Column::Right("queued"),
        Column::Right("oldest"),
        Column::Right("deferred"),
        Column::Right("dead letters"),
        Column::Right("delivered/s"),
        Column::Left("why"),
    ];
    cli::print(&show::table(&columns, &rows))
}

fn set(which: &Which, verb: &str) -> anyhow::Result<ExitCode> {
    let BindingKey { route, binding } = &which.binding;
    let path = format!("/api/v1/bindings/{route}/{binding}/{verb}");
    running::asking(&which.running, async |client| {
        let answer = match client.post(&path, &json!({}), Duration::ZERO).await {
            Err(failure) if failure.status() == Some(404) => {
                return running::not_done(&format!(
                    "{} has no binding {}: see `bridge bindings list`",
                    client.whom(),
                    which.binding
                ));
            }
            answer => answer?.body,
        };
        if which.json {
            return cli::print(&show::json(&answer));
        }
        let changed = answer.get("changed").and_then(Value::as_bool);
        let so = if changed == Some(false) {
            " already"
        } else {
            ""
        };
        let state = if verb == "pause" {
            "is paused"
        } else {
            "sends"
        };
        cli::print(&format!("{} {state}{so}\n", which.binding))
    })
}
