//! What a broker's answer says of one message: decided from the reason code alone (I01).

use crate::ReasonCode;

/// What a broker's answer says of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The broker has it.
    Accepted,
    /// The broker will never take it: sent again it would be refused again.
    RefusedForGood,
    /// The broker would take it at another time; nothing is wrong with the message.
    RefusedForNow,
    /// The broker's policy does not allow it. A policy may change while the message is the same.
    RefusedByPolicy,
}

impl Verdict {
    /// The verdict that a code of PUBACK, PUBREC or PUBCOMP stands for.
    ///
    /// | code | verdict | source |
    /// |---|---|---|
    /// | below 0x80 | accepted | MQTT 5 §2.4 |
    /// | 0x87 not authorized | refused by policy | §3.4.2.1; an ACL is changed without a reconnect |
    /// | 0x91 packet identifier in use | refused for now | §3.4.2.1; says nothing of the message |
    /// | 0x97 quota exceeded | refused for now | §3.4.2.1, §4.9 |
    /// | every other one, unknown ones too | refused for good | §2.4: ≥ 0x80 is a failure |
    pub const fn of(code: ReasonCode) -> Self {
        match code {
            ReasonCode::NOT_AUTHORIZED => Self::RefusedByPolicy,
            ReasonCode::PACKET_IDENTIFIER_IN_USE | ReasonCode::QUOTA_EXCEEDED => {
                Self::RefusedForNow
            }
            code if code.is_refusal() => Self::RefusedForGood,
            _ => Self::Accepted,
        }
    }

    /// What becomes of the message when this verdict comes on `path` (I03, I04).
    pub const fn disposition(self, path: Path) -> Disposition {
        match (self, path) {
            (Self::Accepted, _) => Disposition::Delivered,
            (Self::RefusedForGood, _) | (Self::RefusedByPolicy, Path::Live) => {
                Disposition::DeadLetter
            }
            (Self::RefusedByPolicy, Path::Replay) => Disposition::Defer,
            (Self::RefusedForNow, _) => Disposition::Keep,
        }
    }
}

/// On which way to the broker a message was when it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// It had just arrived, its source acknowledgement still held.
    Live,
    /// It came from the queue.
    Replay,
}

/// What becomes of a message after its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// It is done.
    Delivered,
    /// It is kept as a dead letter.
    DeadLetter,
    /// It is set aside for a bounded second chance.
    Defer,
    /// On the replay path it stays where it is; on the live path it is queued.
    Keep,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i03_every_code_has_its_verdict() {
        for byte in 0..=u8::MAX {
            let expected = match byte {
                0x00..=0x7f => Verdict::Accepted,
                0x87 => Verdict::RefusedByPolicy,
                0x91 | 0x97 => Verdict::RefusedForNow,
                _ => Verdict::RefusedForGood,
            };
            assert_eq!(Verdict::of(ReasonCode::new(byte)), expected, "0x{byte:02X}");
        }
    }

    #[test]
    fn i04_a_refusal_on_the_live_path_is_dead_lettered_where_it_happens() {
        use Verdict::{Accepted, RefusedByPolicy, RefusedForGood, RefusedForNow};
        for (verdict, live, replay) in [
            (Accepted, Disposition::Delivered, Disposition::Delivered),
            (
                RefusedForGood,
                Disposition::DeadLetter,
                Disposition::DeadLetter,
            ),
            (RefusedByPolicy, Disposition::DeadLetter, Disposition::Defer),
            (RefusedForNow, Disposition::Keep, Disposition::Keep),
        ] {
            assert_eq!(verdict.disposition(Path::Live), live);
            assert_eq!(verdict.disposition(Path::Replay), replay);
        }
    }
}
