//! One session: its broker, its identity, its credentials, its deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU16;
use std::path::Path;

use bridge_core::{Backoff, Name};
use bridge_transport::{
    Address, Brokers, Credentials, Endpoint, Password, Protocol, QosUnavailable, RetainUnavailable,
    Secret, SessionConfig,
};

use super::identity::{self, mqtt_text, whole_seconds};
use super::url;
use crate::config::fields;
use crate::config::problem::Problem;
use crate::config::reader::{At, Found, Map, Reader, Text};

/// The largest secret file that is read.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// A checked session and where its parts stand.
pub(super) struct Checked {
    pub(super) config: SessionConfig,
    client_id_at: At,
    publisher_at: At,
}

pub(super) fn check(
    reader: &mut Reader<'_>,
    name: &Name,
    map: &Map<'_>,
    folder: &Path,
) -> Option<Checked> {
    let address = reader
        .text(map, &fields::URL)
        .and_then(|url| address(reader, &url));
    let identity = identity::check(reader, map);
    let credentials = credentials(reader, map, folder);
    let allow = reader.flag(map, &fields::ALLOW_PLAINTEXT);
    if let (Some(address), Some(allow)) = (&address, allow)
        && !allow.value
        && !url::is_loopback(address)
        && let Some(field) = [&fields::PASSWORD, &fields::PASSWORD_FILE, &fields::USERNAME]
            .into_iter()
            .find(|field| map.has(field))
    {
        let problem = Problem::PlaintextCredentials(address.to_string());
        reader.report(&map.key(field), problem);
    }
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

    let identity = identity?;
    Some(Checked {
        config: SessionConfig {
            name: name.clone(),
            brokers: Brokers::one(Endpoint::tcp(address?)),
            protocol: Protocol::default(),
            client_id: identity.client_id,
            publisher_client_id: identity.publisher_client_id,
            kind: identity.kind,
            credentials: match credentials? {
                Login::Anonymous => None,
                Login::As(credentials) => Some(credentials),
            },
            keep_alive: keep_alive?,
            connect_timeout: connect_timeout?.value,
            answer_timeout: answer_timeout?.value,
            write_timeout: write_timeout?.value,
            backoff: backoff?,
            max_in_flight: window(&max_in_flight?)?,
            receive_maximum: window(&receive_maximum?)?,
            max_packet_size: u32::try_from(max_packet_size?.value).ok()?,
            qos_unavailable: QosUnavailable::default(),
            retain_unavailable: RetainUnavailable::default(),
            status: None,
        },
        client_id_at: map.key(&fields::CLIENT_ID),
        publisher_at: map.key(&fields::PUBLISHER_CLIENT_ID),
    })
}

/// A count whose field bounds it to 1…65,535.
pub(super) fn window(found: &Found<u64>) -> Option<NonZeroU16> {
    u16::try_from(found.value).ok().and_then(NonZeroU16::new)
}

fn address(reader: &mut Reader<'_>, url: &Found<Text>) -> Option<Address> {
    match url::parse(&url.value.value) {
        Ok(address) => Some(address),
        Err(problem) => {
            let problem = if url.value.substituted {
                problem.quoting(&url.value.shown)
            } else {
                problem
            };
            reader.report(&url.at, Problem::Url(problem));
            None
        }
    }
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

/// Who we are to the broker.
enum Login {
    Anonymous,
    As(Credentials),
}

/// `None` when something about it is wrong.
fn credentials(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<Login> {
    let username = reader
        .text(map, &fields::USERNAME)
        .and_then(|name| mqtt_text(reader, &name));
    let password = reader
        .text(map, &fields::PASSWORD)
        .and_then(|text| mqtt_text(reader, &text))
        .map(Secret::new);
    let file = reader.text(map, &fields::PASSWORD_FILE);
    if map.has(&fields::PASSWORD) && map.has(&fields::PASSWORD_FILE) {
        reader.report(&map.key(&fields::PASSWORD), Problem::TwoPasswords);
        return None;
    }
    let password = match file {
        Some(file) => Some(secret_file(reader, &file, folder)?),
        None => password,
    };
    match (username, map.has(&fields::USERNAME)) {
        (Some(username), _) => Some(Login::As(Credentials {
            username,
            password: password.map(Password::Text),
        })),
        (None, true) => None,
        (None, false) => {
            let written = [&fields::PASSWORD, &fields::PASSWORD_FILE]
                .into_iter()
                .find(|field| map.has(field));
            if let Some(field) = written {
                reader.report(&map.key(field), Problem::PasswordWithoutUsername);
            }
            Some(Login::Anonymous)
        }
    }
}

/// What stands in a file, without the newline that an editor puts at its end.
fn secret_file(reader: &mut Reader<'_>, path: &Found<Text>, folder: &Path) -> Option<Secret> {
    let mut bytes = Vec::new();
    let read = File::open(folder.join(&path.value.value))
        .and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes));
    let what = match read {
        Err(error) => format!("cannot be read: {error}"),
        Ok(length) if u64::try_from(length).is_ok_and(|l| l > MAX_SECRET_BYTES) => {
            "is larger than 64 KiB".to_owned()
        }
        Ok(_) => match String::from_utf8(bytes) {
            Err(_) => "is not valid UTF-8".to_owned(),
            Ok(text) => {
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                if !text.is_empty() {
                    return Some(Secret::new(text.to_owned()));
                }
                "is empty".to_owned()
            }
        },
    };
    let problem = Problem::SecretFile {
        path: path.value.shown.clone(),
        what,
    };
    reader.report(&path.at, problem);
    None
}

/// No two connections to one broker have the same client id: it would disconnect one for the
/// other, for ever.
pub(super) fn check_identities(
    reader: &mut Reader<'_>,
    sessions: &[Checked],
    read: &BTreeSet<Name>,
    written: &BTreeSet<Name>,
) {
    let mut taken: BTreeMap<(String, &str), &Name> = BTreeMap::new();
    for session in sessions {
        let config = &session.config;
        let both = read.contains(&config.name) && written.contains(&config.name);
        let publisher = both.then_some((&config.publisher_client_id, &session.publisher_at));
        for (id, at) in [Some((&config.client_id, &session.client_id_at)), publisher]
            .into_iter()
            .flatten()
        {
            let other = *taken
                .entry((url::broker(&config.brokers), id))
                .or_insert(&config.name);
            if other != &config.name {
                let problem = Problem::ClientIdTaken {
                    id: id.clone(),
                    other: other.to_string(),
                    address: config.brokers.to_string(),
                };
                reader.report(at, problem);
            }
        }
    }
}
