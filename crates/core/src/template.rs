//! Topic templates: how a binding turns the topic of a message into its own.

use crate::{InvalidTopic, Name, Topic};

/// A parsed template such as `plants/7/{topic}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate(String);

/// Why a text is not a topic template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {}

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

impl TopicTemplate {
    /// Checks and keeps a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        Ok(Self(text.to_owned()))
    }

    /// The topic to publish to.
    pub fn render(&self, context: &TemplateContext<'_>) -> Result<Topic, InvalidTopic> {
        Topic::parse(&self.0.replace("{topic}", context.topic.as_str()))
    }
}
