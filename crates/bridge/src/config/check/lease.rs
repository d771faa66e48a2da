//! The lease of the exclusive sessions, and who this instance is to the others.

use std::path::{Path, PathBuf};

use bridge_core::Name;
use bridge_lease::{
    DatabasePassword, InvalidOwner, InvalidPostgresUrl, LeaseSettings, Owner, PostgresSettings,
};

use super::identity::mqtt_text;
use super::{credentials, name, tls};
use crate::config::fields::{self, Field};
use crate::config::lease::{Lease, LeaseStore};
use crate::config::problem::{Doubt, Exposed, Problem};
use crate::config::reader::{Found, Map, Reader, Reported, Text};

/// The lease, `None` where there is none; `bridge` is the name of the bridge and `identity` the
/// section that it stands in.
pub(super) fn check(
    reader: &mut Reader<'_>,
    root: &Map<'_>,
    folder: &Path,
    identity: Option<&Map<'_>>,
    bridge: Option<&Name>,
) -> Result<Option<Lease>, Reported> {
    let instance_id = identity.map(|map| instance_id(reader, map));
    if !root.has(&fields::LEASE) {
        return Ok(None);
    }
    let map = reader.section(root, &fields::LEASE).ok_or(Reported)?;
    let store = store(reader, &map, folder);
    let lease = match reader.text(&map, &fields::LEASE_NAME) {
        Some(text) => name(reader, &text),
        None if map.has(&fields::LEASE_NAME) => None,
        None => bridge.cloned(),
    };
    let settings = settings(reader, &map);
    let instance_id = match instance_id.ok_or(Reported)?? {
        Some(written) => Some(written),
        None => host(reader, &map),
    };
    match (store, lease, settings, instance_id) {
        (Some(store), Some(name), Some(settings), Some(instance_id)) => Ok(Some(Lease {
            store,
            name,
            instance_id,
            settings,
        })),
        _ => Err(Reported),
    }
}

/// What is written of it; `None` where nothing is.
fn instance_id(reader: &mut Reader<'_>, map: &Map<'_>) -> Result<Option<String>, Reported> {
    let Some(text) = reader.text(map, &fields::INSTANCE_ID) else {
        let wrong = map.has(&fields::INSTANCE_ID);
        return if wrong { Err(Reported) } else { Ok(None) };
    };
    match Owner::new(text.value.value.as_str()) {
        Ok(_) => Ok(Some(text.value.value)),
        Err(problem) => {
            let problem = match problem {
                // What a variable holds is not shown.
                InvalidOwner::NotOneLine(_) => InvalidOwner::NotOneLine(text.value.shown),
                other => other,
            };
            reader.report(&text.at, Problem::Instance(problem));
            Err(Reported)
        }
    }
}

