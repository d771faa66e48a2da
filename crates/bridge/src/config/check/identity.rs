//! Who a session is to its broker: client ids and what the broker keeps for them (I15, I16).

use std::time::Duration;

use bridge_transport::SessionKind;

use crate::config::fields;
use crate::config::problem::Problem;
use crate::config::reader::{Found, Map, Reader, Text};

/// A session's client ids and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) client_id: String,
    pub(super) publisher_client_id: String,
    pub(super) kind: SessionKind,
}

/// What is put behind the client ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Hostname,
    Nonce,
}

/// What the operator asks the broker to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Persistent,
    Ephemeral,
    Exclusive,
}

pub(super) fn check(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<Identity> {
    let client_id = reader
        .text(map, &fields::CLIENT_ID)
        .and_then(|id| mqtt_text(reader, &id));
    let publisher = reader
        .text(map, &fields::PUBLISHER_CLIENT_ID)
        .and_then(|id| mqtt_text(reader, &id));
    let suffix = reader.choice(map, &fields::CLIENT_ID_SUFFIX).map(|word| {
        if word.value == "nonce" {
            Suffix::Nonce
        } else {
            Suffix::Hostname
        }
    });
    let mode = reader
        .choice(map, &fields::SESSION_MODE)
        .map(|word| match word.value {
            "exclusive" => Mode::Exclusive,
            "ephemeral" => Mode::Ephemeral,
            _ => Mode::Persistent,
        });
    let stable = reader.flag(map, &fields::ASSERT_STABLE);
    let expiry = reader.duration(map, &fields::SESSION_EXPIRY)?;
    // What is written and wrong has been reported, and must not be taken for left out.
    if (suffix.is_none() && map.has(&fields::CLIENT_ID_SUFFIX))
        || (mode.is_none() && map.has(&fields::SESSION_MODE))
    {
        return None;
    }
    let mode = mode.unwrap_or(match suffix {
        None => Mode::Persistent,
        Some(_) => Mode::Ephemeral,
    });
    let suffix_at = map.key(&fields::CLIENT_ID_SUFFIX);
    match (mode, suffix) {
        (Mode::Exclusive, Some(_)) => reader.report(&suffix_at, Problem::ExclusiveSuffix),
        (Mode::Persistent, Some(Suffix::Nonce)) => {
            reader.report(&suffix_at, Problem::PersistentNonce);
        }
        (Mode::Persistent, Some(Suffix::Hostname)) if stable.as_ref().is_some_and(|s| !s.value) => {
            reader.report(&suffix_at, Problem::PersistentHostname);
        }
        _ => {}
    }
    if mode == Mode::Exclusive {
        reader.report(
            &map.key(&fields::SESSION_MODE),
            Problem::ExclusiveNeedsLease,
        );
    }
    if mode == Mode::Ephemeral && map.has(&fields::SESSION_EXPIRY) {
        let problem = Problem::NoEffect {
            field: "session_expiry",
            why: "an ephemeral session leaves nothing to expire",
        };
        reader.report(&map.key(&fields::SESSION_EXPIRY), problem);
    }
    let kind = match mode {
        Mode::Ephemeral => SessionKind::Ephemeral,
        Mode::Persistent | Mode::Exclusive => SessionKind::Persistent {
            expiry: whole_seconds(reader, &expiry)?,
        },
    };
    let suffix = match suffix {
        None => String::new(),
        Some(Suffix::Nonce) => format!("-{}", reader.host.nonce()),
        Some(Suffix::Hostname) => match reader.host.hostname() {
            Ok(name) => format!("-{name}"),
            Err(why) => {
                reader.report(&suffix_at, Problem::Hostname(why));
                return None;
            }
        },
    };
    let base = client_id?;
    let client_id = format!("{base}{suffix}");
    let publisher_client_id = match publisher {
        Some(base) => format!("{base}{suffix}"),
        None => format!("{client_id}-pub"),
    };
    if client_id == publisher_client_id {
        let at = map.key(&fields::PUBLISHER_CLIENT_ID);
        reader.report(&at, Problem::ClientIdsEqual(base));
    }
    Some(Identity {
        client_id,
        publisher_client_id,
        kind,
    })
}

/// A text as MQTT can carry it, not empty.
pub(super) fn mqtt_text(reader: &mut Reader<'_>, text: &Found<Text>) -> Option<String> {
    let value = &text.value.value;
    let problem = if value.is_empty() {
        Problem::EmptyText
    } else if value.len() > 65_535 {
        Problem::TooLongForMqtt
    } else {
        return Some(value.clone());
    };
    reader.report(&text.at, problem);
    None
}

/// A duration that MQTT carries in seconds.
pub(super) fn whole_seconds(reader: &mut Reader<'_>, found: &Found<Duration>) -> Option<Duration> {
    if found.value.subsec_nanos() == 0 {
        return Some(found.value);
    }
    reader.report(&found.at, Problem::WholeSeconds);
    None
}
