//! Which bytes of a file are never shown, not even in the line beside an error.

use std::ops::Range;

use super::yaml::{Node, Value};

/// The values whose key announces a secret, misspelt or not, and URLs with a user info or a query,
/// which may be a token.
pub(crate) fn ranges(root: &Node) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    collect(root, false, &mut found);
    found
}

fn collect(node: &Node, secret: bool, found: &mut Vec<Range<usize>>) {
    match &node.value {
        // A reference to a variable is no secret, and its name helps.
        Value::Scalar { text, .. } if secret && !is_reference(text) => {
            found.push(node.span.clone());
        }
        Value::Scalar { text, .. } => {
            if text.contains("://") && text.contains(['@', '?']) {
                found.push(node.span.clone());
            }
        }
        Value::List(items) => {
            for item in items {
                collect(item, secret, found);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                collect(&entry.node, secret || announces(&entry.key), found);
            }
        }
    }
}

/// Whether a header of an HTTP request proves who we are, going by its name.
pub(crate) fn is_credential_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "auth",
        "cookie",
        "key",
        "pass",
        "secret",
        "signature",
        "token",
    ]
    .iter()
    .any(|word| name.contains(word))
}

fn is_reference(text: &str) -> bool {
    text.strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

fn announces(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    if key.ends_with("file") || key.ends_with("files") {
        return false;
    }
    ["pass", "pwd", "secret", "token", "credential", "header"]
        .iter()
        .any(|word| key.contains(word))
        && key != "allow_plaintext_credentials"
        || strsim::osa_distance(&key, "password") <= 3
        || strsim::osa_distance(&key, "headers") <= 2
}
