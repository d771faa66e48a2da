//! Installing what the tests need.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use bridge_testkit::{find_program, postgres_folder};

use crate::step::shown;

/// Brokers that some tests meet where they are installed, by the names of program and package.
const OPTIONAL: [&str; 2] = ["rabbitmq-server", "nats-server"];

/// Installs mosquitto and PostgreSQL where they are missing, and where they can be had, the other brokers.
pub(crate) fn run() -> Result<()> {
    require_mosquitto()?;
    require_postgres()?;
    for broker in OPTIONAL {
        if let Some(path) = find_program(broker) {
            println!("{broker} is there: {}", path.display());
        } else if let Err(error) = install(broker) {
            println!("{broker} is not installed, and its tests will be skipped: {error:#}");
        } else {
            println!("{broker} is installed");
        }
    }
    Ok(())
}

fn require_mosquitto() -> Result<()> {
    if let Some(path) = find_program("mosquitto") {
        println!("mosquitto is there: {}", path.display());
        return Ok(());
    }
    println!("mosquitto is missing: installing it, the tests run against a real broker");
    install("mosquitto").context(
        "the tests need the MQTT broker mosquitto (2.0 or newer); install it by hand and make \
         sure that it is in PATH: https://mosquitto.org/download",
    )?;
    match find_program("mosquitto") {
        Some(path) => println!("mosquitto is installed: {}", path.display()),
        None => bail!("the package was installed, but there is no program `mosquitto`"),
    }
    Ok(())
}

fn require_postgres() -> Result<()> {
    if let Some(folder) = postgres_folder() {
        println!("PostgreSQL is there: {}", folder.display());
        return Ok(());
    }
    println!("PostgreSQL is missing: installing it, the tests keep leases in a real one");
    install("postgresql").context(
        "the tests need a PostgreSQL server; install it by hand and make sure that `initdb` is in \
         PATH: https://www.postgresql.org/download",
    )?;
    match postgres_folder() {
        Some(folder) => println!("PostgreSQL is installed: {}", folder.display()),
        None => bail!("the package was installed, but there is no program `initdb`"),
    }
    Ok(())
}

fn install(package: &str) -> Result<()> {
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
