//! Single packets between MQTT 5, which the client library speaks, and MQTT 3.1.1.
//!
//! Pure functions. `Outward` is from the library to the broker: what 3.1.1 has no room for is left
//! out. `inward` is from the broker to the library: what 3.1.1 does not say is said as MQTT 5 says
//! nothing, by a property length of 0. What each drops is in [`crate::Unsaid`].

use bytes::{BufMut, BytesMut};

use super::wire;

/// What the client library never writes, so that nothing is known of how to say it in 3.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packet of type {0} that MQTT 3.1.1 has no form for")]
pub(super) struct Untranslatable(u8);

/// A packet that was translated, but for what follows its head as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outward {
    /// How many bytes were translated.
    pub(super) taken: usize,
    /// How many of the bytes behind them belong to the packet and are the same in 3.1.1.
    pub(super) payload: usize,
    /// An UNSUBSCRIBE: its packet id and how many filters it has.
    pub(super) unsubscribe: Option<(u16, usize)>,
}

/// Translates the packet that `bytes` begin with, which others may follow; `None` when more of it
/// has to come first. Of a PUBLISH all but the payload is needed, of every other packet the whole.
pub(super) fn outward(bytes: &[u8], out: &mut BytesMut) -> Result<Option<Outward>, Untranslatable> {
    let Some((first, after)) = bytes.split_first() else {
        return Ok(None);
    };
    let kind = first >> 4;
    let malformed = Untranslatable(kind);
    let Some((remaining, length)) = wire::read_length(after).map_err(|wire::Overlong| malformed)?
    else {
        return Ok(None);
    };
    let (header, size) = (1 + length, 1 + length + remaining);
    let whole = bytes.get(header..size);
    if kind == wire::PUBLISH {
        let body = whole.or_else(|| bytes.get(header..)).unwrap_or_default();
        return match publish_outward(*first, body, remaining, out) {
            Some(head) => Ok(Some(Outward {
                taken: header + head,
                payload: remaining - head,
                unsubscribe: None,
            })),
            None if whole.is_some() => Err(malformed),
            None => Ok(None),
        };
    }
    let Some(body) = whole else {
        return Ok(None);
    };
    let mut unsubscribe = None;
    match kind {
        wire::PINGREQ => framed(*first, &[], out),
        // A reason code is what 3.1.1 has no room for; the packet id is what counts.
        wire::PUBACK | wire::PUBREC | wire::PUBREL | wire::PUBCOMP => {
            framed(*first, body.get(..2).ok_or(malformed)?, out);
        }
        wire::DISCONNECT => {
            // In 3.1.1 a DISCONNECT is a goodbye that makes the broker forget the last will. Who
            // has seen an error just closes (MQTT 3.1.1 §4.8).
            if body.first().is_none_or(|code| *code == 0) {
                framed(*first, &[], out);
            }
        }
        wire::CONNECT => framed(*first, &connect(body).ok_or(malformed)?, out),
        wire::SUBSCRIBE => framed(*first, &subscribe(body).ok_or(malformed)?, out),
        wire::UNSUBSCRIBE => {
            let (id, filters) = id_and_rest(body).ok_or(malformed)?;
            let mut left = filters;
            let mut count = 0;
            while !left.is_empty() {
                left = wire::read_text(left).ok_or(malformed)?.1;
                count += 1;
            }
            framed(*first, &[&id.to_be_bytes()[..], filters].concat(), out);
            unsubscribe = Some((id, count));
        }
        _ => return Err(malformed),
    }
    Ok(Some(Outward {
        taken: size,
        payload: 0,
        unsubscribe,
    }))
}

/// Writes all of a PUBLISH but its payload; says how much of the body that was.
fn publish_outward(first: u8, body: &[u8], remaining: usize, out: &mut BytesMut) -> Option<usize> {
    let (topic, after) = wire::read_text(body)?;
    let id_length = wire::id_length(first);
    let (_, after) = after.split_at_checked(id_length)?;
    let (properties, length) = wire::read_length(after).ok()??;
    after.get(length.checked_add(properties)?..)?;
    let kept = 2 + topic.len() + id_length;
    let head = kept + length + properties;
    out.put_u8(first);
    wire::write_length(out, kept + remaining.checked_sub(head)?);
    out.extend_from_slice(body.get(..kept)?);
    Some(head)
}

