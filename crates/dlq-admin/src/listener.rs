//! The way in: so many connections at a time, each with deadlines, encrypted where there is a
//! certificate.
//!
//! A listener cannot use up what the bridge itself needs: journal and sessions need file
//! descriptors and memory too. So a connection that sends its request too slowly, does not read
//! its answer, or goes on for too long ends, and who comes when all places are taken waits.

mod linger;
mod stall;
mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use self::linger::{Lingering, ToCome};
use self::stall::Stalling;
use crate::admin::StartError;

pub(crate) use self::tls::Certificates;
pub use self::tls::{TlsError, TlsFiles};

/// How much of a request's head is kept at most; hyper itself answers a longer one with 431.
const HEAD: usize = 32 * 1024;
/// How long nothing is accepted after the operating system had no place for a connection.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a peer that has its answer may go on sending before the connection is closed.
const LINGER: Duration = Duration::from_secs(5);

/// What connections may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How many there are at a time; who comes later waits for a place.
    pub(crate) connections: usize,
    /// How long a TLS handshake, and then the head of a request, may take; also how long a
    /// connection may be idle between two requests.
    pub(crate) head: Duration,
    /// How long a peer may leave an answer unread.
    pub(crate) stall: Duration,
    /// After this long the request under way is the connection's last.
    pub(crate) lifetime: Duration,
    /// How long that last one may take.
    pub(crate) last_request: Duration,
}

/// Who is at the other end of a connection: an extension of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The address.
    pub(crate) address: SocketAddr,
    /// Whether nobody in between can read.
    pub(crate) encrypted: bool,
}

/// Has that address, which `field` of the configuration names.
pub(crate) async fn bind(
    address: SocketAddr,
    field: &'static str,
) -> Result<TcpListener, StartError> {
    let failed = |error| StartError::Listen {
        field,
        address,
        error,
    };
    TcpListener::bind(address).await.map_err(failed)
}

/// That the listener stops: an extension of every request.
#[derive(Debug, Clone)]
pub(crate) struct Stops(pub(crate) CancellationToken);

/// Answers until `stop` is cancelled; then what is under way has `grace` to end.
pub(crate) async fn serve(
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    routes: Router,
    limits: Limits,
    stop: CancellationToken,
    grace: Duration,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = accept(&listener, &room) => accepted,
        };
        let (stream, address, place) = match accepted {
            Ok(accepted) => accepted,
            Err(failure) => {
                warn!(event = "accept_failed", error = %failure, "no connection was accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        let certificates = certificates.clone();
        let (routes, stop) = (routes.clone(), stop.clone());
        connections.spawn(async move {
            let _place = place;
            connection(stream, address, certificates, routes, limits, stop).await;
        });
    }
    drop(listener);
    let ended = timeout(grace, async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    });
    if ended.await.is_err() {
        warn!(
            event = "requests_cut_off",
            connections = connections.len(),
            "some requests did not end in time"
        );
        connections.shutdown().await;
    }
}

type Place = Option<tokio::sync::OwnedSemaphorePermit>;

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, Place)> {
    // The semaphore is never closed.
    let place = room.clone().acquire_owned().await.ok();
    let (stream, address) = listener.accept().await?;
    Ok((stream, address, place))
}

/// A task of a connection ends badly only by a defect.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(failure) = ended {
        error!(event = "connection_failed", error = %failure, "a defect; please report it");
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    certificates: Option<Arc<Certificates>>,
    routes: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    // An answer is written whole, so that nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let peer = Peer {
        address,
        encrypted: certificates.is_some(),
    };
    let Some(certificates) = certificates else {
        return exchange(stream, peer, routes, limits, stop).await;
    };
    match timeout(limits.head, certificates.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => exchange(stream, peer, routes, limits, stop).await,
        Ok(Err(failure)) => debug!(event = "handshake_failed", peer = %address, error = %failure),
        Err(_) => debug!(event = "handshake_failed", peer = %address, error = "too slow"),
    }
}

/// Answers one who is in this process, and takes all the time that is wanted.
pub(crate) async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, routes: Router) {
    let builder = http1::Builder::new();
    let routes = TowerToHyperService::new(routes);
    if let Err(failure) = builder.serve_connection(TokioIo::new(stream), routes).await {
        debug!(event = "connection_ended", error = %failure);
    }
}

/// Requests and answers, until either end has enough.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    routes: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let routes = TowerToHyperService::new(routes);
    let stops = Stops(stop.clone());
    let to_come = ToCome::default();
    let noted = to_come.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|body| noted.of(body));
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(stops.clone());
        let answer = routes.call(request);
        async move { answer.await as Result<hyper::Response<Body>, Infallible> }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD);
    let stream = Lingering::new(Stalling::new(stream, limits.stall), to_come, LINGER);
    let stream = TokioIo::new(stream);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = sleep(limits.lifetime) => {
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = timeout(limits.last_request, connection).await else {
                debug!(event = "connection_cut_off", peer = %peer.address);
                return;
            };
            ended
        }
    };
    if let Err(failure) = ended {
        debug!(event = "connection_ended", peer = %peer.address, error = %failure);
    }
}

#[cfg(test)]
mod tests;
