//! The custom resource as the API server sees it: its rules are evaluated with CEL, and the file in deploy/ is
//! what the code prints.

use kube::core::cel::{validate_cel, validate_cel_update};
use salamander_kube::crd::{TrainingJob, TrainingJobSpec, definition, definition_yaml};
use serde_json::{Value, json};

use fake_cluster::job;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/base/crd.yaml");

fn refusal(result: Result<(), impl std::fmt::Display>) -> String {
    result.err().map(|errors| errors.to_string()).unwrap_or_default()
}

fn check(more: Value, expected: &str) {
    let refusal = refusal(validate_cel(&job("j", (2, 4), more.clone())));
    if expected.is_empty() {
        assert_eq!(refusal, "", "{more}");
    }
    assert!(refusal.contains(expected), "{more}: {refusal}");
}

#[test]
fn mistakes_are_refused_with_a_message() {
    check(json!({}), "");
    check(json!({"workers": {"replicas": 3}}), "");
    check(json!({"workers": {"min": 5}}), "workers.min must not be above workers.max");
    check(json!({"workers": {"replicas": 5}}), "workers.replicas must lie between");
    check(json!({"workers": {"replicas": 1}}), "workers.replicas must lie between");
    check(json!({"workers": {"maxMemory": "4Gi"}}), "workers.maxMemory needs");
    let limits = json!({"limits": {"memory": "1Gi"}});
    check(json!({"workers": {"maxMemory": "4Gi", "resources": limits}}), "");
    check(json!({"strategy": "ps"}), "need spec.ps");
    check(json!({"strategy": "ps", "ps": {"replicas": 2}}), "");
    let alone = json!({"scope": "Master"});
    check(
        json!({"strategy": "hybrid", "ps": {}, "storage": alone}),
        "need spec.storage that all pods share",
    );
    check(
        json!({"strategy": "hybrid", "ps": {}, "storage": null}),
        "need spec.storage that all pods share",
    );
    check(json!({"strategy": "hybrid", "ps": {"maxMemory": "4Gi"}}), "ps.maxMemory needs");
    check(
        json!({"experiment": {"inline": null}}),
        "either experiment.inline or experiment.configMap",
    );
    check(json!({"storage": {"size": "1Gi"}}), "write one of storage.claimName");
    check(json!({"storage": {"hostPath": null, "claimName": "data"}}), "");
    let store =
        |url: &str| json!({"checkpoints": {"objectStore": {"url": url, "secretName": "keys"}}});
    check(store("s3://bucket/prefix"), "");
    check(store("gs://bucket"), "");
    check(store("bucket/prefix"), "checkpoints.objectStore.url is s3://bucket/prefix");
    check(store("s3://id:secret@bucket/prefix"), "without credentials");
    check(store("s3:///prefix"), "checkpoints.objectStore.url is s3://bucket/prefix");
}

#[test]
fn names_that_pods_cannot_have_are_refused() {
    for wrong in ["1st", "a.b", "a-", "a123456789a123456789a123456789a123456789a"] {
        let refusal = refusal(validate_cel(&job(wrong, (1, 1), json!({}))));
        assert!(refusal.contains("a job's name has at most 40"), "{wrong}: {refusal}");
    }
    assert_eq!(refusal(validate_cel(&job("a-1", (1, 1), json!({})))), "");
}

#[test]
fn what_fixes_the_batches_cannot_be_changed() {
    let old = job("j", (1, 4), json!({}));
    let change = |more: Value| {
        let mut new = old.clone();
        let spec = serde_json::to_value(&old.spec).expect("written");
        let mut spec = spec.as_object().expect("a map").clone();
        for (key, value) in more.as_object().expect("a map") {
            match (spec.get_mut(key).and_then(Value::as_object_mut), value.as_object()) {
                (Some(known), Some(value)) => known.extend(value.clone()),
                _ => drop(spec.insert(key.clone(), value.clone())),
            }
        }
        new.spec = serde_json::from_value::<TrainingJobSpec>(spec.into()).expect("a spec");
        refusal(validate_cel_update(&new, &old))
    };
    assert_eq!(change(json!({"workers": {"replicas": 2}, "suspend": true})), "");
    assert!(
        change(json!({"workers": {"max": 5}})).contains("workers.max fixes how batches are cut")
    );
    assert!(change(json!({"image": "other"})).contains("image cannot be changed"));
}

