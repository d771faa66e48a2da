//! Every field of the configuration, once: its name, what it takes, what it is when it is left
//! out, and what it is for. The reader, the JSON Schema and the error texts all come from here.

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
    /// Texts, at least one.
    Texts,
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

use Kind::{Choice, Count, Duration, Flag, Named, Secret, Size, Text, Texts};
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
    "how long a stop waits for what is under way; what is not answered then is delivered after the next start",
);

pub(crate) static ROOT: Section = Section {
    doc: "Configuration of the bridge.",
    fields: &[
        &BRIDGE,
        &DATA_DIR,
        &JOURNAL,
        &SESSIONS,
        &ROUTES,
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

static IDENTITY: Section = Section {
    doc: "Who this bridge is.",
    fields: &[&BRIDGE_ID],
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

// === sessions ===

pub(crate) static URL: Field = field(
    "url",
    Text,
    Required,
    "the broker, for example mqtt://localhost:1883",
);
pub(crate) static CLIENT_ID: Field = field(
    "client_id",
    Text,
    Required,
    "the client id of the connection that reads, or of the only one",
);
pub(crate) static PUBLISHER_CLIENT_ID: Field = field(
    "publisher_client_id",
    Text,
    Optional,
    "the client id of the connection that writes, where the session is read from and written to; `<client_id>-pub` if left out",
);
pub(crate) static CLIENT_ID_SUFFIX: Field = field(
    "client_id_suffix",
    Choice(&[
        ("hostname", "`-` and the hostname"),
        (
            "nonce",
            "`-` and eight random hex digits, new at each start",
        ),
    ]),
    Optional,
    "what is put behind the client ids, so that several replicas can share this file",
);
pub(crate) static SESSION_MODE: Field = field(
    "session_mode",
    Choice(&[
        (
            "persistent",
            "the broker keeps subscriptions and messages while the bridge is away",
        ),
        ("ephemeral", "the broker keeps nothing"),
        (
            "exclusive",
            "like persistent, for one of several replicas at a time",
        ),
    ]),
    Optional,
    "what the broker keeps for us; `persistent` if left out, `ephemeral` with a client_id_suffix",
);
pub(crate) static ASSERT_STABLE: Field = field(
    "assert_stable_client_identity",
    Flag,
    Default("false"),
    "says that the hostname of this replica never changes, which a persistent session with `client_id_suffix: hostname` needs",
);
pub(crate) static SESSION_EXPIRY: Field = field(
    "session_expiry",
    Duration {
        min: "1s",
        max: "49000d",
    },
    Default("1d"),
    "how long the broker keeps a persistent session while the bridge is away",
);
pub(crate) static USERNAME: Field = field("username", Text, Optional, "the user name");
pub(crate) static PASSWORD: Field = field(
    "password",
    Secret,
    Optional,
    "the password, best as `${NAME}`",
);
pub(crate) static PASSWORD_FILE: Field = field(
    "password_file",
    Text,
    Optional,
    "a file that holds the password; a newline at its end is not a part of it",
);
pub(crate) static ALLOW_PLAINTEXT: Field = field(
    "allow_plaintext_credentials",
    Flag,
    Default("false"),
    "accepts that credentials cross the network in the clear",
);
pub(crate) static KEEP_ALIVE: Field = field(
    "keep_alive",
    Duration {
        min: "1s",
        max: "18h12m15s",
    },
    Default("30s"),
    "how long the line may be silent; whole seconds",
);
pub(crate) static CONNECT_TIMEOUT: Field = field(
    "connect_timeout",
    Duration {
        min: "100ms",
        max: "5m",
    },
    Default("10s"),
    "how long a connect may take, from TCP to the broker's answer",
);
pub(crate) static ANSWER_TIMEOUT: Field = field(
    "answer_timeout",
    Duration {
        min: "100ms",
        max: "1h",
    },
    Default("20s"),
    "how long a published message may go unanswered before the connection counts as dead",
);
pub(crate) static WRITE_TIMEOUT: Field = field(
    "write_timeout",
    Duration {
        min: "100ms",
        max: "1h",
    },
    Default("10s"),
    "how long a write may be stalled by a broker that does not read",
);
pub(crate) static RECONNECT: Field = field(
    "reconnect",
    Kind::Section(&RECONNECT_SECTION),
    Optional,
    "the delays between attempts to connect",
);
pub(crate) static SESSION_MAX_IN_FLIGHT: Field = field(
    "max_in_flight",
    Count { min: 1, max: 256 },
    Default("100"),
    "how many published messages may be unanswered; the broker may ask for less",
);
pub(crate) static RECEIVE_MAXIMUM: Field = field(
    "receive_maximum",
    Count {
        min: 1,
        max: 65_535,
    },
    Default("256"),
    "how many messages the broker may send before we acknowledge one",
);
pub(crate) static MAX_PACKET_SIZE: Field = field(
    "max_packet_size",
    Size {
        min: "1 KiB",
        max: "255 MiB",
    },
    Default("4 MiB"),
    "the largest packet that we take from the broker",
);

static SESSION: Section = Section {
    doc: "One broker, and who we are to it.",
    fields: &[
        &URL,
        &CLIENT_ID,
        &PUBLISHER_CLIENT_ID,
        &CLIENT_ID_SUFFIX,
        &SESSION_MODE,
        &ASSERT_STABLE,
        &SESSION_EXPIRY,
        &USERNAME,
        &PASSWORD,
        &PASSWORD_FILE,
        &ALLOW_PLAINTEXT,
        &KEEP_ALIVE,
        &CONNECT_TIMEOUT,
        &ANSWER_TIMEOUT,
        &WRITE_TIMEOUT,
        &RECONNECT,
        &SESSION_MAX_IN_FLIGHT,
        &RECEIVE_MAXIMUM,
        &MAX_PACKET_SIZE,
    ],
};

pub(crate) static RECONNECT_MIN: Field = field(
    "min",
    Duration {
        min: "10ms",
        max: "1h",
    },
    Default("1s"),
    "the delay after the first failure; it doubles with each further one",
);
pub(crate) static RECONNECT_MAX: Field = field(
    "max",
    Duration {
        min: "10ms",
        max: "1h",
    },
    Default("1m"),
    "the longest delay",
);

static RECONNECT_SECTION: Section = Section {
    doc: "The delays between attempts to connect.",
    fields: &[&RECONNECT_MIN, &RECONNECT_MAX],
};

// === routes ===

pub(crate) static FROM: Field = field(
    "from",
    Kind::Section(&FROM_SECTION),
    Required,
    "what the route takes",
);
pub(crate) static DELIVERY: Field = field(
    "delivery",
    Choice(&[
        (
            "store_and_forward",
            "when each binding accepted the message, or holds it on disk",
        ),
        ("outbox", "when each binding holds it on disk"),
        (
            "direct_hold",
            "when each binding accepted it; nothing is queued",
        ),
    ]),
    Default("store_and_forward"),
    "when the source is acknowledged",
);
pub(crate) static SEND_RETRY_BUDGET: Field = field(
    "send_retry_budget",
    Duration {
        min: "1s",
        max: "1d",
    },
    Default("60s"),
    "with `direct_hold`: how long a message is held before it is left with the source",
);
pub(crate) static BINDINGS: Field = field(
    "bindings",
    Named(&BINDING, "binding"),
    Required,
    "where the messages go",
);

static ROUTE: Section = Section {
    doc: "Messages of one session on their way to one or more bindings.",
    fields: &[&FROM, &DELIVERY, &SEND_RETRY_BUDGET, &BINDINGS],
};

pub(crate) static FROM_SESSION: Field =
    field("session", Text, Required, "the session to read from");
pub(crate) static TOPICS: Field = field(
    "topics",
    Texts,
    Required,
    "topic filters, for example [\"sensors/#\"]",
);
pub(crate) static FROM_QOS: Field = field(
    "qos",
    Choice(&[
        ("0", "at most once"),
        ("1", "at least once"),
        ("2", "exactly once, while the connection lasts"),
    ]),
    Default("1"),
    "the highest QoS to subscribe with",
);

static FROM_SECTION: Section = Section {
    doc: "What a route takes.",
    fields: &[&FROM_SESSION, &TOPICS, &FROM_QOS],
};

pub(crate) static BINDING_SESSION: Field =
    field("session", Text, Required, "the session to publish to");
pub(crate) static TOPIC: Field = field(
    "topic",
    Text,
    Default("{topic}"),
    "the topic to publish to, with {topic}, {topic[1]}, {topic[2..]}, {session} and {route}; levels count from 0",
);
pub(crate) static STRIP_PREFIX: Field = field(
    "strip_prefix",
    Text,
    Optional,
    "instead of `topic`: whole levels to take off the front, for example \"plants/7/\"",
);
pub(crate) static ADD_PREFIX: Field = field(
    "add_prefix",
    Text,
    Optional,
    "instead of `topic`: whole levels to put in front, for example \"plants/7/\"",
);
pub(crate) static QOS: Field = field(
    "qos",
    Choice(&[
        ("keep", "the QoS that the message came with"),
        ("0", "at most once"),
        ("1", "at least once"),
        ("2", "exactly once, while the connection lasts"),
    ]),
    Default("keep"),
    "the QoS to publish with",
);
pub(crate) static RETAIN: Field = field(
    "retain",
    Choice(&[
        ("keep", "as the message came"),
        ("always", "always retained"),
        ("never", "never retained"),
    ]),
    Default("keep"),
    "what becomes of the retain flag",
);
pub(crate) static MAX_IN_FLIGHT: Field = field(
    "max_in_flight",
    Count { min: 1, max: 256 },
    Optional,
    "how many messages of this binding may be unanswered; 1 keeps the order across lost connections; the session's if left out",
);
pub(crate) static QUEUE: Field = field(
    "queue",
    Kind::Section(&QUEUE_SECTION),
    Optional,
    "how much may wait",
);
pub(crate) static ON_EXPIRED: Field = field(
    "on_expired",
    Choice(&[
        ("drop", "it is dropped and counted"),
        ("dead_letter", "it is kept as a dead letter"),
    ]),
    Default("drop"),
    "what becomes of a message whose expiry ran out while it waited",
);

static BINDING: Section = Section {
    doc: "One destination of a route.",
    fields: &[
        &BINDING_SESSION,
        &TOPIC,
        &STRIP_PREFIX,
        &ADD_PREFIX,
        &QOS,
        &RETAIN,
        &MAX_IN_FLIGHT,
        &QUEUE,
        &ON_EXPIRED,
    ],
};

pub(crate) static MAX_ENTRIES: Field = field(
    "max_entries",
    Count {
        min: 1,
        max: 1_000_000_000,
    },
    Default("1000000"),
    "how many messages may wait",
);
pub(crate) static MAX_BYTES: Field = field(
    "max_bytes",
    Size {
        min: "1 KiB",
        max: "1024 GiB",
    },
    Default("1 GiB"),
    "how many bytes may wait",
);
pub(crate) static ON_FULL: Field = field(
    "on_full",
    Choice(&[
        (
            "backpressure",
            "nothing more is taken from the source until there is room",
        ),
        (
            "drop_oldest",
            "the oldest waiting message is dropped and counted",
        ),
        ("drop_newest", "the new message is dropped and counted"),
    ]),
    Default("backpressure"),
    "what happens when as much waits as may",
);

static QUEUE_SECTION: Section = Section {
    doc: "How much may wait at a binding, and what happens then.",
    fields: &[&MAX_ENTRIES, &MAX_BYTES, &ON_FULL],
};
