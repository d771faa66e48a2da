//! One session: its broker, its identity, its credentials, its deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::path::Path;

use bridge_core::{Backoff, Name, QoS, Topic};
use bridge_runtime::RouteSpec;
use bridge_transport::{
    Credentials, Protocol, QosUnavailable, RetainUnavailable, SessionConfig, StatusTopic,
};

use super::credentials::{self, Login};
use super::identity::{self, Identity, mqtt_text, whole_seconds};
use super::{place, reach};
use crate::config::fields;
use crate::config::problem::Problem;
use crate::config::reader::{At, Found, Map, Reader, Reported};

/// The longest client id that every broker of MQTT 3.1.1 takes (§3.1.3.1).
const MAX_ID_311: usize = 23;

/// A checked session and where its parts stand.
pub(super) struct Checked {
    pub(super) config: SessionConfig,
    client_id_at: At,
    publisher_at: At,
    protocol_at: At,
    status_at: At,
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
        check_311(reader, map, identity.as_ref());
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
    let max_in_flight = reader.count(map, &fields::SESSION_MAX_IN_FLIGHT);
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
            max_in_flight: window(&max_in_flight?)?,
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
            status: status.ok()?,
        },
        client_id_at: map.key(&fields::CLIENT_ID),
        publisher_at: map.key(&fields::PUBLISHER_CLIENT_ID),
        protocol_at: map.key(&fields::PROTOCOL),
        status_at: map.key(&fields::STATUS),
    })
}

/// A count whose field bounds it to 1…65,535.
pub(super) fn window(found: &Found<u64>) -> Option<NonZeroU16> {
    u16::try_from(found.value).ok().and_then(NonZeroU16::new)
}

fn backoff(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<Backoff> {
    if map.has(&fields::RECONNECT) {
        let section = reader.section(map, &fields::RECONNECT)?;
        let min = reader.duration(&section, &fields::RECONNECT_MIN);
        let max = reader.duration(&section, &fields::RECONNECT_MAX);
        match Backoff::try_new(min?.value, max?.value) {
            Ok(backoff) => return Some(backoff),
            Err(problem) => reader.report(&section.at, Problem::Backoff(problem)),
        }
        return None;
    }
    let section = Map::absent(&map.at, &fields::RECONNECT);
    let min = reader.duration(&section, &fields::RECONNECT_MIN)?;
    let max = reader.duration(&section, &fields::RECONNECT_MAX)?;
    Backoff::try_new(min.value, max.value).ok()
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
                reader.report(&text.at, Problem::StatusShared);
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
fn check_311(reader: &mut Reader<'_>, map: &Map<'_>, identity: Option<&Identity>) {
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
    let Some(identity) = identity else { return };
    let ids = [&identity.client_id, &identity.publisher_client_id];
    if let Some(id) = ids.into_iter().find(|id| id.len() > MAX_ID_311) {
        let problem = Problem::LongClientId311(id.len());
        reader.report(&map.key(&fields::CLIENT_ID), problem);
    }
}

/// No two connections to one broker have the same client id: it would disconnect one for the
/// other, for ever. And no two sessions tell their status in one place.
pub(super) fn check_identities(
    reader: &mut Reader<'_>,
    sessions: &[Checked],
    read: &BTreeSet<Name>,
    written: &BTreeSet<Name>,
) {
    let mut taken: BTreeMap<(String, &str), &Name> = BTreeMap::new();
    let mut told: BTreeMap<(String, &Topic), &Name> = BTreeMap::new();
    for session in sessions {
        let config = &session.config;
        let both = read.contains(&config.name) && written.contains(&config.name);
        let brokers = place::brokers(&config.brokers);
        let publisher = both.then_some((&config.publisher_client_id, &session.publisher_at));
        for (id, at) in [Some((&config.client_id, &session.client_id_at)), publisher]
            .into_iter()
            .flatten()
        {
            let mut others = brokers.iter().filter_map(|broker| {
                let key = (broker.clone(), id.as_str());
                let other = *taken.entry(key).or_insert(&config.name);
                (other != &config.name).then(|| (other.to_string(), broker.clone()))
            });
            let first = others.next();
            // The rest of them is taken note of all the same.
            others.for_each(drop);
            if let Some((other, address)) = first {
                let id = id.clone();
                let problem = Problem::ClientIdTaken { id, other, address };
                reader.report(at, problem);
            }
        }
        if let Some(status) = &config.status {
            let mut others = brokers.into_iter().filter_map(|broker| {
                let other = *told.entry((broker, &status.topic)).or_insert(&config.name);
                (other != &config.name).then(|| other.to_string())
            });
            let first = others.next();
            others.for_each(drop);
            if let Some(other) = first {
                reader.report(&session.status_at, Problem::StatusTaken(other));
            }
        }
    }
}

/// Says what cannot be known of messages that are published with MQTT 3.1.1.
pub(super) fn check_protocols(
    reader: &mut Reader<'_>,
    sessions: &[Checked],
    routes: &[&RouteSpec],
) {
    let answered = |session: &Name| {
        routes.iter().any(|route| {
            let qos = route.subscriptions.iter().map(|s| s.qos).max();
            route.bindings.iter().any(|binding| {
                binding.sink == *session && binding.qos.or(qos) > Some(QoS::AtMostOnce)
            })
        })
    };
    for session in sessions {
        if session.config.protocol == Protocol::V311 && answered(&session.config.name) {
            reader.report(&session.protocol_at, Problem::BlindProtocol);
        }
    }
}
