//! The cable to the destination: it can be cut and mended, and carries only so much.
//!
//! A cut cable is what the bridge sees of a destination that is gone: open connections end, new
//! ones are refused. What the broker behind it has taken in stays there, so that the count of
//! what arrived is worth something.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What goes through at once; small enough for an even flow.
const CHUNK: usize = 1024;

/// How much the cable carries towards the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BytesPerSecond(pub(crate) u32);

impl BytesPerSecond {
    fn time_for(self, bytes: usize) -> Duration {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Duration::from_secs(1) * bytes / self.0.max(1)
    }
}

/// A port of 127.0.0.1 that leads to another one, while the cable is whole.
#[derive(Debug)]
pub(crate) struct Cable {
    address: SocketAddr,
    leads_to: u16,
    speed: BytesPerSecond,
    state: State,
}

#[derive(Debug)]
enum State {
    Whole {
        cut: CancellationToken,
        carrier: JoinHandle<io::Result<()>>,
    },
    /// Nobody listens, but the port stays ours.
    Cut(TcpSocket),
    /// A mend has failed.
    Broken,
}

impl Cable {
    /// Lays a cable from a free port to the port `leads_to`.
    pub(crate) fn lay(leads_to: u16, speed: BytesPerSecond) -> io::Result<Self> {
        let socket = reusable_socket()?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let mut cable = Self {
            address: socket.local_addr()?,
            leads_to,
            speed,
            state: State::Cut(socket),
        };
        cable.mend()?;
        Ok(cable)
    }

    /// The port to connect to.
    pub(crate) const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Ends every connection and refuses new ones, until [`Self::mend`].
    pub(crate) async fn cut(&mut self) -> io::Result<()> {
        let State::Whole { cut, carrier } = &mut self.state else {
            return Ok(());
        };
        cut.cancel();
        carrier.await??;
        let socket = reusable_socket()?;
        socket.bind(self.address)?;
        self.state = State::Cut(socket);
        Ok(())
    }

    /// Makes the cable whole again.
    pub(crate) fn mend(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Broken) {
            State::Cut(socket) => {
                let listener = socket.listen(16)?;
                let cut = CancellationToken::new();
                let carrier = carry(listener, self.leads_to, self.speed, cut.clone());
                self.state = State::Whole {
                    cut,
                    carrier: tokio::spawn(carrier),
                };
            }
            other => self.state = other,
        }
        Ok(())
    }
}

/// A socket whose port can be bound again while its connections linger in `TIME_WAIT`.
fn reusable_socket() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

/// Takes connections until the cable is cut; ends when all of them have ended.
async fn carry(
    listener: TcpListener,
    leads_to: u16,
    speed: BytesPerSecond,
    cut: CancellationToken,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    let ended = cut
        .run_until_cancelled(async {
            loop {
                let (stream, _) = listener.accept().await?;
                connections.spawn(connect(stream, leads_to, speed));
                while connections.try_join_next().is_some() {}
            }
        })
        .await;
    drop(listener);
    connections.shutdown().await;
    ended.unwrap_or(Ok(()))
}

/// Carries one connection; an error on either side is its end, which both sides see.
async fn connect(stream: TcpStream, leads_to: u16, speed: BytesPerSecond) -> io::Result<()> {
    let onward = TcpStream::connect((Ipv4Addr::LOCALHOST, leads_to)).await?;
    stream.set_nodelay(true)?;
    onward.set_nodelay(true)?;
    let (mut answers, to_destination) = onward.into_split();
    let (from_bridge, mut to_bridge) = stream.into_split();
    tokio::select! {
        ended = paced(from_bridge, to_destination, speed) => ended,
        ended = copy(&mut answers, &mut to_bridge) => ended.map(drop),
    }
}

/// Copies at the cable's speed.
async fn paced(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    speed: BytesPerSecond,
) -> io::Result<()> {
    let mut chunk = [0; CHUNK];
    let mut free_at = Instant::now();
    loop {
        let bytes = from.read(&mut chunk).await?;
        let Some(bytes) = chunk.get(..bytes).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        tokio::time::sleep_until(free_at).await;
        to.write_all(bytes).await?;
        free_at = free_at.max(Instant::now()) + speed.time_for(bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> (u16, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    let _ = copy(&mut from, &mut to).await;
                });
            }
        });
        (port, server)
    }

    async fn says(stream: &mut TcpStream, word: &[u8; 4]) {
        stream.write_all(word).await.unwrap();
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, word);
    }

    #[tokio::test]
    async fn a_cut_cable_ends_connections_and_refuses_new_ones_until_it_is_mended() {
        let (port, server) = echo().await;
        let mut cable = Cable::lay(port, BytesPerSecond(1_000_000)).unwrap();
        let address = (Ipv4Addr::LOCALHOST, cable.port());
        let mut before = TcpStream::connect(address).await.unwrap();
        says(&mut before, b"ping").await;

        cable.cut().await.unwrap();
        assert!(matches!(before.read(&mut [0; 4]).await, Ok(0) | Err(_)));
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        cable.mend().unwrap();
        let mut after = TcpStream::connect(address).await.unwrap();
        says(&mut after, b"pong").await;
        server.abort();
    }

    #[test]
    fn the_speed_is_the_time_that_bytes_take() {
        assert_eq!(
            BytesPerSecond(2_000).time_for(1_000),
            Duration::from_millis(500)
        );
        assert_eq!(BytesPerSecond(0).time_for(1), Duration::from_secs(1));
    }
}
