//! From an address to a connected socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::{Address, Endpoint, Place};

/// Opens one way to a broker.
pub(crate) async fn connect(endpoint: &Endpoint, within: Duration) -> io::Result<TcpStream> {
    match endpoint {
        Endpoint {
            place: Place::Tcp(address),
            tls: None,
            websocket: None,
            proxy: None,
        } => tcp(address, within).await,
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Resolves the name anew and connects to the first of its addresses that answers.
///
/// `within` is shared out among the addresses, so that one that swallows packets leaves time for
/// the others.
async fn tcp(address: &Address, within: Duration) -> io::Result<TcpStream> {
    let found = resolve(&address.host, address.port).await?;
    let share = within / u32::try_from(found.len().max(1)).unwrap_or(1);
    let mut last = None;
    for socket_address in found {
        match timeout(share, TcpStream::connect(socket_address)).await {
            Ok(Ok(stream)) => {
                // Off by default; an acknowledgement must not wait for the next packet.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = Some(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(last
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host name has no address")))
}

async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match (lookup_host((host, port)).await, host.strip_suffix('.')) {
        (Ok(found), _) => Ok(found.collect()),
        // A trailing dot says that the name is complete. Name servers know that, the system's
        // own table of hosts does not.
        (Err(_), Some(host)) => Ok(lookup_host((host, port)).await?.collect()),
        (Err(error), None) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn names_numbers_and_trailing_dots_lead_to_a_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "localhost."] {
            let address = Address {
                host: host.to_owned(),
                port,
            };
            // `localhost` may have an IPv6 address as well, on which nobody listens.
            let stream = tcp(&address, SECOND * 10).await.expect(host);
            assert!(stream.nodelay().unwrap());
        }
    }

    #[tokio::test]
    async fn an_ipv6_address_has_no_brackets() {
        // A machine without IPv6 has nothing to show here.
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            return;
        };
        let address = Address {
            host: "::1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        tcp(&address, SECOND * 10).await.unwrap();
    }

    #[tokio::test]
    async fn a_name_that_does_not_exist_is_an_error() {
        let address = Address {
            host: "no-such-host.invalid".to_owned(),
            port: 1883,
        };
        assert!(tcp(&address, SECOND).await.is_err());
    }
}
