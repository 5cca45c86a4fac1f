//! Objects of strangers that have the names a job would use: they are never touched, and the job says what is in its
//! way.

use serde_json::{Value, json};

use fake_cluster::{CLAIMS, Cluster, JOBS, Operator, PODS, job, wait_until};

const SERVICES: &str = "/api/v1/services";
const MAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";

fn message(cluster: &Cluster, job: &str) -> String {
    let status = cluster.get(JOBS, job).expect("there")["status"].clone();
    status["message"].as_str().unwrap_or_default().to_string()
}

#[test]
fn objects_of_strangers_are_neither_changed_nor_deleted_and_the_status_says_so() {
    let foreign = [
        ("/api/v1/serviceaccounts", "j-master", "ServiceAccount"),
        ("/apis/rbac.authorization.k8s.io/v1/roles", "j-master", "Role"),
        ("/apis/networking.k8s.io/v1/networkpolicies", "j", "NetworkPolicy"),
        (SERVICES, "j-master", "Service"),
        (CLAIMS, "j-runs", "PersistentVolumeClaim"),
        (MAPS, "j-config", "ConfigMap"),
    ];
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    for (resource, name, _) in foreign {
        cluster.put(resource, name, json!({"metadata": {}, "theirs": true}));
    }
    let before: Vec<Value> =
        foreign.iter().map(|(kind, name, _)| cluster.get(kind, name).expect("there")).collect();
    cluster.submit(&job("j", (1, 1), json!({"storage": {"hostPath": null, "size": "1Gi"}})));
    for (at, (resource, name, kind)) in foreign.into_iter().enumerate() {
        let told = format!("the {kind} {name:?} is there already and is not of this job");
        wait_until("it says what is in its way", || message(&cluster, "j").contains(&told));
        assert_eq!(cluster.phase("j"), "Blocked");
        assert_eq!(cluster.get(resource, name).as_ref(), Some(&before[at]), "untouched");
        cluster.delete(resource, name);
    }
    cluster.wait_for_members("j", 1);
    wait_until("people are warned", || {
        let events = cluster.list("/apis/events.k8s.io/v1/events");
        events.iter().any(|event| event["reason"] == "Blocked")
    });
}

#[test]
fn what_was_there_before_a_job_is_there_after_it() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let theirs = json!({"metadata": {}, "stringData": {"token": "theirs"}});
    cluster.put(SECRETS, "j-token", theirs);
    cluster.put(SERVICES, "j-master", json!({"metadata": {}, "spec": {"ports": [1]}}));
    let kept = cluster.get(SERVICES, "j-master");
    cluster.submit(&job("j", (1, 1), json!({})));
    wait_until("it is in its way", || cluster.phase("j") == "Blocked");
    assert!(cluster.list(PODS).is_empty(), "nothing runs");
    cluster.delete(JOBS, "j");
    wait_until("what the job made is gone", || {
        cluster.list("/api/v1/serviceaccounts").is_empty() && cluster.list(JOBS).is_empty()
    });
    assert_eq!(cluster.get(SERVICES, "j-master"), kept);
    cluster.delete(SERVICES, "j-master");
    cluster.submit(&job("j", (1, 1), json!({})));
    cluster.wait_for_members("j", 1);
    let master = cluster.pods("j", "master").remove(0).name;
    let master = cluster.get(PODS, &master).expect("there").to_string();
    assert!(!master.contains("\"j-token\""), "a secret of its own: {master}");
    assert_eq!(cluster.get(SECRETS, "j-token").expect("kept")["stringData"]["token"], "theirs");
    cluster.delete(JOBS, "j");
    wait_until("its own secret is gone", || cluster.list(SECRETS).len() == 1);
    assert!(cluster.get(SECRETS, "j-token").is_some());
}

#[test]
fn a_claim_that_is_still_leaving_is_waited_for_and_the_job_begins_when_it_is_gone() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let storage = json!({"storage": {"hostPath": null, "size": "1Gi"}});
    cluster.submit(&job("j", (1, 1), storage.clone()));
    cluster.wait_for_members("j", 1);
    // A pod of somebody else that looks at the job's files.
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "j-runs"}}]);
    cluster.server.kubelet.set_capacity(&cluster.server, 2);
    cluster.put(PODS, "looker", json!({"metadata": {}, "spec": {"volumes": volumes}}));
    cluster.delete(JOBS, "j");
    wait_until("only the claim is left", || {
        cluster.pods("j", "master").is_empty() && cluster.list(MAPS).is_empty()
    });
    cluster.submit(&job("j", (1, 1), storage));
    wait_until("it waits", || {
        message(&cluster, "j").contains("\"j-runs\" of an earlier job is still being deleted")
    });
    assert!(cluster.pods("j", "master").is_empty(), "no pod mounts a claim that leaves");
    cluster.delete(PODS, "looker");
    cluster.wait_for_members("j", 1);
    let claim = cluster.get(CLAIMS, "j-runs").expect("made");
    assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
}
