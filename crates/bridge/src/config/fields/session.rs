//! The fields of a session.

use super::Kind::{Choice, Count, Duration, Flag, Secret, Size, Text};
use super::Presence::{Default, Optional, Required};
use super::{Field, Kind, PROXY, STATUS, Section, TLS, WEBSOCKET, field};

pub(crate) static URL: Field = field(
    "url",
    Kind::OneOrMore("URL"),
    Required,
    "the broker, for example mqtts://broker.example.com; or a list of brokers that stand in for one another, the preferred one first",
);
pub(crate) static FAIL_BACK: Field = field(
    "fail_back",
    Duration {
        min: "1s",
        max: "30d",
    },
    Optional,
    "after how long on another broker of the list the preferred one is tried again; without it, a connection stays where it is for as long as it lives",
);
pub(crate) static PROTOCOL: Field = field(
    "protocol",
    Choice(&[
        ("5", "MQTT 5"),
        (
            "3.1.1",
            "MQTT 3.1.1, in which a broker cannot refuse a message",
        ),
    ]),
    Default("5"),
    "what is spoken with the broker",
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
    "a file that holds the password, read again when it changes; a newline at its end is not a part of it",
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
    "how many published messages may be unanswered; the broker may ask for less; 20 if left out with `protocol: 3.1.1`, where it may not",
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
pub(crate) static ON_QOS_UNAVAILABLE: Field = field(
    "on_qos_unavailable",
    Choice(&[
        ("refuse", "it becomes a dead letter"),
        (
            "downgrade",
            "it is sent with the highest QoS that the broker takes, and counted",
        ),
    ]),
    Default("refuse"),
    "what becomes of a message whose QoS the broker does not take",
);
pub(crate) static ON_RETAIN_UNAVAILABLE: Field = field(
    "on_retain_unavailable",
    Choice(&[
        ("refuse", "it becomes a dead letter"),
        ("strip", "it is sent without the retain flag, and counted"),
    ]),
    Default("refuse"),
    "what becomes of a retained message where the broker does not retain",
);

pub(super) static SESSION: Section = Section {
    doc: "One broker, and who we are to it.",
    fields: &[
        &URL,
        &FAIL_BACK,
        &PROTOCOL,
        &TLS,
        &WEBSOCKET,
        &PROXY,
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
        &ON_QOS_UNAVAILABLE,
        &ON_RETAIN_UNAVAILABLE,
        &STATUS,
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
