//! Everything that is handed to `kubectl apply`, checked against Kubernetes' own schemas
//! (`kubernetes-validate`, strict, 1.34), without a cluster. SALAMANDER_PYTHON names a Python that has it;
//! without one this is skipped, unless SALAMANDER_NO_SKIPS is set.

use std::path::{Path, PathBuf};
use std::process::Command;

use kube::core::cel::validate_cel;
use salamander_kube::crd::TrainingJob;
use salamander_kube::experiment;
use salamander_kube::flow::FlowPod;
use salamander_kube::job::Job;
use salamander_kube::manifest::Manifest;
use salamander_kube::names::PodRole;
use salamander_kube::objects::{MasterPod, MemberPod};
use salamander_kube::secrets::Secrets;
use salamander_kube::serving::{ServingDeployment, documents};
use serde_json::{Value, json};

use fake_cluster::job;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const VERSION: &str = "1.34";

/// Objects of a file; documents are divided by lines of three dashes.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").filter(|part| part.lines().any(|line| !is_comment(line)));
    let parse = |part: &str| {
        let part = part.trim_start_matches("---\n");
        salamander_core::yaml::parse(part)
            .unwrap_or_else(|error| panic!("{error}\n{part}"))
            .to_json()
    };
    documents.map(parse).collect()
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#') || line == "---"
}

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(DEPLOY).join(folder)).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.retain(|path| path.file_name().is_some_and(|name| name != "kustomization.yaml"));
    files.sort();
    files
}

