//! From fields to a [`Config`]: names, references and what must hold between fields.

mod admin;
mod binding;
mod credentials;
mod identity;
mod lease;
mod place;
mod reach;
mod route;
mod session;
mod tls;
mod together;
mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use bridge_core::Name;
use bridge_runtime::RouteSpec;
use bridge_transport::SessionConfig;

use super::fields;
use super::loops;
use super::nearest::nearest;
use super::problem::{Doubt, Problem};
use super::reader::{Found, Map, Reader, Text};
use super::report::Diagnostic;
use super::source::Source;
use super::yaml::Node;
use super::{AdminAccess, Config, Host, JournalOptions};

/// The configuration that `root` describes, when nothing is wrong with it, and every problem.
///
/// Relative paths are relative to `folder`, where the file is.
pub(super) fn config(
    root: &Node,
    source: &Source,
    folder: &Path,
    host: &dyn Host,
) -> (Option<Config>, Vec<Diagnostic>) {
    let mut reader = Reader::new(source, host);
    let config = reader
        .root(root, &fields::ROOT)
        .and_then(|root| whole(&mut reader, &root, folder));
    let problems = reader.into_problems();
    let usable = problems.iter().all(|p| p.problem.is_warning());
    (config.filter(|_| usable), problems)
}

fn whole(reader: &mut Reader<'_>, root: &Map<'_>, folder: &Path) -> Option<Config> {
    let identity = reader.section(root, &fields::BRIDGE);
    let bridge_id = identity
        .as_ref()
        .and_then(|section| reader.text(section, &fields::BRIDGE_ID))
        .and_then(|id| name(reader, &id));
    let lease = lease::check(reader, root, folder, identity.as_ref(), bridge_id.as_ref());
    let data_dir = reader.text(root, &fields::DATA_DIR).and_then(|dir| {
        if dir.value.value.is_empty() {
            reader.report(&dir.at, Problem::EmptyText);
            return None;
        }
        let path = folder.join(&dir.value.value);
        if path.is_file() {
            reader.report(&dir.at, Problem::NotAFolder(dir.value.shown.clone()));
        }
        Some(path)
    });
    let segment_size = reader
        .section_or_default(root, &fields::JOURNAL)
        .and_then(|journal| reader.size(&journal, &fields::SEGMENT_SIZE));
    let admin = reader
        .section(root, &fields::ADMIN)
        .and_then(|section| admin::check(reader, &section, folder));
    let monitor = monitor(reader, root);
    let drain_timeout = reader.duration(root, &fields::DRAIN_TIMEOUT);

    let session_maps = reader.named(root, &fields::SESSIONS);
    let route_maps = reader.named(root, &fields::ROUTES);
    let sessions: Vec<session::Checked> = session_maps
        .iter()
        .filter_map(|(name, map)| session::check(reader, name, map, folder))
        .collect();
    let known = Sessions {
        names: Reader::names(root, &fields::SESSIONS),
        checked: sessions.iter().map(|s| &s.config).collect(),
    };
    let routes: Vec<route::Checked> = route_maps
        .iter()
        .filter_map(|(name, map)| route::check(reader, name, map, &known))
        .collect();

    // What must hold between sessions depends on how routes use them.
    let uses = |pick: fn(&route::Checked) -> Vec<Name>| -> BTreeSet<Name> {
        routes.iter().flat_map(pick).collect()
    };
    let read = uses(|route| vec![route.spec.source.clone()]);
    let written = uses(|route| route.spec.bindings.iter().map(|b| b.sink.clone()).collect());
    let complete = routes.len() == Reader::names(root, &fields::ROUTES).len();
    together::identities(reader, &sessions, &read, &written);
    if complete {
        for (name, map) in &session_maps {
            if !read.contains(name) && !written.contains(name) {
                reader.report(&map.at, Problem::Doubt(Doubt::UnusedSession));
            }
        }
    }
    let specs: Vec<&RouteSpec> = routes.iter().map(|route| &route.spec).collect();
    together::protocols(reader, &sessions, &specs);
    let asked = routes.iter().filter_map(|route| {
        let at = route.no_local_at.as_ref()?;
        Some((&route.spec.source, at))
    });
    together::no_local(reader, &sessions, &written, asked);
    let shared = routes.iter().filter_map(|route| {
        let at = route.shared_at.as_ref()?;
        Some((&route.spec.source, at))
    });
    together::shared(reader, &sessions, shared);
    report_loops(reader, &sessions, &routes);
    together::exclusive(
        reader,
        root,
        &sessions,
        sessions.len() == session_maps.len(),
    );

    Some(Config {
        bridge_id: bridge_id?,
        data_dir: data_dir?,
        journal: JournalOptions {
            segment_size: segment_size?.value,
        },
        identities: sessions
            .iter()
            .map(|session| {
                let name = &session.config.name;
                let both = read.contains(name) && written.contains(name);
                (name.clone(), session.identity(both))
            })
            .collect(),
        sessions: sessions
            .into_iter()
            .map(|session| (session.config.name.clone(), session.config))
            .collect::<BTreeMap<_, _>>(),
        lease: lease.ok()?,
        routes: routes.into_iter().map(|route| route.spec).collect(),
        admin,
        monitor,
        drain_timeout: drain_timeout?.value,
    })
}

