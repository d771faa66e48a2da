//! One session: its broker, its identity, its credentials, its deadlines.

use std::num::NonZeroU16;
use std::path::Path;

use bridge_core::{Backoff, Name, Topic};
use bridge_transport::{
    Credentials, Protocol, QosUnavailable, RetainUnavailable, SessionConfig, StatusTopic,
};

use super::credentials::{self, Login};
use super::identity::{self, mqtt_text, whole_seconds};
use super::reach;
use crate::config::fields;
use crate::config::identity::{Identity, Mode, Suffix};
use crate::config::problem::{Doubt, Problem};
use crate::config::reader::{At, Found, Map, Reader, Reported};

/// A checked session and where its parts stand.
pub(super) struct Checked {
    pub(super) config: SessionConfig,
    pub(super) mode: Mode,
    pub(super) suffix: Option<Suffix>,
    /// Replicas that share the file have client ids of their own.
    pub(super) differs: bool,
    pub(super) mode_at: At,
    pub(super) client_id_at: At,
    pub(super) publisher_at: At,
    pub(super) protocol_at: At,
    pub(super) status_at: At,
    pub(super) window_at: At,
}

impl Checked {
    /// Who it is to its broker, with `both` where it is read from and written to.
    pub(super) fn identity(&self, both: bool) -> Identity {
        let publisher = both.then(|| self.config.publisher_client_id.clone());
        Identity {
            mode: self.mode,
            suffix: self.suffix,
            client_id: self.config.client_id.clone(),
            publisher_client_id: publisher,
        }
    }
}

pub(super) fn check(
    reader: &mut Reader<'_>,
    name: &Name,
    map: &Map<'_>,
    folder: &Path,
) -> Option<Checked> {
    let brokers = reach::check(reader, map, folder);
    let identity = identity::check(reader, map);
    let protocol = reader
        .choice(map, &fields::PROTOCOL)
        .map(|w| match w.value {
            "3.1.1" => Protocol::V311,
            _ => Protocol::V5,
        });
    if protocol == Some(Protocol::V311) {
        check_311(reader, map);
    }
    let login = credentials::check(reader, map, credentials::BROKER, folder);
    let status = status(reader, map);
    let keep_alive = reader
        .duration(map, &fields::KEEP_ALIVE)
        .and_then(|found| whole_seconds(reader, &found));
    let connect_timeout = reader.duration(map, &fields::CONNECT_TIMEOUT);
    let answer_timeout = reader.duration(map, &fields::ANSWER_TIMEOUT);
    let write_timeout = reader.duration(map, &fields::WRITE_TIMEOUT);
    let backoff = backoff(reader, map);
    let max_in_flight = max_in_flight(reader, map, protocol);
    let receive_maximum = reader.count(map, &fields::RECEIVE_MAXIMUM);
    let max_packet_size = reader.size(map, &fields::MAX_PACKET_SIZE);
    let on_qos = reader.choice(map, &fields::ON_QOS_UNAVAILABLE);
    let on_retain = reader.choice(map, &fields::ON_RETAIN_UNAVAILABLE);

    let identity = identity?;
    Some(Checked {
        config: SessionConfig {
            name: name.clone(),
            brokers: brokers?,
            protocol: protocol?,
            client_id: identity.client_id,
            publisher_client_id: identity.publisher_client_id,
            kind: identity.kind,
            credentials: match login? {
                Login::Anonymous => None,
                Login::As { username, password } => Some(Credentials { username, password }),
            },
            keep_alive: keep_alive?,
            connect_timeout: connect_timeout?.value,
            answer_timeout: answer_timeout?.value,
            write_timeout: write_timeout?.value,
            backoff: backoff?,
            max_in_flight: max_in_flight?,
            receive_maximum: window(&receive_maximum?)?,
            max_packet_size: u32::try_from(max_packet_size?.value).ok()?,
            qos_unavailable: match on_qos?.value {
                "downgrade" => QosUnavailable::Downgrade,
                _ => QosUnavailable::Refuse,
            },
            retain_unavailable: match on_retain?.value {
                "strip" => RetainUnavailable::Strip,
                _ => RetainUnavailable::Refuse,
            },
            // Decided where the data folder is known.
            filters_file: None,
            status: status.ok()?,
        },
        mode: identity.mode,
        suffix: identity.suffix,
        differs: identity.differs,
        mode_at: map.key(&fields::SESSION_MODE),
        client_id_at: map.key(&fields::CLIENT_ID),
        publisher_at: map.key(&fields::PUBLISHER_CLIENT_ID),
        protocol_at: map.key(&fields::PROTOCOL),
        status_at: map.key(&fields::STATUS),
        window_at: map.key(&fields::SESSION_MAX_IN_FLIGHT),
    })
}

