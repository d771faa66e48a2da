//! One binding: where it publishes, as what, and what may wait for it.

use std::num::NonZeroU32;

use bridge_core::{Name, TopicFilter, TopicShape, TopicTemplate};
use bridge_runtime::{
    BindingSpec, DeadLetterBounds, DeferralSpec, OnDeadLettersFull, OnExpired, OnFull, QueueBounds,
    RetainPolicy,
};

use super::Sessions;
use super::route::qos;
use super::session::window;
use crate::config::fields::{self, Field};
use crate::config::problem::Problem;
use crate::config::reader::{At, Found, Map, Reader};

/// How often a message may fail without a verdict. No kind of destination that can be configured
/// fails like that so far, so there is no field for it.
const MAX_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// What a binding must know of its route.
pub(super) struct Context<'a> {
    pub(super) route: &'a Name,
    pub(super) source: Option<&'a Name>,
    pub(super) filters: &'a [Found<TopicFilter>],
    pub(super) direct: bool,
    pub(super) sessions: &'a Sessions<'a>,
}

pub(super) fn check(
    reader: &mut Reader<'_>,
    name: &Name,
    map: &Map<'_>,
    context: &Context<'_>,
) -> Option<BindingSpec> {
    let sink = reader
        .text(map, &fields::BINDING_SESSION)
        .and_then(|reference| context.sessions.resolve(reader, &reference));
    let topic = template(reader, map, context);
    let qos_word = reader.choice(map, &fields::QOS);
    let retain = reader.choice(map, &fields::RETAIN);
    let max_in_flight = reader.count(map, &fields::MAX_IN_FLIGHT);
    let queue = queue(reader, map, context.direct);
    let deferral = deferral(reader, map, context.direct);
    let dead_letters = dead_letters(reader, map);
    let on_expired = reader.choice(map, &fields::ON_EXPIRED);

    let sink = sink?;
    let max_in_flight = match max_in_flight {
        Some(found) => window(&found)?,
        None if map.has(&fields::MAX_IN_FLIGHT) => return None,
        None => context.sessions.get(&sink)?.max_in_flight,
    };
    Some(BindingSpec {
        name: name.clone(),
        sink,
        topic: topic?,
        qos: match qos_word?.value {
            "keep" => None,
            level => Some(qos(level)?),
        },
        retain: match retain?.value {
            "always" => RetainPolicy::Always,
            "never" => RetainPolicy::Never,
            _ => RetainPolicy::Keep,
        },
        max_in_flight,
        queue: queue?,
        deferral: deferral?,
        dead_letters: dead_letters?,
        max_attempts: MAX_ATTEMPTS,
        on_expired: match on_expired?.value {
            "dead_letter" => OnExpired::DeadLetter,
            _ => OnExpired::Drop,
        },
    })
}

fn queue(reader: &mut Reader<'_>, map: &Map<'_>, direct: bool) -> Option<QueueBounds> {
    if direct && map.has(&fields::QUEUE) {
        let problem = Problem::NoEffect {
            field: "queue",
            why: "`delivery: direct_hold` never queues",
        };
        reader.report(&map.key(&fields::QUEUE), problem);
    }
    let section = reader.section_or_default(map, &fields::QUEUE)?;
    let max_entries = reader.count(&section, &fields::MAX_ENTRIES);
    let max_bytes = reader.size(&section, &fields::MAX_BYTES);
    let on_full = reader.choice(&section, &fields::ON_FULL);
    Some(QueueBounds {
        max_entries: max_entries?.value,
        max_bytes: max_bytes?.value,
        on_full: match on_full?.value {
            "drop_oldest" => OnFull::DropOldest,
            "drop_newest" => OnFull::DropNewest,
            _ => OnFull::Backpressure,
        },
    })
}

fn deferral(reader: &mut Reader<'_>, map: &Map<'_>, direct: bool) -> Option<DeferralSpec> {
    if direct && map.has(&fields::DEFERRED) {
        let problem = Problem::NoEffect {
            field: "deferred",
            why: "`delivery: direct_hold` never queues, and only what is queued is deferred",
        };
        reader.report(&map.key(&fields::DEFERRED), problem);
    }
    let section = reader.section_or_default(map, &fields::DEFERRED)?;
    let window = reader.duration(&section, &fields::DEFERRED_WINDOW);
    let retry_interval = reader.duration(&section, &fields::DEFERRED_RETRY_INTERVAL);
    let max_entries = reader.count(&section, &fields::DEFERRED_MAX_ENTRIES);
    let max_bytes = reader.size(&section, &fields::DEFERRED_MAX_BYTES);
    Some(DeferralSpec {
        window: window?.value,
        retry_interval: retry_interval?.value,
        max_entries: max_entries?.value,
        max_bytes: max_bytes?.value,
    })
}

