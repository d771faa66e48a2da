//! What goes to the broker, seen packet by packet: only headers are looked at.

use super::wire;

/// Follows packet boundaries through a stream of bytes that may be cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// The next byte begins a packet.
    #[default]
    Begin,
    /// Within the length; its value so far and how many bytes of it have come.
    Length { value: usize, bytes: u32 },
    /// Within the body; so many bytes of it are left.
    Body { left: usize },
}

impl Outgoing {
    /// Follows `bytes`, and calls `begun` with the type of each packet that begins in them.
    pub(super) fn follow(&mut self, mut bytes: &[u8], mut begun: impl FnMut(u8)) {
        while let Some((byte, rest)) = bytes.split_first() {
            match &mut self.state {
                State::Begin => {
                    begun(byte >> 4);
                    self.state = State::Length { value: 0, bytes: 0 };
                    bytes = rest;
                }
                State::Length { value, bytes: seen } => {
                    *value |= usize::from(byte & 0x7F) << (7 * (*seen).min(3));
                    *seen += 1;
                    if byte & 0x80 == 0 {
                        self.state = State::body(*value);
                    }
                    bytes = rest;
                }
                State::Body { left } => {
                    let step = (*left).min(bytes.len());
                    let left = *left - step;
                    bytes = bytes.get(step..).unwrap_or_default();
                    self.state = State::body(left);
                }
            }
        }
    }
}

impl State {
    const fn body(left: usize) -> Self {
        if left == 0 {
            Self::Begin
        } else {
            Self::Body { left }
        }
    }
}

/// Whether a packet may wait until the client has nothing else to do: an acknowledgement.
pub(super) const fn may_wait(kind: u8) -> bool {
    matches!(kind, wire::PUBACK | wire::PUBREC | wire::PUBCOMP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_seen_once_however_the_stream_is_cut() {
        let mut bytes = vec![0x30, 0x81, 0x01];
        bytes.extend([0x30; 129]);
        bytes.extend([0xC0, 0, 0x40, 2, 0, 1, 0x32, 0]);
        for piece in 1..bytes.len() {
            let (mut outgoing, mut seen) = (Outgoing::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                outgoing.follow(piece, |kind| seen.push(kind));
            }
            assert_eq!(seen, [3, 12, 4, 3], "in pieces of {piece}");
        }
    }
}
