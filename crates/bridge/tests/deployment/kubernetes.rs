//! `config/kubernetes/`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{USER, check, drain_timeout, image, items, read, root, schema, yaml};

const SCHEMA: &str = include_str!("schemas/kubernetes-1.34.json");
const SECRETS: &str = "/run/secrets/bridge";

/// Every object, by kind and name.
fn objects() -> BTreeMap<(String, String), Value> {
    let mut objects = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("config/kubernetes")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        for object in yaml::documents(&read(&format!("config/kubernetes/{file}"))) {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            let key = (text("/kind"), text("/metadata/name"));
            assert!(
                objects.insert(key.clone(), object).is_none(),
                "{key:?} twice"
            );
        }
    }
    objects
}

fn the(kind: &str, name: &str) -> Value {
    let mut objects = objects();
    let object = objects.remove(&(kind.to_owned(), name.to_owned()));
    object.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The two that run the bridge.
fn workloads() -> [Value; 2] {
    [
        the("Deployment", "bridge-scale-out"),
        the("StatefulSet", "bridge-pair"),
    ]
}

/// Where the schema of an object is.
fn pointer(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let kind = object["kind"].as_str().unwrap();
    let group = match version {
        "v1" => "core.v1".to_owned(),
        other => other.replace('/', "."),
    };
    format!("#/$defs/io.k8s.api.{group}.{kind}")
}

#[test]
fn every_manifest_fits_the_schema_of_kubernetes() {
    let objects = objects();
    assert!(objects.len() >= 8, "{:?}", objects.keys());
    for (key, object) in objects {
        let fits = schema::against(SCHEMA, &pointer(&object), &object);
        fits.unwrap_or_else(|error| panic!("{key:?}: {error}"));
    }
}

#[test]
fn the_schema_of_kubernetes_refuses_what_it_does_not_know() {
    let pod = "/spec/template/spec";
    for (pointer_to, name, value) in [
        ("/spec", "replica", json!(2)),
        ("/spec", "replicas", json!("two")),
        (pod, "terminationGracePeriod", json!(45)),
        (
            "/spec/template/spec/securityContext",
            "runAsUser",
            json!("nobody"),
        ),
        (
            "/spec/template/spec/containers/0",
            "readinessProb",
            json!({}),
        ),
    ] {
        for mut workload in workloads() {
            workload.pointer_mut(pointer_to).unwrap()[name] = value.clone();
            let fits = schema::against(SCHEMA, &pointer(&workload), &workload);
            assert!(fits.is_err(), "{pointer_to}/{name}");
        }
    }
}

#[test]
fn both_workloads_mount_files_of_the_one_config_map_as_a_folder() {
    let config_map = the("ConfigMap", "bridge");
    let secret = the("Secret", "bridge");
    let config_maps = objects()
        .keys()
        .filter(|(kind, _)| kind == "ConfigMap")
        .count();
    assert_eq!(config_maps, 1);
    let mut mounted = Vec::new();
    for workload in workloads() {
        let pod = &workload["spec"]["template"]["spec"];
        let mounts: BTreeMap<&str, &Value> = items(&pod["containers"][0]["volumeMounts"])
            .map(|mount| (mount["mountPath"].as_str().unwrap(), mount))
            .collect();
        for mount in mounts.values() {
            assert!(mount.get("subPath").is_none(), "{mount}: is never updated");
        }
        let volume = |path: &str| {
            let name = &mounts[path]["name"];
            items(&pod["volumes"]).find(|volume| volume["name"] == *name)
        };
        let config = &volume("/etc/bridge").unwrap()["configMap"];
        assert_eq!(config["name"], json!("bridge"));
        assert_eq!(config["items"].as_array().unwrap().len(), 1);
        assert_eq!(config["items"][0]["path"], json!("bridge.yaml"));
        let key = config["items"][0]["key"].as_str().unwrap();
        let text = config_map["data"][key].as_str().unwrap();
        mounted.push(key.to_owned());

        let secrets = &volume(SECRETS).unwrap()["secret"];
        assert_eq!(secrets["secretName"], json!("bridge"));
        for item in items(&secrets["items"]) {
            assert!(
                secret["stringData"]
                    .get(item["key"].as_str().unwrap())
                    .is_some()
            );
            let path = format!("{SECRETS}/{}", item["path"].as_str().unwrap());
            assert!(text.contains(&path), "{path} has no use in {key}");
        }

        let data_dir = yaml::document(text)["data_dir"]
            .as_str()
            .unwrap()
            .to_owned();
        let data = &mounts[data_dir.as_str()]["name"];
        let claims = items(&workload["spec"]["volumeClaimTemplates"]);
        let lasting = claims
            .filter(|claim| claim["metadata"]["name"] == *data)
            .count()
            == 1;
        let queued = !text.contains("delivery: direct_hold");
        assert_eq!(lasting, queued, "{key}: what is queued outlives the pod");
    }
    let all: Vec<_> = config_map["data"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    mounted.sort();
    assert_eq!(mounted, all);
}

#[test]
fn a_pod_is_confined() {
    for workload in workloads() {
        let pod = &workload["spec"]["template"]["spec"];
        let context = &pod["securityContext"];
        for (name, expected) in [
            ("runAsNonRoot", json!(true)),
            ("runAsUser", json!(USER)),
            ("runAsGroup", json!(USER)),
            ("fsGroup", json!(USER)),
            ("seccompProfile", json!({ "type": "RuntimeDefault" })),
        ] {
            assert_eq!(context[name], expected, "{name}");
        }
        let container = &pod["containers"][0];
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        });
        assert_eq!(container["securityContext"], expected);
        assert_eq!(pod["automountServiceAccountToken"], json!(false));
        assert_eq!(container["image"], json!(image()));
        assert!(
            pod.get("hostNetwork").is_none(),
            "pods of one node would have one hostname"
        );
    }
}

