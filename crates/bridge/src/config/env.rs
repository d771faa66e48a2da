//! `${NAME}` and `${NAME:-default}` in the scalars of a file that has already been parsed, so
//! that what a variable holds can never become YAML.

use super::nonce::Nonce;
use super::problem::Problem;

/// What may be asked of the machine while a configuration is read.
pub(crate) trait Host {
    /// The environment variable `name`; `Err` where it is not valid UTF-8.
    fn variable(&self, name: &str) -> Option<Result<String, ()>>;
    /// The machine's name.
    fn hostname(&self) -> Result<String, String>;
    /// What no other replica has, the same for as long as the process lives.
    fn nonce(&self) -> Nonce;
}

/// The text with its variables put in; `None` when there are none in it.
///
/// What is wrong comes with the range of bytes in `text` that it is about.
pub(crate) fn substitute(
    text: &str,
    host: &dyn Host,
) -> Result<Option<String>, (std::ops::Range<usize>, Problem)> {
    if !text.contains('$') {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let at = text.len() - after.len() - 1;
        if let Some(literal) = after.strip_prefix("${") {
            // `$${NAME}` stands for `${NAME}`.
            out.push_str("${");
            found = true;
            rest = literal;
            continue;
        }
        let Some(inner) = after.strip_prefix('{') else {
            // A lone `$`, as in `$share` or `$SYS`.
            out.push('$');
            rest = after;
            continue;
        };
        let Some((reference, after)) = inner.split_once('}') else {
            return Err((at..text.len(), Problem::VariableUnclosed));
        };
        let range = at..at + reference.len() + 3;
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let first = name.chars().next();
        let valid = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !valid {
            return Err((range, Problem::VariableName));
        }
        match (host.variable(name), default) {
            (Some(Err(())), _) => {
                return Err((range, Problem::VariableNotUtf8(name.to_owned())));
            }
            (Some(Ok(value)), None) => out.push_str(&value),
            // As in a shell: the default also stands in for an empty value.
            (Some(Ok(value)), Some(_)) if !value.is_empty() => out.push_str(&value),
            (_, Some(default)) => out.push_str(default),
            (None, None) => return Err((range, Problem::VariableUnset(name.to_owned()))),
        }
        found = true;
        rest = after;
    }
    out.push_str(rest);
    Ok(found.then_some(out))
}
