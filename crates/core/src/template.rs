//! Topic templates: how a binding turns the topic of a message into its own.

mod parse;
mod shape;

use std::fmt;

use crate::{InvalidTopic, Name, Topic};

pub use shape::TopicShape;

/// A parsed template such as `plants/7/{topic}`.
///
/// | placeholder | stands for |
/// |---|---|
/// | `{topic}` | the topic as it came |
/// | `{topic[1]}` | its second level: levels are counted from 0, as in a Rust slice |
/// | `{topic[2..]}` | all levels from the third on: strips two levels |
/// | `{topic[..2]}`, `{topic[1..3]}` | the first two; the second and the third |
/// | `{session}`, `{route}` | the names of the source session and of the route |
/// | `{{`, `}}` | a brace |
///
/// ```
/// use bridge_core::{Name, TemplateContext, Topic, TopicTemplate};
///
/// let template = TopicTemplate::parse("plants/{session}/{topic[1..]}")?;
/// let topic = template.render(&TemplateContext {
///     topic: &Topic::parse("sensors/boiler/1")?,
///     session: &Name::parse("plant")?,
///     route: &Name::parse("telemetry")?,
/// })?;
/// assert_eq!(topic.as_str(), "plants/plant/boiler/1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate {
    text: String,
    parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Text that stands for itself.
    Literal(String),
    /// Levels of the topic, from the first to before the second; without a second, to the end.
    Levels { from: usize, to: Option<usize> },
    /// The name of the source session.
    Session,
    /// The name of the route.
    Route,
}

/// Why a text is not a topic template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct InvalidTemplate {
    /// The first byte of what is wrong.
    pub start: usize,
    /// The byte after what is wrong.
    pub end: usize,
    /// What is wrong there.
    pub problem: TemplateProblem,
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateProblem {
    /// Nothing is a topic of no characters.
    #[error("a topic template must not be empty")]
    Empty,
    /// A `{` without its `}`.
    #[error("`{{` without a closing `}}`; a brace that stands for itself is written `{{{{`")]
    Unclosed,
    /// A `}` without its `{`.
    #[error("`}}` without an opening `{{`; a brace that stands for itself is written `}}}}`")]
    Unopened,
    /// A placeholder of no known name.
    #[error(
        "unknown placeholder `{{{0}}}`: there are {{topic}}, {{topic[1]}}, {{topic[2..]}}, \
         {{session}} and {{route}}"
    )]
    Unknown(String),
    /// The text between `[` and `]` is not an index or a range.
    #[error("`[{0}]` selects no levels: write [1], [2..], [..2] or [1..3], counted from 0")]
    Range(String),
    /// A range without any level in it.
    #[error("`[{0}]` is an empty range: its end must be greater than its start")]
    EmptyRange(String),
    /// MQTT 5 §3.3.2.1: a topic that is published to holds no wildcard.
    #[error("a topic to publish to must not hold the wildcard `{0}`")]
    Wildcard(char),
    /// MQTT 5 §4.7.3.
    #[error("a topic must not hold the character NUL")]
    Nul,
}

/// What a template is rendered for.
#[derive(Debug, Clone, Copy)]
pub struct TemplateContext<'a> {
    /// The topic of the message as it came.
    pub topic: &'a Topic,
    /// The session it came from.
    pub session: &'a Name,
    /// The route it takes.
    pub route: &'a Name,
}

/// Why a template gives no topic for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The topic of the message has fewer levels than the template asks for.
    #[error("the topic has {have} levels, the template needs {need}")]
    MissingLevel {
        /// How many levels the template needs.
        need: usize,
        /// How many there are.
        have: usize,
    },
    /// What came out is not a topic.
    #[error(transparent)]
    Topic(#[from] InvalidTopic),
}

impl TopicTemplate {
    /// Checks and keeps a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        Ok(Self {
            text: text.to_owned(),
            parts: parse::parts(text)?,
        })
    }

    /// The template that takes the first `strip` levels off a topic and puts `prefix` before the
    /// rest. Braces in `prefix` stand for themselves.
    pub fn replacing_prefix(strip: usize, prefix: &str) -> Result<Self, InvalidTemplate> {
        let rest = match strip {
            0 => "{topic}".to_owned(),
            levels => format!("{{topic[{levels}..]}}"),
        };
        let prefix = prefix.replace('{', "{{").replace('}', "}}");
        Self::parse(&format!("{prefix}{rest}"))
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The topic to publish to.
    pub fn render(&self, context: &TemplateContext<'_>) -> Result<Topic, RenderError> {
        let topic = context.topic.as_str();
        let mut out = String::with_capacity(self.text.len() + topic.len());
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Levels { from, to } => out.push_str(levels(topic, *from, *to)?),
                Part::Session => out.push_str(context.session.as_str()),
                Part::Route => out.push_str(context.route.as_str()),
            }
        }
        Ok(Topic::parse(&out)?)
    }
}

impl fmt::Display for TopicTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The levels of `topic` from `from` to before `to`. All that are named must be there.
fn levels(topic: &str, from: usize, to: Option<usize>) -> Result<&str, RenderError> {
    let missing = || RenderError::MissingLevel {
        need: to.unwrap_or(from + 1),
        have: topic.split('/').count(),
    };
    // Where each level begins, and one past the end of the last.
    let begin = |level: usize| match level.checked_sub(1) {
        None => Some(0),
        Some(slash) => topic.match_indices('/').nth(slash).map(|(at, _)| at + 1),
    };
    let start = begin(from).ok_or_else(missing)?;
    let end = match to {
        None => topic.len(),
        Some(to) => match begin(to) {
            Some(next) => next - 1,
            // The range may end with the topic.
            None if topic.split('/').count() == to => topic.len(),
            None => return Err(missing()),
        },
    };
    topic.get(start..end).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
