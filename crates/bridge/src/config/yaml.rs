//! YAML as a tree in which every node knows where it stands, so that each later error does too.
//!
//! Only what a configuration needs is taken: one document, text as keys, no tags. Aliases are
//! followed within a bound, since nine lines of them can stand for a billion nodes.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::problem::Problem;
use super::source::Source;

/// How many nodes a file may stand for once its aliases are followed.
const MAX_NODES: usize = 100_000;

/// How deep it may nest then; the parser's own bound does not see through aliases.
const MAX_HEIGHT: usize = 300;

/// A value and the bytes of the file where it stands. Not shown by `Debug`: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value,
    /// How many nodes it is, itself included.
    size: usize,
    /// How many levels of nodes it is, itself included.
    height: usize,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Scalar {
        text: String,
        /// Without quotes: it may be a number, a boolean or nothing.
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a map with its value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) node: Node,
}

/// What is wrong, and the bytes where.
pub(crate) type Located = (Range<usize>, Problem);

impl Value {
    /// The size and the height of the node that it makes.
    fn measure(&self) -> (usize, usize) {
        let inner: Vec<(usize, usize)> = match self {
            Self::Scalar { .. } => Vec::new(),
            Self::List(items) => items.iter().map(|n| (n.size, n.height)).collect(),
            Self::Map(entries) => entries
                .iter()
                .map(|entry| (entry.node.size + 1, entry.node.height))
                .collect(),
        };
        inner.iter().fold((1, 1), |(size, height), (more, below)| {
            (size.saturating_add(*more), height.max(below + 1))
        })
    }
}

impl Node {
    /// Nothing: an empty value, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if is_null(text))
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// The one document of `source`.
pub(crate) fn parse(source: &Source) -> Result<Node, Located> {
    let mut events = Events {
        parser: Parser::new_from_str(source.text()),
        length: source.text().len(),
        anchors: HashMap::new(),
        nodes: 0,
    };
    let mut root = None;
    while let Some((event, span)) = events.next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            _ if root.is_some() => return Err((span, Problem::ManyDocuments)),
            event => root = Some(events.node(&event, span)?),
        }
    }
    match root {
        Some(node) if node.is_null() && source.text().trim().is_empty() => {
            Err((0..0, Problem::Empty))
        }
        Some(node) if node.is_null() => Err((node.span, Problem::Empty)),
        Some(node) => Ok(node),
        None => Err((0..0, Problem::Empty)),
    }
}

struct Events<'a> {
    parser: Parser<'a, StrInput<'a>>,
    length: usize,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Range<usize>)>, Located> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Err(error)) => {
                let at = error.marker().byte_offset().unwrap_or(self.length);
                Err((at..at, Problem::Syntax(error.info())))
            }
            Some(Ok((_, span))) if span.tag_start.is_some() => {
                let tag = span.tag_span().unwrap_or(span);
                Err((self.range(tag), Problem::Tag))
            }
            Some(Ok((event, span))) => Ok(Some((event, self.range(span)))),
        }
    }

    fn range(&self, span: Span) -> Range<usize> {
        span.byte_range().unwrap_or(self.length..self.length)
    }

    /// The node that begins with `event`. The parser bounds how deep nodes nest.
    fn node(&mut self, event: &Event<'a>, span: Range<usize>) -> Result<Node, Located> {
        self.count(1, &span)?;
        let (value, anchor, end) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = *style == ScalarStyle::Plain;
                let text = text.clone().into_owned();
                (Value::Scalar { text, plain }, *anchor, span.end)
            }
            Event::Alias(anchor) => {
                let node = self
                    .anchors
                    .get(anchor)
                    .ok_or_else(|| (span.clone(), Problem::AliasOfItself))?
                    .clone();
                self.count(node.size, &span)?;
                return Ok(node);
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                let end = loop {
                    let (event, item_span) = self.inside(&span)?;
                    if event == Event::SequenceEnd {
                        break item_span.end;
                    }
                    items.push(self.node(&event, item_span)?);
                };
                (Value::List(items), *anchor, end)
            }
            Event::MappingStart(_, anchor, _) => {
                let mut entries = Vec::new();
                let end = loop {
                    let (event, key_span) = self.inside(&span)?;
                    if event == Event::MappingEnd {
                        break key_span.end;
                    }
                    entries.push(self.entry(&event, key_span, &span)?);
                };
                (Value::Map(entries), *anchor, end)
            }
            _ => return Err((span, Problem::Syntax("unexpected content".to_owned()))),
        };
        let (size, height) = value.measure();
        let node = Node {
            span: span.start..end.max(span.start),
            value,
            size,
            height,
        };
        if height > MAX_HEIGHT {
            return Err((node.span, Problem::TooManyNodes));
        }
        if anchor != 0 {
            self.count(size, &node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn entry(
        &mut self,
        event: &Event<'a>,
        key_span: Range<usize>,
        map: &Range<usize>,
    ) -> Result<Entry, Located> {
        let Value::Scalar { text: key, .. } = self.node(event, key_span.clone())?.value else {
            return Err((key_span, Problem::KeyNotText));
        };
        if key == "<<" {
            return Err((key_span, Problem::MergeKey));
        }
        let (event, value_span) = self.inside(map)?;
        Ok(Entry {
            key,
            key_span,
            node: self.node(&event, value_span)?,
        })
    }

    /// The next event of a collection that began at `span`.
    fn inside(&mut self, span: &Range<usize>) -> Result<(Event<'a>, Range<usize>), Located> {
        let end = || (span.clone(), Problem::Syntax("unexpected end".to_owned()));
        self.next()?.ok_or_else(end)
    }

    fn count(&mut self, more: usize, span: &Range<usize>) -> Result<(), Located> {
        self.nodes = self.nodes.saturating_add(more);
        if self.nodes > MAX_NODES {
            return Err((span.clone(), Problem::TooManyNodes));
        }
        Ok(())
    }
}
