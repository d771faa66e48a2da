//! Which dead letters, as a command line says it.

use std::time::Duration;

use bridge_core::{MessageId, Name, Reason, Timestamp, TopicFilter};
use bridge_runtime::{DeadLetterFilter, DeadLetterId};
use clap::Args;
use serde_json::{Map, Value};

use crate::config;

const HEADING: &str = "Which dead letters";

/// Which dead letters.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "filter")]
pub(crate) struct Filter {
    /// Only of this route
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    route: Option<Name>,
    /// Only of bindings of this name
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    binding: Option<Name>,
    /// Only those given up on for this reason, such as `not_authorized`
    #[arg(long, value_name = "REASON", help_heading = HEADING)]
    reason: Option<Reason>,
    /// Only those whose topic, as it came, matches this filter, such as `sensors/#`
    #[arg(long, value_name = "FILTER", help_heading = HEADING)]
    topic: Option<TopicFilter>,
    /// Only those given up on at this instant or later, such as 2026-11-30T08:00:00Z, or so long ago
    /// at most: 90s, 15m, 2h, 7d
    #[arg(long, value_name = "WHEN", help_heading = HEADING)]
    since: Option<When>,
    /// Only those given up on before this instant, or longer ago
    #[arg(long, value_name = "WHEN", help_heading = HEADING)]
    until: Option<When>,
    /// Only those of the message with this id, at whichever binding
    #[arg(long, value_name = "ID", visible_alias = "id", help_heading = HEADING)]
    message_id: Option<MessageId>,
}

/// An instant, or how long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    At(Timestamp),
    Ago(Duration),
}

impl std::str::FromStr for When {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(ago) = config::duration(text) {
            return Ok(Self::Ago(ago));
        }
        let instant: Option<jiff::Timestamp> = text.parse().ok();
        let millis = instant.and_then(|instant| u64::try_from(instant.as_millisecond()).ok());
        let at = millis.map(|millis| Self::At(Timestamp::from_millis(millis)));
        at.ok_or("write an instant such as 2026-11-30T08:00:00Z, or how long ago: 90s, 15m, 2h, 7d")
    }
}

impl When {
    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::Ago(ago) => {
                let millis = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
                Timestamp::from_millis(now.as_millis().saturating_sub(millis))
            }
        }
    }
}

impl Filter {
    /// Those of one message.
    pub(crate) fn of_message(id: MessageId) -> Self {
        Self {
            message_id: Some(id),
            ..Self::default()
        }
    }

    /// What it is to the store, ages being counted from `now`.
    pub(crate) fn checked(self, now: Timestamp) -> DeadLetterFilter {
        DeadLetterFilter {
            route: self.route,
            binding: self.binding,
            reason: self.reason,
            topic: self.topic,
            since: self.since.map(|when| when.at(now)),
            until: self.until.map(|when| when.at(now)),
            message_id: self.message_id,
        }
    }

    /// Its fields as the admin API has them, ages being counted from `now`: what is asked for in
    /// several calls is the same in each.
    pub(crate) fn fields(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let instant = |when: &When| when.at(now).to_string();
        let fields = [
            ("route", self.route.as_ref().map(ToString::to_string)),
            ("binding", self.binding.as_ref().map(ToString::to_string)),
            ("reason", self.reason.as_ref().map(ToString::to_string)),
            ("topic", self.topic.as_ref().map(ToString::to_string)),
            ("since", self.since.as_ref().map(instant)),
            ("until", self.until.as_ref().map(instant)),
            (
                "message_id",
                self.message_id.as_ref().map(ToString::to_string),
            ),
        ];
        let fields = fields.into_iter();
        fields
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// Fields as an object of JSON.
pub(crate) fn object(fields: &[(&'static str, String)]) -> Value {
    let fields = fields.iter();
    let pairs = fields.map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// A path with fields as its query.
pub(crate) fn path_with(path: &str, fields: &[(&'static str, String)]) -> String {
    if fields.is_empty() {
        return path.to_owned();
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields);
    format!("{path}?{}", query.finish())
}

/// The name of a dead letter, or of a message that is one, maybe at several bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryId {
    /// One dead letter.
    Entry(DeadLetterId),
    /// All that this message is.
    Message(MessageId),
}

impl std::str::FromStr for EntryId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('~') {
            let id = text.parse().map(Self::Entry);
            return id.map_err(|error: bridge_runtime::InvalidDeadLetterId| error.to_string());
        }
        let id = text.parse().map(Self::Message);
        id.map_err(|error: bridge_core::InvalidMessageId| {
            format!("{error}; the id of a dead letter is like telemetry~cloud~4711")
        })
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entry(id) => id.fmt(f),
            Self::Message(id) => id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_the_same_in_every_call_whatever_the_clock_does() {
        let filter = Filter {
            reason: Some("not_authorized".parse().unwrap()),
            topic: Some(TopicFilter::parse("a b/#").unwrap()),
            since: Some("2h".parse().unwrap()),
            until: Some("2026-11-30T08:00:00Z".parse().unwrap()),
            ..Filter::default()
        };
        let now = Timestamp::from_millis(1_764_486_000_000);
        let path = path_with("/x", &filter.fields(now));
        assert_eq!(
            path,
            "/x?reason=not_authorized&topic=a+b%2F%23&since=2025-11-30T05%3A00%3A00.000Z\
             &until=2026-11-30T08%3A00%3A00.000Z"
        );
        let checked = filter.checked(now);
        assert_eq!(
            checked.since,
            Some(Timestamp::from_millis(1_764_478_800_000))
        );
        assert_eq!(path_with("/x", &Filter::default().fields(now)), "/x");
    }

    #[test]
    fn an_id_is_of_a_dead_letter_or_of_a_message() {
        let entry: EntryId = "telemetry~cloud~4711".parse().unwrap();
        assert_eq!(entry.to_string(), "telemetry~cloud~4711");
        let text = "019ad4a2-5614-7707-8707-070707070707";
        let message: EntryId = text.parse().unwrap();
        assert!(matches!(message, EntryId::Message(_)));
        assert_eq!(message.to_string(), text);
        for wrong in ["", "1", "a~b", "a~b~0", "/var/lib/bridge"] {
            assert!(wrong.parse::<EntryId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_instant_or_an_age() {
        let ago = |text: &str| text.parse::<When>();
        assert_eq!(ago("90s"), Ok(When::Ago(Duration::from_secs(90))));
        assert_eq!(ago("7d"), Ok(When::Ago(Duration::from_secs(7 * 86_400))));
        for wrong in ["", "yesterday", "5", "2026-11-30", "1969-12-31T23:59:59Z"] {
            assert!(ago(wrong).is_err(), "{wrong}");
        }
    }
}
