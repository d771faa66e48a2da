//! A TCP stream that is read in one place and written or reset from several.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};

/// The shared stream. The socket is closed when the last handle is gone: unlike tokio's own
/// halves, none of them sends a FIN before, so that a RST is a RST.
#[derive(Debug, Clone)]
pub(crate) struct Socket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TcpStream,
    /// Held over one whole write, so that two never mix.
    writing: Mutex<()>,
    ended: watch::Sender<bool>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        // Without it an answer waits for the peer's delayed acknowledgement.
        stream.set_nodelay(true)?;
        Ok(Self(Arc::new(Inner {
            stream,
            writing: Mutex::default(),
            ended: watch::Sender::new(false),
        })))
    }

    /// Writes all of `bytes`.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let _writing = self.0.writing.lock().await;
        while !bytes.is_empty() {
            let written = self.write_some(bytes).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Writes some of `bytes` as soon as there is room. The caller is the only writer.
    pub(crate) async fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.0.stream.writable().await?;
            match self.0.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// Sends a FIN; what the peer sends can still be read.
    pub(crate) fn finish(&self) {
        // It fails on a socket that has ended, which is what was asked for.
        let _ = rustix::net::shutdown(&self.0.stream, rustix::net::Shutdown::Write);
    }

    /// Closing will send a RST in place of a FIN.
    pub(crate) fn close_with_reset(&self) {
        // It fails on a socket that has ended, which is what was asked for.
        let _ = self.0.stream.set_zero_linger();
    }

    /// Makes [`Socket::ended`] return, wherever it is awaited.
    pub(crate) fn end(&self) {
        self.0.ended.send_replace(true);
    }

    /// Returns after [`Socket::end`].
    pub(crate) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(context))?;
            match self.0.stream.try_read(into.initialize_unfilled()) {
                Ok(read) => {
                    into.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
