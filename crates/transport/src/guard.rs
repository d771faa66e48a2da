//! The guarded stream: what stands between the socket (after TLS) and the client library.
//!
//! It sees MQTT bytes in both directions and keeps from the library what would make it drop a
//! connection that is in order: reason codes that it does not know, and topics that are none. It
//! bounds packets before anything is allocated for them, gives stalled writes a deadline, and
//! goes on reading for a moment after a failed write, so that a DISCONNECT that says why is seen.
//!
//! The library speaks MQTT 5 to it, whatever it speaks with the broker: `docs/adr/0004`.

mod exchange;
mod grammar;
mod marker;
mod outgoing;
mod property;
mod reshape;
mod screen;
mod translator;
mod v311;
mod violation;
mod wire;
mod witness;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::io::poll_read_buf;

pub(crate) use marker::{Marker, SetAside};
pub(crate) use violation::Violation;
pub(crate) use witness::{Said, Witness};

use outgoing::{Outgoing, Step};
use screen::Screen;
use translator::Translator;

use crate::Protocol;

/// How long we go on reading after a write has failed.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How much is read at a time.
const READ_ROOM: usize = 16 * 1024;
/// How much may wait to be written.
const WRITE_ROOM: usize = 32 * 1024;

/// When acknowledgements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// When the library says so.
    AtOnce,
    /// When the library has nothing else to do. It flushes after every single acknowledgement;
    /// a reading connection sends thousands in a row, and one write carries many.
    WhenIdle,
}

/// What a guard does.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// What the broker speaks.
    pub(crate) protocol: Protocol,
    /// The largest packet that is read.
    pub(crate) max_packet_size: u32,
    /// How long a write may make no progress.
    pub(crate) write_timeout: Duration,
    /// When acknowledgements are written.
    pub(crate) flush: Flush,
    /// How long the broker may say nothing before it is asked for a sign of life, and how long
    /// that may take.
    pub(crate) quiet: Duration,
}

/// A stream of packets under guard: MQTT 5 to the library, [`Rules::protocol`] to the broker.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    inner: S,
    rules: Rules,
    witness: Arc<Witness>,
    screen: Screen,
    violation: Option<Violation>,
    /// What the library hands over.
    handed: Outgoing,
    translator: Translator,
    /// What is on its way to the socket.
    waiting: BytesMut,
    /// What the socket takes.
    written: Outgoing,
    /// Something waits that must not wait until the library is idle.
    urgent: bool,
    /// What was written may still lie in a layer below.
    unflushed: bool,
    stalled: Option<Pin<Box<Sleep>>>,
    broken: Option<Broken>,
    quiet: Quiet,
}

/// Since when the broker has said nothing.
///
/// The library asks only when it has nothing to write: a client that publishes with QoS 0, or whose
/// broker has switched off the keep-alive, would never learn that nobody is there.
#[derive(Debug)]
struct Quiet {
    since: Instant,
    /// It has been asked for a sign of life, at that moment.
    asked: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A write has failed; reading goes on until this is over.
#[derive(Debug)]
struct Broken {
    error: io::Error,
    until: Pin<Box<Sleep>>,
}

impl<S> Guarded<S> {
    pub(crate) fn new(inner: S, rules: Rules, marker: Marker, witness: Arc<Witness>) -> Self {
        Self {
            inner,
            screen: Screen::new(
                rules.protocol,
                rules.max_packet_size,
                marker,
                Arc::clone(&witness),
            ),
            rules,
            witness,
            violation: None,
            handed: Outgoing::default(),
            translator: Translator::default(),
            waiting: BytesMut::new(),
            written: Outgoing::default(),
            urgent: false,
            unflushed: false,
            stalled: None,
            broken: None,
            quiet: Quiet {
                since: Instant::now(),
                asked: None,
                timer: None,
            },
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.witness.write_has_failed();
        self.waiting.clear();
        self.stalled = None;
        self.broken.get_or_insert(Broken {
            error,
            until: Box::pin(sleep(LAST_WORDS)),
        });
    }

    /// Takes over what the library writes, as the broker will read it.
    fn take_over(&mut self, bytes: &[u8]) {
        self.note_handed(bytes);
        match self.rules.protocol {
            Protocol::V5 => self.waiting.extend_from_slice(bytes),
            Protocol::V311 => {
                let screen = &mut self.screen;
                let translated =
                    self.translator
                        .translate(bytes, &mut self.waiting, |id, filters| {
                            screen.unsubscribe(id, filters);
                        });
                if let Err(error) = translated {
                    self.fail(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
    }

    fn note_handed(&mut self, bytes: &[u8]) {
        let (urgent, screen) = (&mut self.urgent, &mut self.screen);
        self.handed.follow(bytes, |step| {
            screen.outgoing(step);
            if let Step::Begun(first) = step {
                *urgent |= !outgoing::may_wait(first);
            }
        });
    }

    fn note_written(&mut self, bytes: &[u8]) {
        self.stalled = None;
        let witness = &self.witness;
        self.written.follow(bytes, |step| match step {
            Step::Begun(first) if first >> 4 == wire::PUBLISH => witness.publish_begun(),
            Step::Begun(_) | Step::Id(..) => {}
        });
    }

    /// Whether what the library writes goes nowhere.
    const fn is_over(&self) -> bool {
        self.broken.is_some() || self.violation.is_some()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Writes to the socket; an error or a stall is noted and swallows what is written from then on.
    fn write_through(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<usize> {
        match Pin::new(&mut self.inner).poll_write(cx, bytes) {
            Poll::Ready(Ok(written)) => Poll::Ready(written),
            Poll::Ready(Err(error)) => {
                self.fail(error);
                Poll::Ready(bytes.len())
            }
            Poll::Pending => {
                let after = self.rules.write_timeout;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(after)));
                ready!(stalled.as_mut().poll(cx));
                self.fail(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the broker has read nothing for {after:?}"),
                ));
                Poll::Ready(bytes.len())
            }
        }
    }

    /// Lets what was written reach the socket; an error is noted.
    fn flush_through(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.inner).poll_flush(cx)) {
            Ok(()) => self.unflushed = false,
            Err(error) => self.fail(error),
        }
        Poll::Ready(())
    }

    /// Nothing more is read, and the broker is told why, if it has room for a few bytes.
    fn violated(&mut self, cx: &mut Context<'_>, violation: Violation) {
        self.witness.violated(violation);
        // MQTT 3.1.1 §4.8 has no words for it; and nothing can be said within a packet.
        let can_be_said = self.rules.protocol == Protocol::V5 && self.handed.is_between_packets();
        if self.broken.is_none() && can_be_said {
            let goodbye = [wire::DISCONNECT << 4, 1, violation.code()];
            self.waiting.extend_from_slice(&goodbye);
            if self.push(cx).is_ready() && self.broken.is_none() {
                let _ = self.flush_through(cx);
            }
        }
        self.witness.write_has_failed();
        self.violation = Some(violation);
    }

    /// Nothing comes: asks the broker for a sign of life when that has been so for long, and ends,
    /// with the failure noted, when it gives none.
    fn silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.rules.quiet;
        loop {
            let due = self.quiet.asked.unwrap_or(self.quiet.since) + patience;
            let timer = self
                .quiet
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() < due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
            if self.quiet.asked.is_some() {
                self.fail(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "the broker has said nothing for {:?}",
                        self.quiet.since.elapsed()
                    ),
                ));
                return Poll::Ready(());
            }
            let now = Instant::now();
            if self.witness.connack().is_none() || !self.handed.is_between_packets() {
                // Before the CONNACK there is a deadline for connecting, and within a packet one
                // for writes.
                self.quiet.since = now;
                continue;
            }
            self.quiet.asked = Some(now);
            let ping = [wire::PINGREQ << 4, 0];
            self.note_handed(&ping);
            self.waiting.extend_from_slice(&ping);
            if self.push(cx).is_ready() && self.broken.is_none() {
                let _ = self.flush_through(cx);
            }
            if self.broken.is_some() {
                return Poll::Ready(());
            }
        }
    }

