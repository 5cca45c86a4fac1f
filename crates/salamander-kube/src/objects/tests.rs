//! The pods of a job: what they must have whatever a template says, and what it may add.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::{Value, json};

use super::*;
use crate::Error;
use crate::job::Job;
use crate::names::PodRole;

fn job(more: Value) -> Job {
    let mut spec = json!({
        "image": "registry.example/mnist:1",
        "experiment": {"inline": {"entrypoint": "mnist"}},
        "workers": {"min": 1, "max": 4, "priority": "0.5"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    Job::new("mnist", "ml", serde_json::from_value(spec).expect("a spec")).expect("a job")
}

fn worker(job: &Job) -> Result<Pod, Error> {
    MemberPod { index: 2, process: 7, ..MemberPod::first(job, PodRole::Worker) }.build()
}

fn server(job: &Job) -> Result<Pod, Error> {
    MemberPod { index: 1, process: 9, ..MemberPod::first(job, PodRole::Ps) }.build()
}

fn parts(pod: &Pod) -> (&PodSpec, &Container) {
    let spec = pod.spec.as_ref().expect("a spec");
    (spec, &spec.containers[0])
}

#[test]
fn every_pod_is_locked_down() {
    let job = job(json!({}));
    let master = MasterPod { job: &job, number: 0, owner: None, resume: false }.build();
    for pod in [worker(&job), server(&job), master].map(|pod| pod.expect("a pod")) {
        let (spec, container) = parts(&pod);
        let security = spec.security_context.as_ref().expect("set");
        assert_eq!(security.run_as_non_root, Some(true));
        assert_eq!(security.seccomp_profile.as_ref().expect("set").type_, "RuntimeDefault");
        let security = container.security_context.as_ref().expect("set");
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.allow_privilege_escalation, Some(false));
        let dropped = security.capabilities.as_ref().and_then(|all| all.drop.clone());
        assert_eq!(dropped, Some(vec!["ALL".to_string()]));
        assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
        let text = serde_json::to_string(&pod).expect("written");
        assert!(!text.contains("SALAMANDER_TOKEN"), "the token is a file");
    }
}

#[test]
fn only_the_master_may_ask_the_api_server() {
    let job = job(json!({}));
    let pod = worker(&job).expect("a pod");
    assert_eq!(parts(&pod).0.automount_service_account_token, Some(false));
    assert_eq!(parts(&pod).0.service_account_name.as_deref(), Some("mnist-pods"));
    let master =
        MasterPod { job: &job, number: 3, owner: None, resume: true }.build().expect("a pod");
    assert_eq!(parts(&master).0.automount_service_account_token, Some(true));
    assert_eq!(parts(&master).0.service_account_name.as_deref(), Some("mnist-master"));
    let args = parts(&master).1.args.clone().expect("arguments");
    assert_eq!(args[..2], ["master", "/runs/mnist"]);
    assert_eq!(args.last().map(String::as_str), Some("--resume"));
    assert_eq!(master.metadata.name.as_deref(), Some("mnist-master-3"));
    let role = role(&job, None);
    let mut rules = role["rules"].as_array().expect("rules").iter();
    assert!(rules.all(|rule| !rule["verbs"].as_array().expect("verbs").contains(&json!("*"))));
}

#[test]
fn a_worker_knows_its_place_and_its_master() {
    let job = job(json!({}));
    let pod = worker(&job).expect("a pod");
    let args = parts(&pod).1.args.clone().expect("arguments").join(" ");
    assert_eq!(
        args,
        "worker /runs/mnist --experiment /etc/salamander/config/experiment.yaml --token-file \
         /etc/salamander/token/token --tls /etc/salamander/token \
         --master mnist-master.ml.svc:4455 --slot 2 --listen $(POD_IP) \
         --health 0.0.0.0:8081"
    );
    let ports = parts(&pod).1.ports.clone().expect("ports");
    let port = (ports[0].name.as_deref(), ports[0].container_port);
    assert_eq!(port, (Some("health"), 8081), "a PodMonitor finds it by this name");
    let labels = pod.metadata.labels.clone().expect("labels");
    for (key, value) in [
        ("app.kubernetes.io/name", "salamander"),
        ("app.kubernetes.io/instance", "mnist"),
        ("app.kubernetes.io/component", "worker"),
        ("salamander.dev/job", "mnist"),
        ("salamander.dev/role", "worker"),
        ("salamander.dev/index", "2"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(parts(&pod).0.priority_class_name.as_deref(), Some("salamander-low"));
}

#[test]
fn a_parameter_server_knows_its_seat_and_keeps_its_priority() {
    let ps = json!({"replicas": 2, "resources": {"limits": {"memory": "2Gi"}},
        "template": {"nodeSelector": {"memory": "much"}}});
    let job = job(json!({"strategy": "hybrid", "ps": ps, "storage": {"claimName": "runs"}}));
    let pod = server(&job).expect("a pod");
    let (spec, container) = parts(&pod);
    assert_eq!(
        container.args.clone().expect("arguments").join(" "),
        "ps /runs/mnist --experiment /etc/salamander/config/experiment.yaml --token-file \
         /etc/salamander/token/token --tls /etc/salamander/token \
         --master mnist-master.ml.svc:4455 --seat 1 --listen $(POD_IP) \
         --health 0.0.0.0:8081"
    );
    assert_eq!(pod.metadata.name.as_deref(), Some("mnist-ps-1-9"));
    let labels = pod.metadata.labels.clone().expect("labels");
    assert_eq!(
        (labels["salamander.dev/role"].as_str(), &*labels["salamander.dev/index"]),
        ("ps", "1")
    );
    let env = container.env.as_ref().expect("variables");
    let number = env.iter().find(|variable| variable.name == "SALAMANDER_PROCESS").expect("there");
    assert_eq!(number.value.as_deref(), Some("9"));
    let grace = env.iter().find(|variable| variable.name == "SALAMANDER_GRACE").expect("there");
    assert_eq!(grace.value.as_deref(), Some("55"), "less than the pod has");
    assert_eq!(spec.termination_grace_period_seconds, Some(60));
    assert_eq!(container_memory(&pod), Some(2 << 30));
    assert_eq!(spec.priority_class_name.as_deref(), Some("salamander-high"));
    assert_eq!(spec.node_selector.as_ref().expect("a selector")["memory"], "much");
    assert_eq!(spec.service_account_name.as_deref(), Some("mnist-pods"));
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.readiness_gates.as_ref().map(Vec::len), Some(1));
    let master = MasterPod { job: &job, number: 0, owner: None, resume: false }.build();
    let annotations = master.expect("a pod").metadata.annotations.expect("annotations");
    assert_eq!(annotations["salamander.dev/wanted-ps"], "2");
}

#[test]
fn a_template_adds_and_never_takes_away() {
    let template = json!({
        "labels": {"team": "a", "salamander.dev/role": "master"},
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 5}],
        "env": [{"name": "RUST_LOG", "value": "debug"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "mnist"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
        "terminationGracePeriodSeconds": 90,
    });
    let resources = json!({"requests": {"cpu": 2}, "limits": {"memory": "4Gi", "cpu": "2", "nvidia.com/gpu": 1}});
    let job = job(json!({"workers": {"max": 4, "template": template, "resources": resources}}));
    let pod = MemberPod { memory: Some(6 << 30), ..MemberPod::first(&job, PodRole::Worker) };
    let pod = pod.build().expect("a pod");
    let (spec, container) = parts(&pod);
    let labels = pod.metadata.labels.as_ref().expect("labels");
    assert_eq!((labels["team"].as_str(), labels["salamander.dev/role"].as_str()), ("a", "worker"));
    let limits = container.resources.as_ref().and_then(|all| all.limits.clone()).expect("limits");
    assert_eq!((limits["memory"].0.as_str(), limits["nvidia.com/gpu"].0.as_str()), ("6144Mi", "1"));
    assert_eq!(container_memory(&pod), Some(6 << 30));
    let env = container.env.as_ref().expect("variables");
    assert!(env.iter().any(|variable| variable.name == "RAYON_NUM_THREADS"));
    assert!(env.iter().any(|variable| variable.name == "RUST_LOG"));
    let tolerations = spec.tolerations.as_ref().expect("tolerations");
    assert_eq!(tolerations.len(), 3, "its own patience with nodes counts: {tolerations:?}");
    assert_eq!(spec.termination_grace_period_seconds, Some(90));
    assert!(spec.volumes.as_ref().expect("volumes").iter().any(|volume| volume.name == "data"));
}

#[test]
fn a_mistake_in_a_template_names_its_field() {
    let job = job(
        json!({"workers": {"max": 1, "template": {"volumes": [{"name": "x", "hostPath": 3}]}}}),
    );
    let error = worker(&job).expect_err("wrong").to_string();
    assert!(error.starts_with("spec.workers.template.volumes: "), "{error}");
}

#[test]
fn storage_is_a_claim_a_folder_or_nothing_that_lasts() {
    let volume = |storage: Value| {
        let job = job(json!({"storage": storage}));
        let pod = worker(&job).expect("a pod");
        let volumes = parts(&pod).0.volumes.clone().expect("volumes");
        let volume = volumes.into_iter().find(|volume| volume.name == "runs").expect("there");
        (serde_json::to_value(volume).expect("written"), claim(&job, None))
    };
    let (runs, own) = volume(json!({"size": "10Gi", "storageClassName": "nfs"}));
    assert_eq!(runs["persistentVolumeClaim"]["claimName"], "mnist-runs");
    assert_eq!(own.expect("a claim")["spec"]["accessModes"], json!(["ReadWriteMany"]));
    let (runs, own) = volume(json!({"claimName": "shared"}));
    assert_eq!((runs["persistentVolumeClaim"]["claimName"].as_str(), own), (Some("shared"), None));
    assert_eq!(volume(json!({"hostPath": "/mnt/runs"})).0["hostPath"]["path"], "/mnt/runs");
    assert!(volume(Value::Null).0["emptyDir"].is_object());
    let alone = json!({"size": "1Gi", "accessMode": "ReadWriteOnce", "scope": "Master"});
    assert!(volume(alone.clone()).0["emptyDir"].is_object(), "workers may run on other nodes");
    let job = job(json!({"storage": alone}));
    let master =
        MasterPod { job: &job, number: 0, owner: None, resume: false }.build().expect("a pod");
    let volumes = parts(&master).0.volumes.clone().expect("volumes");
    assert!(volumes.iter().any(|volume| volume.persistent_volume_claim.is_some()));
}

#[test]
fn keys_of_an_object_store_come_from_a_secret_and_go_to_those_that_use_it() {
    let store = json!({"objectStore": {"url": "s3://models/runs", "secretName": "keys"}});
    let job = job(json!({"checkpoints": store}));
    let master = MasterPod { job: &job, number: 0, owner: None, resume: false }.build();
    let named = |pod: Result<Pod, Error>| -> Vec<String> {
        let pod = pod.expect("a pod");
        let sources = parts(&pod).1.env_from.clone().unwrap_or_default();
        sources.into_iter().filter_map(|from| from.secret_ref).map(|secret| secret.name).collect()
    };
    assert_eq!(
        (named(master), named(worker(&job))),
        (vec!["keys".to_string()], vec!["keys".to_string()])
    );
    let servers: Vec<String> = named(server(&job));
    assert!(servers.is_empty(), "{servers:?}");
}
