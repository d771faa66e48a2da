//! Why a bridge could not be asked, or will not answer, and what to do about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::access::TokenSource;
use crate::place::Place;

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whom {
    /// A bridge that runs.
    Bridge(Place),
    /// A data folder in which none is at work.
    Folder(PathBuf),
}

impl Whom {
    fn place(&self) -> String {
        match self {
            Self::Bridge(place) => place.to_string(),
            Self::Folder(folder) => folder.display().to_string(),
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bridge(place) => write!(f, "the bridge at {place}"),
            Self::Folder(folder) => write!(f, "the data folder {}", folder.display()),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No address for the name.
    #[error("cannot find the host of {place}: {error}")]
    Host {
        /// Where.
        place: Place,
        /// The system's words.
        error: io::Error,
    },
    /// Nobody takes the connection.
    #[error("cannot connect to the bridge at {place} ({address}): {error}")]
    Connect {
        /// Where.
        place: Place,
        /// The address that was meant first.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// The other side does not prove itself.
    #[error("no TLS with {place}: {error}")]
    Tls {
        /// Where.
        place: Place,
        /// Why.
        error: io::Error,
    },
    /// Nothing came for too long.
    #[error("{whom} was silent for {patience:?}")]
    Late {
        /// Who.
        whom: Whom,
        /// How long it was waited.
        patience: Duration,
        /// Whether something was to be changed.
        changing: bool,
    },
    /// It ended before its end.
    #[error("the connection to {whom} was lost: {why}")]
    Lost {
        /// To whom.
        whom: Whom,
        /// What was seen.
        why: String,
        /// Whether something was to be changed.
        changing: bool,
    },
    /// It answers what no bridge answers.
    #[error("what answers at {} is no admin API of a bridge: {why}", .whom.place())]
    Foreign {
        /// Who was meant.
        whom: Whom,
        /// What it answers.
        why: String,
    },
    /// The bridge says why.
    #[error("{whom} answers {problem}")]
    Refused {
        /// Who.
        whom: Whom,
        /// The answer.
        problem: Box<Problem>,
        /// What it was asked with, where something has to be.
        token: Option<TokenSource>,
    },
    /// A bridge works in a folder where none should.
    #[error("a bridge is at work in {} ({holder})", folder.display())]
    AtWork {
        /// Where.
        folder: PathBuf,
        /// Which process.
        holder: String,
    },
}

/// RFC 9457 problem details, as much of them as is shown.
#[derive(Debug, Default, Deserialize, thiserror::Error)]
#[error("{status} {title}: {detail}{}{}", in_field(.field.as_ref()), again(*.retry_after))]
pub(crate) struct Problem {
    /// The status of the answer.
    #[serde(default)]
    pub(crate) status: u16,
    /// Which kind, for programs.
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
    /// Which kind.
    #[serde(default)]
    pub(crate) title: String,
    /// What is wrong with this very request.
    #[serde(default)]
    pub(crate) detail: String,
    /// What it is about.
    pub(crate) field: Option<String>,
    /// When it may be tried again, in seconds.
    #[serde(skip)]
    pub(crate) retry_after: Option<u64>,
}

fn in_field(field: Option<&String>) -> String {
    field.map_or_else(String::new, |field| format!(" (`{field}`)"))
}

fn again(seconds: Option<u64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!("; try again in {seconds}s"))
}

impl Failure {
    /// What it was answered, if it was.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { problem, .. } => Some(problem.status),
            _ => None,
        }
    }

    /// How long others who were first want to be waited for, when that is all.
    pub(crate) fn others_first(&self) -> Option<Duration> {
        match self {
            Self::Refused { problem, .. } if problem.kind == "urn:bridge:problem:too-many-jobs" => {
                problem.retry_after.map(Duration::from_secs)
            }
            _ => None,
        }
    }

    /// What to do about it.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Host { .. } => Some("look at the URL".to_owned()),
            Self::Connect { .. } => Some(
                "does a bridge run there, and has its configuration a section `admin`? Its log says \
                 where it listens (event=admin_listening)"
                    .to_owned(),
            ),
            Self::Tls { place, .. } => Some(format!(
                "a certificate of your own is trusted with --ca-file, and has to name `{}`; a \
                 listener without `tls` is asked by http://",
                place.server_name()
            )),
            Self::Late { changing: true, .. } | Self::Lost { changing: true, .. } => Some(
                "what the bridge has begun it brings to its end: look what became of it before you \
                 ask again"
                    .to_owned(),
            ),
            Self::Late { .. } => {
                Some("is the machine or its disk overloaded? --timeout waits longer".to_owned())
            }
            Self::Lost {
                whom: Whom::Bridge(place),
                ..
            } if !place.encrypted => Some(
                "did the bridge stop? A listener with `tls` is asked by https://".to_owned(),
            ),
            Self::Lost { .. } => Some("did the bridge stop? Ask again".to_owned()),
            Self::Foreign { .. } => Some(
                "the URL is that of `admin`, not of `monitor`, and has nothing behind the port"
                    .to_owned(),
            ),
            Self::AtWork { .. } => Some(
                "ask it, without --offline: --url, or `admin` of its configuration, says where it \
                 listens"
                    .to_owned(),
            ),
            Self::Refused { problem, token, .. } => match problem.status {
                401 => token.as_ref().map(|token| {
                    format!(
                        "it was asked with {token}; is that what `admin` of its configuration says?"
                    )
                }),
                404 | 405 => Some(
                    "is the bridge of another version than this command? `bridge --version`"
                        .to_owned(),
                ),
                _ => None,
            },
        }
    }
}
