//! What a connection proves itself with: password, proxy password, TLS; read from files that
//! others renew.

mod client_config;
mod expiry;
mod files;
mod ring;
mod unverified;

use std::path::PathBuf;
use std::sync::Arc;

use bridge_core::Timestamp;
use tokio_rustls::rustls::{self, ClientConfig};

use crate::{Credentials, Endpoint, Password, Secret, Tls};

use files::Contents;

pub(crate) use ring::{Glimpse, Ring};

/// What proves who we are at one endpoint, ready for use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    /// The session's password.
    pub(crate) password: Option<Secret>,
    /// The proxy's.
    pub(crate) proxy_password: Option<Secret>,
    /// How it is encrypted.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// When the client certificate ends.
    pub(crate) certificate_expiry: Option<Timestamp>,
}

/// Why there are no keys.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("cannot read {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} holds more than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{} holds no password: it is empty", path.display())]
    Empty { path: PathBuf },
    #[error("the password in {} is no UTF-8 text", path.display())]
    NotText { path: PathBuf },
    #[error("{} holds no certificate in PEM form", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} holds no private key in PEM form (PKCS #8, SEC 1 or PKCS #1)", path.display())]
    NoKey { path: PathBuf },
    #[error("the private key in {} is of no use: {error}", path.display())]
    Key { path: PathBuf, error: rustls::Error },
    #[error(
        "the certificate in {} and the private key in {} do not belong together; \
         one may have been renewed and the other not yet",
        certificate.display(),
        key.display()
    )]
    HalfPair { certificate: PathBuf, key: PathBuf },
    #[error("the certificate in {} is of no use: {}", path.display(), certificate_unusable(.error))]
    Certificate { path: PathBuf, error: rustls::Error },
    #[error(
        "this machine trusts no authority{why}; \
         install its certificates, or name a file with tls.ca_file"
    )]
    NoSystemTrust { why: String },
    #[error("TLS cannot be set up: {0}")]
    Tls(rustls::Error),
    #[error("a defect ended the reading of the keys: {0}; please report it")]
    Defect(String),
}

/// What a library says against a certificate, in plain words where it has none of its own.
pub fn certificate_unusable(why: &dyn std::fmt::Display) -> String {
    let why = why.to_string();
    if why.contains("UnsupportedCertVersion") {
        "it is of X.509 version 1, and only version 3 is taken; \
         `openssl x509 -req` writes that where it is given an -extfile"
            .to_owned()
    } else {
        why
    }
}

/// Where the keys of one endpoint come from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    password: Option<Password>,
    proxy_password: Option<Password>,
    tls: Option<Tls>,
}

impl Origin {
    pub(crate) fn new(endpoint: &Endpoint, credentials: Option<&Credentials>) -> Self {
        let proxy = endpoint.proxy.as_ref();
        let proxy = proxy.and_then(|proxy| proxy.credentials.as_ref());
        Self {
            password: credentials.and_then(|credentials| credentials.password.clone()),
            proxy_password: proxy.map(|(_, password)| password.clone()),
            tls: endpoint.tls.clone(),
        }
    }

    /// The files that the keys are made of.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let passwords = [&self.password, &self.proxy_password].into_iter();
        let passwords = passwords.filter_map(|password| match password {
            Some(Password::File(path)) => Some(path),
            Some(Password::Text(_)) | None => None,
        });
        passwords.chain(self.tls.iter().flat_map(Tls::files))
    }

    /// Reads every file.
    fn read(&self) -> Contents {
        Contents::read(self.files())
    }

    /// Makes keys of what was read.
    fn build(&self, contents: &Contents) -> Result<Keys, KeyError> {
        let (tls, certificate_expiry) = match &self.tls {
            Some(tls) => {
                let (config, expiry) = client_config::build(tls, contents)?;
                (Some(Arc::new(config)), expiry)
            }
            None => (None, None),
        };
        Ok(Keys {
            password: password(self.password.as_ref(), contents)?,
            proxy_password: password(self.proxy_password.as_ref(), contents)?,
            tls,
            certificate_expiry,
        })
    }
}

fn password(password: Option<&Password>, contents: &Contents) -> Result<Option<Secret>, KeyError> {
    let path = match password {
        None => return Ok(None),
        Some(Password::Text(secret)) => return Ok(Some(secret.clone())),
        Some(Password::File(path)) => path,
    };
    let text = std::str::from_utf8(contents.of(path)?);
    let text = text.map_err(|_| KeyError::NotText { path: path.clone() })?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(KeyError::Empty { path: path.clone() });
    }
    Ok(Some(Secret::new(text.to_owned())))
}

#[cfg(test)]
mod tests;
