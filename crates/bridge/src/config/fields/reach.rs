//! The fields of a session that say how its brokers are reached, and where it says that it is there.

use super::Kind::{Choice, Flag, Secret, Text};
use super::Presence::{Default, Optional, Required};
use super::{Field, Kind, Section, field};

// === tls ===

pub(crate) static TLS: Field = field(
    "tls",
    Kind::Section(&TLS_SECTION),
    Optional,
    "how `mqtts` and `wss` are encrypted, and what proves who is at either end",
);
pub(crate) static CA_FILE: Field = field(
    "ca_file",
    Text,
    Optional,
    "a PEM file with the certificates that may vouch for the broker, and no others; those that the operating system trusts if left out",
);
pub(crate) static CERTIFICATE_FILE: Field = field(
    "certificate_file",
    Text,
    Optional,
    "a PEM file with our certificate, and with those that vouch for it behind it",
);
pub(crate) static KEY_FILE: Field = field(
    "key_file",
    Text,
    Optional,
    "a PEM file with the private key of our certificate",
);
pub(crate) static SERVER_NAME: Field = field(
    "server_name",
    Text,
    Optional,
    "the name that the broker's certificate must hold; the host of the URL if left out",
);
pub(crate) static MINIMUM_VERSION: Field = field(
    "minimum_version",
    Choice(&[("1.2", "TLS 1.2"), ("1.3", "TLS 1.3")]),
    Default("1.2"),
    "the oldest version of TLS that is spoken",
);
pub(crate) static ALPN: Field = field(
    "alpn",
    Kind::Texts("protocol"),
    Optional,
    "the protocols that are offered (ALPN), the preferred one first",
);
pub(crate) static INSECURE_SKIP_VERIFY: Field = field(
    "insecure_skip_verify",
    Flag,
    Default("false"),
    "accepts a certificate whoever issued it and whatever name it holds, so that anyone on the way can be the broker",
);

static TLS_SECTION: Section = Section {
    doc: "How a connection is encrypted. The files are read again when they change.",
    fields: &[
        &CA_FILE,
        &CERTIFICATE_FILE,
        &KEY_FILE,
        &SERVER_NAME,
        &MINIMUM_VERSION,
        &ALPN,
        &INSECURE_SKIP_VERIFY,
    ],
};

// === websocket ===

pub(crate) static WEBSOCKET: Field = field(
    "websocket",
    Kind::Section(&WEBSOCKET_SECTION),
    Optional,
    "what `ws` and `wss` are opened with; the path stands in the URL",
);
pub(crate) static HEADERS: Field = field(
    "headers",
    Kind::Pairs {
        what: "header",
        secret: true,
    },
    Optional,
    "more headers of the request, best as `${NAME}` where they are secret",
);
pub(crate) static HEADER_FILES: Field = field(
    "header_files",
    Kind::Pairs {
        what: "header",
        secret: false,
    },
    Optional,
    "the same, from files that hold the values; they are read at start",
);

static WEBSOCKET_SECTION: Section = Section {
    doc: "What a WebSocket is opened with.",
    fields: &[&HEADERS, &HEADER_FILES],
};

// === proxy ===

pub(crate) static PROXY: Field = field(
    "proxy",
    Kind::Section(&PROXY_SECTION),
    Optional,
    "the HTTP proxy that leads to the broker; none if left out, whatever the environment says",
);
pub(crate) static PROXY_URL: Field = field(
    "url",
    Text,
    Required,
    "the proxy, for example http://proxy.example.com:3128",
);
pub(crate) static PROXY_USERNAME: Field =
    field("username", Text, Optional, "the user name for the proxy");
pub(crate) static PROXY_PASSWORD: Field = field(
    "password",
    Secret,
    Optional,
    "the password for the proxy, best as `${NAME}`",
);
pub(crate) static PROXY_PASSWORD_FILE: Field = field(
    "password_file",
    Text,
    Optional,
    "a file that holds the password for the proxy, read again when it changes",
);

static PROXY_SECTION: Section = Section {
    doc: "An HTTP proxy that opens a way with `CONNECT`.",
    fields: &[
        &PROXY_URL,
        &PROXY_USERNAME,
        &PROXY_PASSWORD,
        &PROXY_PASSWORD_FILE,
    ],
};

// === status ===

pub(crate) static STATUS: Field = field(
    "status",
    Kind::Section(&STATUS_SECTION),
    Optional,
    "where the session says whether it is there: a retained message on each connect, and a last will",
);
pub(crate) static STATUS_TOPIC: Field = field(
    "topic",
    Text,
    Required,
    "the topic of the status, for example bridges/plant-7/status",
);
pub(crate) static ONLINE: Field = field(
    "online",
    Text,
    Default("online"),
    "what it says while the session is connected",
);
pub(crate) static OFFLINE: Field = field(
    "offline",
    Text,
    Default("offline"),
    "what it says from the moment on when the connection is gone",
);

static STATUS_SECTION: Section = Section {
    doc: "Where a session says whether it is there.",
    fields: &[&STATUS_TOPIC, &ONLINE, &OFFLINE],
};
