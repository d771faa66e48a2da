//! What a set of topics looks like, level by level: enough to say before the first message
//! whether what a binding publishes can come back to a route.

use std::fmt;

use super::{Part, TopicTemplate};
use crate::topic::MAX_BYTES;
use crate::{Name, Topic, TopicFilter};

/// A set of topics that holds at least those that a filter matches, or a template can produce.
///
/// Where the exact set cannot be said in levels the shape is larger, never smaller: two shapes
/// that do not meet have no topic in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopicShape {
    levels: Vec<Level>,
    /// Whether any number of further levels may follow.
    open: bool,
}

/// What one level may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Level {
    /// This text.
    Exact(String),
    /// Any text that begins and ends so, the two not overlapping.
    Like {
        prefix: String,
        suffix: String,
        /// It does not begin with `$`: what a wildcard in the first level matches, MQTT 5 §4.7.2.
        plain: bool,
    },
}

/// A level that may be anything.
static ANY: Level = Level::Like {
    prefix: String::new(),
    suffix: String::new(),
    plain: false,
};

impl Level {
    const PLAIN: Self = Self::Like {
        prefix: String::new(),
        suffix: String::new(),
        plain: true,
    };

    /// The fewest bytes that it has.
    fn least_length(&self) -> usize {
        match self {
            Self::Exact(text) => text.len(),
            Self::Like { prefix, suffix, .. } => prefix.len() + suffix.len(),
        }
    }

    fn holds(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Like {
                prefix,
                suffix,
                plain,
            } => {
                !(*plain && text.starts_with('$'))
                    && text
                        .strip_prefix(prefix.as_str())
                        .is_some_and(|rest| rest.ends_with(suffix.as_str()))
            }
        }
    }

    /// What both may be; `None` when there is nothing.
    fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Exact(text), level) | (level, Self::Exact(text)) => {
                level.holds(text).then(|| Self::Exact(text.clone()))
            }
            (
                Self::Like {
                    prefix: p1,
                    suffix: s1,
                    plain: plain1,
                },
                Self::Like {
                    prefix: p2,
                    suffix: s2,
                    plain: plain2,
                },
            ) => {
                let (prefix, other_prefix) = if p1.len() >= p2.len() {
                    (p1, p2)
                } else {
                    (p2, p1)
                };
                let (suffix, other_suffix) = if s1.len() >= s2.len() {
                    (s1, s2)
                } else {
                    (s2, s1)
                };
                let plain = *plain1 || *plain2;
                let met = prefix.starts_with(other_prefix.as_str())
                    && suffix.ends_with(other_suffix.as_str())
                    && !(plain && prefix.starts_with('$'));
                met.then(|| Self::Like {
                    prefix: prefix.clone(),
                    suffix: suffix.clone(),
                    plain,
                })
            }
        }
    }

    /// What the one directly followed by the other may be.
    fn then(&self, next: &Self) -> Self {
        match (self, next) {
            (Self::Exact(a), Self::Exact(b)) => Self::Exact(format!("{a}{b}")),
            (
                Self::Exact(a),
                Self::Like {
                    prefix,
                    suffix,
                    plain,
                },
            ) => Self::Like {
                prefix: format!("{a}{prefix}"),
                suffix: suffix.clone(),
                plain: a.is_empty() && *plain,
            },
            (
                Self::Like {
                    prefix,
                    suffix,
                    plain,
                },
                Self::Exact(b),
            ) => Self::Like {
                prefix: prefix.clone(),
                suffix: format!("{suffix}{b}"),
                // The unknown part may be empty, and then `b` begins the level.
                plain: *plain && !b.starts_with('$'),
            },
            (
                Self::Like {
                    prefix,
                    plain: plain1,
                    ..
                },
                Self::Like {
                    suffix,
                    plain: plain2,
                    ..
                },
            ) => Self::Like {
                prefix: prefix.clone(),
                suffix: suffix.clone(),
                plain: *plain1 && *plain2,
            },
        }
    }
}

