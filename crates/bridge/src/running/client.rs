//! HTTP/1.1 with the admin API: a connection for each call, deadlines for each step of it, and
//! nothing that is followed or tried again behind the caller's back.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bridge_dlq_admin::Offline;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::task::AbortOnDropHandle;

use super::access::Token;
use super::failure::Problem;
use super::{EXIT_SOME_NOT, Failure, Whom};
use crate::place::Place;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// More than any answer that is taken whole: the largest message of MQTT, twice, in JSON.
const LARGEST: usize = 1 << 30;
/// How much of what is no answer of ours is looked at.
const LARGEST_PROBLEM: usize = 64 << 10;

/// Whoever asks one bridge, or a data folder in which none is at work.
pub(crate) struct Client {
    whom: Whom,
    way: Way,
    patience: Duration,
}

/// How requests get there.
enum Way {
    Network {
        place: Place,
        token: Token,
        tls: Option<TlsConnector>,
    },
    Here(Arc<Offline>),
}

/// An answer that is there whole.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 200, or 207 where something was not done.
    pub(crate) status: StatusCode,
    /// What it says.
    pub(crate) body: Value,
}

impl Answer {
    /// What the command ends with that asked for it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.status == StatusCode::OK {
            0
        } else {
            EXIT_SOME_NOT
        })
    }
}

/// An answer that comes piece by piece.
pub(crate) struct Stream<'a> {
    client: &'a Client,
    reply: Reply,
}

/// The head of an answer, what comes of its body, and what keeps it coming.
struct Reply {
    status: StatusCode,
    body: Incoming,
    _connection: AbortOnDropHandle<()>,
}

impl Client {
    pub(super) fn new(
        place: Place,
        token: Token,
        tls: Option<TlsConnector>,
        patience: Duration,
    ) -> Self {
        Self {
            whom: Whom::Bridge(place.clone()),
            way: Way::Network { place, token, tls },
            patience,
        }
    }

    /// Asks within this process about what is in `folder`.
    pub(crate) fn here(folder: PathBuf, offline: Arc<Offline>, patience: Duration) -> Self {
        Self {
            whom: Whom::Folder(folder),
            way: Way::Here(offline),
            patience,
        }
    }

    /// Whom it asks.
    pub(crate) const fn whom(&self) -> &Whom {
        &self.whom
    }

    /// Whether what it begins ends with this process.
    pub(crate) const fn is_here(&self) -> bool {
        matches!(self.way, Way::Here(_))
    }

