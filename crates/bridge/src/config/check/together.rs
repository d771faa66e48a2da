//! What must hold between sessions, or depends on how routes use them.

use std::collections::{BTreeMap, BTreeSet};

use bridge_core::{Name, QoS, Topic};
use bridge_runtime::RouteSpec;
use bridge_transport::{PORTABLE_CLIENT_ID, Protocol, SessionKind, Unsaid};

use super::{place, session};
use crate::config::fields;
use crate::config::identity::Mode;
use crate::config::problem::{Doubt, Problem};
use crate::config::reader::{At, Map, Reader};

/// No two connections to one broker have the same client id: it would disconnect one for the
/// other, for ever. And no two sessions tell their status in one place.
pub(super) fn identities(
    reader: &mut Reader<'_>,
    sessions: &[session::Checked],
    read: &BTreeSet<Name>,
    written: &BTreeSet<Name>,
) {
    let mut taken: BTreeMap<(String, &str), &Name> = BTreeMap::new();
    let mut told: BTreeMap<(String, &Topic), &Name> = BTreeMap::new();
    for session in sessions {
        let config = &session.config;
        let both = read.contains(&config.name) && written.contains(&config.name);
        let brokers = place::brokers(&config.brokers);
        let publisher = both.then_some((&config.publisher_client_id, &session.publisher_at));
        for (id, at) in [Some((&config.client_id, &session.client_id_at)), publisher]
            .into_iter()
            .flatten()
        {
            let mut others = brokers.iter().filter_map(|broker| {
                let key = (broker.clone(), id.as_str());
                let other = *taken.entry(key).or_insert(&config.name);
                (other != &config.name).then(|| (other.to_string(), broker.clone()))
            });
            let first = others.next();
            // The rest of them is taken note of all the same.
            others.for_each(drop);
            if let Some((other, address)) = first {
                let id = id.clone();
                let problem = Problem::ClientIdTaken { id, other, address };
                reader.report(at, problem);
            }
        }
        if let Some(status) = &config.status {
            let mut others = brokers.into_iter().filter_map(|broker| {
                let other = *told.entry((broker, &status.topic)).or_insert(&config.name);
                (other != &config.name).then(|| other.to_string())
            });
            let first = others.next();
            others.for_each(drop);
            if let Some(other) = first {
                reader.report(&session.status_at, Problem::StatusTaken(other));
            }
        }
    }
}

/// Says what a session's protocol has no words for, as far as its routes would have use for them.
pub(super) fn protocols(
    reader: &mut Reader<'_>,
    sessions: &[session::Checked],
    routes: &[&RouteSpec],
) {
    for session in sessions {
        let config = &session.config;
        let read = routes.iter().any(|route| route.source == config.name);
        let mut bindings = routes.iter().flat_map(|route| &route.bindings);
        let written = bindings.any(|binding| binding.sink == config.name);
        let matters = |unsaid: &&Unsaid| {
            let of_use = match unsaid.name {
                "refusals" => highest(&config.name, routes) > Some(QoS::AtMostOnce),
                "no_local" => config.status.is_some() && !written,
                "shared_subscriptions" => shares(&config.name, routes),
                "session_expiry" => config.kind != SessionKind::Ephemeral,
                _ => true,
            };
            of_use && ((unsaid.reading && read) || (unsaid.writing && written))
        };
        let unsaid: Vec<Unsaid> = config
            .protocol
            .unsaid()
            .iter()
            .filter(matters)
            .copied()
            .collect();
        if !unsaid.is_empty() {
            let protocol = config.protocol;
            reader.report(
                &session.protocol_at,
                Problem::Doubt(Doubt::Unsaid { protocol, unsaid }),
            );
        }
        if config.protocol == Protocol::V5 {
            continue;
        }
        let window = config.max_in_flight;
        if window > config.protocol.default_window()
            && highest(&config.name, routes) == Some(QoS::ExactlyOnce)
        {
            reader.report(
                &session.window_at,
                Problem::Doubt(Doubt::WideWindow(window)),
            );
        }
        let publisher = (read && written).then_some(&config.publisher_client_id);
        for (id, at) in [
            (Some(&config.client_id), &session.client_id_at),
            (publisher, &session.publisher_at),
        ] {
            let Some(id) = id else {
                continue;
            };
            if id.len() > PORTABLE_CLIENT_ID {
                reader.report(at, Problem::Doubt(Doubt::LongClientId(id.len())));
            }
            if let Some(sign) = id.chars().find(|sign| !is_usual(*sign)) {
                reader.report(at, Problem::Doubt(Doubt::UnusualClientId(sign)));
            }
        }
    }
}

