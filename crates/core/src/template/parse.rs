//! From the text of a template to its parts.

use super::{InvalidTemplate, Part, TemplateProblem};

/// The longest range bound: a topic of 65,535 bytes has at most 65,536 levels.
const MAX_LEVEL: usize = 65_536;

/// The parts of `text`; neighbouring literals are one.
pub(super) fn parts(text: &str) -> Result<Vec<Part>, InvalidTemplate> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    // `rest` is always a suffix of `text`.
    let offset = |rest: &str| text.len() - rest.len();
    let wrong = |start: usize, length: usize, problem: TemplateProblem| InvalidTemplate {
        start,
        end: start + length,
        problem,
    };
    if text.is_empty() {
        return Err(wrong(0, 0, TemplateProblem::Empty));
    }
    while let Some(c) = rest.chars().next() {
        let at = offset(rest);
        if let Some(after) = rest.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let Some((inner, after)) = after.split_once('}') else {
                return Err(wrong(at, rest.len(), TemplateProblem::Unclosed));
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(placeholder(inner).map_err(|p| wrong(at, inner.len() + 2, p))?);
            rest = after;
        } else {
            match c {
                '}' => return Err(wrong(at, 1, TemplateProblem::Unopened)),
                '+' | '#' => return Err(wrong(at, 1, TemplateProblem::Wildcard(c))),
                '\0' => return Err(wrong(at, 1, TemplateProblem::Nul)),
                _ => literal.push(c),
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

/// What stands between `{` and `}`.
fn placeholder(inner: &str) -> Result<Part, TemplateProblem> {
    let unknown = || TemplateProblem::Unknown(inner.to_owned());
    match inner {
        "topic" => Ok(Part::Levels { from: 0, to: None }),
        "session" => Ok(Part::Session),
        "route" => Ok(Part::Route),
        _ => {
            let selector = inner.strip_prefix("topic").ok_or_else(unknown)?;
            let selector = selector.strip_prefix('[').ok_or_else(unknown)?;
            range(selector.strip_suffix(']').ok_or_else(unknown)?)
        }
    }
}

/// What stands between `[` and `]`.
fn range(selector: &str) -> Result<Part, TemplateProblem> {
    let bound = |digits: &str| {
        // No sign, no spaces: what `parse` would also take.
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse().ok().filter(|n| *n <= MAX_LEVEL);
        number
            .filter(|_| plain)
            .ok_or_else(|| TemplateProblem::Range(selector.to_owned()))
    };
    let (from, to) = match selector.split_once("..") {
        None => {
            let level = bound(selector)?;
            (level, Some(level + 1))
        }
        Some(("", "")) => (0, None),
        Some((from, "")) => (bound(from)?, None),
        Some(("", to)) => (0, Some(bound(to)?)),
        Some((from, to)) => (bound(from)?, Some(bound(to)?)),
    };
    match to {
        Some(to) if to <= from => Err(TemplateProblem::EmptyRange(selector.to_owned())),
        _ => Ok(Part::Levels { from, to }),
    }
}
