use proptest::prelude::*;

use super::*;

fn topic(text: &str) -> Topic {
    Topic::parse(text).unwrap()
}

fn filter(text: &str) -> TopicFilter {
    TopicFilter::parse(text).unwrap()
}

#[test]
fn a_topic_is_what_mqtt_allows() {
    for good in [
        "a",
        "/",
        "//",
        "a//b",
        "/a",
        "a/",
        "$SYS/x",
        "ü/温度/🔥",
        " ",
    ] {
        assert_eq!(topic(good).as_str(), good);
    }
    assert_eq!(Topic::parse(""), Err(InvalidTopic::Empty));
    assert_eq!(Topic::parse("a\0"), Err(InvalidTopic::Nul));
    assert_eq!(Topic::parse("a/+"), Err(InvalidTopic::Wildcard('+')));
    assert_eq!(Topic::parse("a#"), Err(InvalidTopic::Wildcard('#')));
    assert_eq!(Topic::from_bytes(&[0xff]), Err(InvalidTopic::NotUtf8));
    assert!(Topic::parse(&"a".repeat(65_535)).is_ok());
    assert_eq!(
        Topic::parse(&"a".repeat(65_536)),
        Err(InvalidTopic::TooLong(65_536))
    );
}

#[test]
fn a_filter_is_what_mqtt_allows() {
    for good in [
        "#",
        "+",
        "/",
        "a/#",
        "+/+",
        "/#",
        "a//+",
        "$SYS/#",
        "$share/g/#",
        "$share/g//a",
        "$shared/x",
        "$share_it",
    ] {
        assert_eq!(filter(good).as_str(), good);
    }
    assert_eq!(TopicFilter::parse(""), Err(InvalidFilter::Empty));
    assert_eq!(TopicFilter::parse("\0"), Err(InvalidFilter::Nul));
    for bad in ["a#", "#/a", "a/#/b", "##"] {
        assert!(
            matches!(
                TopicFilter::parse(bad),
                Err(InvalidFilter::MultiLevel { .. })
            ),
            "{bad}"
        );
    }
    for bad in ["a+", "+a/b", "++"] {
        assert!(
            matches!(
                TopicFilter::parse(bad),
                Err(InvalidFilter::SingleLevel { .. })
            ),
            "{bad}"
        );
    }
    for bad in [
        "$share",
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//a",
        "$share//g/a",
    ] {
        assert_eq!(TopicFilter::parse(bad), Err(InvalidFilter::Share), "{bad}");
    }
    assert!(matches!(
        TopicFilter::parse("$share/g+/a"),
        Err(InvalidFilter::ShareGroup(_))
    ));
}

#[test]
fn a_share_group_is_not_part_of_the_pattern() {
    let shared = filter("$share/g/a/+");
    assert_eq!(shared.share_group(), Some("g"));
    assert_eq!(shared.pattern(), "a/+");
    assert!(shared.matches(&topic("a/b")));
    assert_eq!(filter("a/+").share_group(), None);
}

#[test]
fn matching_follows_the_tables_of_the_standard() {
    for (wanted, published, expected) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        (
            "sport/tennis/player1/#",
            "sport/tennis/player1/score/wimbledon",
            true,
        ),
        ("sport/#", "sport", true),
        ("#", "a", true),
        ("#", "/", true),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("a//b", "a//b", true),
        ("a/+/b", "a//b", true),
        ("#", "$SYS/uptime", false),
        ("+/uptime", "$SYS/uptime", false),
        ("$share/g/#", "$SYS/uptime", false),
        ("$SYS/#", "$SYS/uptime", true),
        ("$SYS/+", "$SYS/uptime", true),
        ("a", "A", false),
        ("a/b", "a/b/c", false),
        ("a/b/c", "a/b", false),
    ] {
        assert_eq!(
            filter(wanted).matches(&topic(published)),
            expected,
            "{wanted} against {published}"
        );
    }
}

#[test]
fn covering_and_overlap() {
    for (wide, narrow) in [
        ("#", "a/b"),
        ("#", "+/#"),
        ("a/#", "a"),
        ("a/#", "a/+/c"),
        ("+/b", "a/b"),
        ("+/#", "a/#"),
    ] {
        assert!(filter(wide).covers(&filter(narrow)), "{wide} ⊇ {narrow}");
    }
    for (one, other) in [("a/+", "a/#"), ("a", "b"), ("#", "$SYS/#"), ("+", "$SYS")] {
        assert!(!filter(one).covers(&filter(other)), "{one} ⊉ {other}");
    }
    for (one, other, common) in [
        ("a/+", "+/b", Some("a/b")),
        ("a/#", "+/b/#", Some("a/b/#")),
        ("a/#", "a", Some("a")),
        ("#", "#", Some("#")),
        ("a/+", "b/+", None),
        ("#", "$SYS/#", None),
        ("$SYS/#", "$SYS/+", Some("$SYS/+")),
        ("a/b", "a", None),
    ] {
        let found = filter(one).intersection(&filter(other));
        assert_eq!(
            found.as_ref().map(TopicFilter::as_str),
            common,
            "{one} ∩ {other}"
        );
    }
}

fn any_level() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[abc]", Just("$x".to_owned())]
}

fn any_topic() -> impl Strategy<Value = Topic> {
    prop::collection::vec(any_level(), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter_map("not empty", |text| Topic::parse(&text).ok())
}

fn any_filter() -> impl Strategy<Value = TopicFilter> {
    let level = prop_oneof![3 => any_level(), 1 => Just("+".to_owned())];
    (prop::collection::vec(level, 0..5), any::<bool>()).prop_filter_map(
        "not empty",
        |(mut levels, multi)| {
            if multi {
                levels.push("#".to_owned());
            }
            TopicFilter::parse(&levels.join("/")).ok()
        },
    )
}

proptest! {
    #[test]
    fn an_intersection_holds_exactly_what_both_match(
        one in any_filter(), other in any_filter(), topic in any_topic()
    ) {
        let both = one.matches(&topic) && other.matches(&topic);
        let common = one.intersection(&other).is_some_and(|f| f.matches(&topic));
        prop_assert_eq!(both, common);
    }

    #[test]
    fn a_covering_filter_matches_whatever_the_covered_one_does(
        one in any_filter(), other in any_filter(), topic in any_topic()
    ) {
        if one.covers(&other) && other.matches(&topic) {
            prop_assert!(one.matches(&topic));
        }
    }

    #[test]
    fn no_text_panics_the_parsers(text in "[a$/+#\\x00ü]{0,8}") {
        let _ = Topic::parse(&text);
        if let Ok(filter) = TopicFilter::parse(&text) {
            let _ = (filter.share_group(), filter.pattern());
        }
    }
}
