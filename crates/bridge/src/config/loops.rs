//! Messages that would go round for ever: found before the first one does.
//!
//! What a binding publishes is followed, as a shape of topics, into every route that reads from
//! the same broker, and on through its bindings. Prefixes narrow the shape on the way, so two
//! brokers may well be bridged both ways, as long as nothing that came can go back. A way that
//! enters a route more often than once for each of its filters, and once more, is a loop: a
//! prefix that is taken off the second time round makes no more than that.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use bridge_core::{BindingKey, Name, TopicShape};
use bridge_runtime::RouteSpec;

/// How many steps are looked at: a bound on the time, far above what real setups need.
const MAX_STEPS: usize = 50_000;

/// How many bindings a message may pass through in a row.
const MAX_HOPS: usize = 64;

/// A way that leads back to where it began, or on and on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loop {
    /// The steps of one round: a binding, and what it publishes where.
    steps: Vec<(BindingKey, String)>,
    /// The binding that the round is reported at.
    pub(crate) closes: BindingKey,
    /// It does not come back, but passes through too many bindings.
    endless: bool,
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.endless {
            let closes = &self.closes;
            return write!(
                f,
                "it passes through {MAX_HOPS} bindings and reaches {closes}"
            );
        }
        for (binding, published) in &self.steps {
            write!(f, "{binding} publishes {published}, ")?;
        }
        match self.steps.first() {
            Some((first, _)) => write!(f, "which {} takes again", first.route),
            None => Ok(()),
        }
    }
}

/// The loops of `routes`, one per set of bindings. `brokers` says where each session may lead: what
/// is published by one session is taken by another that may lead to one of the same places.
pub(crate) fn find(routes: &[&RouteSpec], brokers: &BTreeMap<Name, Vec<String>>) -> Vec<Loop> {
    let mut search = Search {
        routes,
        brokers,
        readers: BTreeMap::new(),
        path: Vec::new(),
        seen: HashSet::new(),
        steps: 0,
        found: Vec::new(),
    };
    let mut starts = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        let Some(brokers) = brokers.get(&route.source) else {
            continue;
        };
        for subscription in &route.subscriptions {
            let taken = TopicShape::of(&subscription.filter);
            for broker in brokers {
                let readers = search.readers.entry(broker).or_default();
                readers.push((index, taken.clone()));
            }
            starts.push((index, taken));
        }
    }
    for (index, taken) in starts {
        search.enter(index, &taken);
    }
    search.found.sort_by(|a, b| a.closes.cmp(&b.closes));
    search.found
}

struct Search<'a> {
    routes: &'a [&'a RouteSpec],
    brokers: &'a BTreeMap<Name, Vec<String>>,
    /// What is read from each broker, and by which route.
    readers: BTreeMap<&'a String, Vec<(usize, TopicShape)>>,
    /// The bindings passed through, with the index of their route and what they published.
    path: Vec<(usize, BindingKey, String)>,
    /// What has been followed to its end, or to a loop that was noted.
    seen: HashSet<(usize, TopicShape)>,
    steps: usize,
    found: Vec<Loop>,
}

impl Search<'_> {
    /// Follows topics of the shape `input` that route `index` takes.
    fn enter(&mut self, index: usize, input: &TopicShape) {
        let Some(route) = self.routes.get(index).copied() else {
            return;
        };
        if self.seen.contains(&(index, input.clone())) || self.steps >= MAX_STEPS {
            return;
        }
        self.steps += 1;
        let visits = self.path.iter().filter(|(visited, ..)| *visited == index);
        let round = visits.count() > route.subscriptions.len();
        if round || self.path.len() >= MAX_HOPS {
            self.note(index, !round);
            return;
        }
        for binding in &route.bindings {
            let Some(brokers) = self.brokers.get(&binding.sink) else {
                continue;
            };
            let Some(output) = binding.topic.shape(input, &route.source, &route.name) else {
                continue;
            };
            let mut taken: Vec<(usize, TopicShape)> = Vec::new();
            for (next, filter) in brokers.iter().filter_map(|b| self.readers.get(b)).flatten() {
                // Brokers that stand in for one another have the same readers.
                if let Some(met) = filter.meet(&output).map(|met| (*next, met))
                    && !(brokers.len() > 1 && taken.contains(&met))
                {
                    taken.push(met);
                }
            }
            let key = BindingKey::new(route.name.clone(), binding.name.clone());
            let published = format!("`{output}` to {}", brokers.join(" or "));
            self.path.push((index, key, published));
            for (next, taken) in taken {
                self.enter(next, &taken);
            }
            self.path.pop();
        }
        self.seen.insert((index, input.clone()));
    }

    /// Keeps the round that has just come back to route `index`, or the way that does not end.
    fn note(&mut self, index: usize, endless: bool) {
        let mut visits = self.path.iter().enumerate();
        let mut visits = visits.by_ref().filter(|(_, (route, ..))| *route == index);
        let begin = visits.next().map_or(0, |(at, _)| at);
        let end = visits.next().map_or(self.path.len(), |(at, _)| at);
        let round = self.path.get(begin..end).unwrap_or_default();
        // Reported where the file closes it.
        let last = round.iter().max_by_key(|(route, ..)| *route);
        let Some(closes) = last.map(|(_, key, _)| key.clone()) else {
            return;
        };
        let steps: Vec<_> = round
            .iter()
            .map(|(_, key, published)| (key.clone(), published.clone()))
            .collect();
        let bindings = |l: &Loop| {
            let mut keys: Vec<_> = l.steps.iter().map(|(key, _)| key.clone()).collect();
            keys.sort();
            keys
        };
        let found = Loop {
            steps,
            closes,
            endless,
        };
        if !self.found.iter().any(|l| bindings(l) == bindings(&found)) {
            self.found.push(found);
        }
    }
}

#[cfg(test)]
mod tests;
