//! Who a session is to its broker: client ids and what the broker keeps for them (I15, I16).

use std::time::Duration;

use bridge_transport::SessionKind;

use crate::config::fields;
use crate::config::identity::{Mode, Suffix};
use crate::config::problem::{Doubt, Problem};
use crate::config::reader::{At, Found, Map, Reader, Text};

/// A session's client ids and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) client_id: String,
    pub(super) publisher_client_id: String,
    pub(super) kind: SessionKind,
    pub(super) mode: Mode,
    pub(super) suffix: Option<Suffix>,
    /// Replicas that share the file have ids of their own: by a suffix, or by a variable that was
    /// put into `client_id`, as in `plant-${POD_NAME}`.
    pub(super) differs: bool,
}

pub(super) fn check(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<Checked> {
    let client_id = reader.text(map, &fields::CLIENT_ID);
    let differs = client_id.as_ref().is_some_and(|id| id.value.substituted);
    let client_id = client_id.and_then(|id| mqtt_text(reader, &id));
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
    together(reader, map, mode, suffix, stable.map(|found| found.value));
    let kind = match mode {
        Mode::Ephemeral => SessionKind::Ephemeral,
        Mode::Persistent | Mode::Exclusive => SessionKind::Persistent {
            expiry: whole_seconds(reader, &expiry)?,
        },
    };
    let behind = match suffix {
        None => String::new(),
        Some(suffix) => resolve(reader, suffix, &map.key(&fields::CLIENT_ID_SUFFIX))?,
    };
    let base = client_id?;
    let client_id = format!("{base}{behind}");
    let publisher_client_id = match &publisher {
        Some(base) => format!("{base}{behind}"),
        None => format!("{client_id}-pub"),
    };
    let at = |field| {
        if map.has(field) {
            map.key(field)
        } else {
            map.key(&fields::CLIENT_ID)
        }
    };
    let publisher_at = at(&fields::PUBLISHER_CLIENT_ID);
    if client_id == publisher_client_id {
        reader.report(&publisher_at, Problem::ClientIdsEqual(base));
    }
    // What a default makes of the one has been said of the other.
    let written = publisher.is_some().then_some(&publisher_client_id);
    for (id, at) in [
        (Some(&client_id), &map.key(&fields::CLIENT_ID)),
        (written, &publisher_at),
    ] {
        if let Some(id) = id {
            doubtful(reader, id, at);
        }
    }
    if client_id.len().max(publisher_client_id.len()) > MAX_BYTES {
        reader.report(&map.key(&fields::CLIENT_ID), Problem::TooLongForMqtt);
    }
    Some(Checked {
        client_id,
        publisher_client_id,
        kind,
        mode,
        suffix,
        differs: differs || suffix.is_some(),
    })
}

/// Which modes take which suffix, and what has no effect with them.
fn together(
    reader: &mut Reader<'_>,
    map: &Map<'_>,
    mode: Mode,
    suffix: Option<Suffix>,
    stable: Option<bool>,
) {
    let suffix_at = map.key(&fields::CLIENT_ID_SUFFIX);
    let asserted = stable == Some(true);
    let no_use = match (mode, suffix) {
        (Mode::Exclusive, Some(_)) => {
            reader.report(&suffix_at, Problem::ExclusiveSuffix);
            None
        }
        (Mode::Persistent, Some(Suffix::Nonce)) => {
            reader.report(&suffix_at, Problem::PersistentNonce);
            None
        }
        (Mode::Persistent, Some(Suffix::Hostname)) => {
            if stable == Some(false) {
                reader.report(&suffix_at, Problem::PersistentHostname);
            }
            None
        }
        (_, None) => Some("without a client_id_suffix the client id is as stable as it is written"),
        (Mode::Ephemeral, Some(_)) => Some(
            "the broker keeps nothing of an ephemeral session that a stable client id finds again",
        ),
    };
    // Its default asserts nothing, and may be written out.
    if let Some(why) = no_use.filter(|_| asserted) {
        let field = fields::ASSERT_STABLE.name;
        let at = map.key(&fields::ASSERT_STABLE);
        reader.report(&at, Problem::NoEffect { field, why });
    }
    if mode == Mode::Ephemeral && map.has(&fields::SESSION_EXPIRY) {
        let problem = Problem::NoEffect {
            field: "session_expiry",
            why: "an ephemeral session leaves nothing to expire",
        };
        reader.report(&map.key(&fields::SESSION_EXPIRY), problem);
    }
}

/// What the suffix stands for on this machine, with its hyphen.
fn resolve(reader: &mut Reader<'_>, suffix: Suffix, at: &At) -> Option<String> {
    match suffix {
        Suffix::Nonce => {
            let nonce = reader.host.nonce();
            if let Some(why) = nonce.mixed() {
                reader.report(at, Problem::Doubt(Doubt::NonceMixed(why.to_owned())));
            }
            Some(format!("-{}", nonce.digits()))
        }
        Suffix::Hostname => {
            let name = reader.host.hostname().and_then(usable);
            let name = name
                .map_err(|why| reader.report(at, Problem::Hostname(why)))
                .ok()?;
            if name == "localhost" || name.starts_with("localhost.") {
                reader.report(at, Problem::Doubt(Doubt::HostnameOfEveryone(name.clone())));
            }
            Some(format!("-{name}"))
        }
    }
}

/// The hostname, if it can be a part of a client id.
fn usable(name: String) -> Result<String, String> {
    if name.is_empty() {
        return Err("it is empty".to_owned());
    }
    match name.chars().find(|c| c.is_control()) {
        Some(control) => Err(format!("it holds the control character {control:?}")),
        None => Ok(name),
    }
}

/// Says what some brokers do not take, or hold against a client.
fn doubtful(reader: &mut Reader<'_>, client_id: &str, at: &At) {
    if let Some(sign) = client_id.chars().find(|c| matches!(c, '+' | '#' | '/')) {
        reader.report(at, Problem::Doubt(Doubt::TopicSignInClientId(sign)));
    }
}

/// MQTT 5 §1.5.4.
const MAX_BYTES: usize = 65_535;

/// A text as MQTT can carry it, not empty.
pub(super) fn mqtt_text(reader: &mut Reader<'_>, text: &Found<Text>) -> Option<String> {
    let value = &text.value.value;
    let problem = if value.is_empty() {
        Problem::EmptyText
    } else if value.len() > MAX_BYTES {
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
