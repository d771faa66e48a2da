//! YAML as JSON, for what has a JSON schema.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Value};

/// The documents of `text`.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
    };
    let mut documents = Vec::new();
    loop {
        match reader.next() {
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            Event::StreamEnd => return documents,
            event => documents.push(reader.value(&event)),
        }
    }
}

/// The only document of `text`.
pub(crate) fn document(text: &str) -> Value {
    let mut documents = documents(text);
    assert_eq!(documents.len(), 1, "one document");
    documents.remove(0)
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Value>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Event<'a> {
        self.parser.next_event().expect("more").expect("YAML").0
    }

    fn value(&mut self, event: &Event<'a>) -> Value {
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => (scalar(text, *style), *anchor),
            Event::Alias(anchor) => return self.anchors[anchor].clone(),
            Event::SequenceStart(_, anchor, _) => (self.list(), *anchor),
            Event::MappingStart(_, anchor, _) => (self.map(), *anchor),
            other => panic!("unexpected: {other:?}"),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        value
    }

    fn list(&mut self) -> Value {
        let mut items = Vec::new();
        loop {
            match self.next() {
                Event::SequenceEnd => return Value::Array(items),
                event => items.push(self.value(&event)),
            }
        }
    }

    fn map(&mut self) -> Value {
        let mut entries = Map::new();
        loop {
            let key = match self.next() {
                Event::MappingEnd => return Value::Object(entries),
                event => self.value(&event),
            };
            let Value::String(key) = key else {
                panic!("a key is text, not {key}");
            };
            assert_ne!(key, "<<", "merge keys are not understood here");
            let event = self.next();
            let value = self.value(&event);
            assert!(entries.insert(key.clone(), value).is_none(), "{key} twice");
        }
    }
}

/// By the rules that YAML 1.1 and 1.2 have in common; where they differ, quotes are asked for.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    let lower = text.to_ascii_lowercase();
    let word = ["yes", "no", "on", "off", "y", "n"].contains(&lower.as_str());
    let octal = text.len() > 1 && text.starts_with('0') && text.parse::<u64>().is_ok();
    assert!(!word && !octal, "{text} needs quotes, or another form");
    text.parse::<i64>()
        .map_or_else(|_| Value::from(text), Value::from)
}
