//! What a broker may not do.

/// Why nothing more may be read from a connection. All but the name of a packet is ours: nothing
/// that a broker sent is in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// The broker was told our Maximum Packet Size, MQTT 5 §3.1.2.11.4.
    #[error("the broker sent a packet of {size} bytes, though at most {maximum} were asked for")]
    TooLarge {
        /// The packet's whole length.
        size: usize,
        /// Ours.
        maximum: usize,
    },
    /// MQTT 5 §1.5.5.
    #[error("the broker sent a packet whose length takes more than four bytes")]
    Overlong,
    /// MQTT 5 §3 gives it another form.
    #[error("the broker sent a malformed {packet}")]
    Malformed {
        /// The packet's name.
        packet: &'static str,
    },
    /// MQTT 5 §3.2: the first packet of a broker is the CONNACK.
    #[error("the broker sent {packet} before its CONNACK")]
    TooSoon {
        /// The packet's name.
        packet: &'static str,
    },
    /// Only a client sends it, or it has come already.
    #[error("the broker sent {packet}, which it must not send")]
    Unexpected {
        /// The packet's name.
        packet: &'static str,
    },
    /// Nothing was sent that it could be the answer to.
    #[error("the broker sent {packet} for packet id {id}, for which nothing asked")]
    Unasked {
        /// The packet's name.
        packet: &'static str,
        /// Its packet id.
        id: u16,
    },
}

impl Violation {
    /// The reason code to disconnect with, MQTT 5 §4.13.
    pub(super) const fn code(self) -> u8 {
        match self {
            // Packet too large.
            Self::TooLarge { .. } => 0x95,
            // Malformed packet.
            Self::Overlong | Self::Malformed { .. } => 0x81,
            // Protocol error.
            Self::TooSoon { .. } | Self::Unexpected { .. } | Self::Unasked { .. } => 0x82,
        }
    }
}
