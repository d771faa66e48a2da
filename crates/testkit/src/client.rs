//! An MQTT client on a bare socket, of either version: for tests, and fast enough to be a load generator.

mod options;
mod report;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;

pub use options::ClientOptions;
pub use report::PublishReport;

use crate::codec::{
    Ack, AckKind, ConnAck, Disconnect, Frame, Malformed, Packet, Property, Protocol, Publish,
    Subscribe, Unsubscribe,
};
use crate::frames::FrameReader;
use crate::socket::Socket;

/// How long the client waits for the answer to a request of its own.
const PATIENCE: Duration = Duration::from_secs(20);
/// No more is encoded ahead of the socket than this.
const OUT_BYTES: usize = 64 * 1024;

/// A client; the socket is closed on drop, without DISCONNECT.
///
/// It does nothing by itself: bytes move while one of its methods is awaited. It never reconnects
/// and never sends PINGREQ, so without [`ClientOptions::keep_alive`] it has none.
#[derive(Debug)]
pub struct RawClient {
    socket: Socket,
    reader: FrameReader<Socket>,
    /// Encoded packets, written up to `written`.
    out: Vec<u8>,
    written: usize,
    protocol: Protocol,
    connack: ConnAck,
    manual_acks: bool,
    /// What was received and not taken yet.
    inbox: VecDeque<Publish>,
    /// Packets that answer a request other than PUBLISH.
    control: VecDeque<Packet>,
    /// Received QoS 2 messages that the broker has not released.
    unreleased: HashSet<u16>,
    sent: Sent,
    disconnected: Option<Disconnect>,
}

/// What was published and is to be answered.
#[derive(Debug)]
struct Sent {
    /// The message's number by its packet identifier.
    open: Vec<Option<u32>>,
    in_flight: usize,
    last_id: u16,
    codes: Vec<Option<u8>>,
}

impl RawClient {
    /// Connects to that port of 127.0.0.1 with a clean start.
    pub async fn connect(port: u16, client_id: &str) -> io::Result<Self> {
        ClientOptions::new(client_id).connect(port).await
    }

    /// What the broker has accepted the client with.
    pub const fn connack(&self) -> &ConnAck {
        &self.connack
    }

    /// The broker's Receive Maximum.
    pub fn receive_maximum(&self) -> usize {
        let properties = self.connack.properties.iter();
        let mut maxima = properties.filter_map(|property| match property {
            Property::ReceiveMaximum(maximum) => Some(usize::from(*maximum)),
            _ => None,
        });
        maxima.next().unwrap_or(usize::from(u16::MAX))
    }

    /// Subscribes to topic filters, each with its options byte (the QoS, for a start), and hands
    /// back the broker's codes.
    pub async fn subscribe(&mut self, filters: &[(&str, u8)]) -> io::Result<Vec<u8>> {
        let id = self.sent.next_id();
        let filters = filters.iter();
        Packet::Subscribe(Subscribe {
            id,
            properties: Vec::new(),
            filters: filters
                .map(|(filter, options)| ((*filter).to_owned(), *options))
                .collect(),
        })
        .put_as(&mut self.out, self.protocol);
        self.answer("SUBACK", |packet| match packet {
            Packet::SubAck(ack) if ack.id == id => Some(ack.codes.clone()),
            _ => None,
        })
        .await
    }

    /// Unsubscribes from topic filters and hands back the broker's codes.
    pub async fn unsubscribe(&mut self, filters: &[&str]) -> io::Result<Vec<u8>> {
        let id = self.sent.next_id();
        Packet::Unsubscribe(Unsubscribe {
            id,
            properties: Vec::new(),
            filters: filters.iter().map(|&filter| filter.to_owned()).collect(),
        })
        .put_as(&mut self.out, self.protocol);
        self.answer("UNSUBACK", |packet| match packet {
            Packet::UnsubAck(ack) if ack.id == id => Some(ack.codes.clone()),
            _ => None,
        })
        .await
    }

    /// Asks the broker for a sign of life.
    pub async fn ping(&mut self) -> io::Result<()> {
        Packet::PingReq.put_as(&mut self.out, self.protocol);
        self.answer("PINGRESP", |packet| {
            (*packet == Packet::PingResp).then_some(())
        })
        .await
    }

