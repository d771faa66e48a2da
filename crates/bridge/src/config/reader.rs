//! Reads fields out of the tree by their description, and keeps going: every problem is noted
//! with its place, so that one run shows them all.

mod values;

use std::collections::HashMap;
use std::ops::Range;

use bridge_core::Name;

use super::env::Host;
use super::fields::{Field, Kind, Presence, Section};
use super::nearest::nearest;
use super::problem::Problem;
use super::report::Diagnostic;
use super::scalar::{Plain, describe};
use super::source::Source;
use super::yaml::{Entry, Node, Value};

/// More than anyone reads: a file of garbage must not take a minute to be refused.
const MAX_PROBLEMS: usize = 500;

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

/// What makes a value unusable, and has been reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported;

/// A text as the operator wrote it, and with its variables put in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) value: String,
    /// What may be quoted in an error: the text of the file, not what a variable holds, and not
    /// too much of it.
    pub(crate) shown: String,
    /// A variable has been put in.
    pub(crate) substituted: bool,
    plain: bool,
    /// The first byte of the text in the file, when it stands there byte for byte.
    verbatim_at: Option<usize>,
}

impl Text {
    fn class(&self) -> Plain {
        if self.plain && !self.substituted {
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
            Some(at) if start < end => at + start..at + end,
            _ => self.at.span.clone(),
        };
        At {
            span,
            path: self.at.path.clone(),
        }
    }
}

/// A section in the file.
#[derive(Clone)]
pub(crate) struct Map<'a> {
    pub(crate) at: At,
    entries: &'a [Entry],
}

impl<'a> Map<'a> {
    /// The section of a file that leaves it out: every field has its default.
    fn absent(of: &At, field: &Field) -> Self {
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

    /// Notes a problem; of very many, the first.
    pub(crate) fn report(&mut self, at: &At, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems
                .push(Diagnostic::new(self.source, &at.span, &at.path, problem));
        }
    }

    /// Everything that was noted, in the order of the file.
    pub(crate) fn into_problems(self) -> Vec<Diagnostic> {
        let mut problems = self.problems;
        problems.sort_by_key(|p| (p.place, p.span.end));
        problems
    }

    /// The whole file as a section.
    pub(crate) fn root<'n>(
        &mut self,
        root: &'n Node,
        section: &'static Section,
    ) -> Option<Map<'n>> {
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

    /// The same, or where it is left out one in which every field has its default.
    pub(crate) fn section_or_default<'n>(
        &mut self,
        map: &Map<'n>,
        field: &'static Field,
    ) -> Option<Map<'n>> {
        if map.has(field) {
            self.section(map, field)
        } else {
            Some(Map::absent(&map.at, field))
        }
    }

    /// The sections by name that a field holds.
    pub(crate) fn named<'n>(
        &mut self,
        map: &Map<'n>,
        field: &'static Field,
    ) -> Vec<(Name, Map<'n>)> {
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
                Err(error) => self.report(&at, Problem::name(&entry.key, error)),
            }
        }
        named
    }

    /// The names that a field holds, right or wrong.
    pub(crate) fn names<'n>(map: &Map<'n>, field: &Field) -> Vec<&'n str> {
        match map.entry(field).map(|entry| &entry.node.value) {
            Some(Value::Map(entries)) => entries.iter().map(|e| e.key.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    fn entries<'n>(&mut self, node: &'n Node, at: &At) -> Option<&'n [Entry]> {
        let Value::Map(entries) = &node.value else {
            self.wrong_type(at, "fields with values", describe(node), None);
            return None;
        };
        let mut seen: HashMap<&str, &Entry> = HashMap::new();
        for entry in entries {
            let first = *seen.entry(entry.key.as_str()).or_insert(entry);
            if first.key_span != entry.key_span {
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
