//! What goes to the broker, seen packet by packet: only headers and packet ids are looked at.

use super::wire;

/// Follows packets through a stream of bytes that may be cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    state: State,
}

/// Something that a stream has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A packet begins, with this byte.
    Begun(u8),
    /// The packet that began with this byte has this packet id.
    Id(u8, u16),
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// The next byte begins a packet.
    #[default]
    Begin,
    /// Within the length; its value so far and how many bytes of it have come.
    Length { first: u8, value: usize, bytes: u32 },
    /// Within the two bytes of a PUBLISH that say how long its topic is.
    TopicLength {
        first: u8,
        left: usize,
        high: Option<u8>,
    },
    /// Within a topic with a packet id behind it.
    Topic {
        first: u8,
        left: usize,
        topic: usize,
    },
    /// Within the packet id.
    Id {
        first: u8,
        left: usize,
        high: Option<u8>,
    },
    /// Within what is not looked at; so many bytes of it are left.
    Body { left: usize },
}

impl Outgoing {
    /// Whether the next byte begins a packet.
    pub(super) const fn is_between_packets(&self) -> bool {
        matches!(self.state, State::Begin)
    }

    /// Follows `bytes`, and tells what they come to.
    pub(super) fn follow(&mut self, mut bytes: &[u8], mut step: impl FnMut(Step)) {
        while let Some((byte, rest)) = bytes.split_first() {
            let byte = *byte;
            let mut taken = 1;
            self.state = match self.state {
                State::Begin => {
                    step(Step::Begun(byte));
                    State::Length {
                        first: byte,
                        value: 0,
                        bytes: 0,
                    }
                }
                State::Length {
                    first,
                    value,
                    bytes,
                } => {
                    let value = value | usize::from(byte & 0x7F) << (7 * bytes.min(3));
                    if byte & 0x80 == 0 {
                        State::behind_length(first, value)
                    } else {
                        let bytes = bytes + 1;
                        State::Length {
                            first,
                            value,
                            bytes,
                        }
                    }
                }
                State::TopicLength { first, left, high } => match high {
                    None => State::topic_length(first, left - 1, Some(byte)),
                    Some(high) => {
                        let topic = usize::from(u16::from_be_bytes([high, byte]));
                        State::topic(first, left - 1, topic)
                    }
                },
                State::Topic { first, left, topic } => {
                    taken = topic.min(bytes.len());
                    State::topic(first, left - taken, topic - taken)
                }
                State::Id { first, left, high } => match high {
                    None => State::id(first, left - 1, Some(byte)),
                    Some(high) => {
                        step(Step::Id(first, u16::from_be_bytes([high, byte])));
                        State::body(left - 1)
                    }
                },
                State::Body { left } => {
                    taken = left.min(bytes.len());
                    State::body(left - taken)
                }
            };
            bytes = if taken == 1 {
                rest
            } else {
                bytes.get(taken..).unwrap_or_default()
            };
        }
    }
}

impl State {
    const fn behind_length(first: u8, left: usize) -> Self {
        match first >> 4 {
            wire::PUBLISH if wire::id_length(first) > 0 => Self::topic_length(first, left, None),
            wire::PUBREC | wire::PUBREL | wire::SUBSCRIBE | wire::UNSUBSCRIBE => {
                Self::id(first, left, None)
            }
            _ => Self::body(left),
        }
    }

    const fn topic_length(first: u8, left: usize, high: Option<u8>) -> Self {
        if left == 0 {
            return Self::Begin;
        }
        Self::TopicLength { first, left, high }
    }

    /// A topic that is longer than its packet ends with it: the library writes none.
    const fn topic(first: u8, left: usize, topic: usize) -> Self {
        if topic == 0 {
            return Self::id(first, left, None);
        }
        let topic = if topic < left { topic } else { left };
        if left == 0 {
            return Self::Begin;
        }
        Self::Topic { first, left, topic }
    }

    const fn id(first: u8, left: usize, high: Option<u8>) -> Self {
        if left == 0 {
            return Self::Begin;
        }
        Self::Id { first, left, high }
    }

    const fn body(left: usize) -> Self {
        if left == 0 {
            Self::Begin
        } else {
            Self::Body { left }
        }
    }
}

/// Whether a packet may wait until the client has nothing else to do: an acknowledgement.
pub(super) const fn may_wait(first: u8) -> bool {
    matches!(first >> 4, wire::PUBACK | wire::PUBREC | wire::PUBCOMP)
}

#[cfg(test)]
mod tests {
    use super::Step::{Begun, Id};
    use super::*;

    #[test]
    fn every_packet_and_its_id_is_seen_once_however_the_stream_is_cut() {
        let mut bytes = vec![0x30, 0x81, 0x01];
        bytes.extend([0x30; 129]);
        bytes.extend([0xC0, 0, 0x40, 2, 0, 1]);
        bytes.extend([0x32, 9, 0, 3, b'a', b'/', b'b', 1, 2, 0, b'x']);
        bytes.extend([0x34, 5, 0, 0, 0xFF, 0xFE, 0]);
        bytes.extend([0x82, 8, 0, 9, 0, 0, 1, b'#', 2, 0]);
        bytes.extend([0x50, 2, 0, 5, 0x62, 2, 0, 6]);
        // Malformed: cut short by its length in each place.
        bytes.extend([0x32, 0, 0x32, 1, 7, 0x32, 3, 0xFF, 0xFF, 7]);
        bytes.extend([0x32, 3, 0, 1, b'a', 0x32, 4, 0, 1, b'a', 7, 0x62, 1, 7]);
        bytes.extend([0xE0, 0]);
        let mut expected = vec![Begun(0x30), Begun(0xC0), Begun(0x40)];
        expected.extend([Begun(0x32), Id(0x32, 0x0102)]);
        expected.extend([Begun(0x34), Id(0x34, 0xFFFE)]);
        expected.extend([Begun(0x82), Id(0x82, 9)]);
        expected.extend([Begun(0x50), Id(0x50, 5), Begun(0x62), Id(0x62, 6)]);
        expected.extend([Begun(0x32); 5]);
        expected.extend([Begun(0x62), Begun(0xE0)]);
        for piece in 1..bytes.len() {
            let (mut outgoing, mut seen) = (Outgoing::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                outgoing.follow(piece, |step| seen.push(step));
            }
            assert_eq!(seen, expected, "in pieces of {piece}");
            assert!(outgoing.is_between_packets());
        }
    }
}