    /// Writes what waits.
    fn push(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.waiting.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            let written = self.write_through(cx, &waiting);
            if self.broken.is_some() {
                return Poll::Ready(());
            }
            self.waiting = waiting;
            let written = ready!(written).min(self.waiting.len());
            let gone = self.waiting.split_to(written);
            self.note_written(&gone);
            self.unflushed = true;
        }
        self.urgent = false;
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Whether it is pending or done: reading does not wait for it.
        if this.broken.is_none() && this.push(cx).is_ready() && this.unflushed {
            let _ = this.flush_through(cx);
        }
        loop {
            let cleared = this.screen.cleared();
            if !cleared.is_empty() {
                let step = cleared.len().min(buf.remaining());
                buf.put_slice(cleared.get(..step).unwrap_or_default());
                this.screen.consume(step);
                return Poll::Ready(Ok(()));
            }
            if let Some(violation) = this.violation {
                let error = io::Error::new(io::ErrorKind::InvalidData, violation);
                return Poll::Ready(Err(error));
            }
            let room = this.screen.buffer(READ_ROOM);
            let read = poll_read_buf(Pin::new(&mut this.inner), cx, room);
            match (read, &mut this.broken) {
                // What TLS or the broker said last tells more than that it no longer listens.
                (Poll::Ready(Err(error)), Some(_))
                    if error.kind() == io::ErrorKind::InvalidData =>
                {
                    return Poll::Ready(Err(error));
                }
                (Poll::Ready(Ok(0) | Err(_)), Some(broken)) => {
                    return Poll::Ready(Err(copy(&broken.error)));
                }
                (Poll::Ready(Ok(0)), None) => return Poll::Ready(Ok(())),
                (Poll::Ready(Err(error)), None) => return Poll::Ready(Err(error)),
                (Poll::Ready(Ok(_)), _) => {
                    this.quiet.since = Instant::now();
                    this.quiet.asked = None;
                    if let Err(violation) = this.screen.examine() {
                        this.violated(cx, violation);
                    }
                }
                (Poll::Pending, Some(broken)) => {
                    ready!(broken.until.as_mut().poll(cx));
                    return Poll::Ready(Err(copy(&broken.error)));
                }
                (Poll::Pending, None) => ready!(this.silence(cx)),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_over() {
            return Poll::Ready(Ok(buf.len()));
        }
        if let (Flush::AtOnce, Protocol::V5) = (this.rules.flush, this.rules.protocol) {
            ready!(this.push(cx));
            if this.broken.is_some() {
                return Poll::Ready(Ok(buf.len()));
            }
            let written = ready!(this.write_through(cx, buf));
            if this.broken.is_none() {
                let written = buf.get(..written).unwrap_or_default();
                this.note_handed(written);
                this.note_written(written);
            }
            return Poll::Ready(Ok(written));
        }
        if this.waiting.len() >= WRITE_ROOM {
            ready!(this.push(cx));
        }
        let taken = buf.get(..WRITE_ROOM).unwrap_or(buf);
        this.take_over(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over() || (this.rules.flush == Flush::WhenIdle && !this.urgent) {
            return Poll::Ready(Ok(()));
        }
        ready!(this.push(cx));
        if this.broken.is_none() {
            ready!(this.flush_through(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.broken.is_none() {
            ready!(this.push(cx));
        }
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

/// The same error again: the library may ask more than once.
fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests;
