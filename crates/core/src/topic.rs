//! Topic names and topic filters, parsed once: MQTT 5 §4.7 and §4.8.2.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest UTF-8 string that MQTT can carry, in bytes: MQTT 5 §1.5.4.
pub(crate) const MAX_BYTES: usize = 65_535;

/// A topic name: what a message is published to. Cheap to clone.
///
/// Not empty, at most 65,535 bytes, without NUL and without the wildcards `+` and `#`.
/// Empty levels (`a//b`, `/`) are levels like any other; a leading `$` is allowed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

/// Why a text is not a topic name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopic {
    /// MQTT 5 §4.7.3: at least one character.
    #[error("a topic must not be empty")]
    Empty,
    /// MQTT 5 §4.7.3.
    #[error("a topic has at most 65535 bytes, this one has {0}")]
    TooLong(usize),
    /// MQTT 5 §4.7.3.
    #[error("a topic must not hold the character NUL")]
    Nul,
    /// MQTT 5 §3.3.2.1.
    #[error("a topic to publish to must not hold the wildcard {0:?}")]
    Wildcard(char),
    /// MQTT 5 §1.5.4.
    #[error("a topic must be valid UTF-8")]
    NotUtf8,
}

impl Topic {
    /// Checks and keeps a topic name.
    pub fn parse(text: &str) -> Result<Self, InvalidTopic> {
        if text.is_empty() {
            return Err(InvalidTopic::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(InvalidTopic::TooLong(text.len()));
        }
        match text.chars().find(|c| matches!(c, '\0' | '+' | '#')) {
            Some('\0') => Err(InvalidTopic::Nul),
            Some(wildcard) => Err(InvalidTopic::Wildcard(wildcard)),
            None => Ok(Self(text.into())),
        }
    }

    /// Like [`Topic::parse`], from bytes as they came off a wire.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidTopic> {
        Self::parse(std::str::from_utf8(bytes).map_err(|_| InvalidTopic::NotUtf8)?)
    }

    /// The topic as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The levels between the slashes; there is always at least one, and it may be empty.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether it begins with `$`: such topics belong to the broker, MQTT 5 §4.7.2.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with('$')
    }
}

impl FromStr for Topic {
    type Err = InvalidTopic;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A topic filter: what a source is subscribed to, with its share group if it has one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicFilter {
    text: Arc<str>,
    /// Where the group's name ends and the filter proper begins: past `$share/<group>/`.
    pattern_at: usize,
}

/// Why a text is not a topic filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFilter {
    /// MQTT 5 §4.7.3: at least one character.
    #[error("a topic filter must not be empty")]
    Empty,
    /// MQTT 5 §4.7.3.
    #[error("a topic filter has at most 65535 bytes, this one has {0}")]
    TooLong(usize),
    /// MQTT 5 §4.7.3.
    #[error("a topic filter must not hold the character NUL")]
    Nul,
    /// MQTT 5 §4.7.1.2.
    #[error("`#` must be the last level and stand alone in it, as in `a/#`; found it in {level:?}")]
    MultiLevel {
        /// The level that holds it.
        level: String,
    },
    /// MQTT 5 §4.7.1.3.
    #[error("`+` must stand alone in its level, as in `a/+/b`; found it in {level:?}")]
    SingleLevel {
        /// The level that holds it.
        level: String,
    },
    /// MQTT 5 §4.8.2.
    #[error("a shared subscription reads `$share/<group>/<filter>`, with neither part empty")]
    Share,
    /// MQTT 5 §4.8.2.
    #[error("the group of a shared subscription must not hold a wildcard; found {0:?}")]
    ShareGroup(String),
}

