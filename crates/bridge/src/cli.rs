//! The command line.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bridge_core::{Name, Topic};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::{Value, json};

use crate::bindings::{self, BindingsCommand};
use crate::config::{Config, Machine, Paint, Report, json_schema};
use crate::dead_letters::{self, DeadLettersCommand};
use crate::explain::Explanation;
use crate::health::{self, HealthArgs};
use crate::identities;
use crate::inject::{self, InjectArgs};
use crate::jobs::{self, JobsCommand};
use crate::logging::{self, LogFilter, LogFormat};
use crate::offline::{self, JournalCommand, QueueCommand};
use crate::run;
use crate::running::EXIT_HELP;

/// Nothing takes the topic that was asked about.
const EXIT_NOTHING: u8 = 2;

/// A durable MQTT bridge that can answer, for every message, where it is and why.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Carry messages until told to stop
    Run {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        log: Box<Log>,
    },
    /// Check a configuration file: everything that is wrong with it, at once
    Check {
        #[command(flatten)]
        file: ConfigFile,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
        /// Fail for a warning as well
        #[arg(long)]
        deny_warnings: bool,
    },
    /// Say which routes take a topic, and what becomes of it; exit 2 when none does
    Explain {
        /// The topic of a message
        topic: String,
        /// The configuration file
        #[arg(long, value_name = "FILE", env = "BRIDGE_CONFIG", default_value = DEFAULT_CONFIG)]
        config: PathBuf,
        /// Only what is read from this session
        #[arg(long, value_name = "NAME")]
        session: Option<Name>,
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask a bridge that runs whether it is ready, for a container's health check; exit 1 when not
    Health(HealthArgs),
    /// Look into the journal of a data folder, whether or not a bridge runs in it
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Say what waits in a data folder, whether or not a bridge runs in it
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look at dead letters, of a bridge that runs or in a data folder; redrive, delete, export or
    /// import them
    #[command(subcommand)]
    DeadLetters(Box<DeadLettersCommand>),
    /// See how far the redrives and deletes of many dead letters are, and stop them
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// See what waits at the bindings of a bridge that runs; pause and resume them
    #[command(subcommand)]
    Bindings(BindingsCommand),
    /// Give a route of a bridge that runs a test message
    #[command(after_help = EXIT_HELP)]
    Inject(InjectArgs),
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Show the bridge at work, with brokers of its own
    #[cfg(feature = "demo")]
    Demo(crate::demo::DemoArgs),
}

/// What is logged, and how.
#[derive(Debug, Args)]
struct Log {
    /// How log lines look
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
    /// What is logged: a level, or a filter such as `info,bridge_transport=debug`
    #[arg(
        long,
        default_value = "info",
        value_name = "FILTER",
        env = "BRIDGE_LOG"
    )]
    log: LogFilter,
}

pub(crate) const DEFAULT_CONFIG: &str = "/etc/bridge/bridge.yaml";

/// The file, as an argument or as an option.
#[derive(Debug, Args)]
struct ConfigFile {
    #[arg(
        value_name = "FILE",
        help = "The configuration file [env: BRIDGE_CONFIG=] [default: /etc/bridge/bridge.yaml]"
    )]
    file: Option<PathBuf>,
    /// The configuration file, given as an option
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// What is written on the command line, else in the environment, else the usual place.
    fn path(&self) -> PathBuf {
        let written = self.file.clone().or_else(|| self.config.clone());
        written
            .or_else(|| std::env::var_os("BRIDGE_CONFIG").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG))
    }
}

/// Does what the command line says.
pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run { file, log } => run(&file.path(), *log),
        Command::Check {
            file,
            json,
            deny_warnings,
        } => check(&file.path(), json, deny_warnings),
        Command::Explain {
            topic,
            config,
            session,
            json,
        } => explain(&topic, &config, session.as_ref(), json),
        Command::Health(args) => health::run(&args),
        Command::Journal(command) => offline::journal(command),
        Command::Queue(command) => offline::queue(command),
        Command::DeadLetters(command) => dead_letters::run(*command),
        Command::Jobs(command) => jobs::run(&command),
        Command::Bindings(command) => bindings::run(&command),
        Command::Inject(args) => inject::run(&args),
        Command::Schema => print(&pretty(&json_schema())),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "bridge", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        #[cfg(feature = "demo")]
        Command::Demo(args) => crate::demo::run(args),
    };
    done.unwrap_or_else(|error| {
        // The last resort: there is nowhere left to say that this failed.
        let _ = writeln!(io::stderr(), "{} {error:#}", paint_stderr().red("error:"));
        ExitCode::FAILURE
    })
}

