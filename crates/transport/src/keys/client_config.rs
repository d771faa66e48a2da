//! From PEM files to what TLS needs.

use std::path::Path;
use std::sync::Arc;

use bridge_core::Timestamp;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ClientConfig, ConfigBuilder, RootCertStore};

use super::expiry;
use super::files::Contents;
use super::unverified::Unverified;
use super::{KeyError, Tls};
use crate::{ClientCertificate, TlsVersion, Trust};

/// The settings of TLS, and when our own certificate ends.
pub(super) fn build(
    tls: &Tls,
    contents: &Contents,
) -> Result<(ClientConfig, Option<Timestamp>), KeyError> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = match tls.minimum {
        TlsVersion::V1_2 => &[&TLS13, &TLS12],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(KeyError::Tls)?;
    let builder: ConfigBuilder<_, WantsClientCert> = match &tls.trust {
        Trust::System => builder.with_root_certificates(system_roots()?),
        Trust::File(path) => builder.with_root_certificates(roots(path, contents)?),
        Trust::InsecureSkipVerify => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified::new(provider))),
    };
    let (mut config, expiry) = match &tls.client {
        Some(client) => identified(builder, client, contents)?,
        None => (builder.with_no_client_auth(), None),
    };
    config.alpn_protocols = tls
        .alpn
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Ok((config, expiry))
}

fn identified(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    client: &ClientCertificate,
    contents: &Contents,
) -> Result<(ClientConfig, Option<Timestamp>), KeyError> {
    let chain = certificates(&client.certificate, contents)?;
    let expiry = chain
        .first()
        .and_then(|certificate| expiry::of(certificate));
    let key = PrivateKeyDer::from_pem_slice(contents.of(&client.key)?);
    let key = key.map_err(|_| KeyError::NoKey {
        path: client.key.clone(),
    })?;
    let usable = ring::default_provider()
        .key_provider
        .load_private_key(key.clone_key());
    usable.map_err(|error| KeyError::Key {
        path: client.key.clone(),
        error,
    })?;
    let config = builder.with_client_auth_cert(chain, key);
    let config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => KeyError::HalfPair {
            certificate: client.certificate.clone(),
            key: client.key.clone(),
        },
        error => KeyError::Certificate {
            path: client.certificate.clone(),
            error,
        },
    })?;
    Ok((config, expiry))
}

fn certificates(
    path: &Path,
    contents: &Contents,
) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents.of(path)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(KeyError::NoCertificate {
            path: path.to_owned(),
        }),
    }
}

/// The authorities of a file; each must be one, so that a mistake is noticed.
fn roots(path: &Path, contents: &Contents) -> Result<RootCertStore, KeyError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path, contents)? {
        store
            .add(certificate)
            .map_err(|error| KeyError::Certificate {
                path: path.to_owned(),
                error,
            })?;
    }
    Ok(store)
}

/// The authorities of this machine, as far as they can be read: one that is odd does no harm.
fn system_roots() -> Result<RootCertStore, KeyError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = found.errors.first();
        return Err(KeyError::NoSystemTrust {
            why: why.map_or_else(String::new, |error| format!(" ({error})")),
        });
    }
    Ok(store)
}
