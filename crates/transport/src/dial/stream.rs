//! What a dial leads to: MQTT bytes, whatever lies beneath.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::handshake::client::Request;

use super::socket::{Duplex, Held, Socket};
use super::websocket::Framed;
use super::{Fault, tls};

/// A connection to a broker.
///
/// Dropped, it says goodbye in the words of TLS and WebSocket as far as that needs no waiting:
/// the client library drops its stream and never shuts it down.
#[derive(Debug)]
pub(crate) struct Stream {
    layers: Layers,
    /// Nothing has come yet.
    silent: bool,
}

#[derive(Debug)]
enum Layers {
    Bare(Channel),
    Framed(Box<Framed<Channel>>),
    /// On the way from one to another.
    None,
}

impl Stream {
    pub(super) const fn plain(socket: Socket) -> Self {
        Self::over(Layers::Bare(Channel::Plain {
            socket,
            silent: true,
        }))
    }

    pub(super) fn encrypted(stream: TlsStream<Socket>) -> Self {
        Self::over(Layers::Bare(Channel::Tls(Box::new(stream))))
    }

    const fn over(layers: Layers) -> Self {
        Self {
            layers,
            silent: true,
        }
    }

    /// Opens a WebSocket over it.
    pub(super) async fn within_websocket(
        mut self,
        request: Request,
        max_packet_size: u32,
    ) -> Result<Self, Fault> {
        if let Layers::Bare(channel) = std::mem::replace(&mut self.layers, Layers::None) {
            let framed = Framed::open(channel, request, max_packet_size).await?;
            self.layers = Layers::Framed(Box::new(framed));
        }
        Ok(self)
    }

    /// Its socket once more.
    pub(crate) fn hold(&self) -> io::Result<Held> {
        match &self.layers {
            Layers::Bare(channel) => channel.socket().hold(),
            Layers::Framed(framed) => framed.get_ref().socket().hold(),
            Layers::None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn top(&mut self) -> io::Result<Pin<&mut dyn Duplex>> {
        match &mut self.layers {
            Layers::Bare(channel) => Ok(Pin::new(channel)),
            Layers::Framed(framed) => Ok(Pin::new(framed.as_mut())),
            Layers::None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let channel = match &mut self.layers {
            Layers::Bare(channel) => channel,
            Layers::Framed(framed) => {
                framed.say_goodbye(&mut cx);
                framed.get_mut()
            }
            Layers::None => return,
        };
        if let Channel::Tls(stream) = channel {
            // What does not go at once is left unsaid; who hears the broker out waits elsewhere.
            let _ = Pin::new(stream.as_mut()).poll_shutdown(&mut cx);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(this.top()?.poll_read(cx, buf))?;
        if this.silent {
            let first = buf.filled().get(before..).unwrap_or_default();
            this.silent = first.is_empty();
            // No broker begins like that: its first packet is a CONNACK.
            if begins(first, b"HTTP/") {
                return Poll::Ready(Err(invalid(Fault::SpeaksHttp)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().top()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().top()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().top()?.poll_shutdown(cx)
    }
}

/// Bytes to and from the other end, plain or encrypted.
#[derive(Debug)]
enum Channel {
    Plain {
        socket: Socket,
        /// Nothing has come yet.
        silent: bool,
    },
    Tls(Box<TlsStream<Socket>>),
}

impl Channel {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain { socket, .. } => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Whether what came first is how `other` begins, as far as it has come.
fn begins(first: &[u8], other: &[u8]) -> bool {
    !first.is_empty() && other.iter().zip(first).all(|(other, first)| other == first)
}

/// An error of TLS in words that say what to do; another one as it is.
fn explained(error: io::Error) -> io::Error {
    match tls::fault(&error) {
        Some(fault) => invalid(fault),
        None => error,
    }
}

fn invalid(fault: Fault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain { socket, silent } => {
                let before = buf.filled().len();
                ready!(Pin::new(socket).poll_read(cx, buf))?;
                if *silent {
                    let first = buf.filled().get(before..).unwrap_or_default();
                    *silent = first.is_empty();
                    // An alert of TLS (RFC 8446 §5.1): neither MQTT nor HTTP begins like that.
                    if begins(first, &[0x15, 0x03]) {
                        return Poll::Ready(Err(invalid(Fault::SpeaksTls)));
                    }
                }
                Poll::Ready(Ok(()))
            }
            Self::Tls(stream) => match ready!(Pin::new(stream.as_mut()).poll_read(cx, buf)) {
                // Many a broker closes without the words of TLS. An MQTT packet says how long it
                // is, so that one that was cut off is not taken for a whole one.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                result => Poll::Ready(result.map_err(explained)),
            },
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain { socket, .. } => Pin::new(socket).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut())
                .poll_write(cx, buf)
                .map_err(explained),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain { socket, .. } => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx).map_err(explained),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain { socket, .. } => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
