//! The socket at the bottom of every connection: TCP or Unix.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep, timeout};

use super::Fault;
use crate::gate::Pass;

/// A connected socket whose writes have a deadline: TLS and WebSocket hold back what a peer does
/// not read, so that who writes to them does not notice.
///
/// Here is the fence of an exclusive session: below everything that holds bytes back, so that
/// nothing leaves the process that is not permitted at the moment of the system call (I18).
#[derive(Debug)]
pub(crate) struct Socket {
    io: Io,
    pass: Pass,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum Io {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) const fn tcp(stream: TcpStream, patience: Duration, pass: Pass) -> Self {
        Self {
            io: Io::Tcp(stream),
            pass,
            patience,
            stalled: None,
        }
    }

    pub(super) async fn unix(path: &Path, patience: Duration, pass: Pass) -> Result<Self, Fault> {
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|source| Fault::Unix {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            io: Io::Unix(stream),
            pass,
            patience,
            stalled: None,
        })
    }

    /// The same socket once more; see [`Held`].
    pub(super) fn hold(&self) -> io::Result<Held> {
        Ok(match &self.io {
            Io::Tcp(stream) => Held::Tcp(stream.as_fd().try_clone_to_owned()?),
            Io::Unix(stream) => Held::Unix(stream.as_fd().try_clone_to_owned()?),
        })
    }

    fn io(&mut self) -> Pin<&mut dyn Duplex> {
        match &mut self.io {
            Io::Tcp(stream) => Pin::new(stream),
            Io::Unix(stream) => Pin::new(stream),
        }
    }

    /// Refuses a write that is not permitted.
    fn fence(&self) -> io::Result<()> {
        if self.pass.may_write() {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            Fault::Fenced,
        ))
    }

    /// Lets a pending write wait as long as the patience lasts.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let after = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(after)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            Fault::Stalled { after },
        )))
    }
}

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.fence()?;
        let written = this.io().poll_write(cx, buf);
        this.in_time(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.fence()?;
        let written = this.io().poll_write_vectored(cx, bufs);
        this.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_shutdown(cx)
    }
}

/// A socket that is kept open beyond its connection, for a goodbye that is heard out.
#[derive(Debug)]
pub(crate) enum Held {
    /// Of TCP.
    Tcp(OwnedFd),
    /// Of this machine.
    Unix(OwnedFd),
}

impl Held {
    /// Closes the connection, which was not heard out.
    pub(crate) fn let_go(self, pass: &Pass) {
        // The operating system would go on sending what it has: a CONNECT that arrives when
        // another instance is connected throws that one out (I18).
        if pass.is_exclusive() {
            self.cut();
        }
    }

    /// Closes the connection when the peer has read everything, or `within` is over.
    pub(crate) async fn hear_out(self, within: Duration, pass: &Pass) {
        // An error says that it is over as well as the end does; a broker that goes on sending is
        // not listened to for ever.
        if timeout(within, self.heard_out()).await.is_err() {
            self.let_go(pass);
        }
    }

    /// Closes the connection at once: what the operating system still holds of it is not sent.
    pub(crate) fn cut(self) {
        // Nothing is on its way to a socket of this machine.
        if let Self::Tcp(socket) = self {
            // It takes effect when the last one that has the socket closes it, and fails where it
            // is none.
            let _ = set_socket_linger(&socket, Some(Duration::ZERO));
        }
    }

    /// Waits until the peer has closed its side, which says that it has read everything.
    ///
    /// A socket that is closed while something in it is unread is reset, and a broker that is
    /// reset forgets what it has not read: acknowledgements, and the goodbye. Under TLS what is
    /// read here means nothing, and its end as much.
    async fn heard_out(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => {
                read_to_end(TcpStream::from_std(socket.try_clone()?.into())?).await
            }
            Self::Unix(socket) => {
                read_to_end(UnixStream::from_std(socket.try_clone()?.into())?).await
            }
        }
    }
}

async fn read_to_end(mut socket: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut unread = vec![0; 64 * 1024];
    while socket.read(&mut unread).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_reads_nothing_stalls_a_write_for_its_patience_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let _peer = listener.accept().await.unwrap();
        let mut socket = Socket::tcp(stream.unwrap(), Duration::from_millis(50), Pass::default());
        let much = vec![0; 64 << 20];
        let error = socket.write_all(&much).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
