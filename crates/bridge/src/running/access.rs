//! From the command line, the environment and a configuration to a client.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use bridge_transport::Secret;

use super::Running;
use super::client::{Client, tls};
use crate::cli::DEFAULT_CONFIG;
use crate::config::{self, AdminAccess, AdminSecret, Machine};
use crate::place::Place;

const URL: &str = "BRIDGE_ADMIN_URL";
const TOKEN: &str = "BRIDGE_ADMIN_TOKEN";
/// The largest token file that is read: more does not fit into a header.
const LARGEST: u64 = 4096;

/// The token, and where it comes from.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: Secret,
    pub(super) source: TokenSource,
}

/// Where a token comes from: that is told, and the token never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// `--token-file`, or `token_file` of a configuration.
    File(PathBuf),
    /// `BRIDGE_ADMIN_TOKEN`.
    Environment,
    /// `token` of a configuration.
    Config(PathBuf),
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the token in {}", path.display()),
            Self::Environment => write!(f, "the token in {TOKEN}"),
            Self::Config(path) => write!(f, "`admin.token` of {}", path.display()),
        }
    }
}

/// The client of the bridge that is meant.
pub(super) fn client(running: &Running) -> anyhow::Result<Client> {
    let (place, from_config) = place(running)?;
    let token = token(running, &place, from_config)?;
    let tls = match (place.encrypted, &running.ca_file) {
        (true, ca) => Some(tls(ca.as_deref())?),
        (false, None) => None,
        (false, Some(_)) => bail!("--ca-file is for https, and {place} is not encrypted"),
    };
    Ok(Client::new(place, token, tls, running.timeout))
}

type FromConfig = Option<(PathBuf, AdminSecret)>;

/// What is written on the command line comes before the environment.
fn place(running: &Running) -> anyhow::Result<(Place, FromConfig)> {
    if let Some(url) = &running.url {
        return Ok((of_url(url, "--url")?, None));
    }
    if running.config.is_none()
        && let Some(url) = variable(URL)?
    {
        return Ok((of_url(&url, URL)?, None));
    }
    let path = config_file(running).with_context(|| {
        format!(
            "which bridge? Say it with --url or --config, or {URL} or BRIDGE_CONFIG in the \
             environment; there is no {DEFAULT_CONFIG}"
        )
    })?;
    let access = config::admin(&path, &Machine)?;
    let AdminAccess {
        listen,
        encrypted,
        token,
    } = access.ok_or_else(|| {
        anyhow!(
            "{} has no `admin`, so that nothing answers: add it, or use --url",
            path.display()
        )
    })?;
    if listen.port() == 0 {
        bail!(
            "{} leaves the port of the admin API to the operating system: use --url",
            path.display()
        );
    }
    Ok((Place::of_listener(listen, encrypted), Some((path, token))))
}

/// The configuration that is named, else the usual one if it is there.
pub(super) fn config_file(running: &Running) -> Option<PathBuf> {
    let named = running.config.clone();
    let named = named.or_else(|| env::var_os("BRIDGE_CONFIG").map(PathBuf::from));
    named.or_else(|| Some(PathBuf::from(DEFAULT_CONFIG)).filter(|usual| usual.exists()))
}

fn of_url(url: &str, from: &str) -> anyhow::Result<Place> {
    // It is not repeated: what is wrong with it may be a password.
    Place::of_url(url).ok_or_else(|| {
        anyhow!("{from} is not the URL of an admin API: write it as in http://127.0.0.1:8080")
    })
}

fn token(running: &Running, place: &Place, from_config: FromConfig) -> anyhow::Result<Token> {
    let (text, source) = if let Some(path) = &running.token_file {
        (read(path)?, TokenSource::File(path.clone()))
    } else if let Some(text) = variable(TOKEN)? {
        (Secret::new(text), TokenSource::Environment)
    } else {
        match from_config {
            Some((_, AdminSecret::File(path))) => (read(&path)?, TokenSource::File(path)),
            Some((path, AdminSecret::Text(text))) => (text, TokenSource::Config(path)),
            None => bail!(
                "no token for {place}: give --token-file, or {TOKEN} in the environment; an \
                 argument would be seen by everyone on the machine"
            ),
        }
    };
    let usable = text.expose().chars().all(|c| c.is_ascii_graphic());
    if text.expose().is_empty() || !usable {
        bail!("{source} is no token: it is empty, or holds a space or what is not ASCII");
    }
    Ok(Token { text, source })
}

fn read(path: &Path) -> anyhow::Result<Secret> {
    let unreadable = || format!("cannot read the token file {}", path.display());
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .with_context(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        bail!("{} is too large for a token", path.display());
    }
    let text = String::from_utf8(bytes);
    // The error would hold the bytes.
    let text = text.map_err(|_| anyhow!("{} is not text", path.display()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Secret::new(
        text.strip_suffix('\r').unwrap_or(text).to_owned(),
    ))
}

fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => bail!("{name} is not text"),
    }
}
