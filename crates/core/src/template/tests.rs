use proptest::prelude::*;

use super::*;
use crate::TopicFilter;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn render(template: &str, topic: &str) -> Result<String, RenderError> {
    let context = TemplateContext {
        topic: &Topic::parse(topic).unwrap(),
        session: &name("plant"),
        route: &name("telemetry"),
    };
    let template = TopicTemplate::parse(template).unwrap();
    template.render(&context).map(|t| t.as_str().to_owned())
}

#[test]
fn placeholders_stand_for_what_they_say() {
    for (template, topic, expected) in [
        ("{topic}", "a/b", "a/b"),
        ("plants/7/{topic}", "a//b", "plants/7/a//b"),
        ("{topic[0]}", "a/b", "a"),
        ("{topic[1]}", "a/b", "b"),
        ("{topic[..]}", "a/b", "a/b"),
        ("{topic[1..]}", "a/b/c", "b/c"),
        ("{topic[2..]}", "a/b/c", "c"),
        ("{topic[..2]}", "a/b/c", "a/b"),
        ("{topic[..3]}", "a/b/c", "a/b/c"),
        ("{topic[1..3]}", "a/b/c/d", "b/c"),
        ("{topic[1]}/x/{topic[0]}", "a/b", "b/x/a"),
        ("{topic[1]}", "/b", "b"),
        ("x{topic[0]}y", "/b", "xy"),
        ("{session}/{route}/{topic}", "a", "plant/telemetry/a"),
        ("{{{topic}}}", "a", "{a}"),
        ("{{topic}}", "a", "{topic}"),
        ("ü/{topic[1]}", "x/温度", "ü/温度"),
        ("{topic[2..]}", "//x", "x"),
        ("{topic[1..]}", "a//", "/"),
        ("constant", "a", "constant"),
    ] {
        assert_eq!(
            render(template, topic).as_deref(),
            Ok(expected),
            "{template} of {topic}"
        );
    }
}

#[test]
fn a_level_that_is_not_there_gives_no_topic() {
    for (template, topic, need, have) in [
        ("{topic[1]}", "a", 2, 1),
        ("{topic[2..]}", "plants/7", 3, 2),
        ("{topic[..2]}", "a", 2, 1),
        ("{topic[1..3]}", "a/b", 3, 2),
        ("x/{topic[5]}", "a/b", 6, 2),
    ] {
        assert_eq!(
            render(template, topic),
            Err(RenderError::MissingLevel { need, have }),
            "{template} of {topic}"
        );
    }
    assert_eq!(
        render("{topic[2..]}", "plants/7/"),
        Err(RenderError::Topic(InvalidTopic::Empty))
    );
    let long = "a/".repeat(32_767);
    assert!(matches!(
        render("xyz/{topic}", &long),
        Err(RenderError::Topic(InvalidTopic::TooLong(_)))
    ));
}

#[test]
fn what_is_wrong_with_a_template_is_said_with_its_place() {
    use TemplateProblem::{EmptyRange, Nul, Range, Unclosed, Unknown, Unopened, Wildcard};
    for (text, start, end, problem) in [
        ("", 0, 0, TemplateProblem::Empty),
        ("a/{topic", 2, 8, Unclosed),
        ("a}/b", 1, 2, Unopened),
        ("ü/{topik}", 3, 10, Unknown("topik".into())),
        ("{}", 0, 2, Unknown(String::new())),
        ("{topic[}", 0, 8, Unknown("topic[".into())),
        ("{topic[]}", 0, 9, Range(String::new())),
        ("{topic[-1]}", 0, 11, Range("-1".into())),
        ("{topic[+1]}", 0, 11, Range("+1".into())),
        ("{topic[1..=2]}", 0, 14, Range("1..=2".into())),
        (
            "{topic[99999999999999999999]}",
            0,
            29,
            Range("9".repeat(20)),
        ),
        ("{topic[2..1]}", 0, 13, EmptyRange("2..1".into())),
        ("{topic[..0]}", 0, 12, EmptyRange("..0".into())),
        ("a/+/b", 2, 3, Wildcard('+')),
        ("a/#", 2, 3, Wildcard('#')),
        ("a\0", 1, 2, Nul),
    ] {
        let error = TopicTemplate::parse(text).unwrap_err();
        let expected = InvalidTemplate {
            start,
            end,
            problem,
        };
        assert_eq!(error, expected, "{text:?}");
    }
}