fn dead_letters(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<DeadLetterBounds> {
    let section = reader.section_or_default(map, &fields::DEAD_LETTERS)?;
    let max_entries = reader.count(&section, &fields::DEAD_MAX_ENTRIES);
    let max_bytes = reader.size(&section, &fields::DEAD_MAX_BYTES);
    let on_full = reader.choice(&section, &fields::DEAD_ON_FULL);
    Some(DeadLetterBounds {
        max_entries: max_entries?.value,
        max_bytes: max_bytes?.value,
        on_full: match on_full?.value {
            "hold" => OnDeadLettersFull::Hold,
            _ => OnDeadLettersFull::DiscardNewest,
        },
    })
}

/// What the topic becomes: by `topic`, or by `strip_prefix` and `add_prefix`.
fn template(
    reader: &mut Reader<'_>,
    map: &Map<'_>,
    context: &Context<'_>,
) -> Option<TopicTemplate> {
    let prefixes: [&'static Field; 2] = [&fields::STRIP_PREFIX, &fields::ADD_PREFIX];
    let written = prefixes.into_iter().find(|field| map.has(field));
    let (template, at) = match written {
        None => {
            let text = reader.text(map, &fields::TOPIC)?;
            match TopicTemplate::parse(&text.value.value) {
                Ok(template) => (template, text.at),
                Err(error) => {
                    let at = text.part(error.start, error.end);
                    reader.report(&at, Problem::Template(error.problem));
                    return None;
                }
            }
        }
        Some(prefix) => {
            if map.has(&fields::TOPIC) {
                let problem = Problem::TopicAndPrefix(prefix.name);
                reader.report(&map.key(prefix), problem);
            }
            let strip = self::prefix(reader, map, &fields::STRIP_PREFIX);
            let add = self::prefix(reader, map, &fields::ADD_PREFIX)?;
            let strip = strip?;
            for filter in context.filters {
                if !filter.value.pattern().starts_with(&strip.value) {
                    let problem = Problem::PrefixNotInFilter {
                        filter: filter.value.to_string(),
                        prefix: strip.value.clone(),
                    };
                    reader.report(&strip.at, problem);
                    return None;
                }
            }
            let levels = strip.value.matches('/').count();
            match TopicTemplate::replacing_prefix(levels, &add.value) {
                Ok(template) => (template, map.key(prefix)),
                Err(error) => {
                    reader.report(&add.at, Problem::Template(error.problem));
                    return None;
                }
            }
        }
    };
    check_shape(reader, &template, &at, context);
    Some(template)
}

/// A prefix of whole levels; empty when it is left out.
fn prefix(reader: &mut Reader<'_>, map: &Map<'_>, field: &'static Field) -> Option<Found<String>> {
    if !map.has(field) {
        return Some(Found {
            value: String::new(),
            at: map.key(field),
        });
    }
    let text = reader.text(map, field)?;
    let value = text.value.value;
    let problem = if let Some(wildcard) = value.chars().find(|c| matches!(c, '+' | '#')) {
        Problem::PrefixWildcard(wildcard)
    } else if !value.is_empty() && !value.ends_with('/') {
        Problem::PrefixNotWholeLevels
    } else {
        return Some(Found { value, at: text.at });
    };
    reader.report(&text.at, problem);
    None
}

/// A filter none of whose topics can be published as this is a mistake.
fn check_shape(reader: &mut Reader<'_>, template: &TopicTemplate, at: &At, context: &Context<'_>) {
    let Some(source) = context.source else {
        return;
    };
    for filter in context.filters {
        let input = TopicShape::of(&filter.value);
        if template.shape(&input, source, context.route).is_none() {
            let filter = filter.value.to_string();
            reader.report(at, Problem::NeverATopic { filter });
        }
    }
}