fn run(path: &Path, log: Log) -> anyhow::Result<ExitCode> {
    let (config, warnings) = match Config::load(path, &Machine) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprint(&errors.0.render(paint_stderr()))?;
            return Ok(ExitCode::FAILURE);
        }
    };
    logging::start(log.log_format, log.log)?;
    for warning in warnings.iter().filter(|w| !w.is_told_by_its_session()) {
        tracing::warn!(event = "config_warning", "{warning}");
    }
    // Through the log, whose readers may not see anything else.
    Ok(match run::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!(event = "failed", "{failure:#}");
            ExitCode::FAILURE
        }
    })
}

fn check(path: &Path, json: bool, deny_warnings: bool) -> anyhow::Result<ExitCode> {
    let (config, report) = Config::examine(path, &Machine);
    let denied = deny_warnings && report.warnings().next().is_some();
    let code = if config.is_some() && !denied {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    if json {
        print(&pretty(&report_json(&report, config.as_ref())))?;
        return Ok(code);
    }
    let paint = paint_stdout();
    print(&report.render(paint))?;
    if config.is_some() && denied {
        let refused = paint.red("refused");
        let file = report.file();
        print(&format!(
            "{refused}: {file}: --deny-warnings counts a warning as an error\n"
        ))?;
    } else if let Some(config) = config {
        let (sessions, routes) = (config.sessions.len(), config.routes.len());
        let bindings: usize = config.routes.iter().map(|route| route.bindings.len()).sum();
        let ok = paint.green("ok");
        print(&format!(
            "{ok}: {}: sessions {sessions}, routes {routes}, bindings {bindings}\n{}",
            report.file(),
            identities::render(&config.identities)
        ))?;
    }
    Ok(code)
}

fn report_json(report: &Report, config: Option<&Config>) -> Value {
    let list = |diagnostics: &mut dyn Iterator<Item = &crate::config::Diagnostic>| -> Vec<Value> {
        diagnostics
            .map(|diagnostic| {
                let warning = diagnostic.problem.is_warning();
                json!({
                    "severity": if warning { "warning" } else { "error" },
                    "line": diagnostic.place.line,
                    "column": diagnostic.place.column,
                    "field": diagnostic.path,
                    "message": diagnostic.problem.to_string(),
                    "notes": diagnostic.problem.notes(),
                    "remedy": diagnostic.problem.remedy(),
                })
            })
            .collect()
    };
    let errors = list(&mut report.errors());
    let warnings = list(&mut report.warnings());
    json!({
        "file": report.file(),
        "valid": errors.is_empty(),
        "sessions": config.map(|config| identities::to_json(&config.identities)),
        "errors": errors,
        "warnings": warnings,
    })
}

fn explain(
    topic: &str,
    path: &Path,
    session: Option<&Name>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let config = match Config::load(path, &Machine) {
        Ok((config, _)) => config,
        Err(errors) => {
            eprint(&errors.0.render(paint_stderr()))?;
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Some(session) = session
        && !config.sessions.contains_key(session)
    {
        anyhow::bail!("there is no session `{session}` in {}", path.display());
    }
    let topic = Topic::parse(topic)
        .with_context(|| format!("`{topic}` is not the topic of one message"))?;
    let explanation = Explanation::of(&config, &topic, session);
    if json {
        print(&pretty(&explanation.to_json()))?;
    } else {
        print(&explanation.render(paint_stdout()))?;
    }
    Ok(if explanation.is_empty() {
        ExitCode::from(EXIT_NOTHING)
    } else {
        ExitCode::SUCCESS
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

pub(crate) fn paint_stdout() -> Paint {
    paint(io::stdout().is_terminal())
}

pub(crate) fn paint_stderr() -> Paint {
    paint(io::stderr().is_terminal())
}

fn paint(terminal: bool) -> Paint {
    if terminal && std::env::var_os("NO_COLOR").is_none() {
        Paint::Coloured
    } else {
        Paint::Plain
    }
}

/// To standard output; that a reader such as `head` has gone is no failure.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    written(io::stdout().lock().write_all(text.as_bytes()))
}

pub(crate) fn eprint(text: &str) -> anyhow::Result<ExitCode> {
    written(io::stderr().lock().write_all(text.as_bytes()))
}

pub(crate) fn written(result: io::Result<()>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
