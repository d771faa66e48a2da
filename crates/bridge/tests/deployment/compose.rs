//! `docker-compose.yml`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{USER, check, drain_timeout, image, read, root, schema, seconds, strings, yaml};

const SCHEMA: &str = include_str!("schemas/compose-spec.json");
const CONFIG: &str = "config/compose/bridge/bridge.yaml";
const REPLICAS: [&str; 2] = ["bridge-a", "bridge-b"];

fn compose() -> Value {
    yaml::document(&read("docker-compose.yml"))
}

#[test]
fn the_compose_file_fits_the_specification() {
    schema::against(SCHEMA, "", &compose()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_specification_refuses_what_it_does_not_know() {
    for (pointer, name, value) in [
        ("/services/bridge-a", "read_olny", json!(true)),
        ("/services/bridge-a", "cap_drop", json!("ALL")),
        ("/services/bridge-a/healthcheck", "retries", json!([3])),
        ("/services/plant", "restart", json!(1)),
    ] {
        let mut file = compose();
        file.pointer_mut(pointer).unwrap()[name] = value;
        assert!(
            schema::against(SCHEMA, "", &file).is_err(),
            "{pointer}/{name}"
        );
    }
}

#[test]
fn every_file_that_is_mounted_is_there() {
    let file = compose();
    let mut seen = 0;
    for (service, definition) in file["services"].as_object().unwrap() {
        for volume in strings(&definition["volumes"]) {
            let (from, to) = volume.split_once(':').unwrap();
            if from.starts_with('.') {
                assert!(root().join(from).exists(), "{service}: {from}");
                assert!(to.ends_with(":ro"), "{service}: {volume} can be written");
                seen += 1;
            } else {
                assert!(file["volumes"].get(from).is_some(), "{service}: {from}");
            }
        }
    }
    assert!(seen >= 5, "{seen} files");
}

#[test]
fn both_replicas_have_one_file_and_nothing_else_in_common() {
    let file = compose();
    let services = &file["services"];
    let mut own = Vec::new();
    for replica in REPLICAS {
        let service = &services[replica];
        assert_eq!(service["image"], json!(image()));
        assert_eq!(service["user"], json!(format!("{USER}:{USER}")));
        assert_eq!(service["hostname"], json!(replica));
        let volumes = strings(&service["volumes"]);
        assert_eq!(volumes.len(), 2, "{volumes:?}");
        assert_eq!(volumes[0], "./config/compose/bridge:/etc/bridge:ro");
        own.push(volumes[1]);
    }
    for volume in &own {
        assert!(volume.ends_with(":/var/lib/bridge"), "{volume}");
    }
    assert_ne!(own[0], own[1]);
    // What they have to have in common is written twice.
    let mut without = REPLICAS.map(|replica| services[replica].clone());
    for service in &mut without {
        let service = service.as_object_mut().unwrap();
        for name in ["hostname", "volumes", "ports"] {
            service.remove(name);
        }
    }
    assert_eq!(without[0], without[1]);
}

#[test]
fn every_container_is_confined_and_looked_after() {
    let file = compose();
    for (name, service) in file["services"].as_object().unwrap() {
        assert_eq!(service["read_only"], json!(true), "{name}");
        assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
        assert_eq!(
            service["security_opt"],
            json!(["no-new-privileges:true"]),
            "{name}"
        );
        assert!(service["healthcheck"]["test"].is_array(), "{name}");
        for port in strings(&service["ports"]) {
            assert!(
                port.starts_with("127.0.0.1:"),
                "{name}: {port} is open to everyone"
            );
        }
    }
    let config = read(CONFIG);
    for replica in REPLICAS {
        let service = &file["services"][replica];
        let grace = seconds(service["stop_grace_period"].as_str().unwrap());
        assert!(
            grace >= drain_timeout(&config) + Duration::from_secs(20),
            "{replica} is killed before it has stopped"
        );
        for (other, depends) in service["depends_on"].as_object().unwrap() {
            assert!(file["services"].get(other).is_some(), "{other}");
            assert_eq!(depends["condition"], json!("service_healthy"));
        }
    }
}

/// What Compose makes of a value: `${NAME:-default}` is its default, where nothing is set.
fn by_default(value: &str) -> String {
    let inner = value
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let default = inner.and_then(|inner| inner.split_once(":-"));
    default.map_or(value, |(_, default)| default).to_owned()
}

#[test]
fn bridge_check_is_satisfied_with_the_file_of_both() {
    let file = compose();
    for replica in REPLICAS {
        let environment = file["services"][replica]["environment"]
            .as_object()
            .unwrap();
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (name.clone(), by_default(value.as_str().unwrap())))
            .collect();
        check(&root().join(CONFIG), &[], &environment).unwrap_or_else(|said| panic!("{said}"));
    }
}
