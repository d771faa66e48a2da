//! Everything that can be wrong with a configuration: what it is, and what would be right.

mod doubt;
mod reach;

use bridge_core::{InvalidBackoff, InvalidFilter, InvalidName, InvalidTopic, TemplateProblem};

use bridge_dlq_admin::InvalidToken;
pub(crate) use doubt::Doubt;
pub(crate) use reach::{Exposed, HeaderProblem, UrlProblem};

use bridge_lease::{InvalidOwner, InvalidPostgresUrl, InvalidSettings};

use super::quantity::show_size;
use super::source::MAX_BYTES;

/// One thing that is wrong, or (see [`Problem::is_warning`]) only doubtful.
///
/// A secret is never quoted, and what a variable holds only where it is a name, an id or a topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    // The file.
    #[error("the file cannot be read: {0}")]
    CannotRead(String),
    #[error("this is a directory, not a file")]
    Directory,
    #[error("the file is larger than {}", show_size(MAX_BYTES))]
    TooLarge,
    #[error("the file is not valid UTF-8")]
    NotUtf8,
    #[error("the file is empty")]
    Empty,
    // YAML.
    #[error("this is not valid YAML: {0}")]
    Syntax(String),
    #[error("a second document begins here")]
    ManyDocuments,
    #[error("the aliases of this file stand for too much")]
    TooManyNodes,
    #[error("this alias is a part of what it stands for")]
    AliasOfItself,
    #[error("tags are not supported")]
    Tag,
    #[error("a key must be text, not a list or a map")]
    KeyNotText,
    #[error("merge keys are not supported")]
    MergeKey,
    #[error("the key `{key}` is here twice: it is already on line {first_line}")]
    DuplicateKey { key: String, first_line: usize },
    // Variables.
    #[error("the environment variable `{0}` is not set")]
    VariableUnset(String),
    #[error("the environment variable `{0}` is not valid UTF-8")]
    VariableNotUtf8(String),
    #[error("`${{` without a closing `}}`")]
    VariableUnclosed,
    #[error("this is not the name of a variable")]
    VariableName,
    // Fields.
    #[error("unknown field `{name}`")]
    UnknownField {
        name: String,
        nearest: Option<&'static str>,
        known: Vec<&'static str>,
    },
    #[error("the field `{0}` is missing")]
    MissingField(&'static str, &'static str),
    #[error("expected {expected}, found {found}")]
    WrongType {
        expected: &'static str,
        found: String,
        remedy: Option<String>,
    },
    #[error("`{0}` means different things to different readers of YAML")]
    Ambiguous(String),
    #[error("{what} needs a unit, `{found}` has none")]
    BareNumber {
        what: &'static str,
        found: String,
        example: String,
    },
    #[error("{found} is not {what}")]
    BadQuantity {
        what: &'static str,
        found: String,
        example: &'static str,
    },
    #[error("{found} is out of range")]
    OutOfRange {
        found: String,
        min: String,
        max: String,
    },
    #[error("a fraction of a second cannot be asked for here")]
    WholeSeconds,
    #[error("{found} is none of the possible values")]
    NotOneOf {
        found: String,
        nearest: Option<&'static str>,
        possible: Vec<&'static str>,
    },
    #[error("at least one {0} is needed here")]
    NothingIn(&'static str),
    #[error("this text goes on in the next line")]
    ManyLines,
    #[error("this holds the control character {0:?}")]
    ControlCharacter(char),
    #[error("this must not be empty")]
    EmptyText,
    #[error("a text has at most 65535 bytes in MQTT")]
    TooLongForMqtt,
    #[error("`{0}` is not a name: {1}")]
    Name(String, InvalidName),
    #[error("{0}")]
    NoName(InvalidName),
    // Sessions.
    #[error("there is no session `{name}`")]
    NoSuchSession {
        name: String,
        nearest: Option<String>,
        known: Vec<String>,
    },
    #[error("{0}")]
    Url(UrlProblem),
    #[error("{0}")]
    Backoff(InvalidBackoff),
    #[error("the session `{other}` already connects to {address} as `{id}`")]
    ClientIdTaken {
        id: String,
        other: String,
        address: String,
    },
    #[error("the reading and the writing connection of this session would both be `{0}`")]
    ClientIdsEqual(String),
    #[error("the hostname cannot be used: {0}")]
    Hostname(String),
    #[error("an exclusive session needs a lease, and there is none")]
    ExclusiveNeedsLease,
    #[error("an exclusive session has one stable client id: it takes no suffix")]
    ExclusiveSuffix,
    #[error("a persistent session needs a stable client id, and a nonce is new at each start")]
    PersistentNonce,
    #[error("a persistent session needs a stable client id, and a hostname may change")]
    PersistentHostname,
    #[error("the credentials would cross the network in the clear, to {0}")]
    PlaintextCredentials(Exposed),
    #[error("`password` and `password_file` are both here")]
    TwoPasswords,
    #[error("a password without a username")]
    PasswordWithoutUsername,
    #[error("the file `{path}` cannot be read: {error}")]
    UnreadableFile { path: String, error: String },
    #[error("the file `{path}` {what}")]
    File { path: String, what: String },
    #[error("`{0}` is in this list twice")]
    BrokerTwice(String),
    #[error("`{field}` has no effect here: it needs {needed}")]
    NoUrlFor {
        field: &'static str,
        needed: &'static str,
    },
    #[error("`{0}` without `{1}`")]
    HalfPair(&'static str, &'static str),
    #[error("this key does not belong to the certificate of `certificate_file`")]
    KeyOfAnother,
    #[error("`{0}` is not a name that a certificate can hold")]
    ServerName(String),
    #[error("a protocol of ALPN has 1 to 255 bytes")]
    Alpn,
    #[error("{0}")]
    Header(HeaderProblem),
    #[error("a user name for a proxy must not hold a colon")]
    ColonInUsername,
    #[error("this is not a topic: {0}")]
    StatusTopic(InvalidTopic),
    #[error("the session `{0}` already tells its status there, at the same broker")]
    StatusTaken(String),
    #[error("`{field}` has no effect here: {why}")]
    NoEffect {
        field: &'static str,
        why: &'static str,
    },
    // Routes.
    #[error("{0}")]
    Filter(InvalidFilter),
    #[error("a shared subscription cannot ask for `no_local`")]
    NoLocalShared,
    #[error("{0}")]
    Template(TemplateProblem),
    #[error(
        "this makes no topic of any that `{filter}` takes: levels are missing, or nothing is left"
    )]
    NeverATopic { filter: String },
    #[error("`topic` already says what becomes of the topic: `{0}` cannot stand beside it")]
    TopicAndPrefix(&'static str),
    #[error("a prefix consists of whole levels: it must end with `/`")]
    PrefixNotWholeLevels,
    #[error("a prefix must not hold the wildcard `{0}`")]
    PrefixWildcard(char),
    #[error(
        "the filter `{filter}` of this route also takes topics that do not begin with `{prefix}`"
    )]
    PrefixNotInFilter { filter: String, prefix: String },
    #[error("a message would go round in a circle: {0}")]
    Loop(String),
    #[error("`{0}` is not an address to listen on")]
    Listen(String),
    #[error("`token` and `token_file` are both here")]
    TwoTokens,
    #[error("the admin API needs a token")]
    NoToken,
    #[error("{0}")]
    Token(InvalidToken),
    #[error("`{0}` is a file, not a folder")]
    NotAFolder(String),
    // The lease.
    #[error("`{0}` is a folder, not a file")]
    NotAFile(String),
    #[error("{0}")]
    Instance(InvalidOwner),
    #[error("the name of this instance cannot be found out: {0}")]
    InstanceUnknown(String),
    #[error("{0}")]
    DatabaseUrl(InvalidPostgresUrl),
    #[error("{0}")]
    Lease(InvalidSettings),
    #[error("{0}")]
    Doubt(Doubt),
}

