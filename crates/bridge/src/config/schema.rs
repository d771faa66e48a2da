//! The JSON Schema of the configuration, for editors.

use serde_json::{Map, Value, json};

use super::fields::{Field, Kind, Presence, ROOT, Section};

/// Draft 2020-12, made from the fields themselves.
pub(crate) fn json_schema() -> Value {
    let mut root = section(&ROOT);
    if let Value::Object(object) = &mut root {
        object.insert(
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        object.insert("title".to_owned(), json!("bridge"));
    }
    root
}

fn section(section: &Section) -> Value {
    let properties: Map<String, Value> = section
        .fields
        .iter()
        .map(|f| (f.name.to_owned(), field(f)))
        .collect();
    let required: Vec<&str> = section
        .fields
        .iter()
        .filter(|field| field.presence == Presence::Required)
        .map(|field| field.name)
        .collect();
    let mut object = json!({
        "type": "object",
        "description": section.doc,
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty()
        && let Value::Object(object) = &mut object
    {
        object.insert("required".to_owned(), json!(required));
    }
    object
}

fn field(field: &Field) -> Value {
    let mut schema = kind(&field.kind);
    if let Value::Object(object) = &mut schema {
        let description = match field.kind {
            Kind::Choice(words) => {
                let words: Vec<String> = words
                    .iter()
                    .map(|(word, doc)| format!("`{word}`: {doc}"))
                    .collect();
                format!("{}. {}.", field.doc, words.join("; "))
            }
            _ => field.doc.to_owned(),
        };
        object.insert("description".to_owned(), json!(description));
        if let Presence::Default(text) = field.presence {
            let value = match field.kind {
                Kind::Flag => json!(text == "true"),
                Kind::Count { .. } => text.parse::<u64>().map_or(json!(text), |n| json!(n)),
                Kind::Choice(_) => word(text),
                _ => json!(text),
            };
            object.insert("default".to_owned(), value);
        }
    }
    schema
}

/// A choice that reads as a number is one in YAML.
fn word(text: &str) -> Value {
    if let Ok(number) = text.parse::<u64>() {
        return json!(number);
    }
    text.parse::<f64>()
        .map_or(json!(text), |number| json!(number))
}

/// Where something else than text is meant, a variable may stand for it.
const VARIABLE: &str = r"\$\{";

fn kind(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Secret => json!({ "type": "string" }),
        Kind::Flag => json!({ "anyOf": [
            { "type": "boolean" },
            { "type": "string", "pattern": VARIABLE },
        ] }),
        Kind::Count { min, max } => json!({ "anyOf": [
            { "type": "integer", "minimum": min, "maximum": max },
            { "type": "string", "pattern": VARIABLE },
        ] }),
        Kind::Duration { min, max } => json!({
            "type": "string",
            "pattern": format!(r"^([0-9]+(ms|s|m|h|d))+$|{VARIABLE}"),
            "$comment": format!("from {min} to {max}"),
        }),
        Kind::Size { min, max } => json!({
            "type": "string",
            "pattern": format!(r"^[0-9]+ ?(B|KiB|MiB|GiB|kB|MB|GB)$|{VARIABLE}"),
            "$comment": format!("from {min} to {max}"),
        }),
        Kind::Choice(words) => {
            // In quotes a number is meant as well.
            let quoted = words.iter().map(|(text, _)| json!(text));
            let mut words: Vec<Value> = words.iter().map(|(text, _)| word(text)).collect();
            for text in quoted {
                if !words.contains(&text) {
                    words.push(text);
                }
            }
            json!({ "anyOf": [
                { "enum": words },
                { "type": "string", "pattern": VARIABLE },
            ] })
        }
        Kind::Texts(_) => texts(),
        Kind::OneOrMore(_) => json!({ "anyOf": [{ "type": "string" }, texts()] }),
        Kind::Pairs { .. } => json!({
            "type": "object",
            "minProperties": 1,
            "additionalProperties": { "type": "string" },
        }),
        Kind::Section(inner) => section(inner),
        Kind::Named(inner, _) => json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" },
            "additionalProperties": section(inner),
        }),
    }
}

fn texts() -> Value {
    json!({
        "type": "array",
        "minItems": 1,
        "items": { "type": "string" },
    })
}
