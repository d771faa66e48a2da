//! JSON as YAML that people read.

use serde_json::{Map, Value};

/// Appends `value` to `text`.
pub(super) fn write(text: &mut String, value: &Value) {
    block(text, value, 0);
}

/// What stands on lines of its own.
fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) => {
            for (name, value) in sorted(fields) {
                pad(text, indent);
                text.push_str(&scalar(name));
                text.push(':');
                follow(text, value, indent);
            }
        }
        Value::Array(items) => {
            for item in items {
                pad(text, indent);
                text.push('-');
                follow(text, item, indent);
            }
        }
        other => {
            pad(text, indent);
            text.push_str(&plain(other));
            text.push('\n');
        }
    }
}

/// What comes after `name:` or `-`.
fn follow(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            block(text, value, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            block(text, value, indent + 2);
        }
        other => {
            text.push(' ');
            text.push_str(&plain(other));
            text.push('\n');
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(string) => scalar(string),
        other => other.to_string(),
    }
}

/// Bare where nobody can take it for anything else, in quotes (JSON's are YAML's) otherwise.
fn scalar(string: &str) -> String {
    let word = string.to_ascii_lowercase();
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&&*word);
    // In a block, a brace is one only at the beginning.
    let begins = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let goes_on = |c: char| c.is_ascii_alphanumeric() || "/_-.{}".contains(c);
    if begins && string.chars().all(goes_on) && !is_word {
        string.to_owned()
    } else {
        Value::String(string.to_owned()).to_string()
    }
}

/// By name, whatever order the map has: two builds write the same. Only at the top what says
/// what this is comes first.
fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    const FIRST: [&str; 5] = ["openapi", "info", "servers", "tags", "paths"];
    let place = |name: &str| FIRST.iter().position(|first| *first == name);
    let is_root = fields.contains_key("openapi");
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| {
        let place = place(name).filter(|_| is_root);
        (place.unwrap_or(FIRST.len()), name.as_str())
    });
    sorted
}

fn pad(text: &mut String, indent: usize) {
    text.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_could_be_taken_for_something_else_is_quoted() {
        let mut text = String::new();
        write(
            &mut text,
            &json!({
                "openapi": "3.1.0",
                "empty": {},
                "list": ["a", "no", "1", "a: b", "- c", "", 7, null, ["x"], {"z": true}],
                "/api/{id}": "line\nline",
            }),
        );
        assert_eq!(
            text,
            "openapi: \"3.1.0\"\n/api/{id}: \"line\\nline\"\nempty: {}\nlist:\n  - a\n  - \"no\"\n  - \"1\"\n  \
             - \"a: b\"\n  - \"- c\"\n  - \"\"\n  - 7\n  - null\n  -\n    - x\n  -\n    z: true\n"
        );
    }
}
