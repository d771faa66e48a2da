//! The fields of the lease: who may own the exclusive sessions.

use super::Kind::{Choice, Duration, Flag, Secret, Text};
use super::Presence::{Default, Optional, Required};
use super::{Field, Kind, Section, field};

pub(crate) static LEASE: Field = field(
    "lease",
    Kind::Section(&LEASE_SECTION),
    Optional,
    "what the exclusive sessions wait for: one of several replicas holds it at a time; required where there are any",
);
pub(crate) static STORE: Field = field(
    "store",
    Choice(&[
        (
            "file",
            "a file, for replicas on one host or on hosts that share a volume which knows locks between them",
        ),
        ("postgres", "a table in PostgreSQL"),
    ]),
    Required,
    "where the lease is written down",
);
pub(crate) static LEASE_PATH: Field = field(
    "path",
    Text,
    Optional,
    "the file, for `store: file`; its folder has to exist, and beside it there will be <path>.lock",
);
pub(crate) static LEASE_URL: Field = field(
    "url",
    Text,
    Optional,
    "the database, for `store: postgres`: postgres://user@host:5432/database. What leaves this host is encrypted unless it says sslmode=disable",
);
pub(crate) static LEASE_PASSWORD: Field = field(
    "password",
    Secret,
    Optional,
    "the password for the database, best as `${NAME}`",
);
pub(crate) static LEASE_PASSWORD_FILE: Field = field(
    "password_file",
    Text,
    Optional,
    "a file that holds the password for the database, read for each connection",
);
pub(crate) static LEASE_CA_FILE: Field = field(
    "ca_file",
    Text,
    Optional,
    "a PEM file with the certificates that may vouch for the database, and no others; those that the operating system trusts if left out",
);
pub(crate) static LEASE_ALLOW_PLAINTEXT: Field = field(
    "allow_plaintext_credentials",
    Flag,
    Default("false"),
    "accepts that the password crosses the network in the clear",
);
pub(crate) static LEASE_NAME: Field = field(
    "name",
    Text,
    Optional,
    "the name of the lease, the same for all replicas of a bridge and no others; the `id` of the bridge if left out",
);
pub(crate) static LEASE_TTL: Field = field(
    "lease_ttl",
    Duration {
        min: "100ms",
        max: "10m",
    },
    Default("15s"),
    "how long the lease lasts without being renewed: after a crash nobody is active for about so long",
);
pub(crate) static RENEW_INTERVAL: Field = field(
    "renew_interval",
    Duration {
        min: "100ms",
        max: "10m",
    },
    Default("4s"),
    "how often it is renewed; twice this and step_down_grace fit into lease_ttl",
);
pub(crate) static STEP_DOWN_GRACE: Field = field(
    "step_down_grace",
    Duration {
        min: "100ms",
        max: "10m",
    },
    Default("3s"),
    "how long before the end of a lease that could not be renewed the sessions begin to close",
);

static LEASE_SECTION: Section = Section {
    doc: "Who may own the exclusive sessions. One lease is for all of them: a replica has all or none.",
    fields: &[
        &STORE,
        &LEASE_PATH,
        &LEASE_URL,
        &LEASE_PASSWORD,
        &LEASE_PASSWORD_FILE,
        &LEASE_CA_FILE,
        &LEASE_ALLOW_PLAINTEXT,
        &LEASE_NAME,
        &LEASE_TTL,
        &RENEW_INTERVAL,
        &STEP_DOWN_GRACE,
    ],
};
