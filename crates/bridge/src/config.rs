//! The configuration: one YAML file, checked once into types that leave nothing doubtful.
//!
//! A file goes through four steps, and each keeps where things stand: [`source`] reads it,
//! [`yaml`] makes a tree of it, [`reader`] takes the fields out of the tree by their description
//! in [`fields`], and [`check`] makes sessions and routes of them. Problems are collected, not
//! thrown: `bridge check` shows all of them at once.

mod check;
mod env;
mod fields;
mod identity;
mod lease;
mod loops;
mod machine;
mod nearest;
mod nonce;
mod problem;
mod quantity;
mod reader;
mod report;
mod scalar;
mod schema;
mod secrets;
mod source;
mod yaml;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_core::Name;
use bridge_dlq_admin::AdminOptions;
use bridge_runtime::RouteSpec;
use bridge_transport::{Secret, SessionConfig};

pub(crate) use env::Host;
pub(crate) use identity::{Identity, Mode, Suffix};
pub(crate) use lease::{Lease, LeaseStore};
pub(crate) use machine::Machine;
pub(crate) use quantity::{show_duration, show_size};
pub(crate) use report::{ConfigErrors, Diagnostic, Paint, Report, Warning};
pub(crate) use schema::json_schema;

/// A checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The name of this bridge.
    pub(crate) bridge_id: Name,
    /// The folder that holds what waits.
    pub(crate) data_dir: PathBuf,
    /// How it is kept there.
    pub(crate) journal: JournalOptions,
    /// The brokers, by the names of their sessions.
    pub(crate) sessions: BTreeMap<Name, SessionConfig>,
    /// Who each of them is to its broker.
    pub(crate) identities: BTreeMap<Name, Identity>,
    /// What the exclusive ones wait for; there is one where any is.
    pub(crate) lease: Option<Lease>,
    /// The routes, in the order of the file.
    pub(crate) routes: Vec<RouteSpec>,
    /// How the admin API is reached.
    pub(crate) admin: Option<AdminOptions>,
    /// Where probes and metrics are answered.
    pub(crate) monitor: Option<SocketAddr>,
    /// How long a stop waits for what is under way.
    pub(crate) drain_timeout: Duration,
}

/// How what waits is kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalOptions {
    /// The size of one file of the journal, in bytes.
    pub(crate) segment_size: u64,
}

/// Where the monitor of the file at `path` listens, whatever else is wrong with the file: a bridge
/// that runs goes on with the configuration that it has read.
pub(crate) fn monitor(path: &Path, host: &dyn Host) -> Result<Option<SocketAddr>, ConfigErrors> {
    a_part(path, |root, source, _| {
        check::monitor_alone(root, source, host)
    })
}

/// How the admin API of the file at `path` is reached, whatever else is wrong with the file.
pub(crate) fn admin(path: &Path, host: &dyn Host) -> Result<Option<AdminAccess>, ConfigErrors> {
    a_part(path, |root, source, folder| {
        check::admin_alone(root, source, folder, host)
    })
}

/// How who is on this machine reaches the admin API.
#[derive(Debug)]
pub(crate) struct AdminAccess {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Whether it speaks TLS.
    pub(crate) encrypted: bool,
    /// What opens it.
    pub(crate) token: AdminSecret,
}

/// The token of the admin API, or where it is.
#[derive(Debug)]
pub(crate) enum AdminSecret {
    /// The file itself says it.
    Text(Secret),
    /// This file holds it.
    File(PathBuf),
}

/// Takes one part out of the file at `path`, with the folder that it is in.
fn a_part<T>(
    path: &Path,
    take: impl FnOnce(&yaml::Node, &source::Source, &Path) -> Result<T, Vec<Diagnostic>>,
) -> Result<T, ConfigErrors> {
    let mut source = source::Source::read(path).map_err(|unusable| {
        let source::Unusable {
            source,
            at,
            problem,
        } = *unusable;
        ConfigErrors(Report::single(source, &(at..at), problem))
    })?;
    match yaml::parse(&source) {
        Ok(root) => {
            for range in secrets::ranges(&root) {
                source.hide(range);
            }
            let folder = path.parent().unwrap_or(Path::new(""));
            take(&root, &source, folder)
                .map_err(|problems| ConfigErrors(Report::new(source, problems)))
        }
        Err((span, problem)) => {
            let report = Report::single(source.masking_words(), &span, problem);
            Err(ConfigErrors(report))
        }
    }
}

/// A duration with its unit, as the file has them.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    quantity::duration(text).ok()
}

impl Config {
    /// Reads and checks the file at `path`.
    pub(crate) fn load(path: &Path, host: &dyn Host) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let (config, report) = Self::examine(path, host);
        match config {
            Some(config) => Ok((config, report.to_warnings())),
            None => Err(ConfigErrors(report)),
        }
    }

    /// Like [`Config::load`], with the whole report either way.
    pub(crate) fn examine(path: &Path, host: &dyn Host) -> (Option<Self>, Report) {
        match source::Source::read(path) {
            Ok(source) => Self::examine_source(source, path, host),
            Err(unusable) => {
                let source::Unusable {
                    source,
                    at,
                    problem,
                } = *unusable;
                (None, Report::single(source, &(at..at), problem))
            }
        }
    }

    /// The same for a text that stands at `path`, or would.
    fn examine_source(
        mut source: source::Source,
        path: &Path,
        host: &dyn Host,
    ) -> (Option<Self>, Report) {
        let root = match yaml::parse(&source) {
            Ok(root) => root,
            Err((span, problem)) => {
                return (None, Report::single(source.masking_words(), &span, problem));
            }
        };
        for range in secrets::ranges(&root) {
            source.hide(range);
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let (config, problems) = check::config(&root, &source, folder, host);
        (config, Report::new(source, problems))
    }
}

#[cfg(test)]
mod tests;
