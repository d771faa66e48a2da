//! Reads fields out of the tree by their description, and keeps going: every problem is noted
//! with its place, so that one run shows them all.

use std::ops::Range;
use std::time::Duration;

use bridge_core::Name;

use super::env::{Host, substitute};
use super::fields::{Field, Kind, Presence, Section};
use super::nearest::nearest;
use super::problem::Problem;
use super::quantity::{self, NotAQuantity};
use super::report::Diagnostic;
use super::scalar::{Plain, describe};
use super::source::Source;
use super::yaml::{Entry, Node, Value};

/// Where a value stands: for whatever turns out to be wrong with it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) span: Range<usize>,
    /// As in `routes.telemetry.bindings.cloud.topic`.
    pub(crate) path: String,
}

impl At {
    fn child(&self, name: &str, span: Range<usize>) -> Self {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        Self { span, path }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found<T> {
    pub(crate) value: T,
    pub(crate) at: At,
}

/// A text as the operator wrote it, and with its variables put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) value: String,
    /// What may be quoted in an error: the text of the file, not what a variable holds.
    pub(crate) shown: String,
    plain: bool,
    /// The first byte of the text in the file, when it stands there byte for byte.
    verbatim_at: Option<usize>,
}

impl Text {
    fn substituted(&self) -> bool {
        self.value != self.shown
    }

    fn class(&self) -> Plain {
        if self.plain && !self.substituted() {
            Plain::of(&self.value)
        } else {
            Plain::Text
        }
    }
}

impl Found<Text> {
    /// The place of a part of the text, where it can be told.
    pub(crate) fn part(&self, start: usize, end: usize) -> At {
        let span = match self.value.verbatim_at {
            Some(at) => at + start..at + end,
            None => self.at.span.clone(),
        };
        At {
            span,
            path: self.at.path.clone(),
        }
    }
}

/// A section in the file.
#[derive(Debug, Clone)]
pub(crate) struct Map<'a> {
    pub(crate) at: At,
    entries: &'a [Entry],
}

impl<'a> Map<'a> {
    /// The section of a file that leaves it out: every field has its default.
    pub(crate) fn absent(of: &At, field: &Field) -> Self {
        Self {
            at: At {
                span: of.span.clone(),
                path: of.child(field.name, 0..0).path,
            },
            entries: &[],
        }
    }

    /// Whether the field is written out, right or wrong.
    pub(crate) fn has(&self, field: &Field) -> bool {
        self.entry(field).is_some()
    }

    fn entry(&self, field: &Field) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == field.name)
    }

    /// The place of the field's key, or of the section where it is left out.
    pub(crate) fn key(&self, field: &Field) -> At {
        match self.entry(field) {
            Some(entry) => self.at.child(field.name, entry.key_span.clone()),
            None => self.at.child(field.name, self.at.span.clone()),
        }
    }

    fn value_at(&self, entry: &Entry) -> At {
        // Nothing has no place of its own.
        let span = if entry.node.span.is_empty() {
            entry.key_span.clone()
        } else {
            entry.node.span.clone()
        };
        self.at.child(&entry.key, span)
    }
}

