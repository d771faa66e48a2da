//! Which dead letters, as a request says it: in its query or in its body.

use std::fmt;

use bridge_core::{MessageId, Reason, Timestamp, TopicFilter};
use bridge_runtime::DeadLetterFilter;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::problem::{Kind, Problem};
use crate::request::{Query, instant, name};

/// Which dead letters; each field narrows it down, and without any it is all of them.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilterInput {
    /// Of this route.
    #[schema(example = "telemetry")]
    pub(crate) route: Option<String>,
    /// Of bindings of this name.
    #[schema(example = "cloud")]
    pub(crate) binding: Option<String>,
    /// Given up on for this reason.
    #[schema(example = "not_authorized")]
    pub(crate) reason: Option<String>,
    /// Whose topic, as it came, matches this topic filter.
    #[schema(example = "sensors/+/temperature")]
    pub(crate) topic: Option<String>,
    /// Given up on at this instant (RFC 3339) or later; or so long ago at most: `90s`, `15m`, `2h`, `7d`.
    #[schema(example = "2h")]
    pub(crate) since: Option<String>,
    /// Given up on before this instant; or longer ago.
    #[schema(example = "2026-11-30T08:00:00Z")]
    pub(crate) until: Option<String>,
    /// Of the message with this id, at every binding that gave up on it.
    #[schema(example = "019ad4a2-5614-7707-8707-070707070707")]
    pub(crate) message_id: Option<String>,
}

impl FilterInput {
    /// The parameters of a query.
    pub(crate) fn take(query: &mut Query) -> Result<Self, Problem> {
        let mut text = |name| query.take(name, |text| Ok(text.to_owned()));
        Ok(Self {
            route: text("route")?,
            binding: text("binding")?,
            reason: text("reason")?,
            topic: text("topic")?,
            since: text("since")?,
            until: text("until")?,
            message_id: text("message_id")?,
        })
    }

    /// The same with every text understood, `now` being the instant that ages count from.
    pub(crate) fn checked(&self, now: Timestamp) -> Result<DeadLetterFilter, Problem> {
        Ok(DeadLetterFilter {
            route: read("route", self.route.as_ref(), name)?,
            binding: read("binding", self.binding.as_ref(), name)?,
            reason: read("reason", self.reason.as_ref(), |text| {
                text.parse::<Reason>().map_err(|error| error.to_string())
            })?,
            topic: read("topic", self.topic.as_ref(), |text| {
                TopicFilter::parse(text).map_err(|error| error.to_string())
            })?,
            since: read("since", self.since.as_ref(), |text| instant(text, now))?,
            until: read("until", self.until.as_ref(), |text| instant(text, now))?,
            message_id: read("message_id", self.message_id.as_ref(), |text| {
                text.parse::<MessageId>().map_err(|error| error.to_string())
            })?,
        })
    }
}

/// The filter in the audit log.
pub(crate) struct Written<'a>(pub(crate) &'a DeadLetterFilter);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = self.0;
        if filter.is_empty() {
            return f.write_str("all dead letters");
        }
        f.write_str("dead letters with")?;
        let mut write = |name, value: Option<&dyn fmt::Display>| match value {
            Some(value) => write!(f, " {name}={value}"),
            None => Ok(()),
        };
        // A topic may hold anything that would end the line.
        let topic = filter.topic.as_ref().map(|t| format!("{:?}", t.as_str()));
        write("route", filter.route.as_ref().map(|v| v as _))?;
        write("binding", filter.binding.as_ref().map(|v| v as _))?;
        write("reason", filter.reason.as_ref().map(|v| v as _))?;
        write("topic", topic.as_ref().map(|v| v as _))?;
        write("since", filter.since.as_ref().map(|v| v as _))?;
        write("until", filter.until.as_ref().map(|v| v as _))?;
        write("message_id", filter.message_id.as_ref().map(|v| v as _))
    }
}

fn read<T>(
    field: &'static str,
    text: Option<&String>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Problem> {
    let parsed = text.map(|text| parse(text)).transpose();
    parsed.map_err(|detail| Problem::new(Kind::Invalid, detail).field(field))
}
