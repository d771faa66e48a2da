//! One conversation of a real session with a broker that says what a test or a fuzzer thought of,
//! and then one with a broker that is in order: whatever was said, the session must be of use.
//!
//! The input is a script: each operation is a byte, with its operands behind it. So a fuzzer finds
//! well-formed packets easily, and may put any bytes between them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "packets here are short, and hostile ones may be wrong"
)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{
    Answer, Backoff, Link, Message, Name, QoS, Sink, Source, Subscription, SystemClock, Topic,
    TopicFilter,
};
use bridge_transport::{
    Brokers, Endpoint, Place, Protocol, Reader, SessionConfig, Writer, WriterIdentity,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// How long anything may take that must happen.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long the broker waits for something that need not happen.
const MOMENT: Duration = Duration::from_millis(2);
/// The largest packet that the session takes.
const MAX_PACKET: u32 = 4096;
/// How much a script may send, and how long it may be.
const MOST_BYTES: usize = 1 << 20;

/// Runs the script of `input`.
///
/// # Panics
/// When the session does not come back.
pub(crate) async fn converse(input: &[u8], socket: &Path) {
    let mut script = Script(input);
    let flags = script.byte();
    let protocol = if flags & 1 == 0 {
        Protocol::V5
    } else {
        Protocol::V311
    };
    let listener = UnixListener::bind(socket).unwrap();
    let config = config(protocol, socket);
    if flags & 2 == 0 {
        read_from(config, &listener, script).await;
    } else {
        write_to(config, &listener, script).await;
    }
    std::fs::remove_file(socket).unwrap();
}

async fn read_from(config: SessionConfig, listener: &UnixListener, script: Script<'_>) {
    let protocol = config.protocol;
    let subscription = Subscription {
        filter: TopicFilter::parse("t").unwrap(),
        qos: QoS::ExactlyOnce,
        no_local: false,
    };
    let reader = Reader::start(config, vec![subscription], Arc::new(SystemClock::new()));
    let taking = async {
        while let Some(delivery) = reader.next().await {
            delivery.acknowledge.settled();
        }
    };
    let serving = async {
        let broker = Broker::accept(listener, protocol).await;
        broker.follow(script).await;
        // A connection that was being made while the script ended may be lost once more.
        while Broker::accept(listener, protocol)
            .await
            .serve_reader()
            .await
            .is_err()
        {}
    };
    must("the reader comes back", async {
        tokio::select! {
            () = taking => panic!("the reader has ended"),
            () = serving => {}
        }
    })
    .await;
}

async fn write_to(config: SessionConfig, listener: &UnixListener, script: Script<'_>) {
    let protocol = config.protocol;
    let clock = Arc::new(SystemClock::new());
    let writer = Writer::start(config, WriterIdentity::ClientId, clock);
    let script_is_over = Cell::new(false);
    let offering = async {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::AtMostOnce]
            .into_iter()
            .cycle()
        {
            if !writer.link().is_up() {
                writer.changed(Link::Down).await;
            }
            let mut message = Message::new(Topic::parse("t").unwrap(), "x");
            message.qos = qos;
            let last = script_is_over.get() && qos != QoS::AtMostOnce;
            let Ok(admitted) = writer.publish(message).await else {
                // Refused by the terms of a hostile CONNACK, or the link is down.
                tokio::task::yield_now().await;
                continue;
            };
            // One may never come while the script runs; its end ends that.
            let answer = admitted.await;
            if last && matches!(answer, Answer::Answered { code, .. } if !code.is_refusal()) {
                return;
            }
        }
    };
    let serving = async {
        let broker = Broker::accept(listener, protocol).await;
        broker.follow(script).await;
        script_is_over.set(true);
        loop {
            let mut broker = Broker::accept(listener, protocol).await;
            // It ends when the connection does.
            let _ = broker.serve_writer().await;
        }
    };
    must("the writer comes back", async {
        tokio::select! {
            () = offering => {}
            () = serving => {}
        }
    })
    .await;
}

async fn must(what: &str, future: impl Future<Output = ()>) {
    let done = timeout(DEADLINE, future).await;
    assert!(done.is_ok(), "{what}: not within {DEADLINE:?}");
}

