//! What a value without quotes is to a reader of YAML.

use super::yaml::{Node, Value};

/// The class of a plain scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    Null,
    Boolean,
    Number,
    /// Text in YAML 1.2, a boolean or a number in YAML 1.1, which many tools still speak.
    Ambiguous,
    Text,
}

impl Plain {
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => return Self::Boolean,
            _ => {}
        }
        let lower = text.to_ascii_lowercase();
        if matches!(lower.as_str(), "yes" | "no" | "on" | "off" | "y" | "n") {
            return Self::Ambiguous;
        }
        let unsigned = lower.strip_prefix(['-', '+']).unwrap_or(&lower);
        if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Self::Text;
        }
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let octal = unsigned.len() > 1 && unsigned.starts_with('0') && digits(unsigned);
        let underscored = unsigned.contains('_') && digits(&unsigned.replace('_', ""));
        let sexagesimal = unsigned.contains(':') && unsigned.split(':').all(digits);
        if octal || underscored || sexagesimal {
            return Self::Ambiguous;
        }
        let radix = unsigned
            .strip_prefix("0x")
            .is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            || unsigned.strip_prefix("0o").is_some_and(|oct| {
                !oct.is_empty() && oct.bytes().all(|b| (b'0'..=b'7').contains(&b))
            });
        if radix || unsigned.parse::<f64>().is_ok() || matches!(unsigned, ".inf" | ".nan") {
            return Self::Number;
        }
        Self::Text
    }

    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::Ambiguous | Self::Text => "text",
        }
    }

    /// With the text of the file.
    pub(crate) fn described(self, shown: &str) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Boolean => format!("the boolean `{shown}`"),
            Self::Number => format!("the number `{shown}`"),
            Self::Ambiguous | Self::Text => format!("`{shown}`"),
        }
    }
}

/// What a node is, without its content.
pub(crate) fn describe(node: &Node) -> String {
    match &node.value {
        Value::List(_) => "a list",
        Value::Map(_) => "fields with values",
        Value::Scalar { text, plain: true } => Plain::of(text).noun(),
        Value::Scalar { plain: false, .. } => "text",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_of_yaml_disagree_about_is_ambiguous() {
        for (text, class) in [
            ("NO", Plain::Ambiguous),
            ("yes", Plain::Ambiguous),
            ("On", Plain::Ambiguous),
            ("010", Plain::Ambiguous),
            ("1_000", Plain::Ambiguous),
            ("12:30", Plain::Ambiguous),
            ("-010", Plain::Ambiguous),
            ("0", Plain::Number),
            ("10", Plain::Number),
            ("1.5", Plain::Number),
            (".5", Plain::Number),
            ("1e3", Plain::Number),
            ("0x1F", Plain::Number),
            (".inf", Plain::Number),
            ("~", Plain::Null),
            ("", Plain::Null),
            ("True", Plain::Boolean),
            ("norway", Plain::Text),
            ("sensors/#", Plain::Text),
            ("7a", Plain::Text),
            (".", Plain::Text),
            ("127.0.0.1:80", Plain::Text),
            ("-", Plain::Text),
        ] {
            assert_eq!(Plain::of(text), class, "{text:?}");
        }
    }
}