/// Whether brokers take that in a client id. On MQTT 3.1.1 they have to take letters and digits
/// alone (§3.1.3.1), but none is known that does not take these as well, and a suffix begins with
/// one of them. A sign of topics is told of for every protocol.
fn is_usual(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "-_.:+#/".contains(sign)
}

/// `no_local` where it leaves nothing out. It is the client id that counts (MQTT 5 §3.8.3.1), and
/// under that of the connection that reads, nothing is published but a status.
pub(super) fn no_local<'a>(
    reader: &mut Reader<'_>,
    sessions: &[session::Checked],
    written: &BTreeSet<Name>,
    asked: impl Iterator<Item = (&'a Name, &'a At)>,
) {
    for (source, at) in asked {
        let Some(config) = sessions
            .iter()
            .map(|s| &s.config)
            .find(|c| c.name == *source)
        else {
            continue;
        };
        let why = if config.protocol == Protocol::V311 {
            "MQTT 3.1.1 has no words for it"
        } else if written.contains(source) {
            "what is published to this session goes out under its `publisher_client_id`, and a \
             broker leaves out only what comes from the client id that reads; to bridge both \
             ways, give each direction topics that the other does not take"
        } else if config.status.is_none() {
            "nothing is published under the client id of this session: no binding uses it, and \
             it has no `status`"
        } else {
            continue;
        };
        let field = fields::NO_LOCAL.name;
        reader.report(at, Problem::NoEffect { field, why });
    }
}

/// Exclusive sessions and the lease need each other. `complete` says that every session was read.
pub(super) fn exclusive(
    reader: &mut Reader<'_>,
    root: &Map<'_>,
    sessions: &[session::Checked],
    complete: bool,
) {
    let mut exclusive = sessions.iter().filter(|s| s.mode == Mode::Exclusive);
    if !root.has(&fields::LEASE) {
        for session in exclusive {
            reader.report(&session.mode_at, Problem::ExclusiveNeedsLease);
        }
    } else if complete && exclusive.next().is_none() {
        let problem = Problem::NoEffect {
            field: fields::LEASE.name,
            why: "no session has `session_mode: exclusive`, so that none waits for it",
        };
        reader.report(&root.key(&fields::LEASE), problem);
    }
}

/// Shared subscriptions on sessions that replicas cannot share, or that one of them has at a time.
pub(super) fn shared<'a>(
    reader: &mut Reader<'_>,
    sessions: &[session::Checked],
    shared: impl Iterator<Item = (&'a Name, &'a At)>,
) {
    for (source, at) in shared {
        let Some(session) = sessions.iter().find(|s| s.config.name == *source) else {
            continue;
        };
        if session.mode == Mode::Exclusive {
            reader.report(at, Problem::Doubt(Doubt::SharedExclusive));
        } else if !session.differs {
            let id = session.config.client_id.clone();
            reader.report(at, Problem::Doubt(Doubt::SharedWithOneId(id)));
        }
    }
}

/// The highest QoS with which anything is published to `session`.
fn highest(session: &Name, routes: &[&RouteSpec]) -> Option<QoS> {
    let published = |route: &&RouteSpec| {
        let taken = route.subscriptions.iter().map(|s| s.qos).max();
        let bindings = route.bindings.iter().filter(|b| b.sink == *session);
        bindings.filter_map(|binding| binding.qos.or(taken)).max()
    };
    routes.iter().filter_map(published).max()
}

/// Whether `session` is read from with a shared subscription.
fn shares(session: &Name, routes: &[&RouteSpec]) -> bool {
    let mut of_session = routes.iter().filter(|route| route.source == *session);
    of_session.any(|route| {
        let mut filters = route.subscriptions.iter().map(|s| &s.filter);
        filters.any(|filter| filter.share_group().is_some())
    })
}