fn config(protocol: Protocol, socket: &Path) -> SessionConfig {
    let endpoint = Endpoint {
        place: Place::Unix(socket.to_owned()),
        tls: None,
        websocket: None,
        proxy: None,
    };
    let (shortest, longest) = (Duration::from_millis(1), Duration::from_millis(2));
    SessionConfig {
        protocol,
        connect_timeout: Duration::from_secs(5),
        answer_timeout: Duration::from_secs(5),
        write_timeout: Duration::from_secs(5),
        max_packet_size: MAX_PACKET,
        backoff: Backoff::try_new(shortest, longest).unwrap(),
        ..SessionConfig::new(Name::parse("hostile").unwrap(), Brokers::one(endpoint), "c")
    }
}

/// What is left of a script.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *byte
    }

    fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// The far end of one connection.
struct Broker {
    stream: UnixStream,
    protocol: Protocol,
    /// What the client has said and nobody has looked at.
    heard: VecDeque<u8>,
    /// The packet that the client sent last with a packet id: its first byte and the id.
    latest: (u8, [u8; 2]),
    sent: usize,
}

impl Broker {
    async fn accept(listener: &UnixListener, protocol: Protocol) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        Self {
            stream,
            protocol,
            heard: VecDeque::new(),
            latest: (0, [0, 1]),
            sent: 0,
        }
    }

    /// Says what the script says, for as long as the client listens.
    async fn follow(mut self, mut script: Script<'_>) {
        let mut piece = usize::MAX;
        let mut pending = Vec::new();
        while !script.0.is_empty() {
            match script.byte() % 16 {
                0 => pending.extend(self.connack()),
                1 => {
                    self.flush(&mut pending, piece).await;
                    self.hear(MOMENT).await;
                    pending.extend(self.answer());
                }
                2 => {
                    let (options, length) = (script.byte(), usize::from(script.byte()));
                    let topic = script.take(usize::from(options >> 4));
                    let payload = script.take(length);
                    pending.extend(self.publish(options & 0x0F, topic, payload));
                }
                3 => {
                    let length = usize::from(script.byte());
                    pending.extend_from_slice(script.take(length));
                }
                // A packet with that first byte and a body of the right length.
                4 => {
                    let (first, length) = (script.byte(), usize::from(script.byte() % 128));
                    let body = script.take(length);
                    pending.extend([first, body.len() as u8]);
                    pending.extend_from_slice(body);
                }
                // An answer with these bytes behind the packet id of the client's last packet.
                5 => {
                    let (first, length) = (script.byte(), usize::from(script.byte() % 100));
                    let body = script.take(length);
                    pending.extend([first, body.len() as u8 + 2]);
                    pending.extend(self.latest.1);
                    pending.extend_from_slice(body);
                }
                6 => pending.extend([0xD0, 0]),
                7 => pending.extend([0x62, 2, 0, script.byte()]),
                // A header that announces more than ever comes, or a lot.
                8 => pending.extend([script.byte(), 0xFF, 0xFF, 0xFF, 0x7F]),
                9 => {
                    let (byte, times) = (script.byte(), usize::from(script.byte()) << 8);
                    pending.resize(pending.len() + times, byte);
                }
                10 => {
                    piece = match script.byte() {
                        0 => usize::MAX,
                        piece => usize::from(piece),
                    }
                }
                11 => {
                    self.flush(&mut pending, piece).await;
                    self.hear(MOMENT).await;
                }
                12 => {
                    let at = usize::from(script.byte());
                    let flip = script.byte();
                    if let Some(byte) = pending.get_mut(at) {
                        *byte ^= flip;
                    }
                }
                13 => {
                    let keep = usize::from(script.byte());
                    pending.truncate(keep);
                }
                // User properties without end, as many as fit.
                14 => {
                    let times = usize::from(script.byte()) * 4;
                    for _ in 0..times {
                        pending.extend([0x26, 0, 0, 0, 0]);
                    }
                }
                _ => self.flush(&mut pending, piece).await,
            }
            if self.sent + pending.len() > MOST_BYTES {
                break;
            }
        }
        self.flush(&mut pending, piece).await;
        self.hear(MOMENT).await;
    }

    /// Writes in pieces of that size; a client that has closed is no failure.
    async fn flush(&mut self, pending: &mut Vec<u8>, piece: usize) {
        self.sent += pending.len();
        // Small pieces of much would take the whole day.
        let piece = piece.max(pending.len() / 512).max(1);
        for bytes in pending.chunks(piece) {
            // Lets the client read what there is, so that it is cut as we say.
            if piece < 256 {
                tokio::task::yield_now().await;
            }
            if !matches!(
                timeout(DEADLINE, self.stream.write_all(bytes)).await,
                Ok(Ok(()))
            ) {
                break;
            }
        }
        pending.clear();
    }

    /// Reads what the client says in that time.
    async fn hear(&mut self, within: Duration) {
        let mut buffer = vec![0; 4096];
        while let Ok(Ok(count @ 1..)) = timeout(within, self.stream.read(&mut buffer)).await {
            self.heard.extend(&buffer[..count]);
            while self.packet().is_some() {}
        }
    }

    /// The client's next packet: its first byte, and what is behind its length.
    fn packet(&mut self) -> Option<(u8, Vec<u8>)> {
        let (mut length, mut header) = (0, 1);
        loop {
            let byte = *self.heard.get(header)?;
            length |= usize::from(byte & 0x7F) << (7 * (header - 1));
            header += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if self.heard.len() < header + length {
            return None;
        }
        let packet: Vec<u8> = self.heard.drain(..header + length).collect();
        let (first, body) = (packet[0], packet[header..].to_vec());
        let id_at = match first >> 4 {
            3 if first & 6 != 0 => 2 + usize::from(u16::from_be_bytes([body[0], body[1]])),
            4..=11 => 0,
            _ => return Some((first, body)),
        };
        self.latest = (first, [body[id_at], body[id_at + 1]]);
        Some((first, body))
    }

    fn is_5(&self) -> bool {
        self.protocol == Protocol::V5
    }

    fn connack(&self) -> Vec<u8> {
        match self.protocol {
            Protocol::V5 => vec![0x20, 3, 0, 0, 0],
            Protocol::V311 => vec![0x20, 2, 0, 0],
        }
    }

    /// The right answer to what the client sent last with a packet id.
    fn answer(&self) -> Vec<u8> {
        let (first, [high, low]) = self.latest;
        let properties: &[u8] = if self.is_5() { &[0] } else { &[] };
        let (first, codes): (u8, &[u8]) = match first {
            0x32 | 0x3A => return vec![0x40, 2, high, low],
            0x34 | 0x3C => return vec![0x50, 2, high, low],
            0x62 => return vec![0x70, 2, high, low],
            0x50 => return vec![0x62, 2, high, low],
            0x82 => (0x90, &[2]),
            0xA2 => (0xB0, if self.is_5() { &[0] } else { &[] }),
            _ => return Vec::new(),
        };
        let body = [&[high, low], properties, codes].concat();
        [&[first, body.len() as u8][..], &body].concat()
    }

    fn publish(&self, flags: u8, topic: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut body = vec![0, topic.len() as u8];
        body.extend_from_slice(topic);
        if flags & 0x06 != 0 {
            body.extend([0, 9]);
        }
        if self.is_5() {
            body.push(0);
        }
        body.extend_from_slice(payload);
        let length = body.len();
        let mut packet = vec![0x30 | flags, length as u8 | 0x80, (length >> 7) as u8];
        packet.append(&mut body);
        packet
    }

    /// The client's next packet, waited for.
    async fn expect(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut buffer = vec![0; 4096];
        loop {
            if let Some(packet) = self.packet() {
                return Ok(packet);
            }
            match self.stream.read(&mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.heard.extend(&buffer[..count]),
            }
        }
    }

    /// Serves a reader as it should be, until it has acknowledged a message.
    async fn serve_reader(&mut self) -> io::Result<()> {
        loop {
            let (first, _) = self.expect().await?;
            let reply = match first {
                0x10 => self.connack(),
                0x82 => {
                    let mut reply = self.answer();
                    reply.extend(self.publish(0x02, b"t", b"the end"));
                    reply
                }
                0xC0 => vec![0xD0, 0],
                0x40 => return Ok(()),
                _ => continue,
            };
            self.stream.write_all(&reply).await?;
        }
    }

    /// Serves a writer as it should be, until it goes.
    async fn serve_writer(&mut self) -> io::Result<()> {
        loop {
            let (first, _) = self.expect().await?;
            let reply = match first {
                0x10 => self.connack(),
                0xC0 => vec![0xD0, 0],
                0xE0 => return Ok(()),
                _ => self.answer(),
            };
            self.stream.write_all(&reply).await?;
        }
    }
}
