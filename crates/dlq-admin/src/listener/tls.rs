//! The certificate that the listener shows, renewed when its files are.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::files::{FileError, Renewed};

/// Where a certificate and its key are, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why two files make no TLS.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The first holds no certificate.
    #[error("there is no certificate in PEM form")]
    NoCertificate,
    /// The second holds no key.
    #[error("there is no private key in PEM form (PKCS #8, SEC 1 or PKCS #1)")]
    NoKey,
    /// They do not belong together, or are of no use.
    #[error("certificate and key are of no use together: {0}")]
    Unusable(rustls::Error),
}

/// What is shown to who connects.
pub(crate) type Certificates = Renewed<TlsAcceptor>;

impl Certificates {
    /// Reads both files.
    pub(crate) fn open_pair(files: &TlsFiles) -> Result<Self, FileError> {
        let paths = vec![files.certificate.clone(), files.key.clone()];
        Self::open(paths, |contents| match contents {
            [certificate, key] => acceptor(certificate, key).map_err(FileError::Tls),
            _ => Err(FileError::Tls(TlsError::NoCertificate)),
        })
    }

    pub(crate) fn acceptor(&self) -> Arc<TlsAcceptor> {
        self.current()
    }
}

impl TlsFiles {
    /// Whether what these files hold now can be used.
    pub fn check(&self) -> Result<(), FileError> {
        Certificates::open_pair(self).map(|_| ())
    }
}

fn acceptor(certificate: &[u8], key: &[u8]) -> Result<TlsAcceptor, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| TlsError::NoCertificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
