//! WebSocket in front of a port without it, written from RFC 6455 for the tests alone: the library
//! of the service is what they check, and it could not send all that a test wants to be sent.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::sleep;

use crate::acceptor::Acceptor;
use crate::http_head::RequestHead;
use crate::port::{self, PortLease};

/// §1.3: what is appended to the client's key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A frame of a client longer than this ends the connection.
const MAX_FRAME: u64 = 1 << 28;

/// How long the client may take to answer a Close frame.
const LINGER: Duration = Duration::from_millis(500);

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;
const FINAL: u8 = 0x80;

/// How a [`WebSocketFront`] is to be; begun with [`WebSocketFront::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder starts nothing before `start`"]
pub struct WebSocketFrontBuilder {
    answer: Option<Vec<u8>>,
    subprotocol: Option<String>,
    no_subprotocol: bool,
    fragment: Option<usize>,
    text: bool,
    pings: bool,
}

impl WebSocketFrontBuilder {
    /// Answers every upgrade with these bytes and ends the connection.
    pub fn answering(mut self, answer: &[u8]) -> Self {
        self.answer = Some(answer.to_vec());
        self
    }

    /// Agrees on this subprotocol, in place of the first that the client has named.
    pub fn subprotocol(mut self, name: &str) -> Self {
        self.subprotocol = Some(name.to_owned());
        self
    }

    /// Agrees on no subprotocol.
    pub fn without_subprotocol(mut self) -> Self {
        self.no_subprotocol = true;
        self
    }

    /// Cuts what the server says into fragments of at most so many bytes.
    pub fn fragments_of(mut self, bytes: usize) -> Self {
        self.fragment = Some(bytes.max(1));
        self
    }

    /// Says what the server says as text, which MQTT forbids (§6).
    pub fn as_text(mut self) -> Self {
        self.text = true;
        self
    }

    /// Sends a ping before whatever the server says, between fragments too.
    pub fn with_pings(mut self) -> Self {
        self.pings = true;
        self
    }

    /// Starts in front of that port of 127.0.0.1. Nothing need listen there yet.
    ///
    /// # Panics
    /// When the port cannot be bound.
    pub async fn start(self, upstream: u16) -> WebSocketFront {
        let lease = PortLease::take();
        let listener = port::listen(&lease).await;
        let shared = Arc::new(Shared {
            how: self,
            seen: Mutex::default(),
        });
        let of_task = Arc::clone(&shared);
        let acceptor = Acceptor::start(listener, move |client| {
            let shared = Arc::clone(&of_task);
            async move { shared.serve(client, upstream).await }
        });
        WebSocketFront {
            lease,
            shared,
            _acceptor: acceptor,
        }
    }
}

/// Ends WebSocket and passes on what is in it; everything it holds is closed on drop. With a
/// [`TlsFront`](crate::TlsFront) before it, it is secure WebSocket.
#[derive(Debug)]
pub struct WebSocketFront {
    lease: PortLease,
    shared: Arc<Shared>,
    _acceptor: Acceptor,
}

#[derive(Debug)]
struct Shared {
    how: WebSocketFrontBuilder,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<RequestHead>,
    pongs: usize,
    closes: Vec<Option<u16>>,
    violations: Vec<String>,
}

impl WebSocketFront {
    /// A front as it comes: it takes every path and agrees on the client's subprotocol.
    pub fn builder() -> WebSocketFrontBuilder {
        WebSocketFrontBuilder::default()
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.lease.port()
    }

    /// The upgrades that were asked for so far.
    pub fn requests(&self) -> Vec<RequestHead> {
        self.shared.seen().requests.clone()
    }

    /// How many pings were answered so far.
    pub fn pongs(&self) -> usize {
        self.shared.seen().pongs
    }

    /// The codes of the Close frames that clients have sent so far.
    pub fn closes(&self) -> Vec<Option<u16>> {
        self.shared.seen().closes.clone()
    }

    /// What clients did that RFC 6455 or MQTT (§6) forbids.
    pub fn violations(&self) -> Vec<String> {
        self.shared.seen().violations.clone()
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, mut client: TcpStream, upstream: u16) -> io::Result<()> {
        let Some(request) = RequestHead::read(&mut client).await? else {
            return Ok(());
        };
        let answer = self.answer(&request);
        let upgraded = answer.starts_with(b"HTTP/1.1 101");
        self.seen().requests.push(request);
        client.write_all(&answer).await?;
        if !upgraded || self.how.answer.is_some() {
            return client.shutdown().await;
        }
        let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
        server.set_nodelay(true)?;
        let (server_read, server_write) = server.split();
        let (client_read, client_write) = client.split();
        // Answers to pings go between the frames of the other direction.
        let to_client = AsyncMutex::new(client_write);
        tokio::select! {
            ended = self.carry_to_server(client_read, server_write, &to_client) => ended,
            ended = self.carry_to_client(server_read, &to_client) => ended,
        }
    }