impl TopicShape {
    /// The topics that `filter` matches; share group aside.
    pub fn of(filter: &TopicFilter) -> Self {
        let mut shape = Self {
            levels: Vec::new(),
            open: false,
        };
        for level in filter.levels() {
            let first = shape.levels.is_empty();
            match level {
                // Every topic has a first level, so `#` is one plain level and any after it.
                "#" | "+" if first => shape.levels.push(Level::PLAIN),
                "#" => {}
                "+" => shape.levels.push(ANY.clone()),
                text => shape.levels.push(Level::Exact(text.to_owned())),
            }
            shape.open |= level == "#";
        }
        shape
    }

    /// Whether `topic` is one of these.
    pub fn contains(&self, topic: &Topic) -> bool {
        let mut levels = self.levels.iter();
        for text in topic.levels() {
            match levels.next() {
                Some(level) if level.holds(text) => {}
                None if self.open => return true,
                _ => return false,
            }
        }
        levels.next().is_none()
    }

    /// The topics that are in both, when there can be any.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        let levels = (0..self.levels.len().max(other.levels.len()))
            .map(|at| self.level(at)?.meet(other.level(at)?))
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            levels,
            open: self.open && other.open,
        })
    }

    /// What may stand at that place; `None` when every topic ends before it.
    fn level(&self, at: usize) -> Option<&Level> {
        self.levels.get(at).or_else(|| self.open.then_some(&ANY))
    }

    /// Puts `next` directly behind the last level.
    fn append(&mut self, next: &Level) {
        if self.open {
            // What follows an unknown number of levels belongs to the last one, whichever that
            // is: the last known level too may have it behind it.
            if let Some(last) = self.levels.last_mut()
                && *next != Level::Exact(String::new())
            {
                *last = last.then(&ANY);
            }
        } else if let Some(last) = self.levels.last_mut() {
            *last = last.then(next);
        }
    }

    /// Begins a new level.
    fn next_level(&mut self) {
        if !self.open {
            self.levels.push(Level::Exact(String::new()));
        }
    }

    fn append_text(&mut self, text: &str) {
        let mut levels = text.split('/');
        if let Some(first) = levels.next() {
            self.append(&Level::Exact(first.to_owned()));
        }
        for level in levels {
            self.next_level();
            if !self.open {
                self.append(&Level::Exact(level.to_owned()));
            }
        }
    }

    /// The levels `from..to` of `input`, and how many bytes they have at least; `None` when none
    /// of its topics has them.
    fn append_levels(&mut self, input: &Self, from: usize, to: Option<usize>) -> Option<usize> {
        let end = to.unwrap_or_else(|| input.levels.len().max(from + 1));
        let mut length = end - from - 1;
        for at in from..end {
            let level = input.level(at)?;
            length += level.least_length();
            if at == from {
                self.append(level);
            } else {
                self.next_level();
                if !self.open {
                    self.append(level);
                }
            }
        }
        self.open |= to.is_none() && input.open;
        Some(length)
    }
}

impl TopicTemplate {
    /// What comes out for topics of `input`; `None` when nothing that can be published does.
    pub fn shape(&self, input: &TopicShape, session: &Name, route: &Name) -> Option<TopicShape> {
        let mut shape = TopicShape {
            levels: vec![Level::Exact(String::new())],
            open: false,
        };
        let mut length: usize = 0;
        for part in &self.parts {
            let text = match part {
                Part::Literal(text) => text,
                Part::Session => session.as_str(),
                Part::Route => route.as_str(),
                Part::Levels { from, to } => {
                    length += shape.append_levels(input, *from, *to)?;
                    ""
                }
            };
            shape.append_text(text);
            length += text.len();
            if length > MAX_BYTES {
                return None;
            }
        }
        let empty = !shape.open && shape.levels == [Level::Exact(String::new())];
        (!empty).then_some(shape)
    }
}

impl fmt::Display for TopicShape {
    /// In the manner of a filter, with `+` also for a part of a level: `a/x+/#`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let everything = matches!(
            self.levels.as_slice(),
            [Level::Like { prefix, suffix, .. }] if prefix.is_empty() && suffix.is_empty()
        );
        if self.open && everything {
            return f.write_str("#");
        }
        for (at, level) in self.levels.iter().enumerate() {
            if at > 0 {
                f.write_str("/")?;
            }
            match level {
                Level::Exact(text) => f.write_str(text)?,
                Level::Like { prefix, suffix, .. } => write!(f, "{prefix}+{suffix}")?,
            }
        }
        if self.open {
            f.write_str("/#")?;
        }
        Ok(())
    }
}
