//! From an address to a connected socket.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::Address;

/// Resolves the name anew and connects to the first of its addresses that answers.
///
/// `within` is shared out among the addresses, so that one that swallows packets leaves time for
/// the others.
pub(crate) async fn tcp(address: &Address, within: Duration) -> io::Result<TcpStream> {
    let found: Vec<_> = lookup_host((address.host.as_str(), address.port))
        .await?
        .collect();
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
