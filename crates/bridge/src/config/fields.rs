//! Every field of the configuration, once: its name, what it takes, what it is when it is left
//! out, and what it is for. The reader, the JSON Schema and the error texts all come from here.

mod admin;
mod lease;
mod reach;
mod route;
mod session;

pub(crate) use admin::*;
pub(crate) use lease::*;
pub(crate) use reach::*;
pub(crate) use route::*;
pub(crate) use session::*;

/// A group of fields.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) doc: &'static str,
    pub(crate) fields: &'static [&'static Field],
}

/// One field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    pub(crate) doc: &'static str,
}

/// Whether a field may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
    /// It is this when it is left out.
    Default(&'static str),
}

/// What a field takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// Text that is never shown.
    Secret,
    Flag,
    Count {
        min: u64,
        max: u64,
    },
    /// Bounds as the operator would write them.
    Duration {
        min: &'static str,
        max: &'static str,
    },
    Size {
        min: &'static str,
        max: &'static str,
    },
    /// One of these words, each with what it means.
    Choice(&'static [(&'static str, &'static str)]),
    /// Texts of some kind, at least one.
    Texts(&'static str),
    /// The same, or one without a list.
    OneOrMore(&'static str),
    /// Texts by name, at least one.
    Pairs {
        what: &'static str,
        /// The texts are never shown.
        secret: bool,
    },
    Section(&'static Section),
    /// Sections by name, at least one.
    Named(&'static Section, &'static str),
}

const fn field(name: &'static str, kind: Kind, presence: Presence, doc: &'static str) -> Field {
    Field {
        name,
        kind,
        presence,
        doc,
    }
}

use Kind::{Duration, Named, Size, Text};
use Presence::{Default, Optional, Required};

// === the whole ===

pub(crate) static BRIDGE: Field = field(
    "bridge",
    Kind::Section(&IDENTITY),
    Required,
    "who this bridge is",
);
pub(crate) static DATA_DIR: Field = field(
    "data_dir",
    Text,
    Required,
    "the folder that holds what waits; only this bridge may use it",
);
pub(crate) static JOURNAL: Field = field(
    "journal",
    Kind::Section(&JOURNAL_SECTION),
    Optional,
    "how what waits is kept on disk",
);
pub(crate) static SESSIONS: Field = field(
    "sessions",
    Named(&SESSION, "session"),
    Required,
    "the brokers, and who we are to them",
);
pub(crate) static ROUTES: Field = field(
    "routes",
    Named(&ROUTE, "route"),
    Required,
    "which messages go where",
);
pub(crate) static MONITOR: Field = field(
    "monitor",
    Kind::Section(&MONITOR_SECTION),
    Optional,
    "the listener for /livez, /readyz and /metrics; none without it",
);
pub(crate) static DRAIN_TIMEOUT: Field = field(
    "drain_timeout",
    Duration {
        min: "1s",
        max: "1h",
    },
    Default("30s"),
    "how long a stop waits for what is under way; what is not answered then is delivered again after the next start, unless it came by an ephemeral session, which is emptied first",
);

pub(crate) static ROOT: Section = Section {
    doc: "Configuration of the bridge.",
    fields: &[
        &BRIDGE,
        &DATA_DIR,
        &JOURNAL,
        &SESSIONS,
        &ROUTES,
        &ADMIN,
        &LEASE,
        &MONITOR,
        &DRAIN_TIMEOUT,
    ],
};

pub(crate) static BRIDGE_ID: Field = field(
    "id",
    Text,
    Required,
    "the name of this bridge in logs and metrics",
);

pub(crate) static INSTANCE_ID: Field = field(
    "instance_id",
    Text,
    Optional,
    "the name of this replica, for people who ask who holds the lease; the hostname if left out",
);

static IDENTITY: Section = Section {
    doc: "Who this bridge is.",
    fields: &[&BRIDGE_ID, &INSTANCE_ID],
};

pub(crate) static SEGMENT_SIZE: Field = field(
    "segment_size",
    Size {
        min: "64 KiB",
        max: "1 GiB",
    },
    Default("8 MiB"),
    "the size of one file of the journal; space is given back file by file",
);

static JOURNAL_SECTION: Section = Section {
    doc: "How what waits is kept on disk.",
    fields: &[&SEGMENT_SIZE],
};

pub(crate) static LISTEN: Field = field(
    "listen",
    Text,
    Required,
    "address and port, for example 127.0.0.1:9090",
);

static MONITOR_SECTION: Section = Section {
    doc: "The listener for probes and metrics. It has no login and shows no secrets.",
    fields: &[&LISTEN],
};