    /// Publishes one message and hands back the code it was answered with; 0 for QoS 0.
    pub async fn publish(&mut self, message: Publish) -> io::Result<u8> {
        let report = self.publish_all([message], 1).await;
        match (report.codes.first(), report.lost) {
            (Some(Some(code)), _) => Ok(*code),
            (_, lost) => Err(lost.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Publishes messages with at most `window`, and what the broker's Receive Maximum allows, of
    /// them open at a time, and waits for all the answers. Packet identifiers are the client's.
    ///
    /// # Panics
    /// When more than 2³² messages are published.
    pub async fn publish_all(
        &mut self,
        messages: impl IntoIterator<Item = Publish>,
        window: usize,
    ) -> PublishReport {
        let began = Instant::now();
        self.sent.codes.clear();
        let lost = self.pump_all(messages.into_iter(), window).await.err();
        PublishReport {
            codes: std::mem::take(&mut self.sent.codes),
            lost,
            elapsed: began.elapsed(),
        }
    }

    async fn pump_all(
        &mut self,
        mut messages: impl Iterator<Item = Publish>,
        window: usize,
    ) -> io::Result<()> {
        let window = window.min(self.receive_maximum());
        let mut more = true;
        loop {
            while more && self.sent.in_flight < window && self.out.len() < OUT_BYTES {
                match messages.next() {
                    Some(mut message) => {
                        message.id = self.sent.admit(message.qos);
                        message.put_as(&mut self.out, self.protocol);
                    }
                    None => more = false,
                }
            }
            if !more && self.sent.in_flight == 0 {
                return self.flush().await;
            }
            self.step().await?;
        }
    }

    /// The next message; it has been acknowledged unless that is done by hand. An error of kind
    /// `TimedOut` when none comes in time.
    pub async fn recv(&mut self, within: Duration) -> io::Result<Publish> {
        let received = async {
            loop {
                if !self.inbox.is_empty() {
                    // Before it is taken: what is cut off by the end of the time is there the
                    // next time.
                    self.flush().await?;
                    if let Some(message) = self.inbox.pop_front() {
                        return Ok(message);
                    }
                }
                self.step().await?;
            }
        };
        in_time("a message", within, received).await
    }

    /// The next `count` messages, all of which must come within the time.
    pub async fn collect(&mut self, count: usize, within: Duration) -> io::Result<Vec<Publish>> {
        let mut collected = Vec::with_capacity(count);
        let all = async {
            while collected.len() < count {
                match self.inbox.pop_front() {
                    Some(message) => collected.push(message),
                    None => self.step().await?,
                }
            }
            self.flush().await
        };
        match in_time("messages", within, all).await {
            Ok(()) => Ok(collected),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("{} of {count} messages came: {error}", collected.len()),
            )),
        }
    }

    /// Everything that comes until nothing has come for `quiet`.
    pub async fn collect_until_quiet(&mut self, quiet: Duration) -> io::Result<Vec<Publish>> {
        let mut collected = Vec::new();
        loop {
            match self.recv(quiet).await {
                Ok(message) => collected.push(message),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(collected),
                Err(error) => return Err(error),
            }
        }
    }

    /// The messages that have come by now, at least one: the hot path of a load generator.
    pub async fn recv_batch(&mut self) -> io::Result<VecDeque<Publish>> {
        while self.inbox.is_empty() {
            self.step().await?;
        }
        Ok(std::mem::take(&mut self.inbox))
    }

    /// Acknowledges a message by hand: PUBACK, or PUBREC of a QoS 2 message, whose rest follows
    /// by itself.
    pub async fn ack(&mut self, message: &Publish, code: u8) -> io::Result<()> {
        match message.qos {
            0 => return Ok(()),
            1 => Ack::new(AckKind::PubAck, message.id, code).put_as(&mut self.out, self.protocol),
            _ => Ack::new(AckKind::PubRec, message.id, code).put_as(&mut self.out, self.protocol),
        }
        self.flush().await
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        self.flush().await
    }

    /// The next packet as it is: nothing is acknowledged or kept.
    pub async fn read_packet(&mut self, within: Duration) -> io::Result<Packet> {
        let next = in_time("a packet", within, self.reader.next()).await?;
        match next {
            Some(frame) => Ok(Packet::decode_as(frame, self.protocol)?),
            None => Err(self.end_of_stream()),
        }
    }

    /// Takes leave in good order, so that the broker drops the will and keeps the session.
    pub async fn disconnect(mut self) -> io::Result<()> {
        Packet::Disconnect(Disconnect::default()).put_as(&mut self.out, self.protocol);
        self.flush().await
    }

    /// Ends the connection with a RST.
    pub fn reset(self) {
        self.socket.close_with_reset();
    }

    /// What the broker said in its DISCONNECT, if it sent one.
    pub const fn disconnected(&self) -> Option<&Disconnect> {
        self.disconnected.as_ref()
    }

    /// Waits until the broker has closed the connection.
    pub async fn until_closed(&mut self, within: Duration) -> io::Result<()> {
        let closed = async {
            while self.step().await.is_ok() {}
            Ok(())
        };
        in_time("the end of the connection", within, closed).await
    }

    async fn answer<T>(
        &mut self,
        what: &'static str,
        pick: impl Fn(&Packet) -> Option<T>,
    ) -> io::Result<T> {
        let answered = async {
            loop {
                while let Some(packet) = self.control.pop_front() {
                    if let Some(found) = pick(&packet) {
                        return Ok(found);
                    }
                }
                self.step().await?;
            }
        };
        in_time(what, PATIENCE, answered).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            self.step().await?;
        }
        Ok(())
    }

