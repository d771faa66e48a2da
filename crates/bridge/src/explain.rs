//! `bridge explain`: what would become of a message on a topic.

use std::fmt::Write as _;

use bridge_core::{Name, TemplateContext, Topic};
use bridge_runtime::{
    BindingSpec, DeliveryMode, OnDeadLettersFull, OnExpired, OnFull, RetainPolicy, RouteSpec,
};
use serde_json::{Value, json};

use crate::config::{Config, Paint, show_duration, show_size};

/// The routes that take a message, and what each binding makes of it.
pub(crate) struct Explanation<'a> {
    config: &'a Config,
    topic: &'a Topic,
    /// The session that was asked about, when one was.
    session: Option<&'a Name>,
    taken: Vec<Taken<'a>>,
}

struct Taken<'a> {
    route: &'a RouteSpec,
    filters: Vec<String>,
    bindings: Vec<Bound<'a>>,
}

struct Bound<'a> {
    binding: &'a BindingSpec,
    /// The topic to publish to, or why there is none.
    topic: Result<Topic, String>,
}

impl<'a> Explanation<'a> {
    /// What becomes of a message to `topic`; of one session, when it is named.
    pub(crate) fn of(config: &'a Config, topic: &'a Topic, session: Option<&'a Name>) -> Self {
        let taken = config
            .routes
            .iter()
            .filter(|route| session.is_none_or(|session| route.source == *session))
            .filter_map(|route| Taken::of(route, topic))
            .collect();
        Self {
            config,
            topic,
            session,
            taken,
        }
    }

    /// Whether no route takes it.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    fn broker(&self, session: &Name) -> String {
        let config = self.config.sessions.get(session);
        config.map_or_else(String::new, |s| s.brokers.to_string())
    }

    /// For people.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail.
        if self.is_empty() {
            let _ = writeln!(out, "no route takes {}", self.topic);
            let routes = self.config.routes.iter();
            let asked = |route: &&RouteSpec| self.session.is_none_or(|s| route.source == *s);
            for route in routes.filter(asked) {
                let filters: Vec<_> = route
                    .subscriptions
                    .iter()
                    .map(|s| s.filter.as_str())
                    .collect();
                let _ = writeln!(
                    out,
                    "  {} takes {} of {}",
                    route.name,
                    filters.join(", "),
                    route.source
                );
            }
        }
        for taken in &self.taken {
            let route = taken.route;
            let _ = writeln!(
                out,
                "{} {} of {} ({}), by {}; acknowledged {}",
                paint.bold(&format!("{}:", route.name)),
                self.topic,
                route.source,
                self.broker(&route.source),
                taken.filters.join(" and "),
                acknowledged(route.mode),
            );
            for Bound { binding, topic } in &taken.bindings {
                let published = match topic {
                    Ok(topic) => paint.green(topic.as_str()),
                    Err(why) => paint.red(&format!("cannot be published: {why}")),
                };
                let _ = writeln!(
                    out,
                    "  {} {published}",
                    paint.bold(&format!("{} →", binding.name)),
                );
                let _ = writeln!(
                    out,
                    "      to {} ({}), {}, {}, {}",
                    binding.sink,
                    self.broker(&binding.sink),
                    qos(binding),
                    retain(binding),
                    match binding.max_in_flight.get() {
                        1 => "one at a time".to_owned(),
                        window => format!("up to {window} in flight"),
                    },
                );
                if !matches!(route.mode, DeliveryMode::DirectHold { .. }) {
                    let _ = writeln!(
                        out,
                        "      queue of up to {} messages or {}, then {}; an expired message {}",
                        binding.queue.max_entries,
                        show_size(binding.queue.max_bytes),
                        on_full(binding).replace('_', " "),
                        match binding.on_expired {
                            OnExpired::Drop => "is dropped",
                            OnExpired::DeadLetter => "becomes a dead letter",
                        },
                    );
                    let _ = writeln!(
                        out,
                        "      not authorized while queued: offered again every {} for {}, up to {} messages or {}",
                        show_duration(binding.deferral.retry_interval),
                        show_duration(binding.deferral.window),
                        binding.deferral.max_entries,
                        show_size(binding.deferral.max_bytes),
                    );
                }
                let _ = writeln!(
                    out,
                    "      up to {} dead letters or {}, then {}",
                    binding.dead_letters.max_entries,
                    show_size(binding.dead_letters.max_bytes),
                    on_dead_letters_full(binding).replace('_', " "),
                );
            }
        }
        out
    }

    /// For machines.
    pub(crate) fn to_json(&self) -> Value {
        let routes: Vec<Value> = self.taken.iter().map(|taken| self.route(taken)).collect();
        json!({ "topic": self.topic.as_str(), "routes": routes })
    }

    fn route(&self, taken: &Taken<'_>) -> Value {
        let route = taken.route;
        let queued = !matches!(route.mode, DeliveryMode::DirectHold { .. });
        let bindings: Vec<Value> = taken
            .bindings
            .iter()
            .map(|Bound { binding, topic }| {
                json!({
                    "binding": binding.name.as_str(),
                    "session": binding.sink.as_str(),
                    "broker": self.broker(&binding.sink),
                    "topic": topic.as_ref().ok().map(Topic::as_str),
                    "problem": topic.as_ref().err(),
                    "qos": binding.qos.map_or(json!("keep"), |qos| json!(qos as u8)),
                    "retain": match binding.retain {
                        RetainPolicy::Keep => "keep",
                        RetainPolicy::Always => "always",
                        RetainPolicy::Never => "never",
                    },
                    "max_in_flight": binding.max_in_flight,
                    "queue": queued.then(|| json!({
                        "max_entries": binding.queue.max_entries,
                        "max_bytes": binding.queue.max_bytes,
                        "on_full": on_full(binding),
                    })),
                    "deferred": queued.then(|| json!({
                        "window": show_duration(binding.deferral.window),
                        "retry_interval": show_duration(binding.deferral.retry_interval),
                        "max_entries": binding.deferral.max_entries,
                        "max_bytes": binding.deferral.max_bytes,
                    })),
                    "dead_letters": {
                        "max_entries": binding.dead_letters.max_entries,
                        "max_bytes": binding.dead_letters.max_bytes,
                        "on_full": on_dead_letters_full(binding),
                    },
                    "on_expired": match binding.on_expired {
                        OnExpired::Drop => "drop",
                        OnExpired::DeadLetter => "dead_letter",
                    },
                })
            })
            .collect();
        json!({
            "route": route.name.as_str(),
            "session": route.source.as_str(),
            "broker": self.broker(&route.source),
            "filters": taken.filters,
            "delivery": match route.mode {
                DeliveryMode::StoreAndForward => "store_and_forward",
                DeliveryMode::Outbox => "outbox",
                DeliveryMode::DirectHold { .. } => "direct_hold",
            },
            "bindings": bindings,
        })
    }
}