#[test]
fn a_prefix_is_replaced_by_whole_levels() {
    for (strip, add, topic, expected) in [
        (0, "", "a/b", "a/b"),
        (0, "x/", "a/b", "x/a/b"),
        (2, "", "plants/7/a", "a"),
        (2, "x/", "plants/7/a/b", "x/a/b"),
        (1, "", "/a", "a"),
        (2, "", "//a", "a"),
        (0, "/", "a", "/a"),
        (0, "//", "a", "//a"),
        (0, "{topic}/", "a", "{topic}/a"),
    ] {
        let template = TopicTemplate::replacing_prefix(strip, add).unwrap();
        assert_eq!(
            render(template.as_str(), topic).as_deref(),
            Ok(expected),
            "{strip} {add:?}"
        );
    }
    assert!(TopicTemplate::replacing_prefix(0, "a/#/").is_err());
    assert!(render("{topic[2..]}", "plants/7").is_err());
}

fn shape(template: &str, filter: &str) -> Option<String> {
    let filter = TopicShape::of(&TopicFilter::parse(filter).unwrap());
    let template = TopicTemplate::parse(template).unwrap();
    let shape = template.shape(&filter, &name("plant"), &name("telemetry"))?;
    Some(shape.to_string())
}

#[test]
fn a_shape_says_what_a_template_can_produce() {
    for (template, filter, expected) in [
        ("{topic}", "#", Some("#")),
        ("{topic}", "a/+/#", Some("a/+/#")),
        ("x/{topic}", "$share/g/a/#", Some("x/a/#")),
        ("{topic[1..]}", "a/b/#", Some("b/#")),
        ("{topic[2..]}", "a/b/#", Some("#")),
        ("{topic[2..]}", "a/b", None),
        ("{topic[2]}", "a/+", None),
        ("{topic[2]}", "a/#", Some("+")),
        ("{topic}/end", "a/#", Some("a/#")),
        ("{topic}end", "a/#", Some("a+/#")),
        ("pre{topic[1]}suf", "a/+", Some("pre+suf")),
        ("{session}/{route}", "a", Some("plant/telemetry")),
        ("{topic[1]}", "a/", None),
        ("{topic}", "/", Some("/")),
    ] {
        assert_eq!(
            shape(template, filter).as_deref(),
            expected,
            "{template} of {filter}"
        );
    }
}

#[test]
fn what_is_too_long_for_mqtt_is_never_produced() {
    let twice = TopicTemplate::parse("{topic}/{topic}").unwrap();
    let mut shape = TopicShape::of(&TopicFilter::parse("a/+").unwrap());
    let mut rounds = 0;
    while let Some(next) = twice.shape(&shape, &name("plant"), &name("telemetry")) {
        shape = next;
        rounds += 1;
    }
    // "a/" and at least nothing are 2 bytes, doubled and a slash each time.
    assert_eq!(rounds, 14);
}

#[test]
fn shapes_that_cannot_meet_do_not() {
    let of = |filter| TopicShape::of(&TopicFilter::parse(filter).unwrap());
    for (a, b, meet) in [
        ("a/#", "a/b", true),
        ("a/#", "a", true),
        ("a/#", "b/#", false),
        ("+", "a/b", false),
        ("#", "$SYS/x", false),
        ("+/x", "$SYS/x", false),
        ("$SYS/#", "$SYS/+", true),
        ("a/+/c", "+/b/#", true),
        ("#", "/", true),
        ("a/+", "a", false),
    ] {
        assert_eq!(of(a).meet(&of(b)).is_some(), meet, "{a} and {b}");
    }
    let like = |template: &str| {
        let template = TopicTemplate::parse(template).unwrap();
        template
            .shape(&of("s/+"), &name("plant"), &name("telemetry"))
            .unwrap()
    };
    assert!(like("out-{topic[1]}").meet(&of("sensors")).is_none());
    assert!(like("out-{topic[1]}").meet(&of("out-1")).is_some());
    assert!(
        like("out-{topic[1]}")
            .meet(&like("in-{topic[1]}"))
            .is_none()
    );
    // A later level may begin with `$`, and then be the first.
    assert!(like("{topic[1]}").meet(&of("$SYS")).is_some());
}