    /// Gets what is at `path`.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        let request = self.request(Method::GET, path, None);
        self.whole(request, self.patience, false).await
    }

    /// Asks for a change, whose answer may take `longer` than usual.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &Value,
        longer: Duration,
    ) -> Result<Answer, Failure> {
        let body = ("application/json", Bytes::from(body.to_string()));
        self.change(Method::POST, path, Some(body), longer).await
    }

    /// Asks for a change with that body.
    pub(crate) async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
        longer: Duration,
    ) -> Result<Answer, Failure> {
        let request = self.request(method, path, body);
        self.whole(request, self.patience + longer, true).await
    }

    /// Gets what is at `path` as it comes.
    pub(crate) async fn stream(&self, path: &str) -> Result<Stream<'_>, Failure> {
        let request = self.request(Method::GET, path, None);
        let reply = self.exchange(request, self.patience, false).await?;
        Ok(Stream {
            client: self,
            reply,
        })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Request<Full<Bytes>> {
        let (media, body) = body.map_or((None, Bytes::new()), |(media, body)| (Some(media), body));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // Both were checked where they came from, and paths are ours with what is encoded.
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Some(media) = media {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        }
        if let Way::Network { place, token, .. } = &self.way {
            if let Ok(host) = HeaderValue::try_from(place.authority()) {
                headers.insert(header::HOST, host);
            }
            let bearer = format!("Bearer {}", token.text.expose());
            if let Ok(mut bearer) = HeaderValue::try_from(bearer) {
                bearer.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, bearer);
            }
        }
        let agent = concat!("bridge/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        request
    }

    async fn whole(
        &self,
        request: Request<Full<Bytes>>,
        patience: Duration,
        changing: bool,
    ) -> Result<Answer, Failure> {
        let mut reply = self.exchange(request, patience, changing).await?;
        let bytes = self.collect(&mut reply.body, LARGEST, changing).await?;
        let status = reply.status;
        let body = serde_json::from_slice(&bytes);
        let body = body.map_err(|_| self.foreign(format!("{status} without JSON")))?;
        Ok(Answer { status, body })
    }

    /// An answer that is none of a problem.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        patience: Duration,
        changing: bool,
    ) -> Result<Reply, Failure> {
        let (mut sender, connection) = self.connect().await?;
        let response = timeout(patience, sender.send_request(request)).await;
        let response = response.map_err(|_| Failure::Late {
            whom: self.whom.clone(),
            patience,
            changing,
        })?;
        let response = response.map_err(|error| self.broken(&error, changing))?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refusal(response, changing).await?);
        }
        Ok(Reply {
            status,
            body: response.into_body(),
            _connection: connection,
        })
    }

    async fn refusal(
        &self,
        response: Response<Incoming>,
        changing: bool,
    ) -> Result<Failure, Failure> {
        let (head, mut body) = response.into_parts();
        if !is_problem(&head.headers) {
            return Ok(self.foreign(format!("{}", head.status)));
        }
        let bytes = self.collect(&mut body, LARGEST_PROBLEM, changing).await?;
        let problem = serde_json::from_slice::<Problem>(&bytes);
        let mut problem = problem.map_err(|_| self.foreign(format!("{}", head.status)))?;
        problem.status = head.status.as_u16();
        let after = head.headers.get(header::RETRY_AFTER);
        problem.retry_after = after.and_then(|value| value.to_str().ok()?.parse().ok());
        let token = match &self.way {
            Way::Network { token, .. } => Some(token.source.clone()),
            Way::Here(_) => None,
        };
        Ok(Failure::Refused {
            whom: self.whom.clone(),
            problem: Box::new(problem),
            token,
        })
    }

    async fn collect(
        &self,
        body: &mut Incoming,
        most: usize,
        changing: bool,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next(body, changing).await? {
            if bytes.len() + piece.len() > most {
                return Err(self.foreign(format!("the answer has more than {most} bytes")));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    async fn next(&self, body: &mut Incoming, changing: bool) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = timeout(self.patience, body.frame()).await;
            let frame = frame.map_err(|_| Failure::Late {
                whom: self.whom.clone(),
                patience: self.patience,
                changing,
            })?;
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| self.broken(&error, changing))?;
            // Trailers say nothing here.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    async fn connect(&self) -> Result<(SendRequest<Full<Bytes>>, AbortOnDropHandle<()>), Failure> {
        let (place, tls) = match &self.way {
            Way::Here(offline) => return self.speak(offline.connect()).await,
            Way::Network { place, tls, .. } => (place, tls),
        };
        let stream = dial(place).await?;
        let Some(tls) = tls else {
            return self.speak(stream).await;
        };
        let failed = |error| Failure::Tls {
            place: place.clone(),
            error,
        };
        let name = ServerName::try_from(place.server_name().to_owned());
        let name = name.map_err(|error| failed(io::Error::other(error)))?;
        let late = |_| failed(io::ErrorKind::TimedOut.into());
        let stream = timeout(CONNECT, tls.connect(name, stream)).await;
        self.speak(stream.map_err(late)?.map_err(failed)?).await
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(SendRequest<Full<Bytes>>, AbortOnDropHandle<()>), Failure> {
        let spoken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = spoken.map_err(|error| self.broken(&error, false))?;
        let task = tokio::spawn(async move {
            // What breaks is told to whoever waits for the answer.
            let _ = connection.await;
        });
        Ok((sender, AbortOnDropHandle::new(task)))
    }

    fn broken(&self, error: &hyper::Error, changing: bool) -> Failure {
        if error.is_parse() {
            return self.foreign("it does not speak HTTP".to_owned());
        }
        let why = std::error::Error::source(error);
        Failure::Lost {
            whom: self.whom.clone(),
            why: why.map_or_else(|| error.to_string(), ToString::to_string),
            changing,
        }
    }

    /// What a part of an answer means; one that means something else comes from another version.
    pub(crate) fn understood<'a, T, V>(&self, value: V) -> Result<T, Failure>
    where
        T: Deserialize<'a>,
        V: Deserializer<'a, Error = serde_json::Error>,
    {
        let foreign = |error| self.foreign(format!("the answer is of another kind: {error}"));
        T::deserialize(value).map_err(foreign)
    }

    fn foreign(&self, why: String) -> Failure {
        Failure::Foreign {
            whom: self.whom.clone(),
            why,
        }
    }
}

impl Stream<'_> {
    /// The next piece; `None` at the end, which is seen as such.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        self.client.next(&mut self.reply.body, false).await
    }
}

async fn dial(place: &Place) -> Result<TcpStream, Failure> {
    let addresses = place.addresses();
    let addresses = addresses.map_err(|error| Failure::Host {
        place: place.clone(),
        error,
    })?;
    let mut failure = Failure::Host {
        place: place.clone(),
        error: io::Error::other("it has no address"),
    };
    for address in addresses {
        let stream = timeout(CONNECT, TcpStream::connect(address)).await;
        match stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => return Ok(stream),
            // What is told is what happened at the address that was meant first.
            Err(error) if matches!(failure, Failure::Host { .. }) => {
                failure = Failure::Connect {
                    place: place.clone(),
                    address,
                    error,
                };
            }
            Err(_) => {}
        }
    }
    Err(failure)
}

fn is_problem(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE);
    media.is_some_and(|media| media.as_bytes().starts_with(b"application/problem+json"))
}

/// TLS that trusts what `ca` holds, else what the operating system trusts.
pub(super) fn tls(ca: Option<&Path>) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        let file = path.display();
        let found = CertificateDer::pem_file_iter(path)
            .map_err(|error| anyhow!("cannot read the certificates of {file}: {error}"))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| anyhow!("{file} is not PEM: {error}"))?;
            roots
                .add(certificate)
                .with_context(|| format!("a certificate of {file} is of no use"))?;
        }
        anyhow::ensure!(!roots.is_empty(), "{file} holds no certificate in PEM");
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        anyhow::ensure!(
            !roots.is_empty(),
            "the operating system trusts no certificate at all: use --ca-file"
        );
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests;
