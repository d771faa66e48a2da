//! `bridge dead-letters`: what was given up on, and what is done about it.
//!
//! A bridge that runs is asked over its admin API. In a data folder, with or without a bridge at
//! work in it, dead letters can be looked at and exported, and nothing is changed. Where none is
//! at work, they can be redriven and deleted in its configuration's data folder.

mod change;
mod confirm;
mod entry;
mod export;
mod filter;
mod import;
mod list;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};

use crate::offline;
use crate::running::{self, EXIT_HELP, Running};

pub(crate) use change::{DeleteArgs, RedriveArgs, wait};
pub(crate) use entry::{COLUMNS, Entry, render_whole};
pub(crate) use export::{Counted, Output};
pub(crate) use filter::{EntryId, Filter};

/// What `bridge dead-letters` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List dead letters, the newest first
    #[command(after_help = EXIT_HELP)]
    List(ListArgs),
    /// Show one dead letter whole: why it was given up on, its properties and its payload
    #[command(after_help = EXIT_HELP)]
    Show(ShowArgs),
    /// Put dead letters back into the queues of the very bindings that gave up on them
    #[command(after_help = EXIT_HELP)]
    Redrive(RedriveArgs),
    /// Delete dead letters for good
    #[command(after_help = EXIT_HELP)]
    Delete(DeleteArgs),
    /// Write dead letters out whole, a line of JSON each
    #[command(after_help = EXIT_HELP)]
    Export(ExportArgs),
    /// Keep dead letters that were exported, here or at another bridge, as dead letters again
    #[command(after_help = EXIT_HELP)]
    Import(ImportArgs),
}

/// A data folder in place of a bridge that runs.
#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// Look into this data folder (`data_dir` in the configuration), whether or not a bridge runs in
    /// it, in place of asking one
    #[arg(value_name = "FOLDER", conflicts_with = "running")]
    pub(crate) folder: Option<PathBuf>,
}

/// What is listed.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) place: Folder,
    #[command(flatten)]
    pub(crate) running: Running,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// All that there are
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ListArgs {
    /// How many at most.
    pub(crate) fn most(&self) -> usize {
        if self.all { usize::MAX } else { self.limit }
    }
}

/// What is shown.
#[derive(Debug, Args)]
#[command(override_usage = "bridge dead-letters show [OPTIONS] [FOLDER] <ID>")]
pub(crate) struct ShowArgs {
    /// The id of the dead letter as `list` shows it, or of its message; before it, the data folder
    /// to look into, in place of asking a bridge that runs
    #[arg(value_name = "ID", required = true)]
    what: Vec<OsString>,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    how: How,
}

impl ShowArgs {
    /// What stands on the command line wherever options are between: clap itself would take the
    /// folder for the id.
    fn split(&self) -> anyhow::Result<(Option<&Path>, EntryId)> {
        let (folder, id) = match self.what.as_slice() {
            [id] => (None, id),
            [folder, _] if self.running.is_given() => bail!(
                "{} is a data folder to look into, which goes without a bridge to ask",
                folder.display()
            ),
            [folder, id] => (Some(Path::new(folder)), id),
            _ => bail!("`show` takes one id, and a data folder before it at most"),
        };
        let id = id.to_string_lossy();
        let parsed = id.parse::<EntryId>();
        let parsed = parsed.map_err(|why| anyhow!("`{id}` is no id of a dead letter: {why}"));
        Ok((folder, parsed?))
    }
}

/// How a dead letter is shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct How {
    /// The payload in hexadecimal, also where it is text
    #[arg(long)]
    pub(crate) hex: bool,
    /// Nothing but the payload, as it is; for a file or a pipe
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    pub(crate) raw: bool,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is exported.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) place: Folder,
    #[command(flatten)]
    pub(crate) running: Running,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Into this file, which is there when all is in it and not before; without it, to standard
    /// output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What is imported.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// What `export` wrote; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) running: Running,
    /// Answer in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Does what was asked for.
pub(crate) fn run(command: DeadLettersCommand) -> anyhow::Result<ExitCode> {
    match command {
        DeadLettersCommand::List(args) => match &args.place.folder {
            Some(folder) => offline::list(folder, &args),
            None => running::asking(&args.running, async |client| {
                list::list(&client, &args).await
            }),
        },
        DeadLettersCommand::Show(args) => match args.split() {
            Ok((Some(folder), id)) => offline::show(folder, &id, args.how),
            Ok((None, id)) => running::asking(&args.running, async |client| {
                list::show(&client, &id, args.how).await
            }),
            Err(wrong) => running::not_asked(&wrong),
        },
        DeadLettersCommand::Redrive(args) => change::redrive(&args),
        DeadLettersCommand::Delete(args) => change::delete(&args),
        DeadLettersCommand::Export(args) => match &args.place.folder {
            Some(folder) => offline::export(folder, args.filter, args.output.as_deref()),
            None => running::asking(&args.running, async |client| {
                export::export(&client, &args).await
            }),
        },
        DeadLettersCommand::Import(args) => running::asking(&args.running, async |client| {
            import::import(&client, &args).await
        }),
    }
}