/// All of them at once, since the schemas take a second or two to load.
pub(crate) fn validate(python: &str, name: &str, objects: &[Value]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(python);
    command.current_dir(folder.path());
    command.args(["-m", "kubernetes_validate", "--strict", "-k", VERSION]);
    let others = ["TrainingJob", "PodGroup", "PodMonitor", "ServingRuntime", "InferenceService"];
    let mut known = 0;
    for (number, object) in objects.iter().enumerate() {
        let kind = object["kind"].as_str().unwrap_or("object without a kind");
        if others.contains(&kind) {
            continue;
        }
        let file = format!("{number}-{kind}.json");
        std::fs::write(folder.path().join(&file), object.to_string()).expect("written");
        command.arg(file);
        known += 1;
    }
    if known == 0 {
        return;
    }
    let output = command.output().expect("python starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("failed"), "{name}: {text}{errors}");
    let passed = text.lines().filter(|line| line.contains("passed")).count();
    assert_eq!(passed, known, "{name}: {text}{errors}");
}

/// Jobs that use every part of the spec.
fn all_jobs() -> Vec<Job> {
    let template = json!({
        "labels": {"team": "a"}, "annotations": {"b": "c"}, "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
            "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"salamander.dev/job": "full"}}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "k"}}}],
        "envFrom": [{"configMapRef": {"name": "x", "optional": true}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
        "runtimeClassName": "nvidia", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 60, "runAsUser": 1000, "fsGroup": 2000,
        "serviceAccountName": "cloud",
        "initContainers": [{"name": "fetch", "image": "i"},
            {"name": "proxy", "image": "i", "restartPolicy": "Always"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    });
    let resources = json!({
        "requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi", "nvidia.com/gpu": 1},
        "claims": [{"name": "gpu"}],
    });
    let full = json!({
        "imagePullPolicy": "IfNotPresent", "imagePullSecrets": ["registry"], "command": ["/model"],
        "workers": {"priority": "0.5", "resources": resources, "maxMemory": "8Gi", "template": template},
        "master": {"resources": {"requests": {"cpu": 1}}, "template": {"labels": {"team": "a"}}, "maxCrashes": 3},
        "storage": {"hostPath": null, "size": "10Gi", "storageClassName": "nfs"},
        "strategy": "hybrid",
        "ps": {"replicas": 2, "resources": resources, "maxMemory": "8Gi", "template": template},
    });
    let jobs = [job("plain", (1, 2), json!({})), job("full", (1, 4), full)];
    let mut jobs: Vec<Job> =
        jobs.iter().map(|resource| Job::from_resource(resource).expect("a job")).collect();
    // With a budget for its servers.
    jobs.push(jobs[1].clone().operated("uid"));
    jobs
}

#[test]
fn everything_that_is_applied_fits_kubernetes_own_schemas() {
    let Ok(python) = std::env::var("SALAMANDER_PYTHON") else {
        let needed = std::env::var_os("SALAMANDER_NO_SKIPS").is_some();
        assert!(!needed, "SALAMANDER_PYTHON names no Python with kubernetes-validate");
        println!("SKIPPED: SALAMANDER_PYTHON names no Python with kubernetes-validate");
        return;
    };
    let mut applied = Vec::new();
    for folder in ["base", "samples", "monitoring", "policies", "overlays/namespaced"] {
        for file in files(folder) {
            applied.extend(objects(&std::fs::read_to_string(&file).expect("a file")));
        }
    }
    validate(&python, "deploy", &applied);
    let secrets = Secrets::random().expect("randomness");
    for job in all_jobs() {
        let manifest = Manifest::new(&job, "entrypoint: mnist\n", &secrets).expect("made");
        // The text is what people apply.
        assert_eq!(objects(&manifest.to_yaml()), manifest.objects());
        let [worker, server] =
            [PodRole::Worker, PodRole::Ps].map(|role| MemberPod::first(&job, role));
        let master = MasterPod { job: &job, number: 1, owner: None, resume: true };
        let pods = [worker.build(), server.build(), master.build()];
        let pods = pods.map(|pod| json!(pod.expect("a pod")));
        validate(&python, &job.name, &[manifest.objects(), &pods].concat());
    }
}

#[test]
fn what_serves_models_fits_kubernetes_own_schemas() {
    let Ok(python) = std::env::var("SALAMANDER_PYTHON") else {
        let needed = std::env::var_os("SALAMANDER_NO_SKIPS").is_some();
        assert!(!needed, "SALAMANDER_PYTHON names no Python with kubernetes-validate");
        println!("SKIPPED: SALAMANDER_PYTHON names no Python with kubernetes-validate");
        return;
    };
    let plain = ServingDeployment {
        name: "digits".to_string(),
        namespace: "default".to_string(),
        image: "registry.example/salamander:0.1.0".to_string(),
        models: vec!["digits=/models/mnist".to_string()],
        arguments: vec!["--watch".to_string()],
        claim: "runs".to_string(),
        min_replicas: 1,
        max_replicas: 1,
        waiting: 8,
        cpu: "500m".to_string(),
        memory: "1Gi".to_string(),
        token_secret: None,
    };
    let token_secret = Some("token".to_string());
    let full =
        ServingDeployment { min_replicas: 2, max_replicas: 9, token_secret, ..plain.clone() };
    for (deployment, kinds) in [(plain, 2), (full, 4)] {
        let made = deployment.objects().expect("made");
        assert_eq!(made.len(), kinds);
        validate(&python, "serving", &made);
        assert_eq!(objects(&documents(&made)), made);
        // KServe's own kinds: their pods are a pod's, which Kubernetes knows.
        let kserve = deployment.kserve_objects().expect("made");
        assert_eq!(objects(&documents(&kserve)), kserve);
        let spec = &kserve[0]["spec"];
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runtime"},
            "spec": {"containers": spec["containers"], "volumes": spec["volumes"]},
        });
        validate(&python, "runtime", &[pod]);
        assert_eq!(
            kserve[1]["spec"]["predictor"]["model"]["runtime"],
            kserve[0]["metadata"]["name"]
        );
    }
}

#[test]
fn what_runs_a_flow_fits_kubernetes_own_schemas() {
    let Ok(python) = std::env::var("SALAMANDER_PYTHON") else {
        let needed = std::env::var_os("SALAMANDER_NO_SKIPS").is_some();
        assert!(!needed, "SALAMANDER_PYTHON names no Python with kubernetes-validate");
        println!("SKIPPED: SALAMANDER_PYTHON names no Python with kubernetes-validate");
        return;
    };
    let line = "run adults --in /data/people.csv --set unit=10 --out /data/adults --stream";
    let flow = FlowPod {
        name: "adults".to_string(),
        namespace: "default".to_string(),
        image: "registry.example/flows:1".to_string(),
        arguments: line.split(' ').map(str::to_string).collect(),
        claim: "data".to_string(),
        workers: 4,
        retries: 6,
        cpu: "4".to_string(),
        memory: "8Gi".to_string(),
    };
    let job = flow.object().expect("made");
    let only = std::slice::from_ref(&job);
    assert_eq!(objects(&documents(only)), only);
    validate(&python, "flow", &[job]);
}

const OVERLAYS: [&str; 6] = [
    "base",
    "overlays/development",
    "overlays/production",
    "overlays/namespaced",
    "overlays/monitored",
    "samples",
];

/// The objects that an overlay is made of, before its patches, each of which has one to change.
fn parts_of(overlay: &Path) -> Vec<Value> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        objects(&text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    let file = read(&overlay.join("kustomization.yaml")).remove(0);
    let list = |key: &str| file[key].as_array().cloned().unwrap_or_default();
    let mut parts = Vec::new();
    for name in [list("resources"), list("components")].concat() {
        let path = overlay.join(name.as_str().expect("a path"));
        parts.extend(if path.is_dir() { parts_of(&path) } else { read(&path) });
    }
    for patch in list("patches") {
        let (kind, name) = match patch["target"].is_object() {
            true => (patch["target"]["kind"].clone(), patch["target"]["name"].clone()),
            false => {
                let object = objects(patch["patch"].as_str().expect("a patch")).remove(0);
                (object["kind"].clone(), object["metadata"]["name"].clone())
            }
        };
        let is_target = |part: &Value| part["kind"] == kind && part["metadata"]["name"] == name;
        let shown = overlay.display();
        assert!(parts.iter().any(is_target), "{shown}: there is no {kind} {name} to patch");
    }
    parts
}

#[test]
fn overlays_name_what_is_there() {
    for folder in OVERLAYS {
        assert!(parts_of(&Path::new(DEPLOY).join(folder)).len() > 1, "{folder}");
    }
}

/// Debian's kubectl is too old for this, so that not every machine has one.
#[test]
fn overlays_can_be_built_and_fit() {
    if Command::new("kubectl").arg("help").output().is_err() {
        println!("without kubectl overlays are read, and not built");
        return;
    }
    for folder in OVERLAYS {
        let mut command = Command::new("kubectl");
        let output =
            command.arg("kustomize").arg(Path::new(DEPLOY).join(folder)).output().expect("kubectl");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{folder}: {errors}");
        let built = objects(&String::from_utf8_lossy(&output.stdout));
        assert!(built.len() > 1, "{folder}");
        if let Ok(python) = std::env::var("SALAMANDER_PYTHON") {
            validate(&python, folder, &built);
        }
    }
}

#[test]
fn the_samples_are_jobs_that_the_operator_takes() {
    let mut found = 0;
    for file in files("samples") {
        let text = std::fs::read_to_string(&file).expect("a file");
        for object in objects(&text).into_iter().filter(|object| object["kind"] == "TrainingJob") {
            let name = file.display();
            let mut resource: TrainingJob =
                serde_json::from_value(object).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(validate_cel(&resource).is_ok(), "{name}: {:?}", validate_cel(&resource).err());
            resource.metadata.namespace.get_or_insert("default".to_string());
            let job = Job::from_resource(&resource).expect("a job");
            let inline = job.spec.experiment.inline.clone().expect("an experiment");
            let text = salamander_core::yaml::to_yaml(&inline);
            experiment::in_force(&text, &job, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
            for role in [PodRole::Worker, PodRole::Ps] {
                let pod = MemberPod::first(&job, role).build();
                pod.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            found += 1;
        }
    }
    assert!(found >= 3, "MNIST, DeepFM and a GPU");
}

#[test]
fn the_operator_may_do_what_it_does_and_what_it_grants() {
    let text = std::fs::read_to_string(Path::new(DEPLOY).join("base/rbac.yaml")).expect("a file");
    let roles: Vec<Value> = objects(&text);
    let cluster = roles.iter().find(|object| object["kind"] == "ClusterRole").expect("a role");
    let may = |group: &str, resource: &str, verb: &str| {
        let has = |list: &Value, word: &str| {
            list.as_array().is_some_and(|all| all.iter().any(|item| item == word))
        };
        let rules = cluster["rules"].as_array().expect("rules");
        rules.iter().any(|rule| {
            has(&rule["apiGroups"], group)
                && has(&rule["resources"], resource)
                && has(&rule["verbs"], verb)
        })
    };
    // Kubernetes lets nobody grant rights that he does not have.
    let owner = k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference::default();
    let role = salamander_kube::objects::role(&all_jobs()[0], Some(&owner));
    let words = |list: &Value| -> Vec<String> {
        let all = list.as_array().expect("a list").iter();
        all.map(|word| word.as_str().expect("a word").to_string()).collect()
    };
    for rule in role["rules"].as_array().expect("rules") {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    assert!(may(&group, &resource, &verb), "{verb} {resource}.{group}");
                }
            }
        }
    }
    let needed = [
        ("salamander.dev", "trainingjobs", &["get", "list", "watch", "patch", "delete"][..]),
        ("salamander.dev", "trainingjobs/status", &["patch"]),
        ("", "configmaps", &["get", "create"]),
        ("", "secrets", &["create"]),
        ("", "persistentvolumeclaims", &["get", "create"]),
        ("scheduling.x-k8s.io", "podgroups", &["get", "create", "patch"]),
        ("scheduling.volcano.sh", "podgroups", &["get", "create", "patch"]),
        ("policy", "poddisruptionbudgets", &["get", "create", "patch"]),
        ("", "services", &["create", "patch"]),
        ("", "serviceaccounts", &["create", "patch"]),
        ("rbac.authorization.k8s.io", "roles", &["create", "patch"]),
        ("rbac.authorization.k8s.io", "rolebindings", &["create", "patch"]),
        ("networking.k8s.io", "networkpolicies", &["create", "patch"]),
    ];
    for (group, resource, verbs) in needed {
        assert!(verbs.iter().all(|verb| may(group, resource, verb)), "{resource}.{group}");
    }
    assert!(!cluster.to_string().contains("\"*\""), "no stars");
}
