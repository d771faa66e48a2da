//! The listener of the admin API.

use super::Kind::{Secret, Text};
use super::Presence::{Default, Optional};
use super::{CERTIFICATE_FILE, Field, KEY_FILE, Kind, Section, field};

pub(crate) static ADMIN: Field = field(
    "admin",
    Kind::Section(&ADMIN_SECTION),
    Optional,
    "the listener of the admin API, behind a token; none without it",
);
pub(crate) static ADMIN_LISTEN: Field = field(
    "listen",
    Text,
    Default("127.0.0.1:8080"),
    "address and port, on this machine alone unless it says otherwise",
);
pub(crate) static TOKEN: Field = field(
    "token",
    Secret,
    Optional,
    "what opens it: at least 16 characters",
);
pub(crate) static TOKEN_FILE: Field = field(
    "token_file",
    Text,
    Optional,
    "a file that holds the token, read again when it changes",
);
pub(crate) static ADMIN_TLS: Field = field(
    "tls",
    Kind::Section(&ADMIN_TLS_SECTION),
    Optional,
    "how the listener is encrypted; it is not without it",
);

static ADMIN_SECTION: Section = Section {
    doc: "The listener of the admin API. Whoever has its token sees every message and changes where it goes.",
    fields: &[&ADMIN_LISTEN, &TOKEN, &TOKEN_FILE, &ADMIN_TLS],
};

static ADMIN_TLS_SECTION: Section = Section {
    doc: "How the listener is encrypted. The files are read again when they change.",
    fields: &[&CERTIFICATE_FILE, &KEY_FILE],
};
