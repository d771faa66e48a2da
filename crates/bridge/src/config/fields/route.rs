//! The fields of a route and its bindings.

use super::Kind::{Choice, Count, Duration, Named, Size, Text, Texts};
use super::Presence::{Default, Optional, Required};
use super::{Field, Kind, Section, field};

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

pub(super) static ROUTE: Section = Section {
    doc: "Messages of one session on their way to one or more bindings.",
    fields: &[&FROM, &DELIVERY, &SEND_RETRY_BUDGET, &BINDINGS],
};

pub(crate) static FROM_SESSION: Field =
    field("session", Text, Required, "the session to read from");
pub(crate) static TOPICS: Field = field(
    "topics",
    Texts("topic filter"),
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
pub(crate) static NO_LOCAL: Field = field(
    "no_local",
    Kind::Flag,
    Default("false"),
    "leaves out what is published under the very client id that reads: the session's own status, where nothing else is published to it; not a way to bridge both ways",
);

static FROM_SECTION: Section = Section {
    doc: "What a route takes.",
    fields: &[&FROM_SESSION, &TOPICS, &FROM_QOS, &NO_LOCAL],
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
    "instead of `topic`: whole levels to take off the front, for example \"plants/7/\"; a topic of no more levels becomes a dead letter",
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
pub(crate) static DEFERRED: Field = field(
    "deferred",
    Kind::Section(&DEFERRED_SECTION),
    Optional,
    "the second chance of what the broker's policy refuses while the queue is published",
);
pub(crate) static DEAD_LETTERS: Field = field(
    "dead_letters",
    Kind::Section(&DEAD_LETTERS_SECTION),
    Optional,
    "how much of what was given up on is kept",
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
        &DEFERRED,
        &DEAD_LETTERS,
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

pub(crate) static DEFERRED_WINDOW: Field = field(
    "window",
    Duration {
        min: "1s",
        max: "30d",
    },
    Default("15m"),
    "how long after its first refusal a message is offered again; the first refusal after that is the last",
);
pub(crate) static DEFERRED_RETRY_INTERVAL: Field = field(
    "retry_interval",
    Duration {
        min: "1s",
        max: "1d",
    },
    Default("2m"),
    "the shortest time between two sweeps through what is deferred; a new connection does not wait for it",
);
pub(crate) static DEFERRED_MAX_ENTRIES: Field = field(
    "max_entries",
    Count {
        min: 1,
        max: 1_000_000,
    },
    Default("100000"),
    "how many messages may be deferred; what there is no room for becomes a dead letter at once",
);
pub(crate) static DEFERRED_MAX_BYTES: Field = field(
    "max_bytes",
    Size {
        min: "1 KiB",
        max: "1024 GiB",
    },
    Default("256 MiB"),
    "how many bytes may be deferred",
);

static DEFERRED_SECTION: Section = Section {
    doc: "The second chance of messages that the broker refuses as not authorized while the queue is published.",
    fields: &[
        &DEFERRED_WINDOW,
        &DEFERRED_RETRY_INTERVAL,
        &DEFERRED_MAX_ENTRIES,
        &DEFERRED_MAX_BYTES,
    ],
};

pub(crate) static DEAD_MAX_ENTRIES: Field = field(
    "max_entries",
    Count {
        min: 1,
        max: 100_000_000,
    },
    Default("100000"),
    "how many dead letters are kept",
);
pub(crate) static DEAD_MAX_BYTES: Field = field(
    "max_bytes",
    Size {
        min: "1 KiB",
        max: "1024 GiB",
    },
    Default("256 MiB"),
    "how many bytes of dead letters are kept",
);
pub(crate) static DEAD_ON_FULL: Field = field(
    "on_full",
    Choice(&[
        (
            "discard_newest",
            "new ones are not kept, and counted: the first ones tell the story",
        ),
        (
            "hold",
            "new ones are held, and not acknowledged, until there is room",
        ),
    ]),
    Default("discard_newest"),
    "what happens when as many are kept as may",
);

static DEAD_LETTERS_SECTION: Section = Section {
    doc: "How much of what was given up on is kept, and what happens then.",
    fields: &[&DEAD_MAX_ENTRIES, &DEAD_MAX_BYTES, &DEAD_ON_FULL],
};

static QUEUE_SECTION: Section = Section {
    doc: "How much may wait at a binding, and what happens then.",
    fields: &[&MAX_ENTRIES, &MAX_BYTES, &ON_FULL],
};