impl<'a> Taken<'a> {
    fn of(route: &'a RouteSpec, topic: &Topic) -> Option<Self> {
        let filters: Vec<String> = route
            .subscriptions
            .iter()
            .filter(|subscription| subscription.filter.matches(topic))
            .map(|subscription| subscription.filter.to_string())
            .collect();
        if filters.is_empty() {
            return None;
        }
        let context = TemplateContext {
            topic,
            session: &route.source,
            route: &route.name,
        };
        let bindings = route
            .bindings
            .iter()
            .map(|binding| Bound {
                binding,
                topic: binding.topic.render(&context).map_err(|e| e.to_string()),
            })
            .collect();
        Some(Self {
            route,
            filters,
            bindings,
        })
    }
}

fn acknowledged(mode: DeliveryMode) -> String {
    match mode {
        DeliveryMode::StoreAndForward => {
            "when each binding accepted it or holds it on disk".to_owned()
        }
        DeliveryMode::Outbox => "when each binding holds it on disk".to_owned(),
        DeliveryMode::DirectHold { send_retry_budget } => format!(
            "when each binding accepted it, left to the source after {}",
            show_duration(send_retry_budget)
        ),
    }
}

fn qos(binding: &BindingSpec) -> String {
    match binding.qos {
        None => "QoS as it came".to_owned(),
        Some(qos) => format!("QoS {qos}"),
    }
}

fn retain(binding: &BindingSpec) -> &'static str {
    match binding.retain {
        RetainPolicy::Keep => "retain flag as it came",
        RetainPolicy::Always => "retained",
        RetainPolicy::Never => "not retained",
    }
}

fn on_dead_letters_full(binding: &BindingSpec) -> &'static str {
    match binding.dead_letters.on_full {
        OnDeadLettersFull::DiscardNewest => "discard_newest",
        OnDeadLettersFull::Hold => "hold",
    }
}

fn on_full(binding: &BindingSpec) -> &'static str {
    match binding.queue.on_full {
        OnFull::Backpressure => "backpressure",
        OnFull::DropOldest => "drop_oldest",
        OnFull::DropNewest => "drop_newest",
    }
}
