//! `bridge queue status`: what waits at each binding.

use std::process::ExitCode;

use bridge_core::{Clock as _, SystemClock, Timestamp};
use bridge_queue::{BindingInfo, Snapshot, ViewInfo};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{Where, damage_line, holder_json, holder_line, looking_into};
use crate::cli;
use crate::show::{self, Column};

/// What `bridge queue` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Say what waits at each binding: depth, age, deferred, dead letters
    #[command(after_help = super::journal::EXIT_HELP)]
    Status {
        #[command(flatten)]
        place: Where,
    },
}

/// Does what was asked for.
pub(crate) fn run(command: QueueCommand) -> anyhow::Result<ExitCode> {
    let QueueCommand::Status { place } = command;
    looking_into(&place.folder, |snapshot| {
        let now = SystemClock::new().wall();
        if place.json {
            cli::print(&show::json(&to_json(&snapshot, now)))
        } else {
            cli::print(&render(&snapshot, now))
        }
    })
}

fn render(snapshot: &Snapshot, now: Timestamp) -> String {
    let mut out = holder_line(snapshot.holder());
    let bindings = snapshot.inspection().bindings;
    if bindings.is_empty() {
        out.push_str("nothing waits at any binding\n");
        out.push_str(damage_line(snapshot));
        return out;
    }
    let columns = [
        Column::Left("binding"),
        Column::Right("queue"),
        Column::Right("bytes"),
        Column::Right("oldest"),
        Column::Right("deferred"),
        Column::Right("for"),
        Column::Right("dead letters"),
    ];
    let rows: Vec<Vec<String>> = bindings.iter().map(|info| row(info, now)).collect();
    out.push_str(&show::table(&columns, &rows));
    out.push_str(damage_line(snapshot));
    out
}

fn row(info: &BindingInfo, now: Timestamp) -> Vec<String> {
    let age = |since: Option<Timestamp>| {
        since.map_or_else(|| "-".to_owned(), |since| show::age(now.since(since)))
    };
    vec![
        info.binding.to_string(),
        info.queue.quantity.entries.to_string(),
        show::size(info.queue.quantity.bytes),
        age(info.queue.oldest),
        info.deferred.quantity.entries.to_string(),
        age(info.first_refusal),
        info.dead_letters.quantity.entries.to_string(),
    ]
}

fn to_json(snapshot: &Snapshot, now: Timestamp) -> Value {
    let view = |view: &ViewInfo| {
        let oldest = view.oldest;
        json!({
            "entries": view.quantity.entries,
            "bytes": view.quantity.bytes,
            "oldest": oldest.map(|oldest| oldest.to_string()),
            "oldest_age_seconds": oldest.map(|oldest| now.since(oldest).as_secs()),
        })
    };
    let deferred = |info: &BindingInfo| {
        let mut value = view(&info.deferred);
        if let Value::Object(fields) = &mut value {
            let first = info.first_refusal.map(|at| at.to_string());
            fields.insert("first_refusal".to_owned(), json!(first));
        }
        value
    };
    let bindings: Vec<Value> = snapshot
        .inspection()
        .bindings
        .iter()
        .map(|info| {
            json!({
                "route": info.binding.route.as_str(),
                "binding": info.binding.binding.as_str(),
                "queue": view(&info.queue),
                "deferred": deferred(info),
                "dead_letters": view(&info.dead_letters),
            })
        })
        .collect();
    json!({
        "bridge": holder_json(snapshot.holder()),
        "undamaged": snapshot.report().is_clean(),
        "bindings": bindings,
    })
}
