//! How fast the journal is, beside bare appends of the same bytes that are made durable one by one.
//!
//! All measurements of a round follow each other, so that a disturbance of the machine meets all
//! of them, and a ratio is taken within its round. What the kernel keeps of a process that has
//! worked before would spoil a figure of memory: opening is measured in a process of its own.

mod load;
mod measure;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, value_parser};

use self::load::Load;
use self::table::Table;
use super::build;

/// What `cargo xtask bench journal` takes.
#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// How many messages are appended, drained and opened again
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(10_000..=100_000_000))]
    messages: u64,
    /// How many times everything is measured
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// The size of a payload in bytes
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u32).range(0..=1 << 20))]
    payload: u32,
    /// Where the journal is written: a folder on a real disk [default: target/bench]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Open the journal in a folder, and print what that took
    #[arg(long, value_name = "FOLDER", hide = true)]
    open: Option<PathBuf>,
}

/// Measures, and prints the figures to standard output.
pub(super) fn run(args: &JournalArgs) -> Result<()> {
    if let Some(folder) = &args.open {
        println!("{}", measure::open(folder)?);
        return Ok(());
    }
    let data_dir = build::data_dir(args.data_dir.as_deref())?;
    let folder = tempfile::Builder::new()
        .prefix("journal-")
        .tempdir_in(&data_dir)
        .with_context(|| format!("cannot create a folder in {}", data_dir.display()))?;
    let load = Arc::new(Load::new(args.messages, usize::try_from(args.payload)?)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .context("cannot start the producers")?;
    let mut table = Table::new(&load);
    for round in 1..=args.rounds {
        let place = folder.path().join(round.to_string());
        std::fs::create_dir(&place)?;
        runtime
            .block_on(measure::round(&load, &place, round, &mut table))
            .with_context(|| format!("round {round}"))?;
        std::fs::remove_dir_all(&place)?;
        eprintln!("round {round}/{} done", args.rounds);
    }
    if args.json {
        println!("{:#}", table.to_json());
    } else {
        print!("{}", table.render());
    }
    Ok(())
}

/// Opens the journal in `folder` in a process of its own, and says what that took.
fn open_apart(folder: &Path) -> Result<measure::Opened> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        .args(["bench", "journal", "--open"])
        .arg(folder)
        .output()
        .context("cannot run this program again")?;
    if !output.status.success() {
        bail!(
            "opening the journal failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8_lossy(&output.stdout).parse()
}
