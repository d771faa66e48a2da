//! What a client says of itself.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::{
    Bytes, FrameReader, HashSet, Packet, Property, RawClient, Sent, Socket, VecDeque, in_time,
};
use crate::codec::{Connect, Protocol, Will};

/// How long the broker may take to accept.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a client connects with: a clean start and no keep-alive, unless told otherwise.
#[derive(Debug, Clone)]
#[must_use = "options connect nothing before `connect`"]
pub struct ClientOptions {
    connect: Connect,
    manual_acks: bool,
}

impl ClientOptions {
    /// A client of that identifier.
    pub fn new(client_id: &str) -> Self {
        Self {
            connect: Connect {
                client_id: client_id.to_owned(),
                clean_start: true,
                ..Connect::default()
            },
            manual_acks: false,
        }
    }

    /// Keeps the session that the broker has, if any, and lets it live for so long after the end
    /// of the connection; with MQTT 3.1.1, for as long as the broker likes.
    pub fn resumed(mut self, expiry: Duration) -> Self {
        self.connect.clean_start = false;
        let seconds = u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX);
        self.with(Property::SessionExpiry(seconds))
    }

    /// Of that version of the protocol.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.connect.protocol = protocol;
        self
    }

    /// With user name and password.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.connect.username = Some(name.to_owned());
        self.connect.password = Some(Bytes::copy_from_slice(password.as_bytes()));
        self
    }

    /// With a keep-alive in seconds; the caller has to send something that often.
    pub fn keep_alive(mut self, seconds: u16) -> Self {
        self.connect.keep_alive = seconds;
        self
    }

    /// With a will.
    pub fn will(mut self, will: Will) -> Self {
        self.connect.will = Some(will);
        self
    }

    /// With one more property of CONNECT.
    pub fn with(mut self, property: Property) -> Self {
        self.connect.properties.push(property);
        self
    }

    /// Leaves every acknowledgement to [`RawClient::ack`].
    pub fn manual_acks(mut self) -> Self {
        self.manual_acks = true;
        self
    }

    /// Connects to that port of 127.0.0.1. A refusal is an error of kind `ConnectionRefused`
    /// that names the code.
    pub async fn connect(self, port: u16) -> io::Result<RawClient> {
        let protocol = self.connect.protocol;
        let work = async {
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            let socket = Socket::new(stream)?;
            let mut reader = FrameReader::new(socket.clone());
            socket
                .write_all(&Packet::Connect(self.connect).encode())
                .await?;
            let Some(frame) = reader.next().await? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let connack = match Packet::decode_as(frame, protocol)? {
                Packet::ConnAck(connack) if connack.code == 0 => connack,
                Packet::ConnAck(connack) => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionRefused,
                        format!("the broker refused with 0x{:02x}", connack.code),
                    ));
                }
                other => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("CONNACK was expected, not {other:?}"),
                    ));
                }
            };
            Ok(RawClient {
                socket,
                reader,
                out: Vec::new(),
                written: 0,
                protocol,
                connack,
                manual_acks: self.manual_acks,
                inbox: VecDeque::new(),
                control: VecDeque::new(),
                unreleased: HashSet::new(),
                sent: Sent::new(),
                disconnected: None,
            })
        };
        in_time("CONNACK", PATIENCE, work).await
    }
}
