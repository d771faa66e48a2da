//! The control packets of MQTT 5 §3, and what is left of them in MQTT 3.1.1.

use bytes::{Buf, Bytes};

use super::property::{Properties, Property, get_properties, put_properties};
use super::wire::{Malformed, Wire, put_binary, put_var_int};
use super::{Frame, Protocol, Publish};

/// One control packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the packets' names are those of the standard")]
pub enum Packet {
    Connect(Connect),
    ConnAck(ConnAck),
    Publish(Publish),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    Ack(Ack),
    Subscribe(Subscribe),
    SubAck(SubAck),
    Unsubscribe(Unsubscribe),
    UnsubAck(SubAck),
    PingReq,
    PingResp,
    Disconnect(Disconnect),
    /// AUTH, with its body as it is.
    Auth(Bytes),
}

/// CONNECT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connect {
    /// The version of the protocol.
    pub protocol: Protocol,
    /// Client identifier.
    pub client_id: String,
    /// Clean start; in MQTT 3.1.1, clean session.
    pub clean_start: bool,
    /// Keep alive in seconds; 0 is none.
    pub keep_alive: u16,
    /// The properties.
    pub properties: Properties,
    /// The will.
    pub will: Option<Will>,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Bytes>,
}

/// The will of a CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields' names are those of the standard")]
pub struct Will {
    pub topic: String,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub properties: Properties,
}

/// CONNACK.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnAck {
    /// Whether the broker has resumed a session.
    pub session_present: bool,
    /// Reason code; in MQTT 3.1.1, return code.
    pub code: u8,
    /// The properties.
    pub properties: Properties,
}

impl ConnAck {
    /// Accepts, and says whether a session is resumed.
    pub fn with_session(session_present: bool) -> Self {
        Self {
            session_present,
            ..Self::default()
        }
    }
}

/// Which of the four answers that are built alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the packets' names are those of the standard")]
pub enum AckKind {
    PubAck = 0x40,
    PubRec = 0x50,
    PubRel = 0x62,
    PubComp = 0x70,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Which.
    pub kind: AckKind,
    /// Packet identifier.
    pub id: u16,
    /// Reason code.
    pub code: u8,
    /// The properties.
    pub properties: Properties,
}

/// SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscribe {
    /// Packet identifier.
    pub id: u16,
    /// The properties.
    pub properties: Properties,
    /// Topic filters with their options byte.
    pub filters: Vec<(String, u8)>,
}

/// SUBACK or UNSUBACK.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubAck {
    /// Packet identifier.
    pub id: u16,
    /// The properties.
    pub properties: Properties,
    /// A reason code for each filter.
    pub codes: Vec<u8>,
}

/// UNSUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsubscribe {
    /// Packet identifier.
    pub id: u16,
    /// The properties.
    pub properties: Properties,
    /// Topic filters.
    pub filters: Vec<String>,
}

/// DISCONNECT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disconnect {
    /// Reason code.
    pub code: u8,
    /// The properties.
    pub properties: Properties,
}

impl Ack {
    /// An answer without properties.
    pub const fn new(kind: AckKind, id: u16, code: u8) -> Self {
        Self {
            kind,
            id,
            code,
            properties: Vec::new(),
        }
    }

    /// Appends the packet, in the short form where that says it all (§3.4.2.1).
    pub fn put(&self, out: &mut Vec<u8>) {
        self.put_as(out, Protocol::V5);
    }

    /// Appends the packet as that version has it.
    pub fn put_as(&self, out: &mut Vec<u8>, protocol: Protocol) {
        if protocol == Protocol::V311 || self.code == 0 && self.properties.is_empty() {
            let [high, low] = self.id.to_be_bytes();
            out.extend_from_slice(&[self.kind as u8, 2, high, low]);
            return;
        }
        let mut body = Vec::with_capacity(4);
        self.id.put(&mut body);
        body.push(self.code);
        if !self.properties.is_empty() {
            put_properties(&mut body, &self.properties, protocol);
        }
        put_framed(out, self.kind as u8, &body);
    }
}

