//! Who a session is to its broker, resolved: once for a session, and for as long as the process
//! lives.

/// What the operator asks the broker to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Persistent,
    Ephemeral,
    Exclusive,
}

impl Mode {
    /// The word of the configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::Ephemeral => "ephemeral",
            Self::Exclusive => "exclusive",
        }
    }
}

/// What is put behind the client ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suffix {
    Hostname,
    Nonce,
}

impl Suffix {
    /// The word of the configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hostname => "hostname",
            Self::Nonce => "nonce",
        }
    }
}

/// A session's mode and client ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) mode: Mode,
    pub(crate) suffix: Option<Suffix>,
    /// Of the connection that reads, or of the only one there is.
    pub(crate) client_id: String,
    /// Of the connection that writes, where the session is read from as well.
    pub(crate) publisher_client_id: Option<String>,
}
