//! A stored message as bytes. What the index needs of it stands first, at fixed places.

use bridge_core::{
    Cause, Message, MessageId, Name, PayloadFormat, Properties, QoS, StoredMessage, Timestamp,
    Topic,
};
use bytes::Bytes;

use crate::codec::{Malformed, Reader, put_long, put_short, put_varint};

/// What the index needs of a message without decoding the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHead {
    pub(crate) received: Timestamp,
    /// By [`Message::size`].
    pub(crate) size: u32,
}

impl MessageHead {
    pub(crate) fn of(stored: &StoredMessage) -> Self {
        Self {
            received: stored.received,
            // The store bounds a message below 4 GiB before it comes here.
            size: u32::try_from(stored.message.size()).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            received: Timestamp::from_millis(reader.u64()?),
            size: reader.u32()?,
        })
    }
}

const RETAIN: u8 = 0b0000_0100;
const CAUSE: u8 = 0b0000_1000;
const PROPERTIES: u8 = 0b0001_0000;
/// How often it was redriven is written: it is not once, which is what a cause says by itself.
const REDRIVES: u8 = 0b0010_0000;

const EXPIRY: u8 = 0b0000_0001;
const CONTENT_TYPE: u8 = 0b0000_0010;
const RESPONSE_TOPIC: u8 = 0b0000_0100;
const CORRELATION: u8 = 0b0000_1000;
const FORMAT_BYTES: u8 = 0b0001_0000;
const FORMAT_UTF8: u8 = 0b0010_0000;

/// Appends a message; the payload comes last and has no length of its own.
pub(crate) fn encode_message(out: &mut Vec<u8>, stored: &StoredMessage) {
    let head = MessageHead::of(stored);
    let message = &stored.message;
    let properties = &message.properties;
    out.extend_from_slice(&head.received.as_millis().to_le_bytes());
    out.extend_from_slice(&head.size.to_le_bytes());
    out.extend_from_slice(&stored.id.to_bytes());
    let has_properties = *properties != Properties::default();
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        message.qos as u8
            | flag(message.retain, RETAIN)
            | flag(stored.cause.is_some(), CAUSE)
            | flag(has_properties, PROPERTIES)
            | flag(stored.cause.is_some_and(|c| c.redrives != 1), REDRIVES),
    );
    if let Some(Cause { id, redrives }) = stored.cause {
        out.extend_from_slice(&id.to_bytes());
        if redrives != 1 {
            out.extend_from_slice(&redrives.to_le_bytes());
        }
    }
    put_short(out, stored.session.as_str().as_bytes());
    put_long(out, message.topic.as_str().as_bytes());
    if has_properties {
        encode_properties(out, properties);
    }
    out.extend_from_slice(&message.payload);
}

fn encode_properties(out: &mut Vec<u8>, properties: &Properties) {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        flag(properties.message_expiry.is_some(), EXPIRY)
            | flag(properties.content_type.is_some(), CONTENT_TYPE)
            | flag(properties.response_topic.is_some(), RESPONSE_TOPIC)
            | flag(properties.correlation_data.is_some(), CORRELATION)
            | match properties.payload_format {
                None => 0,
                Some(PayloadFormat::Bytes) => FORMAT_BYTES,
                Some(PayloadFormat::Utf8) => FORMAT_UTF8,
            },
    );
    if let Some(seconds) = properties.message_expiry {
        out.extend_from_slice(&seconds.to_le_bytes());
    }
    if let Some(text) = &properties.content_type {
        put_long(out, text.as_bytes());
    }
    if let Some(text) = &properties.response_topic {
        put_long(out, text.as_bytes());
    }
    if let Some(bytes) = &properties.correlation_data {
        put_long(out, bytes);
    }
    put_varint(out, properties.user_properties.len() as u64);
    for (name, value) in &properties.user_properties {
        put_long(out, name.as_bytes());
        put_long(out, value.as_bytes());
    }
}

/// The message that [`encode_message`] wrote.
pub(crate) fn decode_message(bytes: &[u8]) -> Result<StoredMessage, Malformed> {
    let mut reader = Reader::new(bytes);
    let received = Timestamp::from_millis(reader.u64()?);
    let size = reader.u32()?;
    let id = MessageId::from_bytes(reader.array()?);
    let flags = reader.u8()?;
    let cause = match (flags & CAUSE != 0, flags & REDRIVES != 0) {
        (false, false) => None,
        (false, true) => return Err(Malformed("redriven from no dead letter")),
        (true, counted) => Some(Cause {
            id: MessageId::from_bytes(reader.array()?),
            redrives: if counted { reader.u32()? } else { 1 },
        }),
    };
    let session = std::str::from_utf8(reader.short()?)
        .ok()
        .and_then(|text| Name::parse(text).ok())
        .ok_or(Malformed("the session's name is none"))?;
    let topic =
        Topic::from_bytes(reader.long()?).map_err(|_| Malformed("the topic is no topic"))?;
    let properties = if flags & PROPERTIES == 0 {
        Properties::default()
    } else {
        decode_properties(&mut reader)?
    };
    let message = Message {
        topic,
        payload: Bytes::copy_from_slice(reader.rest()),
        qos: QoS::from_u8(flags & 0b11).ok_or(Malformed("there is no such QoS"))?,
        retain: flags & RETAIN != 0,
        properties,
    };
    if message.size() != u64::from(size) {
        return Err(Malformed("the message is not of the size that it says"));
    }
    Ok(StoredMessage {
        id,
        cause,
        session,
        received,
        message,
    })
}

fn decode_properties(reader: &mut Reader<'_>) -> Result<Properties, Malformed> {
    let flags = reader.u8()?;
    let has = |bit: u8| flags & bit != 0;
    let message_expiry = has(EXPIRY).then(|| reader.u32()).transpose()?;
    let mut text = |bit: u8| {
        has(bit)
            .then(|| reader.text().map(str::to_owned))
            .transpose()
    };
    let content_type = text(CONTENT_TYPE)?;
    let response_topic = text(RESPONSE_TOPIC)?;
    let correlation_data = has(CORRELATION)
        .then(|| reader.long().map(Bytes::copy_from_slice))
        .transpose()?;
    let payload_format = match (has(FORMAT_BYTES), has(FORMAT_UTF8)) {
        (false, false) => None,
        (true, false) => Some(PayloadFormat::Bytes),
        (false, true) => Some(PayloadFormat::Utf8),
        (true, true) => return Err(Malformed("two payload formats at once")),
    };
    let count = reader.varint()?;
    let mut user_properties = Vec::new();
    for _ in 0..count {
        let name = reader.text()?.to_owned();
        let value = reader.text()?.to_owned();
        user_properties.push((name, value));
    }
    Ok(Properties {
        payload_format,
        message_expiry,
        content_type,
        response_topic,
        correlation_data,
        user_properties,
    })
}
