//! A stream that is not closed in the face of a peer that still sends.
//!
//! A request may be answered before all of its body has come, as when it is too large or somebody
//! else has the turn. A socket that is closed with something unread is reset, and a peer that is
//! reset while it sends never sees the answer (RFC 9112 §9.6). So what still comes is read and
//! thrown away for a while; and where a body is still to come, that is waited for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How much is thrown away before others have a turn.
const IN_ONE_GO: usize = 64;

/// Whether more of the body of a connection's latest request is to come.
#[derive(Debug, Clone, Default)]
pub(super) struct ToCome(Arc<AtomicBool>);

impl ToCome {
    /// The body of the next request, looked at on its way.
    pub(super) fn of(&self, body: Incoming) -> Noted {
        self.note(!body.is_end_stream());
        Noted {
            body,
            to_come: self.clone(),
        }
    }

    fn note(&self, more: bool) {
        self.0.store(more, Ordering::Relaxed);
    }

    fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body of which is noted whether all of it has come.
#[derive(Debug)]
pub(super) struct Noted {
    body: Incoming,
    to_come: ToCome,
}

impl Body for Noted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.to_come.note(false);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream.
#[derive(Debug)]
pub(super) struct Lingering<S> {
    stream: S,
    to_come: ToCome,
    patience: Duration,
    /// Whether the peer has been told that nothing more comes.
    closed: bool,
    /// Set while the peer still sends, or is about to.
    over: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(super) const fn new(stream: S, to_come: ToCome, patience: Duration) -> Self {
        Self {
            stream,
            to_come,
            patience,
            closed: false,
            over: None,
        }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Ends when nothing more comes: at once, if nothing has come that was not read, and nothing is
    /// to come.
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
            if self.to_come.is_so() {
                self.over = Some(Box::pin(sleep(self.patience)));
            }
        }
        ready!(self.poll_silence(cx));
        Poll::Ready(Ok(()))
    }
}
