//! Installing what the tests need.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use bridge_testkit::{find_program, postgres_folder};

use crate::schemathesis;
use crate::step::shown;

/// Brokers that some tests meet where they are installed, by the names of program and package.
const OPTIONAL: [&str; 2] = ["rabbitmq-server", "nats-server"];

/// What the tests cannot do without.
struct Needed {
    name: &'static str,
    package: &'static str,
    why: &'static str,
    /// Where to get it without apt-get.
    from: &'static str,
    find: fn() -> Option<PathBuf>,
}

const NEEDED: [Needed; 4] = [
    Needed {
        name: "mosquitto",
        package: "mosquitto",
        why: "the tests run against a real broker (2.0 or newer)",
        from: "https://mosquitto.org/download",
        find: || find_program("mosquitto"),
    },
    Needed {
        name: "PostgreSQL",
        package: "postgresql",
        why: "the tests keep leases in a real one",
        from: "https://www.postgresql.org/download",
        find: postgres_folder,
    },
    Needed {
        name: "chromium",
        package: "chromium",
        why: "the tests use the operator's page as a person does",
        from: "https://www.chromium.org/getting-involved/download-chromium",
        find: || find_program("chromium"),
    },
    Needed {
        name: "chromedriver",
        package: "chromium-driver",
        why: "it drives that browser, and has to be of the same version",
        from: "https://googlechromelabs.github.io/chrome-for-testing",
        find: || find_program("chromedriver"),
    },
];

/// Installs what is missing of what the tests need, and where they can be had, the other brokers.
pub(crate) fn run() -> Result<()> {
    for needed in &NEEDED {
        require(needed)?;
    }
    for broker in OPTIONAL {
        if let Some(path) = find_program(broker) {
            println!("{broker} is there: {}", path.display());
        } else if let Err(error) = install(broker) {
            println!("{broker} is not installed, and its tests will be skipped: {error:#}");
        } else {
            println!("{broker} is installed");
        }
    }
    schemathesis::install()
}

fn require(needed: &Needed) -> Result<()> {
    let Needed {
        name,
        package,
        why,
        from,
        ..
    } = needed;
    if let Some(path) = (needed.find)() {
        println!("{name} is there: {}", path.display());
        return Ok(());
    }
    println!("{name} is missing: installing it, {why}");
    install(package).with_context(|| {
        format!(
            "the tests need {name}; install it by hand and make sure that it is in PATH: {from}"
        )
    })?;
    match (needed.find)() {
        Some(path) => println!("{name} is installed: {}", path.display()),
        None => bail!("the package {package} was installed, but {name} is not there"),
    }
    Ok(())
}

/// Installs a package of Debian.
pub(crate) fn install(package: &str) -> Result<()> {
    let Some(apt) = find_program("apt-get") else {
        bail!("there is no apt-get on this machine");
    };
    let root = is_root()?;
    let run = |arguments: &[&str]| -> Result<()> {
        let mut command = apt_get(&apt, root);
        let status = command
            .args(arguments)
            .status()
            .with_context(|| format!("cannot run {}", shown(&command)))?;
        if !status.success() {
            bail!("{} failed: {status}", shown(&command));
        }
        Ok(())
    };
    let options = ["install", "--yes", "--no-install-recommends", package];
    // A fresh machine has no lists yet, an older one stale ones; most need no update.
    run(&options).or_else(|_| {
        run(&["update"])?;
        run(&options)
    })
}

/// An apt-get that asks nothing. Root needs no sudo, and a container rarely has one; sudo lets no
/// variable of ours through, so that it is set behind it.
fn apt_get(apt: &Path, root: bool) -> Command {
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.arg("env");
    }
    command.arg("DEBIAN_FRONTEND=noninteractive").arg(apt);
    command
}

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output();
    let output = output.context("cannot run `id -u`")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_get_asks_nothing_by_sudo_or_without() {
        let line = |root| shown(&apt_get(Path::new("/usr/bin/apt-get"), root));
        let quiet = "env DEBIAN_FRONTEND=noninteractive /usr/bin/apt-get";
        assert_eq!(line(true), quiet);
        assert_eq!(line(false), format!("sudo {quiet}"));
    }
}