#[test]
fn the_definition_is_structural_and_small_enough_for_kubectl() {
    let definition = serde_json::to_value(definition()).expect("written");
    let version = &definition["spec"]["versions"][0];
    assert_eq!(version["subresources"]["scale"]["specReplicasPath"], ".spec.workers.replicas");
    assert!(version["subresources"]["status"].is_object());
    assert!(version["additionalPrinterColumns"].as_array().expect("columns").len() >= 8);
    // kubectl keeps the last applied object in an annotation, which has a limit.
    assert!(definition.to_string().len() < 100_000, "{}", definition.to_string().len());
    fn walk(value: &Value, path: &str) {
        for wrong in ["$ref", "oneOf", "anyOf"] {
            assert!(value.get(wrong).is_none(), "{path} has {wrong}");
        }
        if let Some(format) = value.get("format").and_then(Value::as_str) {
            assert!(
                ["int32", "int64", "date-time", "double"].contains(&format),
                "{path}: {format}"
            );
        }
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| walk(value, &format!("{path}.{key}")))
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, path)),
            _ => {}
        }
    }
    walk(&version["schema"], "schema");
}

/// Everything that `kubectl explain` shows has a sentence of its own, without code.
#[test]
fn every_field_is_explained() {
    fn walk(value: &Value, path: &str) {
        for (name, field) in value["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let text = field["description"].as_str().unwrap_or_default();
            assert!(text.len() > 8, "{path} is not explained: {text:?}");
            assert!(!text.contains("```") && !text.contains("::"), "{path}: {text}");
            if field["x-kubernetes-preserve-unknown-fields"] != true {
                walk(field, &path);
                walk(&field["items"], &path);
            }
        }
    }
    let definition = serde_json::to_value(definition()).expect("written");
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for part in ["spec", "status"] {
        let text = schema["properties"][part]["description"].as_str().unwrap_or_default();
        assert!(text.len() > 8 && !text.contains("```"), "{part}: {text}");
        walk(&schema["properties"][part], part);
    }
}

/// Nothing that an earlier version has written is lost or read differently.
#[test]
fn jobs_that_earlier_versions_wrote_are_read_and_kept() {
    fn kept(old: &Value, new: &Value, path: &str) {
        match old.as_object() {
            Some(map) => {
                map.iter().for_each(|(name, old)| kept(old, &new[name], &format!("{path}.{name}")))
            }
            None => assert_eq!(old, new, "{path}"),
        }
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kube/stored");
    let mut found = 0;
    for file in std::fs::read_dir(folder).expect("a folder") {
        let path = file.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        let old: Value = serde_json::from_str(&text).expect("JSON");
        let job: TrainingJob = serde_json::from_value(old.clone()).expect("a job");
        assert_eq!(refusal(validate_cel(&job)), "", "{}", path.display());
        kept(&old, &serde_json::to_value(&job).expect("written"), "");
        found += 1;
    }
    assert!(found > 0);
    let versions = serde_json::to_value(definition()).expect("written")["spec"]["versions"].clone();
    let stored: Vec<&Value> =
        versions.as_array().expect("versions").iter().filter(|v| v["storage"] == true).collect();
    assert_eq!(stored.len(), 1);
    assert_eq!((&stored[0]["name"], &stored[0]["served"]), (&json!("v1alpha1"), &json!(true)));
}

#[test]
fn the_definition_in_deploy_is_what_the_code_prints() {
    let printed = definition_yaml(&definition()).expect("written");
    if std::env::var_os("SALAMANDER_BLESS").is_some() {
        std::fs::write(FILE, &printed).expect("written");
    }
    let file = std::fs::read_to_string(FILE).expect("deploy/base/crd.yaml");
    assert!(
        file == printed,
        "deploy/base/crd.yaml is out of date: `salamander crd > deploy/base/crd.yaml`"
    );
}

#[test]
fn a_status_survives_the_server() {
    let object = json!({
        "apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j"},
        "spec": serde_json::to_value(&job("j", (1, 2), json!({})).spec).expect("written"),
        "status": {"phase": "Running", "conditions": [{"type": "Valid", "status": "True", "reason": "Running",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "ps": {"wanted": 2, "ready": 1},
            "restarts": {"worker": 1, "ps": 0, "master": 0, "masterCrashes": 0}},
    });
    let job: TrainingJob = serde_json::from_value(object.clone()).expect("read");
    assert_eq!(serde_json::to_value(&job).expect("written")["status"], object["status"]);
}
