//! Which answers a broker may give: the packet ids that have been used and wait for one.
//!
//! The client library closes the connection on an answer that nothing asked for, without a word to
//! the broker; and it takes a PUBACK for the answer to a QoS 2 message. So the guard knows what
//! was asked, and a broker that loses count is told so.
//!
//! On MQTT 3.1.1 that PUBACK is let through: RabbitMQ 3.10 says so that it takes the message as one
//! of QoS 1, since it has no other words for that.

use std::collections::HashSet;

use super::outgoing::Step;
use super::wire;
use crate::Protocol;

/// The packet ids of one connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    protocol: Protocol,
    /// What each id of ours waits for. The library uses low ones again.
    ours: Vec<Awaited>,
    /// The ids of QoS 2 messages that have come and are not acknowledged yet.
    theirs: HashSet<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Awaited {
    #[default]
    Nothing,
    PubAck,
    PubRec,
    /// PUBREC has come, PUBREL has not gone out yet.
    OurPubRel,
    PubComp,
    SubAck,
    UnsubAck,
}

impl Exchange {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            ..Self::default()
        }
    }

    /// Something goes to the broker.
    pub(super) fn outgoing(&mut self, step: Step) {
        let Step::Id(first, id) = step else { return };
        let awaited = match first >> 4 {
            wire::PUBLISH if first & 0x06 == 0x02 => Awaited::PubAck,
            wire::PUBLISH => Awaited::PubRec,
            wire::PUBREL => Awaited::PubComp,
            wire::SUBSCRIBE => Awaited::SubAck,
            wire::UNSUBSCRIBE => Awaited::UnsubAck,
            wire::PUBREC => {
                self.theirs.remove(&id);
                return;
            }
            _ => return,
        };
        let index = usize::from(id);
        if self.ours.len() <= index {
            self.ours.resize(index + 1, Awaited::Nothing);
        }
        if let Some(ours) = self.ours.get_mut(index) {
            *ours = awaited;
        }
    }

    /// A message with a packet id comes.
    pub(super) fn publish(&mut self, first: u8, id: u16) {
        if first & 0x06 == 0x04 {
            self.theirs.insert(id);
        }
    }

    /// Any other packet with a packet id comes; false when nothing asked for it.
    ///
    /// A PUBREL for a message that is not known is in order (MQTT 5 §4.3.3): the broker remembers
    /// more than we do.
    pub(super) fn answer(&mut self, kind: u8, id: u16, refused: bool) -> bool {
        use Awaited::{Nothing, OurPubRel, PubAck, PubComp, PubRec, SubAck, UnsubAck};
        if kind == wire::PUBREL {
            return !self.theirs.contains(&id);
        }
        let Some(awaited) = self.ours.get_mut(usize::from(id)) else {
            return false;
        };
        let next = match (kind, *awaited) {
            (wire::PUBREC, PubRec) if !refused => OurPubRel,
            (wire::PUBACK, PubRec) if self.protocol == Protocol::V311 => Nothing,
            (wire::PUBACK, PubAck)
            | (wire::PUBREC, PubRec)
            | (wire::PUBCOMP, PubComp)
            | (wire::SUBACK, SubAck)
            | (wire::UNSUBACK, UnsubAck) => Nothing,
            _ => return false,
        };
        *awaited = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: [u8; 5] = [
        wire::PUBACK,
        wire::PUBREC,
        wire::PUBCOMP,
        wire::SUBACK,
        wire::UNSUBACK,
    ];

    #[test]
    fn each_question_has_one_kind_of_answer_and_one_answer() {
        for (asked, right) in [
            (0x32, wire::PUBACK),
            (0x3A, wire::PUBACK),
            (0x34, wire::PUBREC),
            (0x62, wire::PUBCOMP),
            (0x82, wire::SUBACK),
            (0xA2, wire::UNSUBACK),
        ] {
            for kind in ANSWERS {
                let mut exchange = Exchange::default();
                assert!(!exchange.answer(kind, 7, false), "nothing is asked");
                exchange.outgoing(Step::Begun(asked));
                exchange.outgoing(Step::Id(asked, 7));
                assert!(!exchange.answer(kind, 6, false), "another id");
                assert_eq!(exchange.answer(kind, 7, false), kind == right);
                assert!(!exchange.answer(right, 7, false) || kind != right);
            }
        }
    }

    #[test]
    fn on_mqtt_3_1_1_a_qos_2_message_may_be_taken_as_one_of_qos_1() {
        let mut exchange = Exchange::new(Protocol::V311);
        exchange.outgoing(Step::Id(0x34, 1));
        assert!(exchange.answer(wire::PUBACK, 1, false));
        assert!(!exchange.answer(wire::PUBREC, 1, false), "it is over");
        exchange.outgoing(Step::Id(0x34, 1));
        assert!(exchange.answer(wire::PUBREC, 1, false));
        assert!(!exchange.answer(wire::PUBACK, 1, false), "it is our turn");
    }

    #[test]
    fn a_qos_2_message_goes_on_after_its_pubrec_unless_that_refuses_it() {
        let mut exchange = Exchange::default();
        exchange.outgoing(Step::Id(0x34, 1));
        assert!(exchange.answer(wire::PUBREC, 1, false));
        for kind in ANSWERS {
            assert!(!exchange.answer(kind, 1, false), "it is our turn");
        }
        exchange.outgoing(Step::Id(0x62, 1));
        assert!(exchange.answer(wire::PUBCOMP, 1, false));

        exchange.outgoing(Step::Id(0x34, 1));
        assert!(exchange.answer(wire::PUBREC, 1, true));
        assert!(!exchange.answer(wire::PUBCOMP, 1, false));
    }

    #[test]
    fn a_release_may_come_for_what_is_not_known_but_not_before_our_pubrec() {
        let mut exchange = Exchange::default();
        assert!(exchange.answer(wire::PUBREL, 9, false));
        exchange.publish(0x32, 9);
        exchange.publish(0x30, 0);
        assert!(exchange.answer(wire::PUBREL, 9, false), "that is QoS 1");
        exchange.publish(0x34, 9);
        assert!(!exchange.answer(wire::PUBREL, 9, false));
        exchange.outgoing(Step::Id(0x50, 9));
        assert!(exchange.answer(wire::PUBREL, 9, false));
    }
}
