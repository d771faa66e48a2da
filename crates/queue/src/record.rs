//! Record bodies: what the journal says happened, and how it says it.
//!
//! A binding is named in every record, not numbered: a record means the same wherever it lies
//! and whatever around it is damaged.

use std::ops::Range;

use bridge_core::{DeadLetterInfo, DeferInfo, Reason, ReasonCode, StoredMessage, Timestamp};

use crate::codec::{Malformed, Reader, put_long, put_short, put_varint};
use crate::frame::{Frame, Kind};

/// The bit beside the number of a reason that says: a newer message of the topic is the retained one.
const OVERTAKEN: u8 = 0x80;

mod message;
pub(crate) use message::{MessageHead, decode_message, encode_message};

/// Where a record places a message at one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placed {
    Queue,
    Deferred(DeferInfo),
    Dead(DeadLetterInfo),
}

/// Entries `start..=end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeqRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// One record, borrowed from its frame; a message stays encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A message and its places, from a put or a copy; `seq` is the number of its entries.
    Put {
        seq: u64,
        places: Vec<(&'a str, Placed)>,
        message: &'a [u8],
    },
    Settle {
        binding: &'a str,
        ranges: Vec<SeqRange>,
    },
    Defer {
        binding: &'a str,
        seq: u64,
        info: DeferInfo,
    },
    DeadLetter {
        binding: &'a str,
        seq: u64,
        info: DeadLetterInfo,
    },
    /// The new entry has the frame's number.
    Redrive {
        binding: &'a str,
        from: u64,
        message: &'a [u8],
    },
    Delete {
        binding: &'a str,
        seq: u64,
    },
    /// The older segments: the first number of each, and the first behind it.
    Segments(Vec<Range<u64>>),
    /// The first numbers of segments.
    Retire(Vec<u64>),
    Gap,
}

impl<'a> Record<'a> {
    /// What the frame says.
    pub(crate) fn decode(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame.body);
        let record = match frame.kind {
            Kind::Gap => return Ok(Self::Gap),
            Kind::Put => Self::decode_put(frame.seq, &mut reader)?,
            Kind::Copy => {
                let seq = reader.u64()?;
                Self::decode_put(seq, &mut reader)?
            }
            Kind::Settle => Self::Settle {
                binding: binding(&mut reader)?,
                ranges: decode_ranges(&mut reader)?,
            },
            Kind::Defer => Self::Defer {
                binding: binding(&mut reader)?,
                seq: reader.u64()?,
                info: decode_defer(&mut reader)?,
            },
            Kind::DeadLetter => Self::DeadLetter {
                binding: binding(&mut reader)?,
                seq: reader.u64()?,
                info: decode_dead_letter(&mut reader)?,
            },
            Kind::Redrive => Self::Redrive {
                binding: binding(&mut reader)?,
                from: reader.u64()?,
                message: take_rest(&mut reader)?,
            },
            Kind::Delete => Self::Delete {
                binding: binding(&mut reader)?,
                seq: reader.u64()?,
            },
            Kind::Segments => {
                let bounds = decode_seqs(&mut reader)?;
                let pairs = bounds.chunks_exact(2).filter_map(|pair| pair.first_chunk());
                Self::Segments(pairs.map(|&[start, end]| start..end).collect())
            }
            Kind::Retire => Self::Retire(decode_seqs(&mut reader)?),
        };
        if reader.is_empty() {
            Ok(record)
        } else {
            Err(Malformed("something follows the record"))
        }
    }

    fn decode_put(seq: u64, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = reader.u16()?;
        let mut seats = Vec::new();
        for _ in 0..count {
            let binding = binding(reader)?;
            let placed = match reader.u8()? {
                0 => Placed::Queue,
                1 => Placed::Deferred(decode_defer(reader)?),
                2 => Placed::Dead(decode_dead_letter(reader)?),
                _ => return Err(Malformed("a view that does not exist")),
            };
            seats.push((binding, placed));
        }
        Ok(Self::Put {
            seq,
            places: seats,
            message: take_rest(reader)?,
        })
    }
}

/// Appends the places of a put; the encoded message follows them.
pub(crate) fn encode_places<'p>(
    out: &mut Vec<u8>,
    places: impl ExactSizeIterator<Item = (&'p str, &'p Placed)>,
) {
    let count = u16::try_from(places.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (binding, placed) in places {
        put_short(out, binding.as_bytes());
        match placed {
            Placed::Queue => out.push(0),
            Placed::Deferred(info) => {
                out.push(1);
                encode_defer(out, info);
            }
            Placed::Dead(info) => {
                out.push(2);
                encode_dead_letter(out, info);
            }
        }
    }
}

/// Appends a settle's body. `ranges` ascend and do not touch.
pub(crate) fn encode_settle(out: &mut Vec<u8>, binding: &str, ranges: &[SeqRange]) {
    put_short(out, binding.as_bytes());
    put_varint(out, ranges.len() as u64);
    let mut from = 0;
    for range in ranges {
        put_varint(out, range.start.saturating_sub(from));
        put_varint(out, range.end.saturating_sub(range.start));
        from = range.end;
    }
}

/// Appends the body of a defer.
pub(crate) fn encode_deferral(out: &mut Vec<u8>, binding: &str, seq: u64, info: &DeferInfo) {
    encode_delete(out, binding, seq);
    encode_defer(out, info);
}

/// Appends the body of a dead letter.
pub(crate) fn encode_giving_up(out: &mut Vec<u8>, binding: &str, seq: u64, info: &DeadLetterInfo) {
    encode_delete(out, binding, seq);
    encode_dead_letter(out, info);
}

/// Appends the body of a redrive.
pub(crate) fn encode_redrive(out: &mut Vec<u8>, binding: &str, from: u64, message: &StoredMessage) {
    encode_delete(out, binding, from);
    encode_message(out, message);
}

/// Appends the body of a delete.
pub(crate) fn encode_delete(out: &mut Vec<u8>, binding: &str, seq: u64) {
    put_short(out, binding.as_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
}

/// Appends a list of numbers: the body of a retire; of a list of segments, with two for each.
pub(crate) fn encode_seqs(out: &mut Vec<u8>, seqs: &[u64]) {
    out.extend_from_slice(&u32::try_from(seqs.len()).unwrap_or(u32::MAX).to_le_bytes());
    for seq in seqs {
        out.extend_from_slice(&seq.to_le_bytes());
    }
}

pub(crate) fn decode_seqs(reader: &mut Reader<'_>) -> Result<Vec<u64>, Malformed> {
    let count = reader.u32()?;
    let mut seqs = Vec::new();
    for _ in 0..count {
        seqs.push(reader.u64()?);
    }
    Ok(seqs)
}

fn take_rest<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let rest = reader.rest();
    reader.bytes(rest.len())
}

fn binding<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let text =
        std::str::from_utf8(reader.short()?).map_err(|_| Malformed("a name is not UTF-8"))?;
    Ok(text)
}

