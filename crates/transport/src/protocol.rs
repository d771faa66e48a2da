//! What MQTT 3.1.1 has no words for, and what follows from it.

use std::fmt;
use std::num::NonZeroU16;

use crate::Protocol;

const WINDOW: NonZeroU16 = NonZeroU16::new(100).expect("100 is not 0");
/// What Mosquitto takes at once by default (`max_inflight_messages`). It announces that on MQTT 5;
/// on MQTT 3.1.1, 2.0.11 says nothing, acknowledges what is beyond it, and loses some of it.
const WINDOW_311: NonZeroU16 = NonZeroU16::new(20).expect("20 is not 0");

/// Something that a session cannot say, or cannot be told, on its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsaid {
    /// A name for it that stays.
    pub name: &'static str,
    /// Whether it matters where the session is written to.
    pub writing: bool,
    /// Whether it matters where the session is read from.
    pub reading: bool,
    /// What that means, as a sentence without its full stop.
    pub meaning: &'static str,
}

impl Protocol {
    /// What cannot be said on this protocol, the worst first; nothing on MQTT 5.
    pub const fn unsaid(self) -> &'static [Unsaid] {
        match self {
            Self::V5 => &[],
            Self::V311 => &UNSAID_311,
        }
    }

    /// How many published messages may be unanswered where nobody has said how many. A broker of
    /// MQTT 3.1.1 does not say how many it takes, so there it is as many as every broker has room
    /// for.
    pub const fn default_window(self) -> NonZeroU16 {
        match self {
            Self::V5 => WINDOW,
            Self::V311 => WINDOW_311,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V5 => "5",
            Self::V311 => "3.1.1",
        })
    }
}

/// The longest client id that every broker has to take on MQTT 3.1.1 (§3.1.3.1); many take more.
pub const PORTABLE_CLIENT_ID: usize = 23;

const UNSAID_311: [Unsaid; 9] = [
    Unsaid {
        name: "refusals",
        writing: true,
        reading: false,
        meaning: "a broker cannot refuse a message: Mosquitto acknowledges one that it does not \
                  permit and drops it, so the loss cannot be seen here; others close the \
                  connection",
    },
    Unsaid {
        name: "message_expiry",
        writing: true,
        reading: true,
        meaning: "messages do not expire at the broker, and come without an expiry",
    },
    Unsaid {
        name: "properties",
        writing: true,
        reading: true,
        meaning: "content type, response topic, correlation data and user properties are left out",
    },
    Unsaid {
        name: "retain_as_published",
        writing: false,
        reading: true,
        meaning: "the broker clears the retain flag of every message but those that come with a \
                  new subscription, so what is carried on is not retained at the other side",
    },
    Unsaid {
        name: "max_packet_size",
        writing: false,
        reading: true,
        meaning: "the broker is not told the largest packet that the session takes: a larger \
                  message is acknowledged, counted and lost",
    },
    Unsaid {
        name: "no_local",
        writing: false,
        reading: true,
        meaning: "a route that takes the topic of the session's own status takes that as well",
    },
    Unsaid {
        name: "shared_subscriptions",
        writing: false,
        reading: true,
        meaning: "$share is not part of the protocol: some brokers know it all the same, others \
                  grant the filter and send nothing",
    },
    Unsaid {
        name: "session_expiry",
        writing: false,
        reading: true,
        meaning: "a persistent session stays at the broker for as long as the broker likes, which \
                  may be for ever",
    },
    Unsaid {
        name: "takeover",
        writing: true,
        reading: true,
        meaning: "the broker closes the connection without a word when another client connects \
                  with the same client id: that is suspected only when it happens again and again",
    },
];
