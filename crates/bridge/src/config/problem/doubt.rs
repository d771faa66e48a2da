//! What is only doubtful: the configuration can be used all the same.

use std::net::SocketAddr;
use std::num::NonZeroU16;

use bridge_transport::{PORTABLE_CLIENT_ID, Protocol, Unsaid};

use super::{Exposed, listed};

/// One thing that is doubtful, and told as a warning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    #[error("`{covered}` is already covered by `{by}` in this route")]
    Covered { covered: String, by: String },
    #[error("the filter begins or ends with a space")]
    SpaceInFilter,
    #[error("no route uses this session")]
    UnusedSession,
    #[error("any certificate is accepted: anyone on the way can be the broker")]
    InsecureSkipVerify,
    #[error("the credentials cross the network in the clear, to {0}")]
    PlaintextAllowed(Exposed),
    #[error("`{0}` is not encrypted, and others of this list are")]
    MixedEncryption(String),
    #[error("MQTT {protocol} has no words for {}", listed(&unsaid.iter().map(|u| u.name).collect::<Vec<_>>()))]
    Unsaid {
        protocol: Protocol,
        /// The worst first.
        unsaid: Vec<Unsaid>,
    },
    #[error(
        "a client id of {0} bytes: in MQTT 3.1.1 a broker need not take more than {PORTABLE_CLIENT_ID}"
    )]
    LongClientId(usize),
    #[error(
        "up to {0} messages may be unanswered, and in MQTT 3.1.1 a broker cannot ask for less: \
         Mosquitto 2.0.11 takes 20 of QoS 2 unless it is told otherwise, acknowledges more, and \
         loses messages then"
    )]
    WideWindow(NonZeroU16),
    #[error("the admin token crosses the network in the clear to reach {0}")]
    AdminInTheClear(SocketAddr),
    #[error("every replica that shares this file tells its status in the same place")]
    StatusShared,
    #[error("a client id with `{0}`: {meaning}", meaning = match *.0 {
        '/' => "where access rules put client ids into topics (`%c`), it makes several levels of one",
        _ => "Mosquitto and others grant such a client nothing by a rule that puts client ids into topics (`%c`)",
    })]
    TopicSignInClientId(char),
    #[error("a client id with {0:?}: in MQTT 3.1.1 a broker need take only letters and digits")]
    UnusualClientId(char),
    #[error("the hostname is `{0}`, as that of many machines is")]
    HostnameOfEveryone(String),
    #[error(
        "the operating system has no randomness to give ({0}): the nonce is mixed from wall clock, \
         process id and hostname"
    )]
    NonceMixed(String),
    #[error(
        "a shared subscription is for several replicas, and each that shares this file would \
         connect as `{0}`, and so take the others' place"
    )]
    SharedWithOneId(String),
    #[error(
        "one replica at a time has an exclusive session: a shared subscription shares nothing there"
    )]
    SharedExclusive,
}

impl Doubt {
    /// Whether a session says the same in the log, for each of its connections.
    pub(super) const fn is_told_by_its_session(&self) -> bool {
        matches!(
            self,
            Self::Unsaid { .. } | Self::LongClientId(_) | Self::InsecureSkipVerify
        )
    }

    /// More about it, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Self::Unsaid { unsaid, .. } => {
                let note = |unsaid: &Unsaid| format!("{}: {}", unsaid.name, unsaid.meaning);
                unsaid.iter().map(note).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What would be better.
    pub(super) const fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::Covered { .. } => "remove it, unless it asks for nothing else",
            Self::SpaceInFilter => "remove the space: MQTT takes it as a part of the level",
            Self::UnusedSession => "remove it, or use it in a route",
            Self::InsecureSkipVerify => {
                "name the certificate that vouches for the broker in `ca_file` instead"
            }
            Self::PlaintextAllowed(Exposed::Proxy(_)) => {
                "use a proxy on this machine where that is possible"
            }
            Self::PlaintextAllowed(Exposed::Database(_)) => {
                "remove `sslmode=disable` where that is possible"
            }
            Self::PlaintextAllowed(Exposed::Broker(_)) => {
                "use `mqtts://` or `wss://` where that is possible"
            }
            Self::MixedEncryption(_) => {
                "whoever keeps the others away reads what is sent; encrypt this one as well"
            }
            Self::Unsaid { .. } => "use `protocol: 5` where the broker speaks it",
            Self::LongClientId(_) => "choose a shorter one if the broker refuses it",
            Self::TopicSignInClientId(_) | Self::UnusualClientId(_) => {
                "use letters, digits, `-`, `_`, `.` and `:`"
            }
            Self::HostnameOfEveryone(_) => {
                "give each machine a hostname of its own, or use `client_id_suffix: nonce`"
            }
            Self::SharedWithOneId(_) => {
                "add `client_id_suffix: nonce` or `hostname`; where there is one bridge only, leave \
                 out `$share/<group>/`"
            }
            Self::SharedExclusive => "leave out `$share/<group>/`",
            Self::WideWindow(_) => "leave it out, or let the broker take as many",
            Self::StatusShared => {
                "put something of its own into it, as in bridges/${HOSTNAME}/status"
            }
            Self::AdminInTheClear(_) => {
                "add `tls`, or listen on 127.0.0.1 behind something that encrypts"
            }
            Self::NonceMixed(_) => return None,
        })
    }
}
