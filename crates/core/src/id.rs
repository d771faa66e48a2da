//! Names and ids: what the operator calls things, and what the bridge numbers.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use crate::Timestamp;

/// The name of a session, a route or a binding: a key of the configuration.
///
/// 1 to 64 characters of `A–Z a–z 0–9 _ -` that begin with a letter or a digit, so that it can
/// stand in a metric label, a URL path and a log line without quoting. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// No characters at all.
    #[error("a name must not be empty")]
    Empty,
    /// More than 64 characters.
    #[error("a name has at most 64 characters, this one has {0}")]
    TooLong(usize),
    /// A character outside the allowed set.
    #[error(
        "a name may hold letters, digits, `-` and `_` and begins with a letter or digit; found {0:?}"
    )]
    Character(char),
}

impl Name {
    /// Checks and keeps a name.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let first = text.chars().next().ok_or(InvalidName::Empty)?;
        if !first.is_ascii_alphanumeric() {
            return Err(InvalidName::Character(first));
        }
        if let Some(bad) = text
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || *c == '-' || *c == '_'))
        {
            return Err(InvalidName::Character(bad));
        }
        if text.len() > 64 {
            return Err(InvalidName::TooLong(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// One destination of one route: the unit of queueing, ordering, dead-lettering and redrive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BindingKey {
    /// The route's name.
    pub route: Name,
    /// The binding's name within the route.
    pub binding: Name,
}

impl BindingKey {
    /// The key of `binding` in `route`.
    pub fn new(route: Name, binding: Name) -> Self {
        Self { route, binding }
    }
}

impl fmt::Display for BindingKey {
    /// `route/binding`: neither name can hold a slash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.route, self.binding)
    }
}

impl FromStr for BindingKey {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (route, binding) = text.split_once('/').ok_or(InvalidName::Empty)?;
        Ok(Self::new(Name::parse(route)?, Name::parse(binding)?))
    }
}

/// A text that is not a [`MessageId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the id of a message has 32 hexadecimal digits, as in 019ad4a2-5614-7707-8707-070707070707"
)]
pub struct InvalidMessageId;

/// The id that a message keeps for life: a UUID v7, so ids sort by the instant of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A new id for a message that came at `now`; `random` fills what the instant leaves open.
    pub fn new(now: Timestamp, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(now.as_millis(), &random).into_uuid())
    }

    /// The id whose sixteen bytes these are, as a store kept them.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes, big endian.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl FromStr for MessageId {
    type Err = InvalidMessageId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text)
            .map(Self)
            .map_err(|_| InvalidMessageId)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A store's sequence number: the order in which it admitted its records, from 1 upwards.
///
/// Together with a [`BindingKey`] it names one entry for as long as the entry lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(u64);

impl Seq {
    /// The number as a store counts it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked_at_the_edge() {
        assert_eq!(Name::parse("plant-7").unwrap().as_str(), "plant-7");
        assert_eq!(Name::parse(""), Err(InvalidName::Empty));
        assert_eq!(Name::parse("-a"), Err(InvalidName::Character('-')));
        assert_eq!(Name::parse("a b"), Err(InvalidName::Character(' ')));
        assert_eq!(Name::parse("ä"), Err(InvalidName::Character('ä')));
        assert_eq!(Name::parse(&"a".repeat(65)), Err(InvalidName::TooLong(65)));
    }

    #[test]
    fn ids_sort_by_arrival_and_survive_bytes_and_text() {
        let early = MessageId::new(Timestamp::from_millis(1_000), [0xff; 10]);
        let late = MessageId::new(Timestamp::from_millis(1_001), [0; 10]);
        assert!(early < late);
        assert_eq!(MessageId::from_bytes(early.to_bytes()), early);
        assert_eq!(early.to_string().parse::<MessageId>().unwrap(), early);
    }

    #[test]
    fn a_binding_key_reads_back_what_it_prints() {
        let key = BindingKey::new(Name::parse("a").unwrap(), Name::parse("b").unwrap());
        assert_eq!(key.to_string().parse::<BindingKey>().unwrap(), key);
        assert!("nothing".parse::<BindingKey>().is_err());
    }
}
