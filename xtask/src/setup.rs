//! Installing what the tests need.

use std::process::Command;

use anyhow::{Context, Result, bail};
use bridge_testkit::find_program;

/// Brokers that some tests meet where they are installed, by the names of program and package.
const OPTIONAL: [&str; 2] = ["rabbitmq-server", "nats-server"];

/// Installs mosquitto where it is missing, and where they can be had, the other brokers.
pub(crate) fn run() -> Result<()> {
    require_mosquitto()?;
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

fn install(package: &str) -> Result<()> {
    let Some(apt) = find_program("apt-get") else {
        bail!("there is no apt-get on this machine");
    };
    let run = |arguments: &[&str]| -> Result<()> {
        // Root needs no sudo, and a container rarely has one.
        let mut command = if is_root()? {
            Command::new(&apt)
        } else {
            let mut sudo = Command::new("sudo");
            sudo.arg(&apt);
            sudo
        };
        let status = command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .with_context(|| format!("cannot run {command:?}"))?;
        if !status.success() {
            bail!("{command:?} failed: {status}");
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

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output();
    let output = output.context("cannot run `id -u`")?;
    Ok(output.stdout.trim_ascii() == b"0")
}
