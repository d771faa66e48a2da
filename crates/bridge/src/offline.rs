//! A data folder from the command line: what the journal holds, what is damaged, what waits, what
//! was given up on. Whoever looks changes nothing, whether or not a bridge works in it; what is
//! [changed](mod@changing) is changed while none does.

mod changing;
mod dead_letters;
mod journal;
mod queue;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bridge_queue::{Holder, OpenError, Snapshot};
use clap::Args;

use crate::cli;
use crate::show;

pub(crate) use changing::changing;
pub(crate) use dead_letters::{export, list, show};
pub(crate) use journal::{JournalCommand, run as journal};
pub(crate) use queue::{QueueCommand, run as queue};

/// The answer is bad news: something is damaged, or what was asked for is not there.
const EXIT_BAD: u8 = 1;
/// There is no answer: the folder could not be looked into, or the answer not be written.
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

/// Hands a snapshot of the folder to `answer`; says why when there is none, or no answer.
fn looking_into(
    folder: &Path,
    answer: impl FnOnce(Snapshot) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let answered = Snapshot::of(folder)
        .map_err(anyhow::Error::from)
        .and_then(answer);
    answered.or_else(|error| {
        let label = cli::paint_stderr().red("error:");
        let mut text = format!("{label} {}\n", show::text(&format!("{error:#}")));
        if is_not_there(&error) {
            text.push_str("help: a data folder is asked for, `data_dir` in the configuration\n");
        }
        cli::eprint(&text)?;
        Ok(ExitCode::from(EXIT_CANNOT_LOOK))
    })
}

fn is_not_there(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(
        error.downcast_ref(),
        Some(OpenError::Io { source, .. }) if matches!(source.kind(), NotFound | NotADirectory)
    )
}

/// A line for where an answer may lack what is damaged.
fn damage_line(snapshot: &Snapshot) -> &'static str {
    if snapshot.report().is_clean() {
        ""
    } else {
        "the journal is damaged, and something may be missing here: see `bridge journal verify`\n"
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
