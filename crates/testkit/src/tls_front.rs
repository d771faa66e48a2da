//! TLS in front of a port without it, as a load balancer ends it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::acceptor::Acceptor;
use crate::certificates::Identity;
use crate::port::{self, PortLease};

/// What a client of a [`TlsFront`] has shown in its handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// The name that the client asked for; a client sends none when it connects to an address.
    pub server_name: Option<String>,
    /// The application protocol that was agreed on.
    pub alpn: Option<String>,
    /// The client's certificate, as [`Identity::der`] has it.
    pub client: Option<Vec<u8>>,
    /// Whether it is TLS 1.3, not 1.2.
    pub is_1_3: bool,
}

/// How a [`TlsFront`] is to be; begun with [`TlsFront::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing before `start`"]
pub struct TlsFrontBuilder {
    server: Identity,
    authority: Option<PathBuf>,
    alpn: Vec<Vec<u8>>,
    only_1_2: bool,
}

impl TlsFrontBuilder {
    /// Takes only clients whose certificate that authority has issued.
    pub fn clients_of(mut self, authority: impl Into<PathBuf>) -> Self {
        self.authority = Some(authority.into());
        self
    }

    /// Knows these application protocols, the best first. A client that knows none of them, but
    /// others, is turned away.
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter();
        self.alpn = protocols.map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Knows TLS 1.2 alone, as an old appliance.
    pub fn only_1_2(mut self) -> Self {
        self.only_1_2 = true;
        self
    }

    /// Starts in front of that port of 127.0.0.1. Nothing need listen there yet.
    ///
    /// # Panics
    /// When the port cannot be bound or a certificate not be read.
    pub async fn start(self, upstream: u16) -> TlsFront {
        let lease = PortLease::take();
        let listener = port::listen(&lease).await;
        let shared = Arc::new(Shared {
            config: Mutex::new(self.config()),
            handshakes: Mutex::default(),
            failures: Mutex::default(),
        });
        let of_task = Arc::clone(&shared);
        let acceptor = Acceptor::start(listener, move |client| {
            let shared = Arc::clone(&of_task);
            async move { shared.carry(client, upstream).await }
        });
        TlsFront {
            lease,
            builder: self,
            shared,
            _acceptor: acceptor,
        }
    }

    fn config(&self) -> Arc<ServerConfig> {
        let versions = if self.only_1_2 {
            &[&TLS12][..]
        } else {
            &[&TLS12, &TLS13][..]
        };
        // By name: whoever shares the build may have a second provider in it.
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .expect("versions that the provider knows");
        let config = match &self.authority {
            None => config.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                let authority = CertificateDer::from_pem_file(authority);
                roots
                    .add(authority.expect("the authority's certificate"))
                    .expect("a certificate that can be trusted");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(verifier.expect("an authority"))
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.server.key).expect("the server's key");
        let mut config = config
            .with_single_cert(vec![self.server.der().into()], key)
            .expect("a certificate with its key");
        config.alpn_protocols.clone_from(&self.alpn);
        Arc::new(config)
    }
}

/// Ends TLS and passes on what is in it; everything it holds is closed on drop.
#[derive(Debug)]
pub struct TlsFront {
    lease: PortLease,
    builder: TlsFrontBuilder,
    shared: Arc<Shared>,
    _acceptor: Acceptor,
}

#[derive(Debug)]
struct Shared {
    config: Mutex<Arc<ServerConfig>>,
    handshakes: Mutex<Vec<Handshake>>,
    failures: Mutex<Vec<String>>,
}

impl TlsFront {
    /// A front that shows that certificate.
    pub const fn builder(server: Identity) -> TlsFrontBuilder {
        TlsFrontBuilder {
            server,
            authority: None,
            alpn: Vec::new(),
            only_1_2: false,
        }
    }

    /// Starts with that certificate in front of that port of 127.0.0.1.
    pub async fn start(server: Identity, upstream: u16) -> Self {
        Self::builder(server).start(upstream).await
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.lease.port()
    }

    /// Shows that certificate to whoever connects from now on.
    pub fn present(&mut self, server: Identity) {
        self.builder.server = server;
        *lock(&self.shared.config) = self.builder.config();
    }

    /// The handshakes that have succeeded so far.
    pub fn handshakes(&self) -> Vec<Handshake> {
        lock(&self.shared.handshakes).clone()
    }

    /// Why handshakes have failed so far, as this side saw it.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.shared.failures).clone()
    }
}

impl Shared {
    async fn carry(&self, client: TcpStream, upstream: u16) -> io::Result<()> {
        let config = Arc::clone(&lock(&self.config));
        let mut client = match TlsAcceptor::from(config).accept(client).await {
            Ok(client) => client,
            Err(error) => {
                lock(&self.failures).push(error.to_string());
                return Err(error);
            }
        };
        lock(&self.handshakes).push(Handshake::of(client.get_ref().1));
        let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await?;
        Ok(())
    }
}

impl Handshake {
    fn of(connection: &ServerConnection) -> Self {
        use tokio_rustls::rustls::ProtocolVersion::TLSv1_3;
        let alpn = connection.alpn_protocol();
        let client = connection.peer_certificates().and_then(<[_]>::first);
        Self {
            server_name: connection.server_name().map(str::to_owned),
            alpn: alpn.map(|name| String::from_utf8_lossy(name).into_owned()),
            client: client.map(|certificate| certificate.to_vec()),
            is_1_3: connection.protocol_version() == Some(TLSv1_3),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