/// Where the monitor listens, and nothing else of the file; what is wrong with that, if anything.
pub(super) fn monitor_alone(
    root: &Node,
    source: &Source,
    host: &dyn Host,
) -> Result<Option<SocketAddr>, Vec<Diagnostic>> {
    alone(root, source, host, &fields::MONITOR, monitor)
}

/// How the admin API is reached, and nothing else of the file; what is wrong with that, if anything.
pub(super) fn admin_alone(
    root: &Node,
    source: &Source,
    folder: &Path,
    host: &dyn Host,
) -> Result<Option<AdminAccess>, Vec<Diagnostic>> {
    alone(root, source, host, &fields::ADMIN, |reader, root| {
        let section = reader.section(root, &fields::ADMIN)?;
        admin::access(reader, &section, folder)
    })
}

fn alone<T>(
    root: &Node,
    source: &Source,
    host: &dyn Host,
    field: &fields::Field,
    take: impl FnOnce(&mut Reader<'_>, &Map<'_>) -> Option<T>,
) -> Result<Option<T>, Vec<Diagnostic>> {
    let mut reader = Reader::new(source, host);
    let taken = reader
        .root(root, &fields::ROOT)
        .and_then(|root| take(&mut reader, &root));
    let mut problems = reader.into_problems();
    problems.retain(|problem| problem.path.starts_with(field.name));
    if taken.is_none() && !problems.is_empty() {
        Err(problems)
    } else {
        Ok(taken)
    }
}

fn monitor(reader: &mut Reader<'_>, root: &Map<'_>) -> Option<SocketAddr> {
    reader
        .section(root, &fields::MONITOR)
        .and_then(|section| reader.text(&section, &fields::LISTEN))
        .and_then(|listen| address(reader, &listen))
}

fn report_loops(reader: &mut Reader<'_>, sessions: &[session::Checked], routes: &[route::Checked]) {
    let brokers: BTreeMap<Name, Vec<String>> = sessions
        .iter()
        .map(|s| (s.config.name.clone(), place::brokers(&s.config.brokers)))
        .collect();
    let specs: Vec<_> = routes.iter().map(|route| &route.spec).collect();
    for found in loops::find(&specs, &brokers) {
        let place = routes
            .iter()
            .find(|route| route.spec.name == found.closes.route)
            .and_then(|route| route.binding_at(&found.closes.binding));
        if let Some(at) = place {
            reader.report(at, Problem::Loop(found.to_string()));
        }
    }
}

/// The sessions of the file: all names, and those with nothing wrong.
struct Sessions<'a> {
    names: Vec<&'a str>,
    checked: Vec<&'a SessionConfig>,
}

impl Sessions<'_> {
    /// The name of the session that a route refers to. What is wrong with the session itself has
    /// been said and is not said again.
    fn resolve(&self, reader: &mut Reader<'_>, reference: &Found<Text>) -> Option<Name> {
        let wanted = reference.value.value.as_str();
        if self.names.contains(&wanted) {
            return Name::parse(wanted).ok();
        }
        let problem = Problem::NoSuchSession {
            name: reference.value.shown.clone(),
            nearest: nearest(wanted, self.names.iter().copied()).map(str::to_owned),
            known: self.names.iter().map(|&name| name.to_owned()).collect(),
        };
        reader.report(&reference.at, problem);
        None
    }

    fn get(&self, name: &Name) -> Option<&SessionConfig> {
        self.checked.iter().find(|s| s.name == *name).copied()
    }
}

fn name(reader: &mut Reader<'_>, text: &Found<Text>) -> Option<Name> {
    match Name::parse(&text.value.value) {
        Ok(name) => Some(name),
        Err(error) => {
            reader.report(&text.at, Problem::name(&text.value.shown, error));
            None
        }
    }
}

fn address(reader: &mut Reader<'_>, text: &Found<Text>) -> Option<SocketAddr> {
    let address = text.value.value.parse().ok();
    if address.is_none() {
        reader.report(&text.at, Problem::Listen(text.value.shown.clone()));
    }
    address
}
