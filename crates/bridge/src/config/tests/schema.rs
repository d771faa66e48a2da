//! The JSON Schema and the reader agree.

use super::*;

#[test]
fn every_sample_is_good_and_matches_the_schema() {
    let schema = json_schema();
    let names = samples();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let text = sample(&name);
        let (config, report) = examine(&text);
        assert!(config.is_some(), "{}", report.render(Paint::Plain));
        assert_eq!(report.warnings().count(), 0, "{name}");
        let source = source::Source::new(name.clone(), text);
        let root = yaml::parse(&source).unwrap_or_else(|_| panic!("{name} is YAML"));
        let wrong = against(&schema, &json(&root), "");
        assert_eq!(wrong, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = json_schema();
    let minimal = sample("minimal.yaml");
    for (from, to) in [
        ("data_dir", "data_dri"),
        ("qos: 1", "qos: 3"),
        ("{ id: plant-7 }", "plant-7"),
        ("{ id: plant-7 }", "{ id: 7 }"),
        ("[\"sensors/#\"]", "[]"),
        ("[\"sensors/#\"]", "sensors/#"),
        ("client_id: plant-7-up", "client_id: up, keep_alive: 30"),
        ("client_id: plant-7-up", "client_id: up, keep_alive: \"30\""),
        ("client_id: plant-7-up", "client_id: up, max_in_flight: 257"),
        (
            "client_id: plant-7-up",
            "client_id: up, max_packet_size: 1mb",
        ),
        (
            "client_id: plant-7-up",
            "client_id: up, session_mode: clean",
        ),
        (
            "client_id: plant-7-up",
            "client_id: up, allow_plaintext_credentials: \"yes\"",
        ),
        (", client_id: plant-7-up", ""),
        ("  telemetry:", "  a b:"),
    ] {
        let minimal = minimal.replace(
            "topics: [\"sensors/#\"] }",
            "topics: [\"sensors/#\"], qos: 1 }",
        );
        assert!(minimal.contains(from), "{from}");
        let text = minimal.replace(from, to);
        assert!(examine(&text).0.is_none(), "{to} is read");
        let source = source::Source::new("x".to_owned(), text);
        let root = yaml::parse(&source).unwrap_or_else(|_| panic!("YAML"));
        assert!(
            !against(&schema, &json(&root), "").is_empty(),
            "{to} is valid"
        );
    }
}

#[test]
fn the_schema_is_published_as_it_is() {
    insta::assert_snapshot!("schema", format!("{:#}", json_schema()));
}

/// A tree as a YAML 1.2 reader makes JSON of it.
fn json(node: &Node) -> serde_json::Value {
    use serde_json::json;
    match &node.value {
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), json(&entry.node)))
            .collect(),
        Value::Scalar { text, plain: true } => match text.as_str() {
            "true" => json!(true),
            "false" => json!(false),
            "" | "~" | "null" => json!(null),
            text => text
                .parse::<u64>()
                .map_or_else(|_| json!(text), |number| json!(number)),
        },
        Value::Scalar { text, .. } => json!(text),
    }
}

/// What of `value` is against `schema`, for the words that our schema uses; any other word is a
/// failure, so that none is overlooked.
fn against(schema: &serde_json::Value, value: &serde_json::Value, path: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$schema" | "title" | "description" | "default" | "$comment" => true,
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_u64(),
                other => panic!("type {other}"),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_u64().is_some_and(|v| v >= rule.as_u64().unwrap()),
            "maximum" => value.as_u64().is_some_and(|v| v <= rule.as_u64().unwrap()),
            "pattern" => {
                let pattern = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "minItems" => value.as_array().is_none_or(|v| !v.is_empty()),
            "minProperties" => value.as_object().is_none_or(|v| !v.is_empty()),
            "anyOf" => {
                let mut rules = rule.as_array().unwrap().iter();
                rules.any(|rule| against(rule, value, path).is_empty())
            }
            "required" => {
                let mut names = rule.as_array().unwrap().iter();
                names.all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    wrong.extend(against(rule, item, &format!("{path}[]")));
                }
                true
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    if let Some(rule) = rule.get(name) {
                        wrong.extend(against(rule, value, &format!("{path}.{name}")));
                    }
                }
                true
            }
            "propertyNames" => {
                for name in value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name)
                {
                    let name = serde_json::Value::from(name.as_str());
                    wrong.extend(against(rule, &name, path));
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| known.get(name).is_none()) {
                        if rule.is_boolean() {
                            wrong.push(format!("{path}.{name}: unknown"));
                        } else {
                            wrong.extend(against(rule, value, &format!("{path}.{name}")));
                        }
                    }
                }
                true
            }
            other => panic!("the schema has the word {other}"),
        };
        if !holds {
            wrong.push(format!("{path}: {word}"));
        }
    }
    wrong
}
