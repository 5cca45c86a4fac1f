//! The admission policy in deploy/ that platform teams start from: what it lets in, and what it refuses with which
//! words. Its expressions are evaluated with CEL.

use kube::core::cel::{VapEvaluator, VapExpression};
use serde_json::{Value, json};

use fake_cluster::job;

use crate::manifests::objects;

const POLICY: &str = include_str!("../../../../deploy/policies/training-jobs.yaml");

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_string()
}

/// The expressions of the policy, with its variables written out.
fn expressions() -> Vec<VapExpression> {
    let spec = objects(POLICY).remove(0)["spec"].clone();
    let variables = spec["variables"].as_array().expect("variables").clone();
    let written = |expression: &Value| {
        // Later ones are made of earlier ones.
        variables.iter().rev().fold(text(expression), |whole, variable| {
            let name = format!("variables.{}", text(&variable["name"]));
            whole.replace(&name, &format!("({})", text(&variable["expression"])))
        })
    };
    let rules = spec["validations"].as_array().expect("validations").iter();
    let rules = rules.map(|rule| VapExpression {
        expression: written(&rule["expression"]),
        message: Some(text(&rule["message"])),
        message_expression: None,
    });
    rules.collect()
}

/// What the policy says of a job that is fine but for this.
fn refusals(more: Value) -> Vec<String> {
    let mut spec = json!({
        "image": "registry.example/salamander:1", "ttlSecondsAfterFinished": 60,
        "storage": {"hostPath": null, "size": "1Gi"},
    });
    for (name, value) in more.as_object().expect("a map") {
        spec[name] = value.clone();
    }
    let object = serde_json::to_value(job("j", (1, 4), spec)).expect("written");
    let evaluated = VapEvaluator::builder().object(object).build().evaluate(&expressions());
    evaluated.into_iter().filter_map(|rule| rule.message).collect()
}

fn check(more: Value, expected: &[&str]) {
    assert_eq!(refusals(more.clone()), expected, "{more}");
}

fn template(role: &str, part: Value) -> Value {
    match role {
        "ps" => json!({"strategy": "hybrid", "ps": {"replicas": 1, "template": part}}),
        role => json!({role: {"template": part}}),
    }
}

#[test]
fn a_job_as_a_team_writes_it_is_let_in() {
    check(json!({}), &[]);
    let part = json!({
        "serviceAccountName": "training-a",
        "env": [{"name": "A", "value": "b"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "training-keys", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "any", "key": "k"}}}],
        "envFrom": [{"secretRef": {"name": "training-keys"}}, {"configMapRef": {"name": "any"}}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "keys", "secret": {"secretName": "training-keys"}},
            {"name": "both", "projected": {"sources": [{"secret": {"name": "training-keys"}},
                {"configMap": {"name": "any"}}]}},
        ],
        "initContainers": [{"name": "fetch", "image": "registry.example/fetch:1",
            "envFrom": [{"secretRef": {"name": "training-keys"}}]}],
    });
    for role in ["workers", "master", "ps"] {
        check(template(role, part.clone()), &[]);
    }
    let store = json!({"objectStore": {"url": "s3://b/p", "secretName": "training-keys"}});
    check(json!({"checkpoints": store}), &[]);
    check(json!({"checkpoints": {"objectStore": {"url": "s3://b/p"}}}), &[]);
}

#[test]
fn what_a_team_may_not_say_is_refused_in_a_sentence() {
    check(json!({"image": "elsewhere/x:1"}), &["images come from registry.example"]);
    check(
        json!({"storage": {"hostPath": "/var"}}),
        &["storage.hostPath is not allowed; use storage.claimName or storage.size"],
    );
    check(json!({"workers": {"max": 65}}), &["at most 64 workers"]);
    let ttl = "say in ttlSecondsAfterFinished when the job may be deleted after its end";
    check(json!({"ttlSecondsAfterFinished": null}), &[ttl]);
    let classes = json!({"priorityClasses": {"high": "system-cluster-critical"}});
    check(classes, &["priority classes begin with salamander-"]);
    let store = json!({"objectStore": {"url": "s3://b/p", "secretName": "db"}});
    check(
        json!({"checkpoints": store}),
        &["secrets that jobs read begin with training- (checkpoints.objectStore)"],
    );
}

#[test]
fn no_role_is_a_way_round_the_policy() {
    let secret = json!({"secretKeyRef": {"name": "db", "key": "k"}});
    let node = json!({"name": "v", "hostPath": {"path": "/"}});
    let closed = "volumes are claims, empty folders, config maps, secrets, and what is projected";
    let of = |place: &str| format!("secrets that jobs read begin with training- ({place})");
    let parts: [(Value, Vec<String>); 9] = [
        (
            json!({"serviceAccountName": "admin"}),
            vec!["accounts of pods begin with training-".into()],
        ),
        (
            json!({"volumes": [node]}),
            vec!["volumes of the node are not allowed".into(), closed.into()],
        ),
        (json!({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}), vec![closed.into()]),
        (json!({"envFrom": [{"secretRef": {"name": "db"}}]}), vec![of("envFrom")]),
        (json!({"env": [{"name": "A", "valueFrom": secret}]}), vec![of("env")]),
        (
            json!({"initContainers": [{"name": "c", "env": [{"name": "A", "valueFrom": secret}]}]}),
            vec![of("env of initContainers")],
        ),
        (
            json!({"initContainers": [{"name": "c", "envFrom": [{"secretRef": {"name": "db"}}]}]}),
            vec![of("envFrom of initContainers")],
        ),
        (json!({"volumes": [{"name": "v", "secret": {"secretName": "db"}}]}), vec![of("volumes")]),
        (
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "db"}}]}}]}),
            vec![of("projected volumes")],
        ),
    ];
    for role in ["workers", "master", "ps"] {
        for (part, expected) in &parts {
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(template(role, part.clone()), &expected);
        }
        let image = json!({"initContainers": [{"name": "c", "image": "elsewhere/x"}]});
        check(template(role, image), &["images of initContainers come from registry.example"]);
    }
}