fn decode_ranges(reader: &mut Reader<'_>) -> Result<Vec<SeqRange>, Malformed> {
    let count = reader.varint()?;
    let mut ranges = Vec::new();
    let mut from = 0_u64;
    for _ in 0..count {
        let too_large = Malformed("a range ends beyond every number");
        let start = from.checked_add(reader.varint()?).ok_or(too_large)?;
        let end = start.checked_add(reader.varint()?).ok_or(too_large)?;
        ranges.push(SeqRange { start, end });
        from = end;
    }
    Ok(ranges)
}

fn encode_defer(out: &mut Vec<u8>, info: &DeferInfo) {
    encode_refusals(
        out,
        if info.overtaken { OVERTAKEN } else { 0 },
        info.reason,
        info.first_refusal,
        info.last_refusal,
        info.attempts,
    );
}

fn decode_defer(reader: &mut Reader<'_>) -> Result<DeferInfo, Malformed> {
    let [tag, code] = reader.array()?;
    Ok(DeferInfo {
        overtaken: tag & OVERTAKEN != 0,
        reason: decode_reason([tag & !OVERTAKEN, code])?,
        first_refusal: Timestamp::from_millis(reader.u64()?),
        last_refusal: Timestamp::from_millis(reader.u64()?),
        attempts: reader.u32()?,
    })
}

fn encode_dead_letter(out: &mut Vec<u8>, info: &DeadLetterInfo) {
    encode_refusals(
        out,
        0,
        info.reason,
        info.first_refusal,
        info.last_refusal,
        info.attempts,
    );
    out.push(u8::from(info.reason_string.is_some()));
    if let Some(text) = &info.reason_string {
        put_long(out, text.as_bytes());
    }
}

fn decode_dead_letter(reader: &mut Reader<'_>) -> Result<DeadLetterInfo, Malformed> {
    let DeferInfo {
        reason,
        first_refusal,
        last_refusal,
        attempts,
        overtaken,
    } = decode_defer(reader)?;
    if overtaken {
        return Err(Malformed("a dead letter that was overtaken"));
    }
    let reason_string = match reader.u8()? {
        0 => None,
        1 => Some(reader.text()?.to_owned()),
        _ => return Err(Malformed("neither with nor without a reason string")),
    };
    Ok(DeadLetterInfo {
        reason,
        reason_string,
        first_refusal,
        last_refusal,
        attempts,
    })
}

fn encode_refusals(
    out: &mut Vec<u8>,
    flags: u8,
    reason: Reason,
    first: Timestamp,
    last: Timestamp,
    attempts: u32,
) {
    let (tag, code) = match reason {
        Reason::Broker(code) => (0, code.get()),
        Reason::PacketTooLarge => (1, 0),
        Reason::TopicInvalid => (2, 0),
        Reason::RetainUnavailable => (3, 0),
        Reason::QosUnavailable => (4, 0),
        Reason::SuspectedRefusal => (5, 0),
        Reason::Expired => (6, 0),
        Reason::ProcessorFailed => (7, 0),
        Reason::RetriesExhausted => (8, 0),
    };
    out.extend_from_slice(&[tag | flags, code]);
    out.extend_from_slice(&first.as_millis().to_le_bytes());
    out.extend_from_slice(&last.as_millis().to_le_bytes());
    out.extend_from_slice(&attempts.to_le_bytes());
}

fn decode_reason([tag, code]: [u8; 2]) -> Result<Reason, Malformed> {
    Ok(match tag {
        0 => Reason::Broker(ReasonCode::new(code)),
        1 => Reason::PacketTooLarge,
        2 => Reason::TopicInvalid,
        3 => Reason::RetainUnavailable,
        4 => Reason::QosUnavailable,
        5 => Reason::SuspectedRefusal,
        6 => Reason::Expired,
        7 => Reason::ProcessorFailed,
        8 => Reason::RetriesExhausted,
        _ => return Err(Malformed("a reason that does not exist")),
    })
}

/// The ranges that `seqs` make, ascending and as few as possible.
pub(crate) fn ranges_of(mut seqs: Vec<u64>) -> Vec<SeqRange> {
    seqs.sort_unstable();
    let mut ranges: Vec<SeqRange> = Vec::new();
    for seq in seqs {
        match ranges.last_mut() {
            Some(last) if seq <= last.end.saturating_add(1) => last.end = last.end.max(seq),
            _ => ranges.push(SeqRange {
                start: seq,
                end: seq,
            }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
