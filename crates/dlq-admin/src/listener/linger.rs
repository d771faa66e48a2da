//! A stream that is not closed in the face of a peer that still sends.
//!
//! A request may be answered before all of its body has come, as when it is too large or somebody
//! else has the turn. A socket that is closed with something unread is reset, and a peer that is
//! reset while it sends never sees the answer (RFC 9112 §9.6). So what still comes is read and
//! thrown away for a while.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How much is thrown away before others have a turn.
const IN_ONE_GO: usize = 64;

/// The stream.
#[derive(Debug)]
pub(super) struct Lingering<S> {
    stream: S,
    patience: Duration,
    /// Whether the peer has been told that nothing more comes.
    closed: bool,
    /// Set while the peer still sends.
    over: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(super) const fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            closed: false,
            over: None,
        }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Ends when nothing more comes: at once, if nothing has come that was not read.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scrap = [0; 8 * 1024];
        for _ in 0..IN_ONE_GO {
            let mut buffer = ReadBuf::new(&mut scrap);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.over.is_none() => return Poll::Ready(()),
                Poll::Pending => {
                    if let Some(over) = &mut self.over {
                        ready!(over.as_mut().poll(cx));
                    }
                    return Poll::Ready(());
                }
            }
            let patience = self.patience;
            let over = self.over.get_or_insert_with(|| Box::pin(sleep(patience)));
            if over.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closed {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.closed = true;
        }
        ready!(self.poll_silence(cx));
        Poll::Ready(Ok(()))
    }
}
