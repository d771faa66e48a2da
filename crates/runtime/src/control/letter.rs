//! What a dead letter is called, and what is known of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bridge_core::{
    BindingKey, Cause, DeadLetterInfo, InvalidName, MessageId, Name, QoS, Seated, Seq, StoreError,
    StoredMessage, Timestamp, Topic,
};

/// One dead letter: a message at the binding that gave up on it.
///
/// The same message may be a dead letter at several bindings, so its own id does not name one.
/// The number is never used again, so an id never comes to mean another dead letter. As text it is
/// `route~binding~number`, which needs no escaping in a URL.
///
/// ```
/// use bridge_runtime::DeadLetterId;
///
/// let id: DeadLetterId = "telemetry~cloud~4711".parse()?;
/// assert_eq!(id.binding.to_string(), "telemetry/cloud");
/// assert_eq!(id.to_string(), "telemetry~cloud~4711");
/// # Ok::<(), bridge_runtime::InvalidDeadLetterId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeadLetterId {
    /// At which binding.
    pub binding: BindingKey,
    /// Which entry.
    pub seq: Seq,
}

/// A text that names no dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeadLetterId {
    /// Not three parts.
    #[error("the id of a dead letter is `route~binding~number`, as in telemetry~cloud~4711")]
    Parts,
    /// No name.
    #[error("the id of a dead letter names its route and its binding")]
    Name(#[from] InvalidName),
    /// No number, or not as it is written.
    #[error("the id of a dead letter ends with a number of 1 or more without leading zeros")]
    Number,
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BindingKey { route, binding } = &self.binding;
        write!(f, "{route}~{binding}~{}", self.seq)
    }
}

impl FromStr for DeadLetterId {
    type Err = InvalidDeadLetterId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('~');
        let (Some(route), Some(binding), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidDeadLetterId::Parts);
        };
        Ok(Self {
            binding: BindingKey::new(Name::parse(route)?, Name::parse(binding)?),
            seq: Seq::new(number_of(number).ok_or(InvalidDeadLetterId::Number)?),
        })
    }
}

/// One text for one number, so that an id can be compared as text.
pub(super) fn number_of(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok())?
}

/// A dead letter whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Which one.
    pub id: DeadLetterId,
    /// The message, as it came.
    pub stored: Arc<StoredMessage>,
    /// Why it was given up on.
    pub info: DeadLetterInfo,
}

/// A dead letter without its payload and its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterSummary {
    /// Which one.
    pub id: DeadLetterId,
    /// The id of its message.
    pub message_id: MessageId,
    /// The dead letter that it was before it was redriven or imported, if it was one.
    pub cause: Option<Cause>,
    /// Why it was given up on.
    pub info: DeadLetterInfo,
    /// The session that the message came from.
    pub session: Name,
    /// When the message came.
    pub received: Timestamp,
    /// The message's topic, as it came.
    pub topic: Topic,
    /// The message's quality of service.
    pub qos: QoS,
    /// The message's retain flag.
    pub retain: bool,
    /// The length of the payload.
    pub payload_bytes: u64,
    /// Whether its binding is in the running configuration: others cannot be redriven.
    pub configured: bool,
}

impl DeadLetter {
    /// The error is that of an entry that cannot be read.
    pub(super) fn of(binding: &BindingKey, seated: Seated) -> Result<Self, StoreError> {
        let stored = seated.message?;
        let id = DeadLetterId {
            binding: binding.clone(),
            seq: seated.seq,
        };
        match seated.dead_letter {
            Some(info) => Ok(Self { id, stored, info }),
            // A store that says so has lost the circumstances.
            None => Err(StoreError::Damaged {
                seq: seated.seq,
                place: "the store".to_owned(),
            }),
        }
    }

    /// What a list shows of it.
    pub fn summary(&self, configured: bool) -> DeadLetterSummary {
        let stored = &self.stored;
        let message = &stored.message;
        DeadLetterSummary {
            id: self.id.clone(),
            message_id: stored.id,
            cause: stored.cause,
            info: self.info.clone(),
            session: stored.session.clone(),
            received: stored.received,
            topic: message.topic.clone(),
            qos: message.qos,
            retain: message.retain,
            payload_bytes: message.payload.len() as u64,
            configured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_what_it_prints_and_nothing_else() {
        let id: DeadLetterId = "a-1~b_2~18446744073709551615".parse().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        for (text, error) in [
            ("", InvalidDeadLetterId::Parts),
            ("a~b", InvalidDeadLetterId::Parts),
            ("a~b~1~2", InvalidDeadLetterId::Parts),
            ("~b~1", InvalidDeadLetterId::Name(InvalidName::Empty)),
            (
                "a/~b~1",
                InvalidDeadLetterId::Name(InvalidName::Character('/')),
            ),
            ("a~b~", InvalidDeadLetterId::Number),
            ("a~b~0", InvalidDeadLetterId::Number),
            ("a~b~01", InvalidDeadLetterId::Number),
            ("a~b~+1", InvalidDeadLetterId::Number),
            ("a~b~18446744073709551616", InvalidDeadLetterId::Number),
        ] {
            assert_eq!(text.parse::<DeadLetterId>(), Err(error), "{text}");
        }
    }
}
