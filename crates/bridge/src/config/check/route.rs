//! One route: what it takes, how its source is acknowledged, and its bindings.

use bridge_core::{Name, QoS, Subscription, TopicFilter};
use bridge_runtime::{DeliveryMode, RouteSpec};

use super::{Sessions, binding};
use crate::config::fields;
use crate::config::problem::{Doubt, Problem};
use crate::config::reader::{At, Found, Map, Reader};

/// Each filter is compared with each other one, up to so many: it is only for a warning.
const MAX_COMPARED: usize = 1_000;

/// A checked route and where its bindings stand.
pub(super) struct Checked {
    pub(super) spec: RouteSpec,
    bindings_at: Vec<(Name, At)>,
    /// Where `no_local` is asked for.
    pub(super) no_local_at: Option<At>,
    /// Where the first shared subscription is, if there is one.
    pub(super) shared_at: Option<At>,
}

impl Checked {
    pub(super) fn binding_at(&self, binding: &Name) -> Option<&At> {
        let mut all = self.bindings_at.iter();
        all.find(|(name, _)| name == binding).map(|(_, at)| at)
    }
}

pub(super) fn check(
    reader: &mut Reader<'_>,
    name: &Name,
    map: &Map<'_>,
    sessions: &Sessions<'_>,
) -> Option<Checked> {
    let from = reader.section(map, &fields::FROM);
    let mut source = None;
    let mut filters = Vec::new();
    let mut qos = None;
    let mut no_local_at = None;
    if let Some(from) = &from {
        source = reader
            .text(from, &fields::FROM_SESSION)
            .and_then(|reference| sessions.resolve(reader, &reference));
        filters = self::filters(reader, from);
        qos = reader
            .choice(from, &fields::FROM_QOS)
            .and_then(|word| self::qos(word.value));
        no_local_at = no_local(reader, from, &filters);
    }
    let mode = mode(reader, map);
    let maps = reader.named(map, &fields::BINDINGS);
    let context = binding::Context {
        route: name,
        source: source.as_ref(),
        filters: &filters,
        direct: matches!(mode, Some(DeliveryMode::DirectHold { .. })),
        sessions,
    };
    let mut bindings = Vec::new();
    let mut bindings_at = Vec::new();
    for (name, map) in &maps {
        if let Some(spec) = binding::check(reader, name, map, &context) {
            bindings.push(spec);
            bindings_at.push((name.clone(), map.at.clone()));
        }
    }
    if bindings.len() < maps.len() || bindings.is_empty() || filters.is_empty() {
        return None;
    }
    let qos = qos?;
    let shared = filters.iter().find(|f| f.value.share_group().is_some());
    let shared_at = shared.map(|filter| filter.at.clone());
    Some(Checked {
        spec: RouteSpec {
            name: name.clone(),
            source: source?,
            subscriptions: filters
                .into_iter()
                .map(|filter| Subscription {
                    filter: filter.value,
                    qos,
                    no_local: no_local_at.is_some(),
                })
                .collect(),
            mode: mode?,
            bindings,
        },
        bindings_at,
        no_local_at,
        shared_at,
    })
}

pub(super) fn qos(word: &str) -> Option<QoS> {
    word.parse().ok().and_then(QoS::from_u8)
}

/// Where `no_local` is asked for, if it is. A shared subscription that asks for it is a protocol
/// error (MQTT 5 §3.8.3.1).
fn no_local(reader: &mut Reader<'_>, from: &Map<'_>, filters: &[Found<TopicFilter>]) -> Option<At> {
    if !reader.flag(from, &fields::NO_LOCAL)?.value {
        return None;
    }
    for filter in filters {
        if filter.value.share_group().is_some() {
            reader.report(&filter.at, Problem::NoLocalShared);
        }
    }
    Some(from.key(&fields::NO_LOCAL))
}

fn filters(reader: &mut Reader<'_>, from: &Map<'_>) -> Vec<Found<TopicFilter>> {
    let mut filters: Vec<Found<TopicFilter>> = Vec::new();
    for text in reader.texts(from, &fields::TOPICS) {
        let filter = match TopicFilter::parse(&text.value.value) {
            Ok(filter) => filter,
            Err(problem) => {
                reader.report(&text.at, Problem::Filter(problem));
                continue;
            }
        };
        if text.value.value.trim() != text.value.value {
            reader.report(&text.at, Problem::Doubt(Doubt::SpaceInFilter));
        }
        filters.push(Found {
            value: filter,
            at: text.at,
        });
    }
    if filters.len() > MAX_COMPARED {
        return filters;
    }
    for (index, filter) in filters.iter().enumerate() {
        let by = filters.iter().enumerate().find(|(other, by)| {
            // Of two equal ones the later is too much.
            let equal = by.value == filter.value;
            *other != index
                && by.value.share_group() == filter.value.share_group()
                && by.value.covers(&filter.value)
                && (!equal || *other < index)
        });
        if let Some((_, by)) = by {
            let problem = Problem::Doubt(Doubt::Covered {
                covered: filter.value.to_string(),
                by: by.value.to_string(),
            });
            reader.report(&filter.at, problem);
        }
    }
    filters
}

fn mode(reader: &mut Reader<'_>, map: &Map<'_>) -> Option<DeliveryMode> {
    let word = reader.choice(map, &fields::DELIVERY)?.value;
    let budget = reader.duration(map, &fields::SEND_RETRY_BUDGET)?.value;
    if word == "direct_hold" {
        return Some(DeliveryMode::DirectHold {
            send_retry_budget: budget,
        });
    }
    if map.has(&fields::SEND_RETRY_BUDGET) {
        let problem = Problem::NoEffect {
            field: "send_retry_budget",
            why: "only `delivery: direct_hold` holds messages",
        };
        reader.report(&map.key(&fields::SEND_RETRY_BUDGET), problem);
    }
    Some(if word == "outbox" {
        DeliveryMode::Outbox
    } else {
        DeliveryMode::StoreAndForward
    })
}