#[test]
fn a_pod_is_asked_where_the_bridge_answers_and_has_the_time_to_drain() {
    let config_map = the("ConfigMap", "bridge");
    for text in config_map["data"].as_object().unwrap().values() {
        let text = text.as_str().unwrap();
        let listen = yaml::document(text)["monitor"]["listen"].clone();
        assert_eq!(listen, json!("0.0.0.0:9090"));
        for workload in workloads() {
            let pod = &workload["spec"]["template"]["spec"];
            let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
            let margin = Duration::from_secs(20);
            assert!(Duration::from_secs(grace) >= drain_timeout(text) + margin);
        }
    }
    for workload in workloads() {
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        let port = json!({ "name": "monitor", "containerPort": 9_090 });
        assert_eq!(container["ports"], json!([port]));
        for (probe, path) in [
            ("startupProbe", "/livez"),
            ("livenessProbe", "/livez"),
            ("readinessProbe", "/readyz"),
        ] {
            let asked = json!({ "path": path, "port": "monitor" });
            assert_eq!(container[probe]["httpGet"], asked, "{probe}");
        }
    }
}

#[test]
fn what_selects_pods_finds_those_of_one_workload() {
    let labels: Vec<_> = workloads()
        .iter()
        .map(|workload| {
            let labels = workload["spec"]["template"]["metadata"]["labels"].clone();
            assert_eq!(workload["spec"]["selector"]["matchLabels"], labels);
            labels
        })
        .collect();
    let found = |selector: &Value| -> usize {
        let wanted = selector.as_object().unwrap();
        let matches = |labels: &&Value| wanted.iter().all(|(name, value)| labels[name] == *value);
        labels.iter().filter(matches).count()
    };
    for ((kind, name), object) in objects() {
        match kind.as_str() {
            "PodDisruptionBudget" => {
                assert_eq!(
                    found(&object["spec"]["selector"]["matchLabels"]),
                    1,
                    "{name}"
                );
            }
            "Service" => {
                let all = usize::from(name == "bridge-monitor") + 1;
                assert_eq!(found(&object["spec"]["selector"]), all, "{name}");
                assert_eq!(object["spec"]["ports"][0]["targetPort"], json!("monitor"));
            }
            _ => {}
        }
    }
    let pair = the("StatefulSet", "bridge-pair");
    let service = the("Service", pair["spec"]["serviceName"].as_str().unwrap());
    assert_eq!(service["spec"]["clusterIP"], json!("None"));
}

#[test]
fn bridge_check_is_satisfied_with_every_file_of_the_config_map() {
    let config_map = the("ConfigMap", "bridge");
    let secret = the("Secret", "bridge");
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in secret["stringData"].as_object().unwrap() {
        std::fs::write(folder.path().join(name), value.as_str().unwrap()).unwrap();
    }
    let here = folder.path().to_str().unwrap();
    for (key, text) in config_map["data"].as_object().unwrap() {
        let text = text.as_str().unwrap();
        assert!(text.contains(SECRETS), "{key}");
        let file = folder.path().join(key);
        std::fs::write(&file, text.replace(SECRETS, here)).unwrap();
        let satisfied = check(&file, &["--deny-warnings"], &[]);
        satisfied.unwrap_or_else(|said| panic!("{said}"));
    }
}
