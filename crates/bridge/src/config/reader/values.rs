//! Single values: texts, numbers, quantities and words.

use std::time::Duration;

use super::{At, Found, Map, Reader, Text};
use crate::config::env::substitute;
use crate::config::fields::{Field, Kind, Presence};
use crate::config::nearest::nearest;
use crate::config::problem::Problem;
use crate::config::quantity::{self, NotAQuantity};
use crate::config::scalar::{Plain, describe};
use crate::config::yaml::{Node, Value};

/// As much of a text as an error quotes.
fn excerpt(text: &str) -> String {
    const LENGTH: usize = 80;
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(LENGTH).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

impl Reader<'_> {
    /// A text; `None` when it is left out without a default, or wrong.
    pub(crate) fn text(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<Text>> {
        let found = self.scalar(map, field)?;
        self.expect_text(&found, matches!(field.kind, Kind::Secret))
            .then_some(found)
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, map: &Map<'_>, field: &Field) -> Vec<Found<Text>> {
        let (Kind::Texts(what) | Kind::OneOrMore(what), Some(entry)) =
            (field.kind, map.entry(field))
        else {
            return Vec::new();
        };
        let at = map.value_at(entry);
        match (&entry.node.value, field.kind) {
            (Value::List(items), _) => self.items(items, &at, what),
            (Value::Scalar { .. }, Kind::OneOrMore(_)) => {
                self.text(map, field).into_iter().collect()
            }
            (value, kind) => {
                let (expected, remedy) = match (value, kind) {
                    (_, Kind::OneOrMore(_)) => ("a text or a list", None),
                    (Value::Scalar { text, .. }, _) if !entry.node.is_null() => {
                        ("a list", Some(format!("write [\"{}\"]", excerpt(text))))
                    }
                    _ => ("a list", None),
                };
                self.wrong_type(&at, expected, describe(&entry.node), remedy);
                Vec::new()
            }
        }
    }

    fn items(&mut self, items: &[Node], at: &At, what: &'static str) -> Vec<Found<Text>> {
        if items.is_empty() {
            self.report(at, Problem::NothingIn(what));
        }
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = At {
                span: item.span.clone(),
                path: format!("{}[{index}]", at.path),
            };
            if let Some(found) = self.node_text(item, at)
                && self.expect_one_line(&found)
                && self.expect_text(&found, false)
            {
                texts.push(found);
            }
        }
        texts
    }

    /// Texts by name, each with the place of its name.
    pub(crate) fn pairs<'n>(
        &mut self,
        map: &Map<'n>,
        field: &Field,
    ) -> Vec<(Found<&'n str>, Found<Text>)> {
        let (Kind::Pairs { what, secret }, Some(entry)) = (field.kind, map.entry(field)) else {
            return Vec::new();
        };
        let Some(entries) = self.entries(&entry.node, &map.value_at(entry)) else {
            return Vec::new();
        };
        let parent = map.key(field);
        if entries.is_empty() {
            self.report(&parent, Problem::NothingIn(what));
        }
        let mut pairs = Vec::new();
        for entry in entries {
            let name = Found {
                value: entry.key.as_str(),
                at: parent.child(&entry.key, entry.key_span.clone()),
            };
            let at = if entry.node.span.is_empty() {
                name.at.clone()
            } else {
                parent.child(&entry.key, entry.node.span.clone())
            };
            if let Some(text) = self.node_text(&entry.node, at)
                && (secret || self.expect_one_line(&text))
                && self.expect_text(&text, secret)
            {
                pairs.push((name, text));
            }
        }
        pairs
    }

    fn expect_text(&mut self, found: &Found<Text>, secret: bool) -> bool {
        let text = &found.value;
        let class = text.class();
        let problem = match class {
            Plain::Text => return true,
            _ if secret => Problem::WrongType {
                expected: "text",
                found: class.noun().to_owned(),
                remedy: Some("put it in quotes".to_owned()),
            },
            Plain::Ambiguous => Problem::Ambiguous(text.shown.clone()),
            _ => Problem::WrongType {
                expected: "text",
                found: class.described(&text.shown),
                remedy: (class != Plain::Null)
                    .then(|| format!("put it in quotes: \"{}\"", text.shown)),
            },
        };
        self.report(&found.at, problem);
        false
    }

    /// One line, since one that goes on in the next is a quote that was not closed, and no
    /// control characters, since a broker may close the connection on them (MQTT 5 §1.5.4).
    fn expect_one_line(&mut self, found: &Found<Text>) -> bool {
        let written = self.source.text().get(found.at.span.clone());
        let problem = if written.is_some_and(|text| text.trim_end().contains('\n')) {
            Problem::ManyLines
        } else if let Some(control) = found.value.value.chars().find(|c| c.is_control()) {
            Problem::ControlCharacter(control)
        } else {
            return true;
        };
        self.report(&found.at, problem);
        false
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<bool>> {
        let found = self.scalar(map, field)?;
        let text = &found.value;
        let value = match text.value.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        if let Some(value) = value.filter(|_| text.plain || text.substituted) {
            return Some(Found {
                value,
                at: found.at,
            });
        }
        let described = if text.plain {
            text.class().described(&text.shown)
        } else {
            format!("the text \"{}\"", text.shown)
        };
        let remedy = Some("write true or false, without quotes".to_owned());
        self.wrong_type(&found.at, "true or false", described, remedy);
        None
    }

    /// A whole number within its field's bounds.
    pub(crate) fn count(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<u64>> {
        let Kind::Count { min, max } = field.kind else {
            return None;
        };
        let found = self.scalar(map, field)?;
        let text = &found.value;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = text.value.len() > 1 && text.value.starts_with('0');
        if digits(&text.value) && !leading_zero && (text.plain || text.substituted) {
            // More digits than a u64 has are out of every range.
            let value = text.value.parse().unwrap_or(u64::MAX);
            if (min..=max).contains(&value) {
                return Some(Found {
                    value,
                    at: found.at,
                });
            }
            let problem = Problem::OutOfRange {
                found: format!("`{}`", text.shown),
                min: min.to_string(),
                max: max.to_string(),
            };
            self.report(&found.at, problem);
            return None;
        }
        let without = text.shown.replace('_', "");
        let remedy = if !text.plain && digits(&text.value) {
            Some("remove the quotes".to_owned())
        } else if digits(&without) && !without.starts_with('0') {
            Some(format!("write {without}"))
        } else if leading_zero && digits(&text.value) {
            Some("write it without the leading zero: some read it as octal".to_owned())
        } else {
            None
        };
        let described = if text.plain {
            text.class().described(&text.shown)
        } else {
            format!("the text \"{}\"", text.shown)
        };
        self.wrong_type(&found.at, "a whole number", described, remedy);
        None
    }

    /// A duration within its field's bounds.
    pub(crate) fn duration(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<Duration>> {
        let Kind::Duration { min, max } = field.kind else {
            return None;
        };
        self.quantity(map, field, "a duration", "30s, 250ms or 1h30m", |text| {
            let value = quantity::duration(text)?;
            let within = quantity::duration(min)? <= value && value <= quantity::duration(max)?;
            Ok(within.then_some(value))
        })
    }

    /// A number of bytes within its field's bounds.
    pub(crate) fn size(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<u64>> {
        let Kind::Size { min, max } = field.kind else {
            return None;
        };
        self.quantity(map, field, "a size", "64 KiB or 8 MiB", |text| {
            let value = quantity::size(text)?;
            let within = quantity::size(min)? <= value && value <= quantity::size(max)?;
            Ok(within.then_some(value))
        })
    }

    fn quantity<T>(
        &mut self,
        map: &Map<'_>,
        field: &Field,
        what: &'static str,
        example: &'static str,
        parse: impl Fn(&str) -> Result<Option<T>, NotAQuantity>,
    ) -> Option<Found<T>> {
        let (Kind::Duration { min, max } | Kind::Size { min, max }) = field.kind else {
            return None;
        };
        let found = self.scalar(map, field)?;
        let quoted = format!("`{}`", found.value.shown);
        let out_of_range = || Problem::OutOfRange {
            found: quoted.clone(),
            min: min.to_owned(),
            max: max.to_owned(),
        };
        let problem = match parse(&found.value.value) {
            Ok(Some(value)) => {
                return Some(Found {
                    value,
                    at: found.at,
                });
            }
            Ok(None) | Err(NotAQuantity::TooMuch) => out_of_range(),
            Err(NotAQuantity::Bare) => {
                let shown = &found.value.shown;
                let bytes = shown.parse().ok().filter(|_| what == "a size");
                Problem::BareNumber {
                    what,
                    found: shown.clone(),
                    example: bytes.map_or_else(|| format!("{shown}s"), quantity::show_size),
                }
            }
            Err(NotAQuantity::Form) if found.value.class() == Plain::Null => Problem::WrongType {
                expected: what,
                found: "nothing".to_owned(),
                remedy: Some(format!("write it like {example}")),
            },
            Err(NotAQuantity::Form) => Problem::BadQuantity {
                what,
                found: quoted,
                example,
            },
        };
        self.report(&found.at, problem);
        None
    }

    /// One of the words that the field takes.
    pub(crate) fn choice(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<&'static str>> {
        let Kind::Choice(words) = field.kind else {
            return None;
        };
        let found = self.scalar(map, field)?;
        let text = &found.value;
        if let Some((word, _)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(Found {
                value: word,
                at: found.at,
            });
        }
        let possible: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
        let problem = Problem::NotOneOf {
            found: text.class().described(&text.shown),
            nearest: nearest(&text.value, possible.iter()).copied(),
            possible,
        };
        self.report(&found.at, problem);
        None
    }

    /// The field's scalar or its default; `None` when there is neither, or something else.
    fn scalar(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<Text>> {
        match (map.entry(field), field.presence) {
            (Some(entry), _) => self
                .node_text(&entry.node, map.value_at(entry))
                .filter(|found| matches!(field.kind, Kind::Secret) || self.expect_one_line(found)),
            (None, Presence::Default(text)) => Some(Found {
                value: Text {
                    value: text.to_owned(),
                    shown: text.to_owned(),
                    substituted: false,
                    plain: true,
                    verbatim_at: None,
                },
                at: map.key(field),
            }),
            (None, _) => None,
        }
    }

    fn node_text(&mut self, node: &Node, at: At) -> Option<Found<Text>> {
        let in_file = self.source.text().get(node.span.clone());
        let in_file = in_file.unwrap_or_default();
        let Value::Scalar { text, plain } = &node.value else {
            let remedy = in_file.starts_with(['{', '[']).then(|| {
                "put it in quotes if it is meant as text: `{` and `[` mean something to YAML"
                    .to_owned()
            });
            self.wrong_type(&at, "a single value", describe(node), remedy);
            return None;
        };
        let verbatim_at = if in_file == text {
            Some(node.span.start)
        } else if in_file.get(1..in_file.len().saturating_sub(1)) == Some(text) {
            Some(node.span.start + 1)
        } else {
            None
        };
        let mut found = Found {
            value: Text {
                value: text.clone(),
                shown: excerpt(text),
                substituted: false,
                plain: *plain,
                verbatim_at,
            },
            at,
        };
        match substitute(text, self.host) {
            Ok(None) => Some(found),
            Ok(Some(value)) => {
                found.value.value = value;
                found.value.substituted = true;
                found.value.verbatim_at = None;
                Some(found)
            }
            Err((range, problem)) => {
                self.report(&found.part(range.start, range.end), problem);
                None
            }
        }
    }
}