impl Packet {
    /// The packet's bytes on the wire, of MQTT 5 but for a CONNECT that says otherwise.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(Protocol::V5)
    }

    /// The packet's bytes on the wire, as that version has them.
    pub fn encode_as(&self, protocol: Protocol) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_as(&mut out, protocol);
        out
    }

    /// Appends the packet as that version has it; a CONNECT as the version that it names.
    pub fn put_as(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let mut body = Vec::new();
        let first = match self {
            Self::Publish(publish) => return publish.put_as(out, protocol),
            Self::Ack(ack) => return ack.put_as(out, protocol),
            Self::Connect(connect) => {
                connect.put(&mut body);
                0x10
            }
            Self::ConnAck(ack) => {
                body.push(u8::from(ack.session_present));
                body.push(ack.code);
                put_properties(&mut body, &ack.properties, protocol);
                0x20
            }
            Self::Subscribe(subscribe) => {
                subscribe.id.put(&mut body);
                put_properties(&mut body, &subscribe.properties, protocol);
                for (filter, options) in &subscribe.filters {
                    filter.put(&mut body);
                    body.push(*options);
                }
                0x82
            }
            Self::SubAck(ack) => {
                ack.put(&mut body, protocol);
                0x90
            }
            // MQTT 3.1.1 §3.11: it has no payload.
            Self::UnsubAck(ack) if protocol == Protocol::V311 => {
                ack.id.put(&mut body);
                0xB0
            }
            Self::UnsubAck(ack) => {
                ack.put(&mut body, protocol);
                0xB0
            }
            Self::Unsubscribe(unsubscribe) => {
                unsubscribe.id.put(&mut body);
                put_properties(&mut body, &unsubscribe.properties, protocol);
                for filter in &unsubscribe.filters {
                    filter.put(&mut body);
                }
                0xA2
            }
            Self::PingReq => 0xC0,
            Self::PingResp => 0xD0,
            Self::Disconnect(disconnect) => {
                // §3.14.2.1: a normal one without properties has no body.
                let bare = disconnect.code == 0 && disconnect.properties.is_empty();
                if protocol == Protocol::V5 && !bare {
                    body.push(disconnect.code);
                    put_properties(&mut body, &disconnect.properties, protocol);
                }
                0xE0
            }
            Self::Auth(raw) => {
                body.extend_from_slice(raw);
                0xF0
            }
        };
        put_framed(out, first, &body);
    }

    /// Reads a packet of MQTT 5 from its frame, or a CONNECT of either version.
    pub fn decode(frame: Frame) -> Result<Self, Malformed> {
        Self::decode_as(frame, Protocol::V5)
    }

    /// Reads a packet of that version from its frame, or a CONNECT of either version.
    pub fn decode_as(frame: Frame, protocol: Protocol) -> Result<Self, Malformed> {
        let Frame { first, mut body } = frame;
        let from = &mut body;
        let packet = match first {
            0x10 => Self::Connect(Connect::get(from)?),
            0x20 => Self::ConnAck(ConnAck {
                session_present: from.try_get_u8()? & 1 == 1,
                code: from.try_get_u8()?,
                properties: get_properties(from, protocol)?,
            }),
            0x30..=0x3F => return Publish::get(first, body, protocol).map(Self::Publish),
            0x40 => Self::Ack(Ack::get(AckKind::PubAck, from, protocol)?),
            0x50 => Self::Ack(Ack::get(AckKind::PubRec, from, protocol)?),
            0x62 => Self::Ack(Ack::get(AckKind::PubRel, from, protocol)?),
            0x70 => Self::Ack(Ack::get(AckKind::PubComp, from, protocol)?),
            0x82 => Self::Subscribe(Subscribe::get(from, protocol)?),
            0x90 => Self::SubAck(SubAck::get(from, protocol)?),
            0xB0 => Self::UnsubAck(SubAck::get(from, protocol)?),
            0xA2 => Self::Unsubscribe(Unsubscribe::get(from, protocol)?),
            0xC0 => Self::PingReq,
            0xD0 => Self::PingResp,
            0xE0 => Self::Disconnect(Disconnect {
                code: code_or_success(from, protocol),
                properties: properties_or_none(from, protocol)?,
            }),
            0xF0 => Self::Auth(from.split_off(0)),
            other => return Err(Malformed::PacketType(other)),
        };
        match body.len() {
            0 => Ok(packet),
            left => Err(Malformed::Trailing(left)),
        }
    }
}

