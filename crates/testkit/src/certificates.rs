//! Certificates made while a test runs, so that none lies in the repository and expires there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// The names that a server of this machine answers to.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate with its key, as files in PEM.
///
/// The files belong to the [`Authority`] that issued them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key (PKCS #8).
    pub key: PathBuf,
}

impl Identity {
    /// The certificate's bytes (DER).
    ///
    /// # Panics
    /// When the file cannot be read.
    pub fn der(&self) -> Vec<u8> {
        let certificate = CertificateDer::from_pem_file(&self.certificate);
        certificate.expect("a certificate in PEM").to_vec()
    }

    /// Puts the certificate of another in the place of this one; the key stays.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn replace_certificate_with(&self, other: &Self) {
        replace(&self.certificate, &other.certificate);
    }

    /// Puts the key of another in the place of this one; the certificate stays.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn replace_key_with(&self, other: &Self) {
        replace(&self.key, &other.key);
    }
}

/// Replaces a file at once: whoever reads sees the old one or the new one.
fn replace(path: &Path, by: &Path) {
    let new = path.with_extension("new");
    fs::copy(by, &new)
        .and_then(|_| fs::rename(&new, path))
        .unwrap_or_else(|error| panic!("cannot replace {}: {error}", path.display()));
}

/// A certificate authority with a folder of its own, gone on drop.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    issued: AtomicUsize,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new authority, which trusts no other and which no other trusts.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("bridge-certificates-")
            .tempdir()
            .expect("a temporary folder");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(
            DnType::CommonName,
            format!("authority {}", folder.path().display()),
        );
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("the CA's certificate");
        write(&folder.path().join("ca.pem"), &certificate.pem());
        Self {
            folder,
            issuer: Issuer::new(params, key),
            issued: AtomicUsize::new(0),
        }
    }

    /// The authority's own certificate, for whoever is to trust it.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A server of this machine: `localhost`, `127.0.0.1` and `::1`.
    pub fn server(&self) -> Identity {
        self.server_named(&LOCAL_NAMES)
    }

    /// A server of other names, DNS names and addresses.
    pub fn server_named(&self, names: &[&str]) -> Identity {
        self.issue(&server(names))
    }

    /// A server of this machine whose certificate ended with the year 2020.
    pub fn expired_server(&self) -> Identity {
        self.issue(&expired(server(&LOCAL_NAMES)))
    }

    /// A client of that common name.
    pub fn client(&self, name: &str) -> Identity {
        self.issue(&client(name))
    }

    /// A client whose certificate ended with the year 2020.
    pub fn expired_client(&self, name: &str) -> Identity {
        self.issue(&expired(client(name)))
    }

    /// A client whose certificate is valid up to the first moment of that day, in UTC.
    pub fn client_until(&self, name: &str, year: i32, month: u8, day: u8) -> Identity {
        let mut params = client(name);
        params.not_after = date_time_ymd(year, month, day);
        self.issue(&params)
    }

    fn issue(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let path = |suffix: &str| self.folder.path().join(format!("{number}.{suffix}"));
        let identity = Identity {
            certificate: path("pem"),
            key: path("key"),
        };
        write(&identity.certificate, &certificate.pem());
        write(&identity.key, &key.serialize_pem());
        identity
    }
}

fn server(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of a server");
    params.distinguished_name.push(DnType::CommonName, "server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    params
}

fn write(path: &Path, pem: &str) {
    fs::write(path, pem).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
