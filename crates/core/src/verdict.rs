//! What a broker's answer says of one message: decided from the reason code alone (I01).

mod table;

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

/// With which packet a broker answered a PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Acknowledgement {
    /// None, as for every message of QoS 0: it was written to the socket.
    Written,
    /// PUBACK, for QoS 1.
    PubAck,
    /// PUBREC, for QoS 2, with a code that ends the exchange.
    PubRec,
    /// PUBCOMP, for QoS 2, after a PUBREC that accepted the message.
    PubComp,
}

/// What a DISCONNECT with some code says of the connection. It never says anything of a message:
/// none is named in it (I01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closing {
    /// The broker goes, or cannot at present: connecting again is right.
    Passing,
    /// Another client connected with our client id.
    TakenOver,
    /// The broker did not like a packet of ours. When it is a message, connecting and sending it
    /// again leads here again: see I06.
    Packet,
    /// The broker does not want this client; a person has to act.
    Unwanted,
}

impl Verdict {
    /// The verdict that `code` in the packet `by` stands for: the table of
    /// [`ReasonCode::rule`], with two exceptions.
    ///
    /// A PUBCOMP comes after a PUBREC that accepted the message: with that PUBREC the broker has
    /// taken it over (MQTT 5 §4.3.3), and the sender has to forget it. A PUBCOMP with 0x92 (packet
    /// identifier not found) then says that the broker no longer knows the exchange, not that it
    /// has not got the message. Refused and kept as a dead letter, the message would come twice
    /// with its redrive; sent again, it would come twice at once.
    pub const fn of(by: Acknowledgement, code: ReasonCode) -> Self {
        match by {
            Acknowledgement::PubAck | Acknowledgement::PubRec => code.rule().verdict,
            Acknowledgement::PubComp | Acknowledgement::Written => Self::Accepted,
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

/// What the bridge makes of a reason code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// In PUBACK and PUBREC.
    pub verdict: Verdict,
    /// In DISCONNECT.
    pub closing: Closing,
    /// Where that comes from: a section of MQTT 5, with our reading of it.
    pub source: &'static str,
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
    fn i03_every_code_of_puback_and_pubrec_has_its_verdict() {
        for by in [Acknowledgement::PubAck, Acknowledgement::PubRec] {
            for byte in 0..=u8::MAX {
                let expected = match byte {
                    0x00..=0x7f => Verdict::Accepted,
                    0x87 => Verdict::RefusedByPolicy,
                    0x91 | 0x97 => Verdict::RefusedForNow,
                    _ => Verdict::RefusedForGood,
                };
                let code = ReasonCode::new(byte);
                assert_eq!(Verdict::of(by, code), expected, "{by:?} {code:?}");
            }
        }
    }

    #[test]
    fn i03_what_a_pubrec_has_accepted_no_pubcomp_refuses() {
        for byte in 0..=u8::MAX {
            let code = ReasonCode::new(byte);
            let verdict = Verdict::of(Acknowledgement::PubComp, code);
            assert_eq!(verdict, Verdict::Accepted, "{code:?}");
        }
    }

    #[test]
    fn i17_of_all_codes_one_says_takeover() {
        let taken = |byte: &u8| ReasonCode::new(*byte).rule().closing == Closing::TakenOver;
        assert_eq!((0..=u8::MAX).filter(taken).collect::<Vec<_>>(), [0x8E]);
    }

    #[test]
    fn every_code_that_the_standard_names_has_a_rule_of_its_own_with_its_source() {
        for byte in 0x80..=u8::MAX {
            let code = ReasonCode::new(byte);
            let known = !code.to_string().starts_with("unknown_");
            assert_eq!(
                code.rule() != ReasonCode::new(0xFF).rule(),
                known,
                "{code:?}"
            );
            assert!(code.rule().source.contains('§'), "{code:?}");
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
