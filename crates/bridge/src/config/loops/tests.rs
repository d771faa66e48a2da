use std::time::Duration;

use bridge_core::{QoS, Subscription, TemplateContext, Topic, TopicFilter, TopicTemplate};
use bridge_runtime::{
    BindingSpec, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull, OnExpired,
    OnFull, QueueBounds, RetainPolicy,
};
use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn binding(number: usize, sink: &str, topic: &str) -> BindingSpec {
    BindingSpec {
        name: name(&format!("b{number}")),
        sink: name(sink),
        topic: TopicTemplate::parse(topic).unwrap(),
        qos: None,
        retain: RetainPolicy::Keep,
        max_in_flight: 1.try_into().unwrap(),
        queue: QueueBounds {
            max_entries: 1,
            max_bytes: 1,
            on_full: OnFull::Backpressure,
        },
        deferral: DeferralSpec {
            window: Duration::from_secs(1),
            retry_interval: Duration::from_secs(1),
            max_entries: 1,
            max_bytes: 1,
        },
        dead_letters: DeadLetterBounds {
            max_entries: 1,
            max_bytes: 1,
            on_full: OnDeadLettersFull::DiscardNewest,
        },
        max_attempts: 1.try_into().unwrap(),
        on_expired: OnExpired::Drop,
    }
}

fn route(number: usize, source: &str, filters: &[&str], bindings: &[(&str, &str)]) -> RouteSpec {
    RouteSpec {
        name: name(&format!("r{number}")),
        source: name(source),
        subscriptions: filters
            .iter()
            .map(|filter| Subscription {
                filter: TopicFilter::parse(filter).unwrap(),
                qos: QoS::AtLeastOnce,
                no_local: false,
            })
            .collect(),
        mode: DeliveryMode::StoreAndForward,
        bindings: bindings
            .iter()
            .enumerate()
            .map(|(number, (sink, topic))| binding(number, sink, topic))
            .collect(),
    }
}

/// Three sessions at two brokers: `x` and `z` are at the same.
fn brokers() -> BTreeMap<Name, Vec<String>> {
    [("x", "one"), ("y", "two"), ("z", "one")]
        .into_iter()
        .map(|(session, broker)| (name(session), vec![broker.to_owned()]))
        .collect()
}

fn looped(routes: &[RouteSpec]) -> Vec<Loop> {
    let routes: Vec<&RouteSpec> = routes.iter().collect();
    find(&routes, &brokers())
}

/// How many bindings a message to `topic` at `broker` can pass through in a row, up to `limit`.
fn hops(routes: &[RouteSpec], broker: &str, topic: &Topic, limit: usize) -> usize {
    if limit == 0 {
        return 0;
    }
    let brokers = brokers();
    let mut most = 0;
    for route in routes {
        let takes = route.subscriptions.iter().any(|s| s.filter.matches(topic));
        if !takes || brokers[&route.source] != [broker] {
            continue;
        }
        for binding in &route.bindings {
            let context = TemplateContext {
                topic,
                session: &route.source,
                route: &route.name,
            };
            if let Ok(topic) = binding.topic.render(&context) {
                most = most.max(1 + hops(routes, &brokers[&binding.sink][0], &topic, limit - 1));
                if most == limit {
                    return most;
                }
            }
        }
    }
    most
}

#[test]
fn brokers_that_stand_in_for_one_another_close_a_loop() {
    let routes = [
        route(1, "x", &["a/#"], &[("y", "{topic}")]),
        route(2, "z", &["a/#"], &[("x", "{topic}")]),
    ];
    let routes: Vec<&RouteSpec> = routes.iter().collect();
    let looped = |y: &[&str], z: &[&str]| {
        let list = |of: &[&str]| of.iter().map(|&broker| broker.to_owned()).collect();
        let brokers = [("x", list(&["one"])), ("y", list(y)), ("z", list(z))];
        let brokers = brokers.map(|(session, list)| (name(session), list));
        find(&routes, &BTreeMap::from(brokers))
    };
    assert_eq!(looped(&["two", "three"], &["four", "five"]), []);
    let found = looped(&["two", "three"], &["three", "two"]);
    assert_eq!(found.len(), 1, "{found:?}");
    let said = found[0].to_string();
    assert!(said.contains("`a/#` to two or three"), "{said}");
}

#[test]
fn a_loop_says_the_way_of_its_first_round() {
    let routes = [
        route(1, "x", &["a/#"], &[("y", "b/{topic}")]),
        route(2, "y", &["b/#"], &[("z", "{topic[1..]}")]),
    ];
    let found = looped(&routes);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].closes.to_string(), "r2/b0");
    assert_eq!(
        found[0].to_string(),
        "r1/b0 publishes `b/a/#` to two, r2/b0 publishes `a/#` to one, which r1 takes again"
    );
}

#[test]
fn each_loop_is_found_once() {
    let routes = [
        route(1, "x", &["a/#"], &[("x", "{topic}"), ("y", "b")]),
        route(2, "y", &["b"], &[("y", "b")]),
    ];
    let closes: Vec<String> = looped(&routes)
        .iter()
        .map(|l| l.closes.to_string())
        .collect();
    assert_eq!(closes, ["r1/b0", "r2/b0"]);
}

#[test]
fn fanning_out_and_in_is_no_loop() {
    let routes = [
        route(1, "x", &["a/#"], &[("y", "m/{topic}"), ("y", "n/{topic}")]),
        route(2, "y", &["m/#", "n/#"], &[("z", "all/{topic}")]),
        route(3, "z", &["all/#"], &[("y", "archive/{topic}")]),
    ];
    assert_eq!(looped(&routes), []);
}

fn routes() -> impl Strategy<Value = Vec<RouteSpec>> {
    let session = || prop::sample::select(vec!["x", "y", "z"]);
    let filter = prop::sample::select(vec!["#", "a/#", "b/#", "a", "a/b", "+/a", "+", "a/+/#"]);
    let topic = prop::sample::select(vec![
        "{topic}",
        "a/{topic}",
        "b/{topic}",
        "{topic[1..]}",
        "{topic[1]}/{topic[0]}",
        "{topic[0]}",
        "a",
        "c/{topic}",
        "{topic[2..]}",
        "a/{topic[1..]}",
    ]);
    let route = (
        session(),
        prop::collection::vec(filter, 1..3),
        prop::collection::vec((session(), topic), 1..3),
    );
    prop::collection::vec(route, 1..4).prop_map(|routes| {
        let numbered = routes.into_iter().enumerate();
        numbered
            .map(|(number, (source, filters, bindings))| {
                self::route(number, source, &filters, &bindings)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn case_10_what_goes_round_is_found(
        routes in routes(),
        topic in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4),
        broker in prop::sample::select(vec!["one", "two"]),
    ) {
        let topic = Topic::parse(&topic.join("/")).unwrap();
        // Three routes of two filters are entered nine times at most where nothing goes round.
        if hops(&routes, broker, &topic, 14) == 14 {
            prop_assert!(!looped(&routes).is_empty());
        }
    }
}
