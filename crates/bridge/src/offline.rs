//! Looking into a data folder from the command line, whether or not a bridge works in it: what the
//! journal holds, what is damaged, what waits, what was given up on. Nothing is changed.

mod dead_letters;
mod journal;
mod queue;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bridge_queue::{Holder, Snapshot};
use clap::Args;

use crate::cli;

pub(crate) use dead_letters::{DeadLettersCommand, run as dead_letters};
pub(crate) use journal::{JournalCommand, run as journal};
pub(crate) use queue::{QueueCommand, run as queue};

/// The answer is bad news: something is damaged, or what was asked for is not there.
const EXIT_BAD: u8 = 1;
/// There is no answer: the folder could not be looked into.
const EXIT_CANNOT_LOOK: u8 = 2;

/// What every command that looks into a folder takes.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The data folder: `data_dir` in the configuration
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Hands a snapshot of the folder to `answer`; says why when there is none.
fn looking_into(
    folder: &Path,
    answer: impl FnOnce(Snapshot) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    match Snapshot::of(folder) {
        Ok(snapshot) => answer(snapshot),
        Err(error) => {
            let error = anyhow::Error::from(error);
            let label = cli::paint_stderr().red("error:");
            cli::eprint(&format!("{label} {}\n", show::text(&format!("{error:#}"))))?;
            Ok(ExitCode::from(EXIT_CANNOT_LOOK))
        }
    }
}

/// A line on who works in the folder, when someone does or may.
fn holder_line(holder: &Holder) -> String {
    match holder {
        Holder::Nobody => String::new(),
        Holder::Process(name) => format!(
            "a bridge is at work here ({}): this is a moment of it\n",
            show::text(name)
        ),
        Holder::Unknown(why) => format!(
            "whether a bridge is at work here cannot be told: {}\n",
            show::text(why)
        ),
    }
}

fn holder_json(holder: &Holder) -> serde_json::Value {
    match holder {
        Holder::Nobody => serde_json::json!({ "running": false }),
        Holder::Process(name) => serde_json::json!({ "running": true, "holder": name }),
        Holder::Unknown(why) => serde_json::json!({ "running": null, "problem": why }),
    }
}