/// Reads one file.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) host: &'a dyn Host,
    problems: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a Source, host: &'a dyn Host) -> Self {
        Self {
            source,
            host,
            problems: Vec::new(),
        }
    }

    /// Notes a problem.
    pub(crate) fn report(&mut self, at: &At, problem: Problem) {
        self.problems
            .push(Diagnostic::new(self.source, &at.span, &at.path, problem));
    }

    /// Everything that was noted, in the order of the file.
    pub(crate) fn into_problems(self) -> Vec<Diagnostic> {
        let mut problems = self.problems;
        problems.sort_by_key(|p| (p.place, p.span.end));
        problems
    }

    /// The whole file as a section.
    pub(crate) fn root<'n>(&mut self, root: &'n Node, section: &'static Section) -> Option<Map<'n>> {
        let at = At {
            span: root.span.start..root.span.start,
            path: String::new(),
        };
        let value_at = At {
            span: root.span.clone(),
            path: String::new(),
        };
        let entries = self.entries(root, &value_at)?;
        Some(self.open(entries, at, section))
    }

    /// The section that a field holds; `None` when it is left out or wrong.
    pub(crate) fn section<'n>(&mut self, map: &Map<'n>, field: &'static Field) -> Option<Map<'n>> {
        let Kind::Section(section) = field.kind else {
            return None;
        };
        let entry = map.entry(field)?;
        let entries = self.entries(&entry.node, &map.value_at(entry))?;
        Some(self.open(entries, map.key(field), section))
    }

    /// The sections by name that a field holds.
    pub(crate) fn named<'n>(&mut self, map: &Map<'n>, field: &'static Field) -> Vec<(Name, Map<'n>)> {
        let (Kind::Named(section, what), Some(entry)) = (field.kind, map.entry(field)) else {
            return Vec::new();
        };
        let Some(entries) = self.entries(&entry.node, &map.value_at(entry)) else {
            return Vec::new();
        };
        if entries.is_empty() {
            self.report(&map.key(field), Problem::NothingIn(what));
        }
        let parent = map.key(field);
        let mut named = Vec::new();
        for entry in entries {
            let at = parent.child(&entry.key, entry.key_span.clone());
            let name = Name::parse(&entry.key);
            let value_at = parent.child(&entry.key, entry.node.span.clone());
            let value_at = if value_at.span.is_empty() {
                at.clone()
            } else {
                value_at
            };
            let inner = self.entries(&entry.node, &value_at);
            let inner = inner.map(|entries| self.open(entries, at.clone(), section));
            match name {
                Ok(name) => named.extend(inner.map(|map| (name, map))),
                Err(error) => self.report(&at, Problem::Name(entry.key.clone(), error)),
            }
        }
        named
    }

    fn entries<'n>(&mut self, node: &'n Node, at: &At) -> Option<&'n [Entry]> {
        let Value::Map(entries) = &node.value else {
            self.wrong_type(at, "fields with values", describe(node), None);
            return None;
        };
        for (index, entry) in entries.iter().enumerate() {
            let before = entries.get(..index).unwrap_or_default();
            if let Some(first) = before.iter().find(|e| e.key == entry.key) {
                let problem = Problem::DuplicateKey {
                    key: entry.key.clone(),
                    first_line: self.source.place(first.key_span.start).line,
                };
                self.report(&at.child(&entry.key, entry.key_span.clone()), problem);
            }
        }
        Some(entries)
    }

    /// Checks which fields are there.
    fn open<'n>(&mut self, entries: &'n [Entry], at: At, section: &'static Section) -> Map<'n> {
        let map = Map { at, entries };
        let known: Vec<&'static str> = section.fields.iter().map(|f| f.name).collect();
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let problem = Problem::UnknownField {
                    name: entry.key.clone(),
                    nearest: nearest(&entry.key, known.iter()).copied(),
                    known: known.clone(),
                };
                self.report(&map.at.child(&entry.key, entry.key_span.clone()), problem);
            }
        }
        for field in section.fields {
            if field.presence == Presence::Required && !map.has(field) {
                // Under its misspelt name it is not missing.
                let misspelt = entries.iter().any(|entry| {
                    !known.contains(&entry.key.as_str())
                        && nearest(&entry.key, known.iter()) == Some(&field.name)
                });
                if !misspelt {
                    let problem = Problem::MissingField(field.name, field.doc);
                    self.report(&map.at.clone(), problem);
                }
            }
        }
        map
    }

    /// A text; `None` when it is left out without a default, or wrong.
    pub(crate) fn text(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<Text>> {
        let found = self.scalar(map, field)?;
        self.expect_text(&found, matches!(field.kind, Kind::Secret))
            .then_some(found)
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, map: &Map<'_>, field: &Field) -> Vec<Found<Text>> {
        let Some(entry) = map.entry(field) else {
            return Vec::new();
        };
        let at = map.value_at(entry);
        let Value::List(items) = &entry.node.value else {
            let remedy = match &entry.node.value {
                Value::Scalar { text, .. } if !entry.node.is_null() => {
                    Some(format!("write [\"{text}\"]"))
                }
                _ => None,
            };
            self.wrong_type(&at, "a list", describe(&entry.node), remedy);
            return Vec::new();
        };
        if items.is_empty() {
            self.report(&at, Problem::NothingIn("topic filter"));
        }
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = At {
                span: item.span.clone(),
                path: format!("{}[{index}]", at.path),
            };
            if let Some(found) = self.node_text(item, at)
                && self.expect_text(&found, false)
            {
                texts.push(found);
            }
        }
        texts
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

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, map: &Map<'_>, field: &Field) -> Option<Found<bool>> {
        let found = self.scalar(map, field)?;
        let text = &found.value;
        let value = match text.value.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        if let Some(value) = value.filter(|_| text.plain || text.substituted()) {
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
        if digits(&text.value) && !leading_zero && (text.plain || text.substituted()) {
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
                let unit = if what == "a size" { " KiB" } else { "s" };
                Problem::BareNumber {
                    what,
                    found: found.value.shown.clone(),
                    example: format!("{}{unit}", found.value.shown),
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
            (Some(entry), _) => self.node_text(&entry.node, map.value_at(entry)),
            (None, Presence::Default(text)) => Some(Found {
                value: Text {
                    value: text.to_owned(),
                    shown: text.to_owned(),
                    plain: true,
                    verbatim_at: None,
                },
                at: map.key(field),
            }),
            (None, _) => None,
        }
    }

    fn node_text(&mut self, node: &Node, at: At) -> Option<Found<Text>> {
        let Value::Scalar { text, plain } = &node.value else {
            self.wrong_type(&at, "a single value", describe(node), None);
            return None;
        };
        let in_file = self
            .source
            .text()
            .get(node.span.clone())
            .unwrap_or_default();
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
                shown: text.clone(),
                plain: *plain,
                verbatim_at,
            },
            at,
        };
        match substitute(text, self.host) {
            Ok(None) => Some(found),
            Ok(Some(value)) => {
                found.value.value = value;
                found.value.verbatim_at = None;
                Some(found)
            }
            Err((range, problem)) => {
                self.report(&found.part(range.start, range.end), problem);
                None
            }
        }
    }

    fn wrong_type(
        &mut self,
        at: &At,
        expected: &'static str,
        found: String,
        remedy: Option<String>,
    ) {
        let problem = Problem::WrongType {
            expected,
            found,
            remedy,
        };
        self.report(at, problem);
    }
}
