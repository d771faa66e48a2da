//! The one table of what every reason code means, with the source of each rule beside it.
//!
//! A code may come where the standard does not list it for that packet: brokers do that. It is
//! read in the same way then. What is not in the table is in its last row.

use super::Closing::{Packet, Passing, TakenOver, Unwanted};
use super::Verdict::{Accepted, RefusedByPolicy, RefusedForGood, RefusedForNow};
use super::{Closing, Rule, Verdict};
use crate::ReasonCode;

const fn rule(verdict: Verdict, closing: Closing, source: &'static str) -> Rule {
    Rule {
        verdict,
        closing,
        source,
    }
}

impl ReasonCode {
    /// What the bridge makes of this code.
    #[rustfmt::skip]
    pub const fn rule(self) -> Rule {
        match self.get() {
            // code     in PUBACK, PUBREC             in DISCONNECT
            0x00..=0x7F => rule(Accepted,        Passing,   "§2.4: below 0x80 is success, unknown codes too"),
            0x80        => rule(RefusedForGood,  Passing,   "§3.4.2.1: the receiver does not want to say why"),
            0x81        => rule(RefusedForGood,  Packet,    "§4.13: a packet that no parser takes"),
            0x82        => rule(RefusedForGood,  Packet,    "§4.13: a packet that was not allowed there"),
            0x83        => rule(RefusedForGood,  Passing,   "§3.4.2.1: valid, and not accepted by this receiver"),
            0x84        => rule(RefusedForGood,  Unwanted,  "§3.2.2.2: another protocol version is wanted"),
            0x85        => rule(RefusedForGood,  Unwanted,  "§3.2.2.2: another client id is wanted"),
            0x86        => rule(RefusedForGood,  Unwanted,  "§3.2.2.2: other credentials are wanted"),
            0x87        => rule(RefusedByPolicy, Unwanted,  "§3.4.2.1: an ACL is changed without a reconnect"),
            0x88        => rule(RefusedForGood,  Passing,   "§3.2.2.2: about the server, yet final for this PUBLISH"),
            0x89        => rule(RefusedForGood,  Passing,   "§3.14.2.1: about the server, yet final for this PUBLISH"),
            0x8A        => rule(RefusedForGood,  Unwanted,  "§3.2.2.2: the client is banned"),
            0x8B        => rule(RefusedForGood,  Passing,   "§3.14.2.1: the server shuts down"),
            0x8C        => rule(RefusedForGood,  Unwanted,  "§3.2.2.2: another way of authentication is wanted"),
            0x8D        => rule(RefusedForGood,  Passing,   "§3.14.2.1: nothing came for 1.5 keep-alives"),
            0x8E        => rule(RefusedForGood,  TakenOver, "§3.1.4: another connection has our client id"),
            0x8F        => rule(RefusedForGood,  Unwanted,  "§3.9.3: about a subscription"),
            0x90        => rule(RefusedForGood,  Packet,    "§3.4.2.1: well formed, and not accepted as a topic"),
            0x91        => rule(RefusedForNow,   Passing,   "§3.4.2.1: about the packet identifier, not the message"),
            0x92        => rule(RefusedForGood,  Passing,   "§3.6.2.1: in PUBCOMP it is no refusal, see Verdict::of"),
            0x93        => rule(RefusedForGood,  Packet,    "§3.3.4: more than Receive Maximum were open"),
            0x94        => rule(RefusedForGood,  Packet,    "§3.3.2.3.4: a topic alias out of range"),
            0x95        => rule(RefusedForGood,  Packet,    "§3.1.2.11.4: larger than the receiver takes"),
            0x96        => rule(RefusedForGood,  Passing,   "§3.14.2.1: too many messages in too short a time"),
            0x97        => rule(RefusedForNow,   Passing,   "§3.4.2.1, §4.9: a quota is refilled"),
            0x98        => rule(RefusedForGood,  Unwanted,  "§3.14.2.1: an administrator closed the connection"),
            0x99        => rule(RefusedForGood,  Packet,    "§3.4.2.1: the payload is not in the said format"),
            0x9A        => rule(RefusedForGood,  Packet,    "§3.2.2.3.5: retain is not supported"),
            0x9B        => rule(RefusedForGood,  Packet,    "§3.2.2.3.4: the QoS is above Maximum QoS"),
            0x9C        => rule(RefusedForGood,  Unwanted,  "§4.11: another server should be used for a while"),
            0x9D        => rule(RefusedForGood,  Unwanted,  "§4.11: another server should be used from now on"),
            0x9E        => rule(RefusedForGood,  Unwanted,  "§3.2.2.3.13: about a shared subscription"),
            0x9F        => rule(RefusedForGood,  Passing,   "§3.14.2.1: too many connections in too short a time"),
            0xA0        => rule(RefusedForGood,  Passing,   "§3.14.2.1: the time granted to a connection is over"),
            0xA1        => rule(RefusedForGood,  Unwanted,  "§3.2.2.3.12: about a subscription identifier"),
            0xA2        => rule(RefusedForGood,  Unwanted,  "§3.2.2.3.11: about a wildcard subscription"),
            _           => rule(RefusedForGood,  Passing,   "§2.4: 0x80 and above is failure, unknown codes too"),
        }
    }
}
