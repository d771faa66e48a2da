//! What bytes that are no sound record may have been, by their looks: for a person, who may know
//! from it what to ask for again. Nothing is ever concluded from it.

use std::fmt;
use std::ops::Range;

use bridge_core::MessageId;

use crate::frame::{self, Frame, Kind};
use crate::record::{Record, decode_message};

/// So many are looked for in one piece of damage.
const MOST: usize = 16;

/// What a damaged record may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remnant {
    /// Its number.
    pub seq: u64,
    /// Its kind, as the chapter on the format calls it.
    pub kind: &'static str,
    /// The bindings that it names.
    pub bindings: Vec<String>,
    /// The id of the message in it.
    pub id: Option<MessageId>,
    /// The topic of the message in it.
    pub topic: Option<String>,
}

impl fmt::Display for Remnant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.seq)?;
        for binding in &self.bindings {
            write!(f, " {binding:?}")?;
        }
        if let Some(id) = self.id {
            write!(f, " message {id}")?;
        }
        if let Some(topic) = &self.topic {
            write!(f, " topic {topic:?}")?;
        }
        Ok(())
    }
}

/// What `bytes` look like, as records with numbers of `seqs`, each as long as it says.
pub(crate) fn remains(bytes: &[u8], seqs: Range<u64>) -> Vec<Remnant> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(frame) = bytes.get(at..).and_then(frame::likeness)
        && seqs.contains(&frame.seq)
        && found.len() < MOST
    {
        found.push(remnant(&frame));
        at += frame.len;
    }
    found
}

fn remnant(frame: &Frame<'_>) -> Remnant {
    let kind = Kind::ALL.into_iter().find(|(kind, _)| *kind == frame.kind);
    let mut remnant = Remnant {
        seq: frame.seq,
        kind: kind.map_or("", |(_, name)| name),
        bindings: Vec::new(),
        id: None,
        topic: None,
    };
    let (bindings, message) = match Record::decode(frame) {
        Ok(Record::Put {
            places, message, ..
        }) => {
            let names = places.into_iter().map(|(name, _)| name);
            (names.collect(), Some(message))
        }
        Ok(Record::Redrive {
            binding, message, ..
        }) => (vec![binding], Some(message)),
        Ok(
            Record::Settle { binding, .. }
            | Record::Defer { binding, .. }
            | Record::DeadLetter { binding, .. }
            | Record::Delete { binding, .. },
        ) => (vec![binding], None),
        _ => return remnant,
    };
    remnant.bindings = bindings.into_iter().take(MOST).map(str::to_owned).collect();
    if let Some(Ok(stored)) = message.map(decode_message) {
        remnant.id = Some(stored.id);
        remnant.topic = Some(stored.message.topic.as_str().to_owned());
    }
    remnant
}
