//! MQTT within WebSocket (MQTT 5 §6): a stream of bytes over binary frames.
//!
//! Frames know nothing of MQTT packets: a packet may begin in one and end in another.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::handshake::client::{Request, generate_key};
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Uri, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{Fault, tls};
use crate::{Address, Endpoint, Place, WebSocket};

/// The longest frame that we send.
const OUR_FRAME: usize = 64 * 1024;
/// The largest message that we take, if an MQTT packet may not be larger: a broker may put
/// several packets into one.
const THEIR_FRAME: usize = 8 << 20;

/// The request that opens a WebSocket there.
pub(super) fn request(endpoint: &Endpoint, websocket: &WebSocket) -> Result<Request, Fault> {
    let (scheme, default) = match endpoint.tls {
        Some(_) => ("wss", 443),
        None => ("ws", 80),
    };
    let authority = match &endpoint.place {
        Place::Unix(_) => "localhost".to_owned(),
        Place::Tcp(address) => {
            let host = tls::bare(&address.host).to_owned();
            let port = address.port;
            let address = Address { host, port }.to_string();
            let suffix = format!(":{default}");
            address.strip_suffix(&suffix).unwrap_or(&address).to_owned()
        }
    };
    let path = &websocket.path;
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority.as_str())
        .path_and_query(path.as_str())
        .build()
        .map_err(|_| Fault::WebSocketPath { path: path.clone() })?;
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    let mut fixed = |name: HeaderName, value: &str| {
        let name_of_it = name.to_string();
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|_| Fault::WebSocketHeader { name: name_of_it })?;
        headers.insert(name, value);
        Ok(())
    };
    fixed(header::HOST, &authority)?;
    fixed(header::CONNECTION, "Upgrade")?;
    fixed(header::UPGRADE, "websocket")?;
    fixed(header::SEC_WEBSOCKET_VERSION, "13")?;
    fixed(header::SEC_WEBSOCKET_KEY, &generate_key())?;
    fixed(header::SEC_WEBSOCKET_PROTOCOL, "mqtt")?;
    for (name, value) in &websocket.headers {
        let wrong = || Fault::WebSocketHeader { name: name.clone() };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        if headers.contains_key(&name) && name != header::HOST {
            return Err(wrong());
        }
        headers.insert(name, value);
    }
    Ok(request)
}

/// A WebSocket as a stream of bytes.
#[derive(Debug)]
pub(super) struct Framed<S> {
    socket: WebSocketStream<S>,
    unread: Bytes,
    /// The broker has said that it closes.
    closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    /// Opens the WebSocket.
    pub(super) async fn open(
        stream: S,
        request: Request,
        max_packet_size: u32,
    ) -> Result<Self, Fault> {
        let largest = usize::try_from(max_packet_size).unwrap_or(usize::MAX);
        let largest = largest.saturating_add(OUR_FRAME).max(THEIR_FRAME);
        let config = WebSocketConfig::default()
            .read_buffer_size(OUR_FRAME)
            .write_buffer_size(OUR_FRAME)
            .max_message_size(Some(largest))
            .max_frame_size(Some(largest));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(Self {
                socket,
                unread: Bytes::new(),
                closed: false,
            }),
            Err(error) => Err(refusal(error)),
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut S {
        self.socket.get_mut()
    }

    /// Sends what there is of a goodbye, without waiting for one.
    pub(super) fn say_goodbye(&mut self, cx: &mut Context<'_>) {
        let _ = Pin::new(&mut self.socket).poll_close(cx);
    }
}

impl<S> Framed<S> {
    pub(super) fn get_ref(&self) -> &S
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.socket.get_ref()
    }
}

/// Why a WebSocket was not opened.
fn refusal(error: Error) -> Fault {
    match error {
        Error::Io(error) => from_below(error),
        Error::Http(response) => Fault::WebSocketRefused {
            status: response.status().as_u16(),
        },
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol | SubProtocolError::InvalidSubProtocol,
        )) => Fault::NoSubprotocol,
        Error::Protocol(ProtocolError::HandshakeIncomplete) => Fault::ClosedInUpgrade,
        error => Fault::NotWebSocket(Box::new(error)),
    }
}

/// A fault of the layers below keeps its name.
fn from_below(error: io::Error) -> Fault {
    match error.downcast::<Fault>() {
        Ok(fault) => fault,
        Err(error) if tls::closed(&error) => Fault::ClosedInUpgrade,
        Err(error) => Fault::Socket(error),
    }
}

/// The end of a stream that is open, as others know it.
fn broken(error: Error) -> io::Error {
    let invalid = |fault| io::Error::new(io::ErrorKind::InvalidData, fault);
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::SendAfterClosing) => io::ErrorKind::BrokenPipe.into(),
        error => invalid(Fault::WebSocket(Box::new(error))),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.unread.has_remaining() {
                let step = this.unread.len().min(buf.remaining());
                buf.put_slice(&this.unread.split_to(step));
                return Poll::Ready(Ok(()));
            }
            if this.closed {
                // Our answer to its close goes out as far as it can.
                let _ = Pin::new(&mut this.socket).poll_flush(cx);
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut this.socket).poll_next(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(Message::Binary(bytes))) => this.unread = bytes,
                Some(Ok(Message::Text(_))) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, Fault::TextFrame);
                    return Poll::Ready(Err(error));
                }
                Some(Ok(Message::Close(said))) => {
                    this.closed = true;
                    let said = said.map(|said| (u16::from(said.code), said.reason.to_string()));
                    if let Some((code, reason)) = said
                        && code != 1000
                    {
                        let _ = Pin::new(&mut this.socket).poll_flush(cx);
                        let fault = Fault::WebSocketClosed { code, reason };
                        let error = io::Error::new(io::ErrorKind::ConnectionAborted, fault);
                        return Poll::Ready(Err(error));
                    }
                }
                // A ping is answered by the library, with the next read or write.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                // As bytes end, whether it said so before or not.
                Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                    return Poll::Ready(Ok(()));
                }
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.socket).poll_ready(cx)).map_err(broken)?;
        let frame = buf.get(..OUR_FRAME).unwrap_or(buf);
        let message = Message::Binary(Bytes::copy_from_slice(frame));
        Pin::new(&mut this.socket)
            .start_send(message)
            .map_err(broken)?;
        Poll::Ready(Ok(frame.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &mut self.get_mut().socket;
        Pin::new(socket).poll_flush(cx).map_err(broken)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &mut self.get_mut().socket;
        Pin::new(socket).poll_close(cx).map_err(broken)
    }
}

#[cfg(test)]
mod tests;