/// Levels that make edge cases likely.
fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "b", "ab", "$x", "plant"])
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("a topic is not empty", |text| !text.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let levels = prop::collection::vec(prop_oneof![level(), Just("+")], 1..4);
    (levels, any::<bool>()).prop_map(|(levels, open)| match (levels.join("/"), open) {
        (text, true) if text.is_empty() => "#".to_owned(),
        (text, true) => format!("{text}/#"),
        (text, false) if text.is_empty() => "#".to_owned(),
        (text, false) => text,
    })
}

/// A topic, and a filter that it (nearly always) matches: levels made wild, the rest cut off.
fn matching() -> impl Strategy<Value = (String, String)> {
    let wild = prop::collection::vec(any::<bool>(), 5);
    (topic(), wild, prop::option::of(0..5_usize)).prop_map(|(topic, wild, cut)| {
        let mut levels: Vec<&str> = topic
            .split('/')
            .zip(wild)
            .map(|(level, wild)| if wild { "+" } else { level })
            .collect();
        if let Some(cut) = cut {
            levels.truncate(cut);
            levels.push("#");
        }
        let filter = levels.join("/");
        (topic, filter)
    })
}

fn template() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "{topic}",
        "{topic[0]}",
        "{topic[1]}",
        "{topic[1..]}",
        "{topic[2..]}",
        "{topic[..2]}",
        "{session}",
        "{route}",
        "a",
        "$x",
        "/",
        "//",
        "b/a",
        "{{",
    ]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_filters_shape_is_the_filter(filter in filter(), topic in topic()) {
        let filter = TopicFilter::parse(&filter).unwrap();
        let topic = Topic::parse(&topic).unwrap();
        prop_assert_eq!(TopicShape::of(&filter).contains(&topic), filter.matches(&topic));
    }

    #[test]
    fn a_shape_holds_all_that_a_template_renders(
        template in template(),
        (topic, filter) in matching(),
    ) {
        let filter = TopicFilter::parse(&filter).unwrap();
        let topic = Topic::parse(&topic).unwrap();
        prop_assume!(filter.matches(&topic));
        let template = TopicTemplate::parse(&template).unwrap();
        let (session, route) = (name("plant"), name("telemetry"));
        let context = TemplateContext { topic: &topic, session: &session, route: &route };
        if let Ok(rendered) = template.render(&context) {
            let shape = template.shape(&TopicShape::of(&filter), &session, &route);
            prop_assert!(
                shape.as_ref().is_some_and(|shape| shape.contains(&rendered)),
                "{:?} does not hold {}", shape, rendered
            );
        }
    }

    #[test]
    fn what_is_in_both_is_where_they_meet(a in filter(), b in filter(), topic in topic()) {
        let shape = |text: &str| TopicShape::of(&TopicFilter::parse(text).unwrap());
        let (a, b) = (shape(&a), shape(&b));
        let topic = Topic::parse(&topic).unwrap();
        let both = a.contains(&topic) && b.contains(&topic);
        let met = a.meet(&b).is_some_and(|met| met.contains(&topic));
        prop_assert_eq!(both, met);
    }

    #[test]
    fn any_text_is_a_template_or_an_error_with_a_place(text in "[a-c{}\\[\\].0-9topicüé/+#]{0,24}") {
        match TopicTemplate::parse(&text) {
            Ok(template) => prop_assert_eq!(template.as_str(), text),
            Err(error) => prop_assert!(text.get(error.start..error.end).is_some()),
        }
    }
}