/// The window of what is published; where it is left out, as wide as the protocol lets it be.
fn max_in_flight(
    reader: &mut Reader<'_>,
    map: &Map<'_>,
    protocol: Option<Protocol>,
) -> Option<NonZeroU16> {
    let found = reader.count(map, &fields::SESSION_MAX_IN_FLIGHT)?;
    if map.has(&fields::SESSION_MAX_IN_FLIGHT) {
        window(&found)
    } else {
        Some(protocol?.default_window())
    }
}

/// A count whose field bounds it to 1…65,535.
pub(super) fn window(found: &Found<u64>) -> Option<NonZeroU16> {
    u16::try_from(found.value).ok().and_then(NonZeroU16::new)
}

fn backoff(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<Backoff> {
    let section = reader.section_or_default(map, &fields::RECONNECT)?;
    let min = reader.duration(&section, &fields::RECONNECT_MIN);
    let max = reader.duration(&section, &fields::RECONNECT_MAX);
    Backoff::try_new(min?.value, max?.value)
        .map_err(|problem| reader.report(&section.at, Problem::Backoff(problem)))
        .ok()
}

/// Where the session says that it is there; `None` where that is nowhere.
fn status(reader: &mut Reader<'_>, map: &Map<'_>) -> Result<Option<StatusTopic>, Reported> {
    if !map.has(&fields::STATUS) {
        return Ok(None);
    }
    let section = reader.section(map, &fields::STATUS).ok_or(Reported)?;
    let topic = reader
        .text(&section, &fields::STATUS_TOPIC)
        .and_then(|text| {
            let parsed = Topic::parse(&text.value.value);
            if let Err(problem) = &parsed {
                reader.report(&text.at, Problem::StatusTopic(*problem));
            }
            let same_for_all = !text.value.substituted && map.has(&fields::CLIENT_ID_SUFFIX);
            if parsed.is_ok() && same_for_all {
                reader.report(&text.at, Problem::Doubt(Doubt::StatusShared));
            }
            parsed.ok()
        });
    let mut says = |field| {
        let text = reader.text(&section, field)?;
        mqtt_text(reader, &text)
    };
    let online = says(&fields::ONLINE);
    let offline = says(&fields::OFFLINE);
    match (topic, online, offline) {
        (Some(topic), Some(online), Some(offline)) => Ok(Some(StatusTopic {
            topic,
            online,
            offline,
        })),
        _ => Err(Reported),
    }
}

/// What MQTT 3.1.1 has no place for.
fn check_311(reader: &mut Reader<'_>, map: &Map<'_>) {
    for (field, why) in [
        (
            &fields::SESSION_EXPIRY,
            "in MQTT 3.1.1 the broker alone decides how long it keeps a session",
        ),
        (
            &fields::ON_QOS_UNAVAILABLE,
            "in MQTT 3.1.1 a broker does not say which QoS it takes",
        ),
        (
            &fields::ON_RETAIN_UNAVAILABLE,
            "in MQTT 3.1.1 a broker does not say whether it retains",
        ),
    ] {
        if map.has(field) {
            let problem = Problem::NoEffect {
                field: field.name,
                why,
            };
            reader.report(&map.key(field), problem);
        }
    }
}
