//! How a connection is encrypted, and whether the files for it are what they should be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_transport::{ClientCertificate, Tls, TlsVersion, Trust, certificate_unusable};
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey};
use tokio_rustls::rustls::{Error, InconsistentKeys, RootCertStore};

use super::credentials::{bytes, unusable};
use crate::config::fields;
use crate::config::problem::{Doubt, Problem};
use crate::config::reader::{Found, Map, Reader, Reported, Text};

/// The largest file of certificates: what an operating system trusts has a quarter of it.
const MAX_BYTES: u64 = 1024 * 1024;

/// The section `tls`; `None` when something about it is wrong.
pub(super) fn check(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<Tls> {
    let trust = trust(reader, map, folder);
    let client = own_certificate(reader, map, folder);
    let server_name = server_name(reader, map);
    let minimum = reader.choice(map, &fields::MINIMUM_VERSION);
    let alpn = alpn(reader, map);
    Some(Tls {
        trust: trust?,
        client: client.ok()?,
        server_name: server_name.ok()?,
        minimum: match minimum?.value {
            "1.3" => TlsVersion::V1_3,
            _ => TlsVersion::V1_2,
        },
        alpn: alpn?,
    })
}

fn trust(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<Trust> {
    let insecure = reader.flag(map, &fields::INSECURE_SKIP_VERIFY);
    let file = reader.text(map, &fields::CA_FILE);
    let trusted = file.and_then(|file| authorities(reader, &file, folder));
    if insecure?.value {
        let at = map.key(&fields::INSECURE_SKIP_VERIFY);
        reader.report(&at, Problem::Doubt(Doubt::InsecureSkipVerify));
        if map.has(&fields::CA_FILE) {
            let problem = Problem::NoEffect {
                field: "ca_file",
                why: "`insecure_skip_verify` accepts any certificate",
            };
            reader.report(&map.key(&fields::CA_FILE), problem);
        }
        return Some(Trust::InsecureSkipVerify);
    }
    match trusted {
        Some(path) => Some(Trust::File(path)),
        None => (!map.has(&fields::CA_FILE)).then_some(Trust::System),
    }
}

/// The path of a file whose certificates may all vouch for someone.
pub(super) fn authorities(
    reader: &mut Reader<'_>,
    path: &Found<Text>,
    folder: &Path,
) -> Option<PathBuf> {
    let (full, found) = certificates(reader, path, folder)?;
    let mut store = RootCertStore::empty();
    for (number, certificate) in (1..).zip(found) {
        if let Err(error) = store.add(certificate) {
            let what = format!("holds a certificate that cannot be used, number {number}: {error}");
            unusable(reader, path, what);
            return None;
        }
    }
    Some(full)
}

/// The certificate that we show; `None` where none is asked for.
pub(super) fn own_certificate(
    reader: &mut Reader<'_>,
    map: &Map<'_>,
    folder: &Path,
) -> Result<Option<ClientCertificate>, Reported> {
    let certificate = reader.text(map, &fields::CERTIFICATE_FILE);
    let key = reader.text(map, &fields::KEY_FILE);
    for (one, other) in [
        (&fields::CERTIFICATE_FILE, &fields::KEY_FILE),
        (&fields::KEY_FILE, &fields::CERTIFICATE_FILE),
    ] {
        if map.has(one) && !map.has(other) {
            reader.report(&map.key(one), Problem::HalfPair(one.name, other.name));
            return Err(Reported);
        }
    }
    if !map.has(&fields::CERTIFICATE_FILE) {
        return Ok(None);
    }
    let key_at = key.as_ref().map(|key| key.at.clone());
    let (mut found, certificate_at) = (None, certificate);
    if let Some(path) = &certificate_at {
        found = certificates(reader, path, folder).map(|found| (path, found));
    }
    let key = key.and_then(|path| private_key(reader, &path, folder));
    let (Some((path, (certificate, chain))), Some((key, signing))) = (found, key) else {
        return Err(Reported);
    };
    // `Unknown` is a kind of key whose public half cannot be asked for: the broker will say.
    match CertifiedKey::new(chain, signing).keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(_)) => {
            let at = key_at.unwrap_or_else(|| map.key(&fields::KEY_FILE));
            reader.report(&at, Problem::KeyOfAnother);
            return Err(Reported);
        }
        Err(error) => {
            let why = certificate_unusable(&error);
            unusable(
                reader,
                path,
                format!("holds no certificate that can be used: {why}"),
            );
            return Err(Reported);
        }
    }
    Ok(Some(ClientCertificate { certificate, key }))
}

fn certificates(
    reader: &mut Reader<'_>,
    path: &Found<Text>,
    folder: &Path,
) -> Option<(PathBuf, Vec<CertificateDer<'static>>)> {
    let (full, bytes) = bytes(reader, path, folder, MAX_BYTES)?;
    let what = match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => return Some((full, found)),
        Ok(_) => "holds no certificate in PEM form".to_owned(),
        Err(error) => format!("is not in PEM form: {error}"),
    };
    unusable(reader, path, what);
    None
}

fn private_key(
    reader: &mut Reader<'_>,
    path: &Found<Text>,
    folder: &Path,
) -> Option<(PathBuf, Arc<dyn SigningKey>)> {
    let (full, bytes) = bytes(reader, path, folder, MAX_BYTES)?;
    let encrypted = String::from_utf8_lossy(&bytes).contains("ENCRYPTED");
    let what = match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => match any_supported_type(&key) {
            Ok(key) => return Some((full, key)),
            Err(_) => "holds a private key of a kind that is not supported",
        },
        Err(_) if encrypted => {
            "holds an encrypted private key: write it without its passphrase (`openssl pkey`)"
        }
        // What the parser says of a key is not repeated: it may quote it.
        Err(_) => "holds no private key in PEM form",
    };
    unusable(reader, path, what.to_owned());
    None
}

/// `None` where the host's name is to be used.
fn server_name(reader: &mut Reader<'_>, map: &Map<'_>) -> Result<Option<String>, Reported> {
    let Some(text) = reader.text(map, &fields::SERVER_NAME) else {
        let written = map.has(&fields::SERVER_NAME);
        return if written { Err(Reported) } else { Ok(None) };
    };
    if ServerName::try_from(text.value.value.as_str()).is_ok() {
        return Ok(Some(text.value.value));
    }
    reader.report(&text.at, Problem::ServerName(text.value.shown.clone()));
    Err(Reported)
}

fn alpn(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<Vec<String>> {
    let texts = reader.texts(map, &fields::ALPN);
    if texts.is_empty() && map.has(&fields::ALPN) {
        return None;
    }
    let mut protocols = Vec::new();
    for text in texts {
        if (1..=255).contains(&text.value.value.len()) {
            protocols.push(text.value.value);
        } else {
            reader.report(&text.at, Problem::Alpn);
        }
    }
    Some(protocols)
}