    fn answer(&self, request: &RequestHead) -> Vec<u8> {
        if let Some(answer) = &self.how.answer {
            return answer.clone();
        }
        let Some(key) = request.header("sec-websocket-key") else {
            return b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
        };
        let asked = request.header("sec-websocket-protocol").unwrap_or_default();
        let first = asked.split(',').next().map(str::trim);
        let agreed = self.how.subprotocol.as_deref().or(first);
        let agreed = agreed.filter(|name| !self.how.no_subprotocol && !name.is_empty());
        let agreed = agreed.map_or(String::new(), |name| {
            format!("Sec-WebSocket-Protocol: {name}\r\n")
        });
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n{agreed}\r\n",
            accept_key(key)
        )
        .into_bytes()
    }

    async fn carry_to_server<R, W, C>(
        &self,
        mut client: R,
        mut server: W,
        to_client: &AsyncMutex<C>,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
        C: AsyncWrite + Unpin,
    {
        loop {
            let (opcode, payload) = self.read_frame(&mut client).await?;
            match opcode {
                BINARY | CONTINUATION => server.write_all(&payload).await?,
                PING => write_frame(to_client, FINAL | PONG, &payload).await?,
                PONG => self.seen().pongs += 1,
                CLOSE => {
                    let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    self.seen().closes.push(code);
                    return write_frame(to_client, FINAL | CLOSE, &payload).await;
                }
                other => {
                    let violation = format!("a frame of opcode 0x{other:x}");
                    self.seen().violations.push(violation);
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
        }
    }

    async fn read_frame(&self, client: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
        let first = client.read_u8().await?;
        let second = client.read_u8().await?;
        let length = match second & 0x7F {
            126 => u64::from(client.read_u16().await?),
            127 => client.read_u64().await?,
            short => u64::from(short),
        };
        let unmasked = second & 0x80 == 0;
        if unmasked || length > MAX_FRAME {
            let violation = format!("unmasked: {unmasked}, length: {length}");
            self.seen().violations.push(violation);
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut mask = [0; 4];
        client.read_exact(&mut mask).await?;
        let mut payload = vec![0; usize::try_from(length).unwrap_or_default()];
        client.read_exact(&mut payload).await?;
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        Ok((first & 0x0F, payload))
    }

    async fn carry_to_client<R, C>(
        &self,
        mut server: R,
        to_client: &AsyncMutex<C>,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        C: AsyncWrite + Unpin,
    {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = server.read(&mut buffer).await?;
            if read == 0 {
                // 1000: a normal end.
                write_frame(to_client, FINAL | CLOSE, &1000_u16.to_be_bytes()).await?;
                to_client.lock().await.shutdown().await?;
                // Closing at once would cut it off where the client has bytes on the way.
                sleep(LINGER).await;
                return Ok(());
            }
            let fragment = self.how.fragment.unwrap_or(read);
            let fragments = buffer[..read].chunks(fragment);
            let last = fragments.len() - 1;
            for (number, fragment) in fragments.enumerate() {
                if self.how.pings {
                    write_frame(to_client, FINAL | PING, b"?").await?;
                }
                let opcode = match (number, self.how.text) {
                    (0, true) => TEXT,
                    (0, false) => BINARY,
                    _ => CONTINUATION,
                };
                let end = if number == last { FINAL } else { 0 };
                write_frame(to_client, end | opcode, fragment).await?;
            }
        }
    }
}

async fn write_frame<W: AsyncWrite + Unpin>(
    to: &AsyncMutex<W>,
    first: u8,
    payload: &[u8],
) -> io::Result<()> {
    let mut frame = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => frame.push(length),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    to.lock().await.write_all(&frame).await
}

/// §4.2.2: what shows the client that its key was read.
fn accept_key(key: &str) -> String {
    let digest = digest(
        &SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{KEY_SUFFIX}").as_bytes(),
    );
    base64(digest.as_ref())
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let of = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        for digit in 0..4 {
            if digit > group.len() {
                text.push('=');
            } else {
                let value = bits >> (18 - 6 * digit) & 0x3F;
                text.push(char::from(ALPHABET[value as usize]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_6455_is_answered_as_it_says() {
        let key = accept_key("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(key, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn base64_pads_what_is_no_multiple_of_three() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
