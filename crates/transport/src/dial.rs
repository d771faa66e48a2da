//! From an endpoint to a stream of MQTT bytes: socket, proxy, TLS and WebSocket, in this order.
//!
//! The client library is told "plain TCP" and given the finished stream: what it sees, and what
//! the guard below it sees, is MQTT whatever lies beneath.

mod deadline;
mod fault;
mod proxy;
mod socket;
mod stream;
mod tcp;
mod tls;
mod websocket;

use std::time::Duration;

use crate::gate::Pass;
use crate::keys::Keys;
use crate::{Endpoint, Place};

use deadline::Deadline;
use socket::Socket;

pub(crate) use fault::{DialError, Fault};
pub(crate) use socket::Held;
pub(crate) use stream::Stream;
pub(crate) use tls::closed;

/// What a connection is dialled on.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// How long it may take in all.
    pub(crate) within: Duration,
    /// How long a write may be stalled by a peer that does not read.
    pub(crate) write_timeout: Duration,
    /// The largest MQTT packet that is taken.
    pub(crate) max_packet_size: u32,
    /// Asked before each write.
    pub(crate) pass: Pass,
}

/// Opens one way to a broker.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    keys: &Keys,
    terms: Terms,
) -> Result<Stream, DialError> {
    open(endpoint, keys, &terms)
        .await
        .map_err(|fault| DialError::new(endpoint, fault))
}

async fn open(endpoint: &Endpoint, keys: &Keys, terms: &Terms) -> Result<Stream, Fault> {
    let deadline = Deadline::after(terms.within);
    let socket = reach(endpoint, keys, terms, &deadline).await?;
    let stream = match (&endpoint.tls, &keys.tls) {
        (None, _) => Stream::plain(socket),
        (Some(tls), Some(config)) => {
            let name = tls::server_name(endpoint, tls)?;
            let shaking = tls::encrypt(socket, name, config.clone());
            Stream::encrypted(deadline.run("shaking hands by TLS", shaking).await?)
        }
        // Keys are made of the same endpoint.
        (Some(_), None) => return Err(Fault::NoTlsKeys),
    };
    let Some(websocket) = &endpoint.websocket else {
        return Ok(stream);
    };
    let request = websocket::request(endpoint, websocket)?;
    let opening = stream.within_websocket(request, terms.max_packet_size);
    deadline.run("opening the WebSocket", opening).await
}

/// The socket that leads to the broker, by way of the proxy if there is one.
async fn reach(
    endpoint: &Endpoint,
    keys: &Keys,
    terms: &Terms,
    deadline: &Deadline,
) -> Result<Socket, Fault> {
    match (&endpoint.place, &endpoint.proxy) {
        (Place::Tcp(address), None) => {
            let stream = tcp::connect(address, deadline, tcp::resolve).await?;
            Ok(Socket::tcp(stream, terms.write_timeout, terms.pass.clone()))
        }
        (Place::Tcp(address), Some(proxy)) => {
            let stream = tcp::connect(&proxy.address, deadline, tcp::resolve)
                .await
                .map_err(|fault| Fault::ProxyUnreachable(Box::new(fault)))?;
            let mut socket = Socket::tcp(stream, terms.write_timeout, terms.pass.clone());
            let credentials = proxy.credentials.as_ref().map(|(name, _)| {
                let password = keys.proxy_password.as_ref();
                (
                    name.as_str(),
                    password.map_or("", |password| password.expose()),
                )
            });
            let tunnel = proxy::tunnel(&mut socket, address, credentials);
            deadline.run("waiting for the proxy", tunnel).await?;
            Ok(socket)
        }
        (Place::Unix(path), _) => {
            let connecting = Socket::unix(path, terms.write_timeout, terms.pass.clone());
            deadline.run("connecting", connecting).await
        }
    }
}

#[cfg(test)]
mod tests;
