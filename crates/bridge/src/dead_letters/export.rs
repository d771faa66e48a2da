//! Dead letters on their way out, a line of JSON each.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bridge_core::{Clock as _, SystemClock};
use serde::Deserialize;

use super::ExportArgs;
use super::filter::path_with;
use super::list::DEAD_LETTERS;
use crate::cli;
use crate::running::{Client, EXIT_SOME_NOT, Failure};
use crate::show;

/// Where lines go: what they hold is for its owner's eyes.
#[derive(Debug)]
pub(crate) enum Output {
    /// Standard output, and whether a terminal obeys what is written.
    Stdout { terminal: bool },
    /// A file that gets its name when all is in it.
    File {
        file: io::BufWriter<File>,
        part: PathBuf,
        path: PathBuf,
    },
}

impl Output {
    /// Refuses to replace a file.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            let terminal = io::stdout().is_terminal();
            return Ok(Self::Stdout { terminal });
        };
        anyhow::ensure!(
            !path.exists(),
            "{} is there already, and is not replaced",
            path.display()
        );
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&part)
            .with_context(|| format!("cannot write {}", part.display()))?;
        Ok(Self::File {
            file: io::BufWriter::new(file),
            part,
            path: path.to_owned(),
        })
    }

    /// One line with its end. Says whether anyone still reads.
    pub(crate) fn line(&mut self, line: &[u8]) -> anyhow::Result<bool> {
        let written = match self {
            Self::Stdout { terminal: true } => {
                let text = show::harmless(&String::from_utf8_lossy(line));
                io::stdout().lock().write_all(text.as_bytes())
            }
            Self::Stdout { terminal: false } => io::stdout().lock().write_all(line),
            Self::File { file, part, .. } => {
                let written = file.write_all(line);
                written.with_context(|| format!("cannot write {}", part.display()))?;
                return Ok(true);
            }
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            written => Ok(written.map(|()| true)?),
        }
    }

    /// All is there.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout { .. } => match io::stdout().lock().flush() {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
                _ => Ok(()),
            },
            Self::File { file, part, path } => {
                let cannot = || format!("cannot write {}", path.display());
                let file = file.into_inner().map_err(io::IntoInnerError::into_error);
                file.and_then(|file| file.sync_all())
                    .and_then(|()| std::fs::hard_link(&part, &path))
                    .and_then(|()| std::fs::remove_file(&part))
                    .with_context(cannot)
            }
        }
    }
}

/// Whole lines out of pieces that end anywhere.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Takes a piece; gives each line that is whole to `each`, which says whether to go on.
    pub(crate) fn take(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&[u8]) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(part);
            if self.0.ends_with(b"\n") {
                let go_on = each(&self.0)?;
                self.0.clear();
                if !go_on {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What is left is half a line.
    pub(crate) fn is_cut(&self) -> bool {
        !self.0.is_empty()
    }
}

/// What stands in the place of an entry that cannot be read.
#[derive(Deserialize)]
struct Unreadable {
    #[serde(default)]
    unreadable: bool,
}

/// Whether a line of an export stands for an entry that cannot be read.
fn is_unreadable(line: &[u8]) -> bool {
    serde_json::from_slice::<Unreadable>(line).is_ok_and(|entry| entry.unreadable)
}

/// How many were written, and what stood in the place of others.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) written: u64,
    pub(crate) unreadable: u64,
}

impl Counted {
    /// Counts a line.
    pub(crate) fn count(&mut self, line: &[u8]) {
        if is_unreadable(line) {
            self.unreadable += 1;
        } else {
            self.written += 1;
        }
    }

    /// Says it, beside what was written.
    pub(crate) fn told(&self) -> anyhow::Result<ExitCode> {
        let written = show::count(self.written, "dead letter");
        let mut text = format!("exported {written}\n");
        if self.unreadable > 0 {
            let _ = writeln!(
                text,
                "{} cannot be read, for the disk has lost them",
                self.unreadable
            );
        }
        cli::eprint(&text)?;
        Ok(ExitCode::from(if self.unreadable > 0 {
            EXIT_SOME_NOT
        } else {
            0
        }))
    }
}

pub(super) async fn export(client: &Client, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let mut output = Output::open(args.output.as_deref())?;
    let fields = args.filter.fields(SystemClock::new().wall());
    let path = path_with(&format!("{DEAD_LETTERS}/export"), &fields);
    let mut stream = client.stream(&path).await?;
    let (mut lines, mut counted) = (Lines::default(), Counted::default());
    loop {
        let piece = stream.next().await;
        let piece = piece.with_context(|| {
            format!(
                "cut off after {}",
                show::count(counted.written, "dead letter")
            )
        })?;
        let Some(piece) = piece else { break };
        let read_on = lines.take(&piece, |line| {
            counted.count(line);
            output.line(line)
        })?;
        if !read_on {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if lines.is_cut() {
        return Err(Failure::Foreign {
            whom: client.whom().clone(),
            why: "the export ends within a line".to_owned(),
        }
        .into());
    }
    output.finish()?;
    counted.told()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_anywhere_and_lines_are_whole() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for piece in [&b"{\"a"[..], b"\":1}\n{}\n{\"b\"", b"", b":2}\n"] {
            let go_on = lines.take(piece, |line| {
                seen.push(String::from_utf8(line.to_vec()).unwrap());
                Ok(true)
            });
            assert!(go_on.unwrap());
        }
        assert_eq!(seen, ["{\"a\":1}\n", "{}\n", "{\"b\":2}\n"]);
        assert!(!lines.is_cut());
        assert!(lines.take(b"{", |_| Ok(true)).unwrap());
        assert!(lines.is_cut());
    }

    #[test]
    fn an_exported_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let mut output = Output::open(Some(&path)).unwrap();
        assert!(output.line(b"{}\n").unwrap());
        assert!(!path.exists());
        output.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"{}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(Output::open(Some(&path)).is_err());
    }
}
