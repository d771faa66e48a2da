//! Telling who the sessions are: in the log of `bridge run`, in the answer of `bridge check`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bridge_core::Name;
use serde_json::{Value, json};

use crate::config::{Identity, Suffix};

/// One line for each session, at start.
pub(crate) fn log(identities: &BTreeMap<Name, Identity>) {
    for (session, identity) in identities {
        tracing::info!(
            event = "session_identity",
            %session,
            mode = identity.mode.as_str(),
            suffix = identity.suffix.map(Suffix::as_str),
            client_id = identity.client_id,
            publisher_client_id = identity.publisher_client_id,
            "the session connects with this client id for as long as this process lives"
        );
    }
}

/// The sessions whose client ids the file does not show, a line each.
pub(crate) fn render(identities: &BTreeMap<Name, Identity>) -> String {
    let mut text = String::new();
    for (session, identity) in identities {
        let Some(suffix) = identity.suffix else {
            continue;
        };
        let mode = identity.mode.as_str();
        // Writing into a String cannot fail.
        let _ = write!(
            text,
            "    session {session}, {mode}: connects as {}",
            identity.client_id
        );
        if let Some(publisher) = &identity.publisher_client_id {
            let _ = write!(text, ", publishes as {publisher}");
        }
        text.push_str(match suffix {
            Suffix::Hostname => " on this host\n",
            Suffix::Nonce => " or the like: the nonce is new at each start\n",
        });
    }
    text
}

/// All of them.
pub(crate) fn to_json(identities: &BTreeMap<Name, Identity>) -> Value {
    let one = |(session, identity): (&Name, &Identity)| {
        json!({
            "session": session.as_str(),
            "session_mode": identity.mode.as_str(),
            "client_id_suffix": identity.suffix.map(Suffix::as_str),
            "client_id": identity.client_id,
            "publisher_client_id": identity.publisher_client_id,
        })
    };
    identities.iter().map(one).collect()
}
