//! One connection as its script sees it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::behaviour::ReceivedPublish;
use super::{Open, Shared, lock};
use crate::codec::{
    Ack, AckKind, ConnAck, Connect, Disconnect, Packet, Property, Protocol, Publish, SubAck,
    Subscribe,
};
use crate::frames::FrameReader;
use crate::socket::Socket;

/// How long a script waits for a packet that it expects.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection of a [`ScriptedBroker`](super::ScriptedBroker). Dropping it closes the socket.
#[derive(Debug)]
pub struct BrokerConnection {
    number: usize,
    protocol: Protocol,
    reader: FrameReader<Socket>,
    socket: Socket,
    shared: Arc<Shared>,
}

impl BrokerConnection {
    pub(super) fn new(socket: Socket, number: usize, shared: Arc<Shared>) -> Self {
        lock(&shared.sockets).push(Open {
            number,
            socket: socket.clone(),
            protocol: Protocol::default(),
            client_id: None,
        });
        shared.open.fetch_add(1, Ordering::SeqCst);
        Self {
            number,
            protocol: Protocol::default(),
            reader: FrameReader::new(socket.clone()),
            socket,
            shared,
        }
    }

    /// Which connection of the broker this is, from 0.
    pub const fn number(&self) -> usize {
        self.number
    }

