//! Encryption of a connection to the database, by the TLS that the rest of the bridge has.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("{0} holds no certificate of an authority in PEM form")]
    NoAuthority(String),
    #[error("this machine trusts no authority; install its certificates, or set ca_file")]
    NoSystemTrust,
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] tokio_rustls::rustls::Error),
}

/// Makes the connector; reads files, so that a renewed authority is known at the next connection.
pub(super) fn connector(ca_file: Option<&Path>) -> Result<Tls, TlsError> {
    let roots = match ca_file {
        Some(path) => roots_of(path)?,
        None => system_roots()?,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // For `sslnegotiation=direct`; a server that waits for the older way ignores it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(Tls(TlsConnector::from(Arc::new(config))))
}

fn roots_of(path: &Path) -> Result<RootCertStore, TlsError> {
    let nothing = || TlsError::NoAuthority(path.display().to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|_| nothing())? {
        roots.add(certificate.map_err(|_| nothing())?)?;
    }
    if roots.is_empty() {
        return Err(nothing());
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsError::NoSystemTrust);
    }
    Ok(roots)
}

#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = TlsTo;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsTo, InvalidDnsNameError> {
        let name = ServerName::try_from(host.to_owned())?;
        Ok(TlsTo(self.0.clone(), name))
    }
}

pub(super) struct TlsTo(TlsConnector, ServerName<'static>);

impl<S> TlsConnect<S> for TlsTo
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, stream).await.map(Encrypted) })
    }
}

pub(super) struct Encrypted<S>(RustlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is verified, with the host's name, before a password is sent.
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
