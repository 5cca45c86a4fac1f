//! Jobs that no operator looks after, on a cluster whose Job controller and garbage collector do what real ones do.

use std::time::Duration;

use salamander_kube::client::Jobs;
use salamander_kube::job::Job;
use salamander_kube::manifest::Manifest;
use salamander_kube::secrets::Secrets;
use serde_json::{Value, json};

use fake_cluster::{BATCH_JOBS, CLAIMS, Cluster, Key, NAMESPACE, PODS, job, wait_until};

const EXPERIMENT: &str = "entrypoint: mnist\ndata: {training: /data/train.recordio}\n";

fn with_claim() -> Job {
    let storage = json!({"storage": {"hostPath": null, "size": "1Gi"}});
    Job::from_resource(&job("j", (1, 2), storage)).expect("a job")
}

/// Where `kubectl apply` puts an object.
fn place(object: &Value) -> Key {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (version, kind) = (version.expect("a version"), kind.expect("a kind").to_lowercase());
    let plural =
        if kind == "networkpolicy" { "networkpolicies".into() } else { format!("{kind}s") };
    let prefix = if version.contains('/') { "apis" } else { "api" };
    let name = object["metadata"]["name"].as_str().expect("a name");
    (format!("/{prefix}/{version}/{plural}"), NAMESPACE.to_string(), name.to_string())
}

/// As `kubectl apply --server-side` does.
fn apply(cluster: &Cluster, secrets: &Secrets) -> Vec<Key> {
    let manifest = Manifest::new(&with_claim(), EXPERIMENT, secrets).expect("made");
    let apply = |object: &Value| {
        let key = place(object);
        let how = ("kubectl", false, false);
        cluster.server.store().apply(key.clone(), object, how).expect("applied");
        key
    };
    manifest.objects().iter().map(apply).collect()
}

#[test]
fn workers_of_a_manifest_stay_its_own_when_its_master_is_replaced_and_go_with_it() {
    let cluster = Cluster::start();
    let secrets = Secrets::random().expect("randomness");
    let objects = apply(&cluster, &secrets);
    cluster.wait_for_members("j", 2);
    let before = cluster.workers("j");
    let owners = || {
        let workers = before.iter().filter_map(|name| cluster.get(PODS, name));
        workers.map(|pod| pod["metadata"]["ownerReferences"][0].clone()).collect::<Vec<Value>>()
    };
    let uid = cluster.get(BATCH_JOBS, "j").expect("there")["metadata"]["uid"].clone();
    let owned = |owner: &Value| owner["uid"] == uid && owner["controller"].is_null();
    assert!(owners().iter().all(owned), "the Job controller takes them away: {:?}", owners());

    let master = cluster.pods("j", "master").remove(0).name;
    cluster.delete(PODS, &master);
    wait_until("another master leads the same workers", || {
        let now = cluster.progress("j");
        let masters = cluster.pods("j", "master");
        masters.iter().any(|pod| pod.name != master) && now.workers == 2 && now.pending == 0
    });
    assert_eq!(cluster.workers("j"), before, "no worker was started again");

    let victim = before[0].clone();
    cluster.server.kubelet.kill(&cluster.pod_key(&victim));
    wait_until("a killed worker is replaced", || {
        let now = cluster.workers("j");
        now.len() == 2 && !now.contains(&victim)
    });
    cluster.wait_for_members("j", 2);

    wait_until("all that was applied belongs to the job", || {
        let others = objects.iter().filter(|key| key.0 != BATCH_JOBS);
        let owned = |key: &Key| {
            let object = cluster.get(&key.0, &key.2).expect("there");
            object["metadata"]["ownerReferences"][0]["uid"] == uid
        };
        others.into_iter().all(owned)
    });
    cluster.delete(BATCH_JOBS, "j");
    wait_until("nothing is left", || {
        objects.iter().all(|key| cluster.get(&key.0, &key.2).is_none())
            && cluster.list(PODS).is_empty()
            && cluster.server.kubelet.running() == 0
    });
    assert!(cluster.list(CLAIMS).is_empty(), "its claim went with it");
}

#[test]
fn a_manifest_can_be_applied_again_with_the_secrets_that_were_kept() {
    let cluster = Cluster::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ml").join("j");
    let kept = || Secrets::kept(&file).expect("kept");
    apply(&cluster, &kept());
    cluster.wait_for_members("j", 2);
    let before = cluster.workers("j");
    apply(&cluster, &kept());
    assert_eq!(cluster.workers("j"), before);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600, "nobody else may read it");
    std::fs::write(&file, "{}").expect("written");
    let error = Secrets::kept(&file).expect_err("broken").to_string();
    assert!(error.contains("ml/j") && error.contains("has no ca.crt"), "{error}");
    let jobs = Jobs::new(cluster.client(), NAMESPACE);
    cluster.tell_containers("j", "finish");
    let end = cluster.runtime.block_on(jobs.follow("j", Duration::from_millis(50), |_| {}));
    assert_eq!(end.expect("followed"), salamander_core::elastic::Ending::Completed);
}