/// The machine's name, for an instance without another.
fn host(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<String> {
    let name = match reader.host.hostname() {
        Ok(name) => name,
        Err(why) => {
            reader.report(&map.at, Problem::InstanceUnknown(why));
            return None;
        }
    };
    match Owner::new(name.as_str()) {
        Ok(_) => Some(name),
        Err(why) => {
            reader.report(&map.at, Problem::InstanceUnknown(why.to_string()));
            None
        }
    }
}

fn store(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<LeaseStore> {
    let store = reader.choice(map, &fields::STORE)?;
    let of_postgres = [
        &fields::LEASE_URL,
        &fields::LEASE_PASSWORD,
        &fields::LEASE_PASSWORD_FILE,
        &fields::LEASE_CA_FILE,
        &fields::LEASE_ALLOW_PLAINTEXT,
    ];
    if store.value == "postgres" {
        no_effect(
            reader,
            map,
            &fields::LEASE_PATH,
            "the lease is in PostgreSQL",
        );
        return postgres(reader, map, folder).map(|set| LeaseStore::Postgres(Box::new(set)));
    }
    for field in of_postgres {
        no_effect(reader, map, field, "the lease is in a file");
    }
    file(reader, map, folder).map(LeaseStore::File)
}

fn no_effect(reader: &mut Reader<'_>, map: &Map<'_>, field: &Field, why: &'static str) {
    if map.has(field) {
        let problem = Problem::NoEffect {
            field: field.name,
            why,
        };
        reader.report(&map.key(field), problem);
    }
}

/// A field that this kind of store cannot do without.
fn needed(reader: &mut Reader<'_>, map: &Map<'_>, field: &Field) -> Option<Found<Text>> {
    if !map.has(field) {
        reader.report(&map.at, Problem::MissingField(field.name, field.doc));
    }
    let text = reader.text(map, field)?;
    if text.value.value.is_empty() {
        reader.report(&text.at, Problem::EmptyText);
        return None;
    }
    Some(text)
}

fn file(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<PathBuf> {
    let text = needed(reader, map, &fields::LEASE_PATH)?;
    let path = folder.join(&text.value.value);
    if path.is_dir() {
        reader.report(&text.at, Problem::NotAFile(text.value.shown));
        return None;
    }
    Some(path)
}

fn postgres(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<PostgresSettings> {
    let url = needed(reader, map, &fields::LEASE_URL);
    let password = password(reader, map, folder);
    let ca_file = match reader.text(map, &fields::LEASE_CA_FILE) {
        Some(path) => tls::authorities(reader, &path, folder).map(Some),
        None => (!map.has(&fields::LEASE_CA_FILE)).then_some(None),
    };
    let allow = reader.flag(map, &fields::LEASE_ALLOW_PLAINTEXT);
    let url = url?;
    let settings = match PostgresSettings::parse(&url.value.value) {
        Ok(settings) => settings,
        Err(problem) => {
            let problem = match problem {
                // What a variable holds is not shown.
                InvalidPostgresUrl::Part(_) | InvalidPostgresUrl::Unverified(_)
                    if url.value.substituted =>
                {
                    InvalidPostgresUrl::NoUrl
                }
                other => other,
            };
            reader.report(&url.at, Problem::DatabaseUrl(problem));
            return None;
        }
    };
    let mut settings = settings.with_password(password?);
    if let Some(path) = ca_file? {
        if !settings.is_encrypted() {
            no_effect(
                reader,
                map,
                &fields::LEASE_CA_FILE,
                "the connection to the database is not encrypted",
            );
        }
        settings = settings.with_ca_file(path);
    }
    if settings.sends_password_in_plain() {
        let to = Exposed::Database(settings.to_string());
        if allow?.value {
            let at = map.key(&fields::LEASE_ALLOW_PLAINTEXT);
            reader.report(&at, Problem::Doubt(Doubt::PlaintextAllowed(to)));
        } else {
            reader.report(&url.at, Problem::PlaintextCredentials(to));
        }
    }
    Some(settings)
}

fn password(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<DatabasePassword> {
    let text = reader
        .text(map, &fields::LEASE_PASSWORD)
        .and_then(|text| mqtt_text(reader, &text));
    let file = reader.text(map, &fields::LEASE_PASSWORD_FILE);
    match (
        map.has(&fields::LEASE_PASSWORD),
        map.has(&fields::LEASE_PASSWORD_FILE),
    ) {
        (true, true) => {
            reader.report(&map.key(&fields::LEASE_PASSWORD), Problem::TwoPasswords);
            None
        }
        (true, false) => text.map(DatabasePassword::Text),
        (false, true) => {
            let file = file?;
            // Looked into now, and read again for each connection: it may be renewed.
            credentials::secret_file(reader, &file, folder)?;
            Some(DatabasePassword::File(folder.join(&file.value.value)))
        }
        (false, false) => Some(DatabasePassword::None),
    }
}

fn settings(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<LeaseSettings> {
    let ttl = reader.duration(map, &fields::LEASE_TTL);
    let renew = reader.duration(map, &fields::RENEW_INTERVAL);
    let grace = reader.duration(map, &fields::STEP_DOWN_GRACE);
    LeaseSettings::new(ttl?.value, renew?.value, grace?.value)
        .map_err(|problem| reader.report(&map.at, Problem::Lease(problem)))
        .ok()
}