impl TopicFilter {
    /// Checks and keeps a topic filter.
    pub fn parse(text: &str) -> Result<Self, InvalidFilter> {
        if text.is_empty() {
            return Err(InvalidFilter::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(InvalidFilter::TooLong(text.len()));
        }
        if text.contains('\0') {
            return Err(InvalidFilter::Nul);
        }
        let pattern_at = match text.strip_prefix("$share") {
            Some("") => return Err(InvalidFilter::Share),
            Some(rest) if rest.starts_with('/') => {
                let (group, pattern) = rest
                    .trim_start_matches('/')
                    .split_once('/')
                    .ok_or(InvalidFilter::Share)?;
                if rest.starts_with("//") || group.is_empty() || pattern.is_empty() {
                    return Err(InvalidFilter::Share);
                }
                if group.contains(['+', '#']) {
                    return Err(InvalidFilter::ShareGroup(group.to_owned()));
                }
                text.len() - pattern.len()
            }
            _ => 0,
        };
        let filter = Self {
            text: text.into(),
            pattern_at,
        };
        let mut levels = filter.levels().peekable();
        while let Some(level) = levels.next() {
            if level.contains('#') && (level != "#" || levels.peek().is_some()) {
                return Err(InvalidFilter::MultiLevel {
                    level: level.to_owned(),
                });
            }
            if level.contains('+') && level != "+" {
                return Err(InvalidFilter::SingleLevel {
                    level: level.to_owned(),
                });
            }
        }
        drop(levels);
        Ok(filter)
    }

    /// The whole filter as a SUBSCRIBE carries it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The filter without `$share/<group>/`: what topics are compared with.
    pub fn pattern(&self) -> &str {
        self.text.get(self.pattern_at..).unwrap_or_default()
    }

    /// The share group, for a shared subscription.
    pub fn share_group(&self) -> Option<&str> {
        let head = self.text.get(..self.pattern_at)?;
        head.strip_prefix("$share/")?.strip_suffix('/')
    }

    /// The levels of [`TopicFilter::pattern`].
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.pattern().split('/')
    }

    /// Whether a message published to `topic` matches.
    ///
    /// A wildcard in the first level never matches a topic that begins with `$`, MQTT 5 §4.7.2;
    /// `a/#` matches `a` too, §4.7.1.2.
    pub fn matches(&self, topic: &Topic) -> bool {
        let mut levels = topic.levels();
        let mut first = true;
        for wanted in self.levels() {
            let here = levels.next();
            let reserved = first && topic.is_reserved();
            first = false;
            match (wanted, here) {
                ("#", _) => return !reserved,
                ("+", Some(_)) if !reserved => {}
                (wanted, Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }

    /// Whether every topic that matches `other` matches this filter too; share groups aside.
    pub fn covers(&self, other: &Self) -> bool {
        let mut theirs = other.levels();
        let mut first = true;
        for mine in self.levels() {
            let their = theirs.next();
            let reserved = first && their.is_some_and(|level| level.starts_with('$'));
            first = false;
            match (mine, their) {
                ("#", _) => return !reserved,
                ("+", Some(level)) if level != "#" && !reserved => {}
                (mine, Some(level)) if mine == level => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }

    /// Whether some topic matches both this filter and `other`; share groups aside.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.intersection(other).is_some()
    }

    /// The filter of exactly the topics that match both, when there are any; without share group.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let mut mine = self.levels();
        let mut theirs = other.levels();
        let mut common: Vec<&str> = Vec::new();
        loop {
            let first = common.is_empty();
            let reserved = |level: &str| first && level.starts_with('$');
            match (mine.next(), theirs.next()) {
                // `a/#` matches `a` as well: the other side may end here.
                (None | Some("#"), None) | (None, Some("#")) => break,
                (Some("#"), Some(level)) if !reserved(level) => {
                    common.push(level);
                    common.extend(theirs.by_ref());
                    break;
                }
                (Some(level), Some("#")) if !reserved(level) => {
                    common.push(level);
                    common.extend(mine.by_ref());
                    break;
                }
                (Some("+"), Some(level)) | (Some(level), Some("+")) if !reserved(level) => {
                    common.push(level);
                }
                (Some(a), Some(b)) if a == b => common.push(a),
                _ => return None,
            }
        }
        Self::parse(&common.join("/")).ok()
    }
}

impl FromStr for TopicFilter {
    type Err = InvalidFilter;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

#[cfg(test)]
mod tests;