    /// The version that the client's CONNECT has named.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The next packet; `None` when the client has closed or reset the connection.
    ///
    /// # Panics
    /// When the client sends what is no packet of its version.
    pub async fn read_packet(&mut self) -> Option<Packet> {
        let next = tokio::select! {
            next = self.reader.next() => next,
            () = self.socket.ended() => return None,
        };
        let frame = match next {
            Ok(frame) => frame?,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                panic!("connection {}: {error}", self.number)
            }
            Err(_) => return None,
        };
        let packet = Packet::decode_as(frame, self.protocol)
            .unwrap_or_else(|error| panic!("connection {}: {error}", self.number));
        if let Packet::Connect(connect) = &packet {
            self.introduce(connect);
        }
        self.record(&packet);
        Some(packet)
    }

    /// The next packet, which must come.
    ///
    /// # Panics
    /// When the client closes instead, or sends nothing for 20 s.
    pub async fn expect_packet(&mut self) -> Packet {
        let number = self.number;
        timeout(PATIENCE, self.read_packet())
            .await
            .unwrap_or_else(|_| panic!("connection {number}: no packet within {PATIENCE:?}"))
            .unwrap_or_else(|| panic!("connection {number}: closed instead of a packet"))
    }

    /// The next packet, which must be CONNECT.
    ///
    /// # Panics
    /// When it is another.
    pub async fn expect_connect(&mut self) -> Connect {
        match self.expect_packet().await {
            Packet::Connect(connect) => connect,
            other => panic!("CONNECT was expected, not {other:?}"),
        }
    }

    /// The next packet but for PINGREQ, which is answered; it must be PUBLISH.
    ///
    /// # Panics
    /// When it is another.
    pub async fn expect_publish(&mut self) -> Publish {
        match self.expect_unless_ping().await {
            Packet::Publish(publish) => publish,
            other => panic!("PUBLISH was expected, not {other:?}"),
        }
    }

    /// The next packet but for PINGREQ, which is answered; it must be SUBSCRIBE.
    ///
    /// # Panics
    /// When it is another.
    pub async fn expect_subscribe(&mut self) -> Subscribe {
        match self.expect_unless_ping().await {
            Packet::Subscribe(subscribe) => subscribe,
            other => panic!("SUBSCRIBE was expected, not {other:?}"),
        }
    }

    /// The next packet but for PINGREQ, which is answered; it must be of that kind.
    ///
    /// # Panics
    /// When it is another.
    pub async fn expect_ack(&mut self, kind: AckKind) -> Ack {
        match self.expect_unless_ping().await {
            Packet::Ack(ack) if ack.kind == kind => ack,
            other => panic!("{kind:?} was expected, not {other:?}"),
        }
    }

    async fn expect_unless_ping(&mut self) -> Packet {
        loop {
            match self.expect_packet().await {
                Packet::PingReq => self.send_packet(&Packet::PingResp).await,
                other => return other,
            }
        }
    }

    /// Waits until the client has closed or reset; what it sends until then is recorded only.
    pub async fn until_closed(&mut self) {
        while self.read_packet().await.is_some() {}
    }

    /// Sends bytes as they are. A client that has gone is no failure of the script.
    pub async fn send(&self, bytes: &[u8]) {
        let _ = self.try_send(bytes).await;
    }

    /// Sends bytes as they are; an error when the client has gone.
    pub async fn try_send(&self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Sends a packet.
    pub async fn send_packet(&self, packet: &Packet) {
        self.send(&packet.encode_as(self.protocol)).await;
    }

    /// Accepts the client, without a session, with these properties.
    pub async fn connack(&self, properties: &[Property]) {
        self.send_packet(&Packet::ConnAck(ConnAck {
            properties: properties.to_vec(),
            ..ConnAck::default()
        }))
        .await;
    }

    /// Waits for CONNECT and accepts it with these properties.
    pub async fn accept(&mut self, properties: &[Property]) -> Connect {
        let connect = self.expect_connect().await;
        self.connack(properties).await;
        connect
    }

    /// Answers a QoS 1 message.
    pub async fn puback(&self, id: u16, code: u8) {
        self.ack(AckKind::PubAck, id, code).await;
    }

    /// Answers a QoS 2 message.
    pub async fn pubrec(&self, id: u16, code: u8) {
        self.ack(AckKind::PubRec, id, code).await;
    }

    /// Ends a QoS 2 message that was received.
    pub async fn pubcomp(&self, id: u16, code: u8) {
        self.ack(AckKind::PubComp, id, code).await;
    }

    /// Sends any of the four answers.
    pub async fn ack(&self, kind: AckKind, id: u16, code: u8) {
        self.send_packet(&Packet::Ack(Ack::new(kind, id, code)))
            .await;
    }

    /// Answers a SUBSCRIBE.
    pub async fn suback(&self, id: u16, codes: &[u8]) {
        self.send_packet(&Packet::SubAck(SubAck {
            id,
            codes: codes.to_vec(),
            ..SubAck::default()
        }))
        .await;
    }

    /// Publishes to the client, with the packet identifier that the message has.
    pub async fn publish(&self, publish: Publish) {
        self.send_packet(&Packet::Publish(publish)).await;
    }

    /// Sends DISCONNECT; the socket stays open until the connection is dropped. Nothing with
    /// MQTT 3.1.1, where a broker ends without a word.
    pub async fn disconnect(&self, code: u8) {
        let properties = Vec::new();
        self.disconnect_with(Disconnect { code, properties }).await;
    }

    /// As [`BrokerConnection::disconnect`], with properties.
    pub async fn disconnect_with(&self, disconnect: Disconnect) {
        if self.protocol == Protocol::V5 {
            self.send_packet(&Packet::Disconnect(disconnect)).await;
        }
    }

    /// Ends the connection with a FIN, or a RST when bytes are unread.
    pub fn close(self) {
        drop(self);
    }

    /// Ends the connection with a FIN and reads, and records, what the client still sends until it
    /// closes as well: so whatever it has written is known.
    pub async fn finish(mut self) {
        self.socket.finish();
        self.until_closed().await;
    }

    /// Ends the connection with a RST.
    pub fn reset(self) {
        self.socket.close_with_reset();
    }

    /// Remembers who the client is.
    fn introduce(&mut self, connect: &Connect) {
        self.protocol = connect.protocol;
        let mut sockets = lock(&self.shared.sockets);
        if let Some(open) = sockets.iter_mut().find(|open| open.number == self.number) {
            open.protocol = connect.protocol;
            open.client_id = Some(connect.client_id.clone());
        }
    }

    /// Ends the other connections of that client, as the standard wants it (§3.1.4).
    pub(super) async fn take_over(&self, client_id: &str) {
        let others: Vec<Open> = lock(&self.shared.sockets)
            .iter()
            .filter(|open| open.number != self.number)
            .filter(|open| open.client_id.as_deref() == Some(client_id))
            .cloned()
            .collect();
        for other in others {
            let properties = Vec::new();
            let code = 0x8E;
            other.dismiss(Disconnect { code, properties }).await;
        }
    }

    fn record(&self, packet: &Packet) {
        lock(&self.shared.packets).push((self.number, packet.clone()));
        if let Packet::Publish(publish) = packet {
            let mut publishes = lock(&self.shared.publishes);
            let nth = publishes.len();
            publishes.push(ReceivedPublish {
                connection: self.number,
                nth,
                publish: publish.clone(),
            });
        }
    }

    /// The publish that was recorded last, as a behaviour is asked about it.
    pub(super) fn latest_publish(&self, publish: Publish) -> ReceivedPublish {
        let publishes = lock(&self.shared.publishes);
        let of_this = publishes.iter().rev().find(|p| p.connection == self.number);
        ReceivedPublish {
            connection: self.number,
            nth: of_this.map_or(0, |recorded| recorded.nth),
            publish,
        }
    }
}

impl Drop for BrokerConnection {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let failure = format!("connection {}: its script panicked, see above", self.number);
            lock(&self.shared.failures).push(failure);
        }
        lock(&self.shared.sockets).retain(|open| open.number != self.number);
        self.shared.open.fetch_sub(1, Ordering::SeqCst);
    }
}