/// MQTT 3.1.1 §3.1. The flags have the same places; clean start is clean session.
fn connect(body: &[u8]) -> Option<Vec<u8>> {
    let (name, after) = wire::read_text(body)?;
    let ([_, flags, keep_alive @ ..], after) = after.split_first_chunk::<4>()?;
    let mut rest = without_properties(after)?;
    let mut out = Vec::with_capacity(body.len());
    wire::write_text(&mut out, name);
    out.extend_from_slice(&[4, *flags]);
    out.extend_from_slice(keep_alive);
    let (client_id, after) = wire::read_text(rest)?;
    wire::write_text(&mut out, client_id);
    rest = after;
    if flags & 0x04 != 0 {
        // The last will; its topic, its message and the credentials are as they were.
        rest = without_properties(rest)?;
    }
    out.extend_from_slice(rest);
    Some(out)
}

/// MQTT 3.1.1 §3.8: of a filter's options only the QoS is left.
fn subscribe(body: &[u8]) -> Option<Vec<u8>> {
    let (id, mut rest) = id_and_rest(body)?;
    let mut out = id.to_be_bytes().to_vec();
    while !rest.is_empty() {
        let (filter, after) = wire::read_text(rest)?;
        let (options, after) = after.split_first()?;
        wire::write_text(&mut out, filter);
        out.push(options & 0x03);
        rest = after;
    }
    Some(out)
}

/// Packet id, and what comes behind the properties.
fn id_and_rest(body: &[u8]) -> Option<(u16, &[u8])> {
    let (id, after) = body.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*id), without_properties(after)?))
}

fn without_properties(bytes: &[u8]) -> Option<&[u8]> {
    let (properties, length) = wire::read_length(bytes).ok()??;
    bytes.get(length.checked_add(properties)?..)
}

fn framed(first: u8, body: &[u8], out: &mut BytesMut) {
    out.put_u8(first);
    wire::write_length(out, body.len());
    out.extend_from_slice(body);
}

/// What a whole packet of the broker, no PUBLISH, is in MQTT 5; `None` when it is malformed or
/// none that a broker sends.
///
/// `unsubscribed` says how many filters the UNSUBSCRIBE with that packet id had.
pub(super) fn inward(
    first: u8,
    body: &[u8],
    out: &mut BytesMut,
    unsubscribed: impl FnOnce(u16) -> Option<usize>,
) -> Option<()> {
    match (first >> 4, body) {
        (wire::CONNACK, [flags, code]) => {
            let code = connect_code(*code).unwrap_or(0x80);
            // MQTT 3.1.1 §3.2.2.2: no session is present where the connection is refused.
            let flags = if code == 0 { *flags } else { 0 };
            framed(first, &[flags, code, 0], out);
        }
        (wire::PUBACK | wire::PUBREC | wire::PUBREL | wire::PUBCOMP, [_, _])
        | (wire::PINGRESP, []) => framed(first, body, out),
        (wire::SUBACK, [high, low, codes @ ..]) if !codes.is_empty() => {
            let mut answer = vec![*high, *low, 0];
            // MQTT 3.1.1 §3.9.3 knows one code for a refusal and reserves the others.
            answer.extend(codes.iter().map(|code| match code {
                0..=2 => *code,
                _ => 0x80,
            }));
            framed(first, &answer, out);
        }
        (wire::UNSUBACK, [high, low]) => {
            let filters = unsubscribed(u16::from_be_bytes([*high, *low]))?;
            let mut answer = vec![*high, *low, 0];
            answer.resize(3 + filters, 0);
            framed(first, &answer, out);
        }
        _ => return None,
    }
    Some(())
}

/// The reason code that says what a return code says, MQTT 3.1.1 §3.2.2.3; `None` when that is
/// reserved.
pub(super) const fn connect_code(code: u8) -> Option<u8> {
    Some(match code {
        0 => 0x00,
        // Unacceptable protocol version.
        1 => 0x84,
        // Identifier rejected.
        2 => 0x85,
        // Server unavailable.
        3 => 0x88,
        // Bad user name or password.
        4 => 0x86,
        // Not authorized.
        5 => 0x87,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