impl Connect {
    fn put(&self, out: &mut Vec<u8>) {
        let protocol = self.protocol;
        put_binary(out, b"MQTT");
        out.push(protocol.level());
        let will = self
            .will
            .as_ref()
            .map_or(0, |will| 0x04 | will.qos << 3 | u8::from(will.retain) << 5);
        out.push(
            u8::from(self.clean_start) << 1
                | will
                | u8::from(self.password.is_some()) << 6
                | u8::from(self.username.is_some()) << 7,
        );
        self.keep_alive.put(out);
        put_properties(out, &self.properties, protocol);
        self.client_id.put(out);
        if let Some(will) = &self.will {
            put_properties(out, &will.properties, protocol);
            will.topic.put(out);
            will.payload.put(out);
        }
        if let Some(username) = &self.username {
            username.put(out);
        }
        if let Some(password) = &self.password {
            password.put(out);
        }
    }

    fn get(from: &mut Bytes) -> Result<Self, Malformed> {
        let name = String::get(from)?;
        let level = u8::get(from)?;
        let protocol = match (name.as_str(), level) {
            ("MQTT", 4) => Protocol::V311,
            ("MQTT", 5) => Protocol::V5,
            _ => return Err(Malformed::Protocol { name, level }),
        };
        let flags = u8::get(from)?;
        let has = |bit: u8| flags & bit != 0;
        Ok(Self {
            protocol,
            clean_start: has(0x02),
            keep_alive: u16::get(from)?,
            properties: get_properties(from, protocol)?,
            client_id: String::get(from)?,
            will: has(0x04)
                .then(|| {
                    Ok::<_, Malformed>(Will {
                        properties: get_properties(from, protocol)?,
                        topic: String::get(from)?,
                        payload: Bytes::get(from)?,
                        qos: flags >> 3 & 0x03,
                        retain: has(0x20),
                    })
                })
                .transpose()?,
            username: has(0x80).then(|| String::get(from)).transpose()?,
            password: has(0x40).then(|| Bytes::get(from)).transpose()?,
        })
    }

    /// The first property that `pick` takes.
    pub fn property<T>(&self, pick: impl Fn(&Property) -> Option<T>) -> Option<T> {
        self.properties.iter().find_map(pick)
    }
}

impl Ack {
    pub(crate) fn get(
        kind: AckKind,
        from: &mut Bytes,
        protocol: Protocol,
    ) -> Result<Self, Malformed> {
        Ok(Self {
            kind,
            id: u16::get(from)?,
            code: code_or_success(from, protocol),
            properties: properties_or_none(from, protocol)?,
        })
    }
}

impl Subscribe {
    fn get(from: &mut Bytes, protocol: Protocol) -> Result<Self, Malformed> {
        let mut subscribe = Self {
            id: u16::get(from)?,
            properties: get_properties(from, protocol)?,
            filters: Vec::new(),
        };
        while !from.is_empty() {
            let filter = String::get(from)?;
            subscribe.filters.push((filter, u8::get(from)?));
        }
        Ok(subscribe)
    }
}

impl Unsubscribe {
    fn get(from: &mut Bytes, protocol: Protocol) -> Result<Self, Malformed> {
        let mut unsubscribe = Self {
            id: u16::get(from)?,
            properties: get_properties(from, protocol)?,
            filters: Vec::new(),
        };
        while !from.is_empty() {
            unsubscribe.filters.push(String::get(from)?);
        }
        Ok(unsubscribe)
    }
}

impl SubAck {
    fn put(&self, out: &mut Vec<u8>, protocol: Protocol) {
        self.id.put(out);
        put_properties(out, &self.properties, protocol);
        out.extend_from_slice(&self.codes);
    }

    fn get(from: &mut Bytes, protocol: Protocol) -> Result<Self, Malformed> {
        Ok(Self {
            id: u16::get(from)?,
            properties: get_properties(from, protocol)?,
            codes: from.split_off(0).to_vec(),
        })
    }
}

/// A reason code that may be left out when it is success (§3.4.2.1, §3.14.2.1), and that
/// MQTT 3.1.1 does not have.
fn code_or_success(from: &mut Bytes, protocol: Protocol) -> u8 {
    match protocol {
        Protocol::V311 => 0,
        Protocol::V5 => from.try_get_u8().unwrap_or(0),
    }
}

/// Properties that may be left out, with their length, when there are none (§3.4.2.2.1).
fn properties_or_none(from: &mut Bytes, protocol: Protocol) -> Result<Properties, Malformed> {
    if from.is_empty() {
        return Ok(Vec::new());
    }
    get_properties(from, protocol)
}

fn put_framed(out: &mut Vec<u8>, first: u8, body: &[u8]) {
    out.push(first);
    put_var_int(out, body.len());
    out.extend_from_slice(body);
}