    /// Reads or writes once, whichever can be done first. May be cancelled and loses nothing.
    async fn step(&mut self) -> io::Result<()> {
        // What came in one segment with the packet that was waited for last.
        if self.take_buffered()? {
            return Ok(());
        }
        let alive = if self.out.is_empty() {
            self.reader.fill().await?
        } else {
            tokio::select! {
                read = self.reader.fill() => read?,
                written = self.socket.write_some(&self.out[self.written..]) => {
                    self.written += written?;
                    if self.written == self.out.len() {
                        self.out.clear();
                        self.written = 0;
                    }
                    return Ok(());
                }
            }
        };
        if !alive {
            return Err(self.end_of_stream());
        }
        self.take_buffered()?;
        Ok(())
    }

    /// Takes all the frames that have been read; whether there was any.
    fn take_buffered(&mut self) -> Result<bool, Malformed> {
        let mut any = false;
        while let Some(frame) = self.reader.buffered()? {
            self.take(frame)?;
            any = true;
        }
        Ok(any)
    }

    fn end_of_stream(&self) -> io::Error {
        let reason = match &self.disconnected {
            Some(disconnect) => format!("DISCONNECT 0x{:02x}", disconnect.code),
            None => "no DISCONNECT".to_owned(),
        };
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the broker closed the connection: {reason}"),
        )
    }

    fn take(&mut self, frame: Frame) -> Result<(), Malformed> {
        match frame.first {
            0x30..=0x3F => {
                let message = Publish::get(frame.first, frame.body, self.protocol)?;
                self.receive(message);
            }
            0x40 => self.sent.finish(&Ack::get(
                AckKind::PubAck,
                &mut { frame.body },
                self.protocol,
            )?),
            0x50 => {
                let ack = Ack::get(AckKind::PubRec, &mut { frame.body }, self.protocol)?;
                if ack.code >= 0x80 {
                    self.sent.finish(&ack);
                } else {
                    Ack::new(AckKind::PubRel, ack.id, 0).put_as(&mut self.out, self.protocol);
                }
            }
            0x62 => {
                let ack = Ack::get(AckKind::PubRel, &mut { frame.body }, self.protocol)?;
                self.unreleased.remove(&ack.id);
                Ack::new(AckKind::PubComp, ack.id, 0).put_as(&mut self.out, self.protocol);
            }
            0x70 => self.sent.finish(&Ack::get(
                AckKind::PubComp,
                &mut { frame.body },
                self.protocol,
            )?),
            _ => match Packet::decode_as(frame, self.protocol)? {
                Packet::Disconnect(disconnect) => self.disconnected = Some(disconnect),
                other => self.control.push_back(other),
            },
        }
        Ok(())
    }

    fn receive(&mut self, message: Publish) {
        // §4.3.3: a QoS 2 message that comes again before its release is the same message.
        let again = message.qos == 2 && !self.unreleased.insert(message.id);
        if !self.manual_acks {
            match message.qos {
                0 => {}
                1 => Ack::new(AckKind::PubAck, message.id, 0).put_as(&mut self.out, self.protocol),
                _ => Ack::new(AckKind::PubRec, message.id, 0).put_as(&mut self.out, self.protocol),
            }
        }
        if !again {
            self.inbox.push_back(message);
        }
    }
}

impl Sent {
    fn new() -> Self {
        Self {
            open: vec![None; 1 << 16],
            in_flight: 0,
            last_id: 0,
            codes: Vec::new(),
        }
    }

    /// A packet identifier that is not in use; never 0.
    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && self.open[usize::from(self.last_id)].is_none() {
                return self.last_id;
            }
        }
    }

    /// Numbers a message and hands out its packet identifier.
    fn admit(&mut self, qos: u8) -> u16 {
        let number = u32::try_from(self.codes.len()).expect("fewer than 2^32 messages");
        if qos == 0 {
            self.codes.push(Some(0));
            return 0;
        }
        self.codes.push(None);
        let id = self.next_id();
        self.open[usize::from(id)] = Some(number);
        self.in_flight += 1;
        id
    }

    fn finish(&mut self, ack: &Ack) {
        if let Some(number) = self.open[usize::from(ack.id)].take() {
            self.in_flight -= 1;
            if let Some(code) = self.codes.get_mut(number as usize) {
                *code = Some(ack.code);
            }
        }
    }
}

async fn in_time<T>(
    what: &str,
    within: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout(within, work).await.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{what} did not come within {within:?}"),
        ))
    })
}