impl Problem {
    /// What is wrong with a name that the file shows as `shown`.
    pub(crate) fn name(shown: &str, error: InvalidName) -> Self {
        if shown.is_empty() {
            Self::NoName(error)
        } else {
            Self::Name(shown.to_owned(), error)
        }
    }

    /// Whether the configuration can be used all the same.
    pub(crate) const fn is_warning(&self) -> bool {
        matches!(self, Self::Doubt(_))
    }

    /// Whether a session says the same in the log, for each of its connections.
    pub(crate) const fn is_told_by_its_session(&self) -> bool {
        matches!(self, Self::Doubt(doubt) if doubt.is_told_by_its_session())
    }

    /// More about it, a sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Self::Doubt(doubt) => doubt.notes(),
            _ => Vec::new(),
        }
    }

    /// What would be right.
    pub(crate) fn remedy(&self) -> Option<String> {
        let text = match self {
            Self::CannotRead(_) => "name another file, as an argument or in BRIDGE_CONFIG",
            Self::Directory => "name the file in it, for example `bridge.yaml`",
            Self::NotUtf8 => "save it as UTF-8",
            Self::Empty => "begin with config/minimal.yaml, or see `bridge schema`",
            Self::Syntax(info) if info.contains("tab") => {
                "indent with spaces: YAML allows no tabs there"
            }
            Self::Syntax(info) if info.contains("mapping values") => {
                "a value that holds `: ` needs quotes; or this line is indented wrongly"
            }
            Self::ManyDocuments => "keep one document per file: remove what follows `---`",
            Self::TooManyNodes => "write out what the aliases stand for",
            Self::Tag => "remove what begins with `!`: the field decides the type",
            Self::MergeKey => "write the fields out where they are needed",
            Self::DuplicateKey { .. } => "remove one of the two",
            Self::VariableUnset(name) => {
                return Some(format!(
                    "set it, or give a default: `${{{name}:-…}}`; `$${{` stands for `${{` itself"
                ));
            }
            Self::VariableUnclosed | Self::VariableName => {
                "write `${NAME}` or `${NAME:-default}`; `$${` stands for `${` itself"
            }
            Self::UnknownField { nearest, known, .. } => {
                return Some(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("there are {}", listed(known)),
                });
            }
            Self::MissingField(name, doc) => return Some(format!("add `{name}`: {doc}")),
            Self::WrongType { remedy, .. } => return remedy.clone(),
            Self::Ambiguous(text) => {
                return Some(format!("put it in quotes if the text is meant: \"{text}\""));
            }
            Self::BareNumber { example, .. } => return Some(format!("write `{example}`")),
            Self::BadQuantity { example, .. } => {
                return Some(format!("write it like {example}"));
            }
            Self::OutOfRange { min, max, .. } => {
                return Some(format!("choose from {min} to {max}"));
            }
            Self::ManyLines => "write it on one line; is a quote not closed?",
            Self::ControlCharacter(_) => {
                "remove it; what a variable takes from a file may end with a newline"
            }
            Self::WholeSeconds => "round it to whole seconds",
            Self::NotOneOf {
                nearest, possible, ..
            } => {
                return Some(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("choose one of {}", listed(possible)),
                });
            }
            Self::NoSuchSession { nearest, known, .. } => {
                return Some(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None if known.is_empty() => "add it under `sessions`".to_owned(),
                    None => format!("there are {}; or add it under `sessions`", listed(known)),
                });
            }
            Self::Url(problem) => return Some(problem.remedy()),
            Self::ClientIdTaken { .. } => {
                "give each its own client id: a broker disconnects the first of two equal ones"
            }
            Self::ClientIdsEqual(_) => "give `publisher_client_id` another value, or leave it out",
            Self::Hostname(_) => "use another `client_id_suffix`, or write the client id out",
            Self::ExclusiveNeedsLease => {
                "add the section `lease`, as in `lease: { store: file, path: /var/lib/shared/bridge.lease }`; \
                 or use `persistent`, and run one bridge only"
            }
            Self::NotAFile(_) => "name a file in it, for example `bridge.lease`",
            Self::InstanceUnknown(_) => "set `bridge.instance_id`",
            Self::ExclusiveSuffix => "remove `client_id_suffix`",
            Self::PersistentNonce => "use `session_mode: ephemeral`, or remove `client_id_suffix`",
            Self::PersistentHostname => {
                "add `assert_stable_client_identity: true` where the hostname is stable (a StatefulSet), \
                 or use `session_mode: ephemeral`"
            }
            Self::PlaintextCredentials(Exposed::Proxy(_)) => {
                "use a proxy on this machine, or accept it with `allow_plaintext_credentials: true`"
            }
            Self::PlaintextCredentials(Exposed::Database(_)) => {
                "remove `sslmode=disable`, or accept it with `allow_plaintext_credentials: true`"
            }
            Self::PlaintextCredentials(Exposed::Broker(_)) => {
                "use `mqtts://` or `wss://`, or accept it with `allow_plaintext_credentials: true`"
            }
            Self::TwoPasswords => "keep one of them, best `password_file`",
            Self::TwoTokens => "keep one of them, best `token_file`",
            Self::NoToken => "add `token_file`, a file with at least 16 characters",
            Self::Token(_) => "make one with `openssl rand -hex 32`",
            Self::PasswordWithoutUsername => "add `username`",
            Self::NoEffect { .. } | Self::BrokerTwice(_) => "remove it",
            Self::NoUrlFor { needed, .. } => return Some(format!("write {needed}, or remove it")),
            Self::HalfPair(_, missing) => return Some(format!("add `{missing}`")),
            Self::UnreadableFile { .. } => {
                "name a file that this user may read; a relative path begins at the folder of this file"
            }
            Self::KeyOfAnother => "name the key that the certificate was made for",
            Self::ServerName(_) => "write a host name or an IP address, without brackets and port",
            Self::Header(problem) => problem.remedy(),
            Self::NoLocalShared => "remove `no_local`, or read this filter in a route of its own",
            Self::StatusTaken(_) => "give each session a topic of its own",
            Self::Template(TemplateProblem::Unclosed | TemplateProblem::Unopened) => {
                "placeholders are {topic}, {topic[1]}, {topic[2..]}, {session} and {route}"
            }
            Self::NeverATopic { .. } => {
                "levels are counted from 0: use fewer of them, or another filter"
            }
            Self::TopicAndPrefix(_) => "use either `topic` or `strip_prefix` and `add_prefix`",
            Self::PrefixNotWholeLevels => "add the `/`",
            Self::PrefixNotInFilter { prefix, .. } => {
                return Some(format!(
                    "let every filter of the route begin with `{prefix}`, or use `topic` with levels such as {{topic[2..]}}"
                ));
            }
            Self::Loop(_) => "narrow a filter, or add a prefix that none of these filters takes",
            Self::Listen(_) => "write address and port, as in 127.0.0.1:9090 or [::]:9090",
            Self::Doubt(doubt) => return doubt.remedy().map(str::to_owned),
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// `a`, `b` and `c`.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("`{}`", n.as_ref())).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
