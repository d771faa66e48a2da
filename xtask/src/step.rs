//! Running commands one after the other, with what each took.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// One command, run at the root of the workspace.
#[derive(Debug)]
pub(crate) struct Step {
    name: &'static str,
    command: Command,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// Why it did not run.
    Skipped(&'static str),
}

/// What became of the steps so far.
#[derive(Debug)]
pub(crate) struct Report {
    keep_going: bool,
    lines: Vec<(&'static str, Outcome, Duration)>,
}

impl Step {
    /// Runs `program` with `arguments`, which are separated by spaces.
    pub(crate) fn new(name: &'static str, program: &str, arguments: &str) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments.split_whitespace())
            .current_dir(root());
        Self { name, command }
    }

    /// Runs the cargo that runs us.
    pub(crate) fn cargo(name: &'static str, arguments: &str) -> Self {
        let mut step = Self::new(name, &cargo(), arguments);
        as_typed(&mut step.command);
        step
    }

    /// With a variable in the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }
}

impl Report {
    /// Nothing so far; with `keep_going` a failure does not end the run.
    pub(crate) const fn new(keep_going: bool) -> Self {
        Self {
            keep_going,
            lines: Vec::new(),
        }
    }

    /// Runs a step; an error when it fails and that ends the run.
    pub(crate) fn run(&mut self, mut step: Step) -> Result<()> {
        println!("\n=== {}: {}", step.name, shown(&step.command));
        let began = Instant::now();
        let status = step
            .command
            .status()
            .with_context(|| format!("cannot run {}", shown(&step.command)));
        let passed = match &status {
            Ok(status) => status.success(),
            Err(error) => {
                println!("{error:#}");
                false
            }
        };
        let outcome = if passed {
            Outcome::Passed
        } else {
            Outcome::Failed
        };
        self.note(step.name, outcome, began.elapsed());
        if !passed && !self.keep_going {
            self.print();
            bail!("the step `{}` failed", step.name);
        }
        Ok(())
    }

    /// Says that a step is left out, and why.
    pub(crate) fn skip(&mut self, name: &'static str, why: &'static str) {
        println!("\n=== {name}: skipped");
        self.note(name, Outcome::Skipped(why), Duration::ZERO);
    }

    /// Prints the summary; an error when a step has failed.
    pub(crate) fn finish(self) -> Result<()> {
        self.print();
        let failed = self
            .lines
            .iter()
            .filter(|(_, outcome, _)| *outcome == Outcome::Failed);
        match failed.count() {
            0 => Ok(()),
            failed => bail!("{failed} of {} steps failed", self.lines.len()),
        }
    }

    fn note(&mut self, name: &'static str, outcome: Outcome, took: Duration) {
        println!("--- {}", line(name, outcome, took));
        self.lines.push((name, outcome, took));
    }

    fn print(&self) {
        println!("\n=== summary");
        for (name, outcome, took) in &self.lines {
            println!("  {}", line(name, *outcome, *took));
        }
        let total: Duration = self.lines.iter().map(|(_, _, took)| took).sum();
        println!("  {:<14} {:>8.1} s", "total", total.as_secs_f64());
    }
}

fn line(name: &str, outcome: Outcome, took: Duration) -> String {
    let took = took.as_secs_f64();
    match outcome {
        Outcome::Passed => format!("{name:<14} {took:>8.1} s  passed"),
        Outcome::Failed => format!("{name:<14} {took:>8.1} s  FAILED"),
        Outcome::Skipped(why) => format!("{name:<14} {:>10}  skipped: {why}", "-"),
    }
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_string_lossy(), value?.to_string_lossy())))
        .map(|(name, value)| format!("{name}={value:?}"));
    let program = PathBuf::from(command.get_program());
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());
    let words: Vec<_> = variables
        .chain([program.into_owned()])
        .chain(arguments)
        .collect();
    words.join(" ")
}

/// The cargo that runs us.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Takes from a cargo what the one that runs us says of this package. Build scripts look at such
/// variables, and would have all anew that a cargo from a shell has built, and the other way round.
pub(crate) fn as_typed(cargo: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(program: &str) -> Step {
        Step::new("x", program, "")
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let mut report = Report::new(false);
        report.run(step("true")).unwrap();
        let error = report.run(step("false")).unwrap_err();
        assert!(error.to_string().contains("`x` failed"));
        report.run(step("no-such-program-anywhere")).unwrap_err();
    }

    #[test]
    fn a_run_that_keeps_going_fails_at_its_end() {
        let mut report = Report::new(true);
        report.run(step("false")).unwrap();
        report.skip("y", "no reason");
        report.run(step("true")).unwrap();
        let error = report.finish().unwrap_err();
        assert_eq!(error.to_string(), "1 of 3 steps failed");
    }

    #[test]
    fn a_run_without_failures_passes_skipped_steps_or_not() {
        let mut report = Report::new(false);
        report.skip("y", "no reason");
        report.run(step("true")).unwrap();
        report.finish().unwrap();
    }

    #[test]
    fn a_cargo_does_not_hear_of_the_package_that_runs_it() {
        let step = Step::cargo("x", "doc");
        let removed: Vec<_> = step.command.get_envs().collect();
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(removed.contains(&(name.as_ref(), None)), "{name}");
        }
        assert_eq!(shown(&step.command), "cargo doc");
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let step = Step::new("x", "/usr/bin/cargo", "doc --no-deps").env("A", "b c");
        assert_eq!(shown(&step.command), "A=\"b c\" cargo doc --no-deps");
    }
}
